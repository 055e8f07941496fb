"""Operands that do not fit each other are refused, or the result is that of the meaning.

Each dimension of each operand of every operator, and each of its integers, is changed to one less,
one more, zero and a thousand times as much. NaN surrounds the memory that kernels read;
`test_sanitizers` runs this under AddressSanitizer too.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from tests.conftest import BACKENDS, EMULATED
from tests.core.ops.cases import Case
from tests.core.ops.test_operators import CASES, Guarded, captured, offering, run
from tests.support.sampled import often

from halfbyte.core import ops
from halfbyte.core.ops.operator import OPERATORS
from halfbyte.core.program import Program, capture
from halfbyte.errors import HalfbyteError, ProgramError
from halfbyte.weights import Tensor

EACH = 4  # cases of an operator, chosen to differ
MAX_ELEMENTS = 1 << 16  # elements of a changed operand
WORK = 1e7  # arithmetic operations of a changed instruction
SPOILT = 0xFF  # bytes around operands: NaN, or -1
# Others that are tested each time read memory nearly in the same way.
NEARLY = {*EMULATED, "wasm-simd128", "wasm-relaxed64"}
# Only memory is checked: with fewer columns the padding of weights to fours is no longer zero, and
# limits are those of another integer type.
FILLED = {
    "matmul_quantized": ("x[1] = ",), "conv2d_quantized": ("x[3] = ", "lo = ", "hi = "),
    "attention_texts": ("blocks[0] = ", "w = "), "attention_texts_int8": ("blocks[0] = ",),
}  # fmt: skip


@cache
def chosen() -> dict[str, list[Case]]:
    """Small cases of each operator: with few operands and with all, of several types."""
    by_kind: dict[str, dict[Any, list[Case]]] = defaultdict(lambda: defaultdict(list))
    for case in CASES:
        given = {n: v for n, v in case.operands.items() if v is not None}
        kinds = tuple(
            (n, v.format.name if isinstance(v, Tensor) else v.dtype.str) for n, v in given.items()
        )
        by_kind[case.operator.name][kinds].append(case)
    return {
        name: [min(cases, key=_closeness) for cases in kinds.values()][:: -(-len(kinds) // EACH)]
        for name, kinds in by_kind.items()
    }


def _closeness(case: Case) -> int:
    """Distance to a size with more than one of everything, and little to compute."""
    return abs(sum(_size(v) for v in case.operands.values() if v is not None) - 150)


def _size(value: Any) -> int:
    return int(np.prod(value.shape))


def _resized(value: Any, shape: tuple[int, ...]) -> Any:
    """The operand with another shape, its values repeated; None if the format does not have it."""
    if not isinstance(value, Tensor):
        return np.resize(value, shape).astype(value.dtype) if value.size else None
    if shape[-1] % value.format.block or not all(shape):
        return None
    nbytes = int(np.prod(shape[:-1])) * value.format.row_bytes(shape[-1])
    return Tensor(value.name, value.format, shape, np.resize(value.data, nbytes))


def _changed(number: int) -> list[int]:
    return [n for n in dict.fromkeys((number - 1, number + 1, 0, number * 1000)) if n != number]


def mutants(case: Case) -> Iterator[tuple[str, Case]]:
    for name, value in case.operands.items():
        if value is None:
            continue
        as_bytes = (
            isinstance(value, np.ndarray) and name in ("cache", "k", "v") and value.dtype == "u1"
        )
        for axis, n in enumerate(value.shape[: -1 if as_bytes else None]):
            for size in _changed(n):
                shape = (*value.shape[:axis], size, *value.shape[axis + 1 :])
                if size >= 0 and np.prod(shape) <= MAX_ELEMENTS:
                    changed = _resized(value, shape)
                    if changed is not None:
                        operands = {**case.operands, name: changed}
                        yield f"{name}[{axis}] = {size}", replace(case, operands=operands)
    plan = case.operands.get("plan")
    for place in range(0 if plan is None else plan.size):
        for number in (*_changed(int(plan[place])), -1):
            changed = plan.copy()
            changed[place] = number
            yield (
                f"plan[{place}] = {number}",
                replace(case, operands={**case.operands, "plan": changed}),
            )
    for name, value in case.attributes.items():
        if isinstance(value, float) and any(name in demand for demand in case.operator.demands):
            yield f"{name} = -1.0", replace(case, attributes={**case.attributes, name: -1.0})
        if isinstance(value, int) and not isinstance(value, bool):
            for number in (*_changed(value), -1, 2**31 - 1):
                attributes = {**case.attributes, name: number}
                yield f"{name} = {number}", replace(case, attributes=attributes)


def _together(case: Case) -> Iterator[tuple[str, Case]]:
    """Cases with a dimension changed in all operands that have it."""
    given = {o.name: o for o in case.operator.inputs if case.operands.get(o.name) is not None}
    for dim in dict.fromkeys(dim for o in given.values() for dim in o.dims if dim.isidentifier()):
        old = next(
            case.operands[n].shape[o.dims.index(dim)] for n, o in given.items() if dim in o.dims
        )
        for size in _changed(old):
            operands = dict(case.operands)
            for name, operand in given.items():
                shape = zip(operand.dims, case.operands[name].shape, strict=True)
                resized = tuple(size if d == dim else n for d, n in shape)
                if dim in operand.dims and size >= 0 and np.prod(resized) <= MAX_ELEMENTS:
                    operands[name] = _resized(case.operands[name], resized)
            if all(operands[name] is not None for name in given):
                yield f"{dim} = {size}", replace(case, operands=operands)


def _recorded(case: Case) -> Program | None:
    try:
        program, _, _ = captured(case)
    except HalfbyteError:
        return None
    return program


def _near(case: Case, result: Any, expected: Any) -> bool:
    """Whether results differ by no more than rounding and ties can cause."""
    if expected.dtype.kind in "iu":
        off = result.astype(np.int64) - expected.astype(np.int64)
        return bool(np.abs(off).max(initial=0) <= 16)
    first = case.bound[0] if isinstance(case.bound, tuple) else case.bound
    largest = np.abs(expected[np.isfinite(expected)]).max(initial=1)
    bound = 1e-4 * largest + 8 * (0 if first is None else float(np.max(first, initial=0)))
    same = np.isfinite(expected) & np.isfinite(result)
    off = np.abs(np.where(same, result, 0).astype(np.float64) - np.where(same, expected, 0))
    return bool((off <= bound).all() and (same == np.isfinite(expected)).all())


@pytest.mark.parametrize("backend", often(BACKENDS, set(BACKENDS) - NEARLY), indirect=True)
@pytest.mark.parametrize("name", sorted(OPERATORS))
def test_operands_fit_or_are_refused(
    name: str, backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ends: Counter[str] = Counter()
    cases = chosen()[name]
    for case in cases if backend != "numpy" else ():
        if not offering(case, [backend]):
            return
        for label, mutant in mutants(case):
            program = _recorded(mutant)
            if program is None:
                ends["refused"] += 1
                continue
            (instruction,) = program.instructions
            if (
                instruction.operations({}) > WORK
                or sum(b.nbytes for b in program.buffers) > 1 << 24
            ):
                continue
            try:
                with np.errstate(all="ignore"):  # bytes of another shape may be infinite scales
                    wanted = mutant.expected()
            except OverflowError:  # a zero point out of the type's range
                continue
            guarded = Guarded(monkeypatch, SPOILT)
            results = run(mutant, backend)
            guarded.check()
            ends["ran"] += 1
            for result, expected in zip(results, wanted, strict=True):
                assert result.shape == expected.shape, f"{case.label}: {label}"
                filled = label.startswith(FILLED.get(name, ("-",)))
                assert filled or _near(case, result, expected), f"{case.label}: {label}"
    assert backend == "numpy" or ends["refused"] > 0, ends


def test_every_demand_refuses_something() -> None:
    """None is skipped because it reads a name that does not exist."""
    for name, operator in OPERATORS.items():
        unmet = set(operator.demands) - {"a constant plan"}
        for case in (c for c in CASES if c.operator is operator and unmet):
            for _, mutant in (*mutants(case), *_together(case)):
                try:
                    captured(mutant)
                except HalfbyteError as error:
                    unmet -= {words for words in unmet if f"expected {words}" in str(error)}
                if not unmet:
                    break
        assert not unmet, name


def test_plans_are_constants() -> None:
    """A computed plan could point anywhere."""
    with capture("plan") as program:
        x, plan = program.input("x", "i32", (4,)), program.input("plan", "i32", (8,))
        with pytest.raises(ProgramError, match="move: expected a constant plan"):
            ops.move(x, plan, n=4, d=4, step=1, offset=0)
