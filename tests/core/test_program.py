"""Capture, the memory plan and the printed form of programs."""

from __future__ import annotations

import importlib
from itertools import combinations

import numpy as np
import pytest

from halfbyte.core import ops
from halfbyte.core.backends import open_program
from halfbyte.core.buffer import Kind
from halfbyte.core.passes import optimize, plan_memory, quantize_activations
from halfbyte.core.program import Program, capture
from halfbyte.errors import ProgramError
from halfbyte.weights import Q4_0, Tensor


def matrix(rows: int, columns: int, name: str = "w") -> Tensor:
    values = np.random.default_rng(0).standard_normal((rows, columns), np.float32)
    return Tensor(name, Q4_0, (rows, columns), Q4_0.encode(values).reshape(-1))


def chain(length: int) -> Program:
    """Two products of one input, then a chain of activations, so that memory can be reused."""
    with capture("chain") as program:
        n = program.size("n", 8)
        x = program.input("x", "f32", (n, 64))
        y = ops.add(ops.matmul(x, program.weight(matrix(96, 64))),
                    ops.matmul(x, program.weight(matrix(96, 64, "v"))))  # fmt: skip
        for _ in range(length):
            y = ops.silu(y)
        program.output("y", y)
    return program


def test_capture_records_shapes_and_sizes() -> None:
    program = chain(1)
    assert [i.operator.onnx for i in program.instructions] == ["MatMul", "MatMul", "Add", "Swish"]
    assert program.outputs["y"].shape == (program.sizes["n"], 96)
    assert program.outputs["y"].kind is Kind.OUTPUT


@pytest.mark.parametrize(
    ("shape", "dtype", "message"),
    [
        ((4, 65), "f32", "matmul: operand 'w' .*expected k = 65, found 64"),
        ((4, 64), "i32", "matmul: operand 'x' .*expected f32"),
        ((4, 64, 1), "f32", "matmul: operand 'x' .*expected 2 dimensions"),
    ],
)
def test_operators_refuse_operands_that_do_not_fit(
    shape: tuple[int, ...], dtype: str, message: str
) -> None:
    with capture("bad") as program, pytest.raises(ProgramError, match=message):
        ops.matmul(program.input("x", dtype, shape), program.weight(matrix(8, 64)))


def test_operators_refuse_wrong_attributes_and_places() -> None:
    with capture("bad") as program:
        x = program.input("x", "f32", (2, 48))
        with pytest.raises(ProgramError, match=r"expected operands .*'epsilon'"):
            ops.rms_norm(x, x)
        with pytest.raises(ProgramError, match="48 is not a multiple of 32"):
            ops.dynamic_quantize(x)
        with pytest.raises(ProgramError, match="expected a buffer, found ndarray"):
            ops.add(x, np.zeros((2, 48), np.float32))
    with pytest.raises(ProgramError, match="only inside"):
        ops.silu(x)


def test_activations_are_quantized_once_per_input() -> None:
    program = quantize_activations(chain(0))
    names = [i.operator.name for i in program.instructions]
    assert names == ["dynamic_quantize", "matmul_int8", "matmul_int8", "add"]
    assert program.instructions[-1].outputs[0] is program.outputs["y"]


@pytest.mark.parametrize("length", [1, 5, 20])
def test_plan_shares_memory_and_never_while_alive(length: int) -> None:
    program = plan_memory(quantize_activations(chain(length)))
    lives: dict[object, list[int]] = {}
    for number, instruction in enumerate(program.instructions):
        for buffer in (*instruction.inputs, *instruction.outputs):
            if buffer.kind is Kind.SCRATCH:
                lives.setdefault(buffer, []).append(number)
    assert set(lives) == set(program.places)
    spans = [
        (program.places[b], program.places[b] + b.nbytes, min(at), max(at))
        for b, at in lives.items()
    ]
    for one in spans:
        for other in spans:
            alive_together = one is not other and one[2] <= other[3] and other[2] <= one[3]
            apart = one[1] <= other[0] or other[1] <= one[0]
            assert apart or not alive_together
    assert program.arena_bytes < sum(b.nbytes for b in lives) or length == 0
    assert program.arena_bytes == plan_memory(quantize_activations(chain(20))).arena_bytes


def test_dump_shows_instructions_places_and_bytes() -> None:
    program = chain(1)
    before, after = program.dump(), optimize(program).dump()
    assert "program chain(n≤8): 4 instructions" in before
    assert "MatMul(x, w)" in before
    assert "@" not in before
    assert "f32[n≤8, 96] 3,072 B = Swish(" in before
    assert "MatMulNBits(" in after
    assert "@0 " in after
    assert "bytes: weight 6,912" in after


def test_bytes_moved_counts_touched_rows_only() -> None:
    with capture("gather") as program:
        ids = program.input("ids", "i32", (program.size("n", 8),))
        program.output("y", ops.gather(program.weight(matrix(1000, 64)), ids))
    (instruction,) = program.instructions
    assert instruction.bytes_moved({"n": 2}) == 2 * (4 + 36 + 256)


def test_a_strided_copy_reads_each_number_once_or_repeats_them() -> None:
    with capture("copies") as program:
        x = program.input("x", "i32", (12,))
        for repeated in (1, 3):
            plan = program.constant("plan", np.array([1, 1, repeated, 3, 0, 0, 0, 4], np.int32))
            ops.move(x, plan, n=12 * repeated, d=4, step=1, offset=0)
    moved = [instruction.bytes_moved({}) for instruction in program.instructions]
    assert moved == [4 * (12 + 12), 4 * (36 + 36)]


def test_very_many_buffers_share_memory_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Buffers placed in the order of lifetimes do not overlap, and take little more memory."""
    program = plan_memory(quantize_activations(chain(20)))
    module = importlib.import_module("halfbyte.core.passes.plan_memory")
    monkeypatch.setattr(module, "MAX_BY_SIZE", 1)
    planned = plan_memory(program)
    lives = module.lifetimes(planned.instructions)
    assert planned.arena_bytes <= 1.25 * program.arena_bytes
    for one, other in combinations(planned.places.items(), 2):
        together = lives[one[0]].first <= lives[other[0]].last
        together = together and lives[other[0]].first <= lives[one[0]].last
        apart = one[1] + one[0].nbytes <= other[1] or other[1] + other[0].nbytes <= one[1]
        assert apart or not together


def test_gaps_join() -> None:
    arena = importlib.import_module("halfbyte.core.passes.plan_memory")._Arena()
    first, second, third = (arena.take(64) for _ in range(3))
    arena.free(first, 64)
    arena.free(third, 64)
    arena.free(second, 64)
    assert (arena.take(192), arena.nbytes) == (0, 192)


@pytest.mark.parametrize("backend", ["numpy", "native"])
def test_a_size_may_follow_from_others(backend: str) -> None:
    with capture("last") as program:
        n, rows, position = (program.size(name, 8) for name in ("n", "rows", "position"))
        last = program.sum_size("last", 8, (position, n), (rows,))
        ids = program.input("ids", "i32", (n,))
        program.output("y", ops.range_from(ids.part(0, (rows,)), start=last, step=2))
    executable = open_program(program, backend)
    executable.run({"n": 5, "rows": 3, "position": 2})
    np.testing.assert_array_equal(executable.array(program.outputs["y"])[:3], [4, 6, 8])
    if backend == "native":
        with pytest.raises(ProgramError, match="last = 9, expected 0 to 8"):
            executable.run({"n": 5, "rows": 3, "position": 7})
    executable.close()
