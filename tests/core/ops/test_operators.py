"""Every backend against the operators' NumPy meaning, on the cases of `cases.py`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from tests.core.ops.cases import Case, all_cases
from tests.support import wasm
from tests.support.tools import until

from halfbyte.core import ops
from halfbyte.core.backends import memory, native, open_program
from halfbyte.core.backends.libraries import library
from halfbyte.core.buffer import Buffer
from halfbyte.core.dtypes import DTYPES
from halfbyte.core.ops.operator import OPERATORS
from halfbyte.core.ops.reduce import REDUCTIONS
from halfbyte.core.passes import plan_memory
from halfbyte.core.program import Program, capture
from halfbyte.weights import Tensor

CASES = all_cases()
GUARD = 256  # bytes of sentinel on both sides of every array
SENTINEL = 0xA5
INFINITE = b"\x00\x7c" + bytes(range(1, 33))  # a block of Q8_0


class Guarded:
    """Memory for a program with sentinels around what kernels write."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, sentinel: int = SENTINEL) -> None:
        self.blocks: list[npt.NDArray[np.uint8]] = []
        self.sentinel = sentinel
        monkeypatch.setattr(native, "allocate", self.allocate)

    def allocate(
        self, program: Program, reachable: memory.Memory
    ) -> dict[Buffer, npt.NDArray[Any]]:
        arrays = memory.allocate(program, reachable)
        for buffer, array in arrays.items():
            if buffer.value is None:
                raw = reachable.aligned(array.nbytes + 2 * GUARD)
                raw[:] = self.sentinel
                arrays[buffer] = raw[GUARD : GUARD + array.nbytes].view(array.dtype)
                arrays[buffer] = arrays[buffer].reshape(array.shape)
                self.blocks.append(raw)
        return arrays

    def check(self) -> None:
        """Of all arrays since the last call."""
        assert self.blocks
        for raw in map(np.asarray, self.blocks):
            assert (raw[:GUARD] == self.sentinel).all(), "written before an array"
            assert (raw[-GUARD:] == self.sentinel).all(), "written after an array"
        self.blocks.clear()


def captured(case: Case) -> tuple[Program, dict[str, Buffer], list[Buffer]]:
    """A program with only this case, and the buffers of its operands and results."""
    in_place = {o.name for o in case.operator.outputs}
    with capture(case.label) as program:
        buffers: dict[str, Any] = {}
        for name, value in case.operands.items():
            if isinstance(value, Tensor):
                buffers[name] = program.weight(value)
            elif value is None:
                buffers[name] = None
            elif name == "plan":
                buffers[name] = program.constant(name, value)
            else:
                make = program.state if name in in_place else program.input
                buffers[name] = make(name, *kind(case, name, value))
        results = case.operator(*buffers.values(), **case.attributes)
    return program, buffers, list(results if isinstance(results, tuple) else (results,))


