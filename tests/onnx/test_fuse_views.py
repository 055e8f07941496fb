"""Pairs of instructions in a graph's program that are fused, and those that are not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.core.ops.cases import activations

from halfbyte.core import ops
from halfbyte.core.backends import open_program
from halfbyte.core.buffer import Buffer
from halfbyte.core.passes import plan_memory
from halfbyte.core.program import Program, capture
from halfbyte.onnx.passes import fuse_views

N, D = 5, 64
GAIN = np.linspace(0.5, 2, D, dtype=np.float32)


def plan(outer: int, d: int, x: int, y: int) -> np.ndarray[Any, Any]:
    """A plan of one outer dimension, with its strides."""
    return np.array([1, 1, 1, outer, 0, 0, 0, x, 0, 0, 0, y], np.int32)


def scaled_norm(spoilt: str = "") -> Program:
    """A norm whose result is quantized, and scaled for a residual; `spoilt` prevents the fusion."""
    with capture("p") as program:
        x = program.input("x", "f32", (N, D))
        weight, bias = (program.constant(f"c{i}", activations(i, D)[-1]) for i in (1, 2))
        y = ops.layer_norm(x, weight, bias, epsilon=1e-5)
        xq, xd, xs = ops.dynamic_quantize(y)
        n, flat = N * D, y.view((N * D,))
        gain = program.constant("gain", GAIN)
        shape: dict[str, Any] = {"n": n, "d": D, "x_step": 1, "y_step": 1}
        steps = plan(N, D, D, 0)
        if spoilt == "by rows":
            gain, steps = program.constant("rows", GAIN[:N]), plan(N, D, D, 1)
            shape["y_step"] = 0
        function = "add" if spoilt == "sum" else "mul"
        z = ops.binary(flat, gain, program.constant("plan", steps), function=function, **shape)
        results: list[Buffer] = [z, xq, xd, xs]
        if spoilt == "read":
            results.append(ops.add(y, x))
        if spoilt == "output":
            results.append(y)
        for index, buffer in enumerate(results):
            program.output(f"y{index}", buffer)
    return program


def results(program: Program, backend: str) -> list[bytes]:
    executable = open_program(plan_memory(program), backend)
    executable.array(program.inputs["x"])[...] = activations(N, D)
    executable.run({})
    outputs = [np.asarray(executable.array(b.root)).tobytes() for b in program.outputs.values()]
    executable.close()
    return outputs


def test_a_norm_takes_the_gain_of_its_residual(compiled_backends: list[str]) -> None:
    program = scaled_norm()
    fused = fuse_views(program)
    assert [i.operator for i in fused.instructions] == [ops.layer_norm_quantize]
    assert fused.instructions[0].operands["gain"].value is not None
    for backend in ("numpy", *compiled_backends):
        assert results(fused, backend) == results(program, backend), backend


@pytest.mark.parametrize("spoilt", ["by rows", "sum", "read", "output"])
def test_a_gain_stays_apart(spoilt: str) -> None:
    program = scaled_norm(spoilt)
    fused = fuse_views(program)
    operators = [i.operator for i in fused.instructions]
    assert operators[0] is ops.layer_norm_quantize
    assert ops.binary in operators
    assert "gain" not in fused.instructions[0].operands
    assert results(fused, "native") == results(program, "native")
