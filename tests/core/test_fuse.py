"""Fused instructions: inserted where allowed, and equal to their parts to the bit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from benches.suite.bench_fusions import FUSIONS
from tests.core.ops.cases import activations, weight

from halfbyte.core import ops
from halfbyte.core.backends import open_program
from halfbyte.core.buffer import Buffer, Kind
from halfbyte.core.passes import fuse, plan_memory, quantize_activations
from halfbyte.core.program import Program, capture


def results(program: Program, backend: str) -> list[bytes]:
    """The memory that a run writes: outputs and caches."""
    executable = open_program(plan_memory(program), backend)
    for buffer in program.inputs.values():
        executable.array(buffer)[...] = activations(*executable.array(buffer).shape)
    executable.run({"n": 5, "position": 3})
    kinds = Kind.CACHE, Kind.OUTPUT
    written = [
        np.asarray(executable.array(b)).tobytes() for b in program.buffers if b.kind in kinds
    ]
    executable.close()
    return written


@pytest.mark.parametrize("name", FUSIONS)
def test_fused_and_unfused_agree_to_the_bit(name: str, compiled_backends: list[str]) -> None:
    program = quantize_activations(FUSIONS[name].build(batch=8))
    fused = fuse(program)
    names = {i.operator.name for i in fused.instructions}
    assert FUSIONS[name].makes in names
    assert len(fused.instructions) < len(program.instructions)
    for backend in compiled_backends:
        want, got = results(program, backend), results(fused, backend)
        assert got == want, backend
        assert any(any(content) for content in got)


def built(make: Callable[[Program, Buffer], Any]) -> list[str]:
    """Operators after `fuse` of a program with one input [4, 64]."""
    with capture("p") as program:
        y = make(program, program.input("x", "f32", (4, 64)))
        program.output("y", y)
    return [i.operator.name for i in fuse(program).instructions]


def test_a_result_that_is_used_twice_stays() -> None:
    gain = np.ones(64, np.float32)

    def twice(program: Program, x: Buffer) -> Buffer:
        y = ops.rms_norm(x, program.constant("gain", gain), epsilon=1e-5)
        ops.dynamic_quantize(y)
        return ops.add(y, x)  # type: ignore[no-any-return]

    assert built(twice) == ["rms_norm", "dynamic_quantize", "add"]


def test_an_output_stays() -> None:
    with capture("p") as program:
        x = program.input("x", "f32", (4, 64))
        gate = program.output("gate", ops.silu(x))
        program.output("y", ops.mul(gate, x))
    assert [i.operator.name for i in fuse(program).instructions] == ["silu", "mul"]


def test_repeated_rows_are_not_a_residual() -> None:
    """The product's kernel cannot add one row to all, as for a bias."""
    w, bias = weight("F32", 64, 64), np.ones((1, 64), np.float32)

    def biased(program: Program, x: Buffer) -> Buffer:
        y = ops.matmul(x, program.weight(w))
        return ops.add(y, program.constant("bias", bias))  # type: ignore[no-any-return]

    assert built(biased) == ["matmul", "add"]


def test_a_product_takes_one_residual() -> None:
    w = weight("F32", 64, 64)

    def sums(program: Program, x: Buffer) -> Buffer:
        y = ops.add(x, ops.matmul(x, program.weight(w)))
        return ops.add(x, y)  # type: ignore[no-any-return]

    assert built(sums) == ["matmul", "add"]