def kind(case: Case, name: str, value: npt.NDArray[Any]) -> tuple[str, tuple[int, ...]]:
    """Type and shape of an operand's buffer; bytes for ``*`` are a cache in Q8_0, except images."""
    operand = next(o for o in case.operator.inputs if o.name == name)
    if value.dtype != np.uint8 or operand.dtype != "*" or name in ("x", "z"):
        return next(k for k, d in DTYPES.items() if d == value.dtype), value.shape
    *outer, row_bytes = value.shape
    together = tuple(map(int, operand.dims[3:]))  # 16, of keys
    return "q8_0", (*outer, row_bytes // 34 * 32 // int(np.prod(together)), *together)


def run(case: Case, backend: str, threads: int = 1) -> list[npt.NDArray[Any]]:
    """Results of the case on a backend."""
    program, buffers, results = captured(case)
    planned = plan_memory(program)
    if backend.startswith("wasm-"):
        executable: Any = wasm.opener(backend.removeprefix("wasm-"))(planned)
    else:
        executable = open_program(planned, backend, threads)
    if threads > 1:  # a helper that is late takes no part
        pool = executable._pool
        pool.wake()
        until(lambda: pool._announce(pool.address) == threads - 1)
    for name, value in case.operands.items():
        if isinstance(value, np.ndarray) and buffers[name].value is None:
            executable.array(buffers[name])[...] = value
    executable.run({})
    values = [executable.array(buffer).copy() for buffer in results]
    executable.close()  # which gives memory back
    return values


def offering(case: Case, backends: list[str]) -> list[str]:
    """The backends that have the case's kernels: one file has only those of language models."""
    program, _, _ = captured(case)
    needed = {i.operator.kernel(i) for i in program.instructions if not i.operator.host}
    if needed <= wasm.kernels("relaxed64"):
        return backends
    return [name for name in backends if name != "wasm-relaxed64"]


@contextmanager
def naming(backend: str) -> Iterator[None]:
    """A failure tells the backend."""
    try:
        yield
    except Exception as error:
        error.add_note(f"on {backend}")
        raise


def assert_close(case: Case, results: list[npt.NDArray[Any]]) -> None:
    expected = case.expected()
    bounds = case.bound if isinstance(case.bound, tuple) else [case.bound] * len(expected)
    for reference, result, bound in zip(expected, results, bounds, strict=True):
        assert result.dtype == reference.dtype
        assert result.shape == reference.shape
        if bound is None:
            np.testing.assert_array_equal(result, reference)
        else:
            off = np.abs(result.astype(np.float64) - reference)
            assert np.isfinite(result).all()
            worst = np.unravel_index((off - bound).argmax(), off.shape)
            assert (off <= bound).all(), f"{worst}: {result[worst]} for {reference[worst]}"


@pytest.mark.parametrize("case", CASES, ids=lambda c: f"{c.operator.name}-{c.label}")
def test_operator(
    case: Case, compiled_backends: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As NumPy defines it, and with the same bits on all tables, except where FMA may be used."""
    assert_close(case, run(case, "numpy"))
    guarded = Guarded(monkeypatch)
    first = None
    for backend in offering(case, compiled_backends):
        with naming(backend):
            results = run(case, backend)
            assert_close(case, results)
            guarded.check()
            first = results if first is None else first
            for want, got in zip(() if case.fused else first, results, strict=False):
                np.testing.assert_array_equal(got.view(np.uint8), want.view(np.uint8))


def test_tables_agree_on_values_that_are_not_finite(compiled_backends: list[str]) -> None:
    """At any position in a block; NumPy does not define its quantized value."""
    x = np.linspace(-1, 1, 64 * 32, dtype=np.float32).reshape(64, 32)
    x[np.arange(64), np.arange(64) % 32] = np.repeat(np.array([np.nan, np.inf], np.float32), 32)
    case = Case("not finite", ops.dynamic_quantize, {"x": x})
    first, *others = [run(case, name) for name in compiled_backends]
    for other in others:
        for want, got in zip(first, other, strict=True):
            np.testing.assert_array_equal(got.view(np.uint8), want.view(np.uint8))


def spoilt(*shape: int) -> npt.NDArray[np.float32]:
    """Numbers with infinities, and one NaN in each row of the first dimension."""
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    x[::2, 1::5], x[1::2, 1::5] = np.inf, -np.inf
    rows = x.reshape(len(x), shape[1], -1)
    rows[np.arange(len(x)), np.arange(len(x)) % shape[1], 0] = np.nan
    return x


@pytest.mark.parametrize("function", REDUCTIONS)
def test_reductions_keep_nan(function: str, compiled_backends: list[str]) -> None:
    """A NaN at any position, and in no other result: along rows, at their ends, and across them."""
    for shape in ((37, 37, 1), (3, 16, 1), (1, 1, 1), (5, 5, 37), (2, 3, 4)):
        case = Case("spoilt", ops.reduce, {"x": spoilt(*shape)}, {"function": function})
        (expected,) = case.expected()
        assert np.isnan(expected[:, 0]).all()
        for backend in offering(case, compiled_backends):
            (result,) = run(case, backend)
            same = np.isfinite(expected)
            np.testing.assert_array_equal(result[~same], expected[~same], f"{backend} {shape}")
            np.testing.assert_allclose(result[same], expected[same], rtol=1e-5, atol=1e-5)


def test_pools_keep_nan(compiled_backends: list[str]) -> None:
    """A NaN is in the result of each window that contains it, but not of one with infinities."""
    x = np.random.default_rng(1).standard_normal((1, 5, 6, 85)).astype(np.float32)
    x[0, 2, 3, ::3] = np.nan
    x[0, 0, :2, 0] = np.inf, -np.inf
    window = dict.fromkeys(("p", "q", "kernel_h", "kernel_w", "stride_h", "stride_w"), 2)
    window |= {"dilation_h": 1, "dilation_w": 1, "top": 0, "left": 0}
    case = Case("spoilt", ops.max_pool, {"x": x}, window)
    (want,) = case.expected()
    assert np.isnan(want).sum() == 29
    for backend in offering(case, compiled_backends):
        np.testing.assert_array_equal(run(case, backend)[0], want, backend)


def test_a_value_spoils_no_earlier_row(compiled_backends: list[str]) -> None:
    """The second token's value may be infinite: the first one's result is the same to the bit."""
    seen = set()
    for case in CASES:
        if case.operator is not ops.group_query_attention or len(case.operands["q"]) != 5:
            continue
        v = case.operands["v"].copy()
        row = v[:, case.attributes["position"] + 1]
        codes = np.tile(np.frombuffer(INFINITE, np.uint8), row.shape[1] // len(INFINITE))
        row[...] = codes if v.dtype == np.uint8 else np.inf
        spoilt = Case(case.label, case.operator, {**case.operands, "v": v}, case.attributes)
        for backend in compiled_backends:
            (expected,), (result,) = run(case, backend), run(spoilt, backend)
            np.testing.assert_array_equal(result[0], expected[0])
            assert not np.isfinite(result[1:]).any()
        seen.add(v.dtype)
    assert len(seen) == 3


PARALLEL = (
    "matmul", "matmul_int8", "matmul_experts", "matmul_experts_int8", "matmul_rotated",
    "matmul_widened", "matmul_quantized", "quantize_tensor", "tensor_range", "rms_norm",
    "group_query_attention", "add", "mul", "causal_conv", "selective_scan",
    "generalized_delta_rule", "recurrent_layer",
)  # fmt: skip


@pytest.mark.parametrize("name", PARALLEL)
def test_results_do_not_depend_on_threads(name: str, native_backends: list[str]) -> None:
    """Of operators with hundreds of cases, a sample; the next test has them all."""
    cases = [c for c in CASES if c.operator.name == name]
    step = 7 if len(cases) > 400 else 1  # prime to the periods of sizes and types
    assert_threads_agree(cases[::step], native_backends)


@pytest.mark.long
def test_no_results_depend_on_threads(native_backends: list[str]) -> None:
    cases = [c for c in CASES if c.operator.name in PARALLEL]
    assert_threads_agree(cases, native_backends)


def assert_threads_agree(cases: list[Case], backends: list[str]) -> None:
    assert cases
    for backend in backends:
        for case in cases:
            single, shared = run(case, backend), run(case, backend, threads=2)
            np.testing.assert_array_equal(shared[0], single[0])


def one_flipped(case: Case, w: Tensor) -> Case:
    """The case with a bit flipped in the first byte of the last block, from the tenth on, that
    its bound notices: a scale may be zero, and an expert may have no rows."""
    for byte in range(9, w.format.block_bytes):
        data = w.data.copy()
        data.reshape(-1, w.format.block_bytes)[-1, byte] ^= 0x40
        changed = {**case.operands, "w": Tensor("w", w.format, w.shape, data)}
        broken = Case(case.label, case.operator, changed, case.attributes)
        try:
            assert_close(case, broken.expected())
        except AssertionError:
            return broken
    return case


def test_bounds_notice_one_wrong_integer(native_backends: list[str]) -> None:
    """One flipped bit of one quantized weight exceeds the bound of its case."""
    noticed = unused = 0
    for case in CASES:
        w = case.operands.get("w")
        if not isinstance(w, Tensor) or w.format.block == 1 or case.operator is ops.gather:
            continue
        broken = one_flipped(case, w)
        if broken is case:
            unused += 1
            continue
        with pytest.raises(AssertionError):
            assert_close(case, run(broken, native_backends[0]))
        noticed += 1
    assert noticed > 20
    assert unused < noticed / 20


def test_every_operator_has_cases() -> None:
    assert {case.operator.name for case in CASES} == set(OPERATORS)


def test_lists_agree(native_backends: list[str]) -> None:
    """A kernel's fields are exactly the operands, dimensions and attributes of its operator."""
    assert native_backends
    reached = set()
    for case in CASES:
        program, _, _ = captured(case)
        (instruction,) = program.instructions
        kernel = library().kernels[case.operator.kernel(instruction)]
        reached.add(kernel.name)
        values = {**instruction.attributes, **instruction.dims}
        if (called := case.operator.called(instruction)) is not None:
            assert called[0] in library().kernels
            values |= dict.fromkeys(("kernel", "size"))
        for field in kernel.fields:
            if field.kind not in ("in", "out"):
                assert field.name in values, kernel.name
        names = {f.name for f in kernel.fields}
        assert names >= set(instruction.operands), kernel.name
        missing = {f.name for f in kernel.fields if f.kind == "in"} - set(instruction.operands)
        assert missing <= {o.name for o in case.operator.inputs if o.optional}, kernel.name
    starts = ("encode_", "pack_", "convert_")
    tools = {n for n in library().kernels if n.startswith(starts)} - reached
    assert tools
    others = {"square_error", "column_energy", "memory_read", "dot_peak"}
    assert reached | tools | others == set(library().kernels)
