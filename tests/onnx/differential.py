"""Graphs with one change each, run by NumPy definitions, by native programs and by ONNX Runtime.

    python -m tests.onnx.differential --minutes 30 --seed 7

All of them refuse a graph, or all have the same shapes, types and values. Where a lowering rule
declines operands, the definition decides: it accepts them without kernels, or says what is wrong.
`sweep` changes every size, rank, type, value and attribute of the graphs of `lowered_cases` in
turn; `random_cases` changes several at once. `EXCLUSIONS` lists where ONNX Runtime itself differs
from ONNX.
"""

from __future__ import annotations

import argparse
import math
import multiprocessing
import re
import resource
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
import numpy.typing as npt
from tests.onnx.differential_exclusions import EXCLUSIONS, OWN_EXCLUSIONS, Exclusion
from tests.onnx.lowered_cases import OWN, Case, all_cases

from halfbyte.core.backends import open_program
from halfbyte.errors import HalfbyteError
from halfbyte.onnx.evaluate import Evaluator
from halfbyte.onnx.files import open_onnx
from halfbyte.onnx.prepare import prepare
from halfbyte.onnx.runner import Runner

Array = npt.NDArray[Any]
Mutant = tuple[str, Case]  # a change, and the changed case
EPS = float(np.finfo(np.float32).eps)
MAX_ELEMENTS = 1 << 18  # elements of an operand
FEW = 12  # integers in an operand that is changed value by value: axes, shapes, indices
JUDGE_BYTES = 3 << 30
_INTEGERS = (-1, 0, 1, 2, 7, 100, (1 << 31) - 1, 1 << 31, (1 << 63) - 1, -(1 << 63))
_FLOATS = (0.0, -1.0, float("nan"), float("inf"), 1e30, 1e-30)
_TYPES: dict[str, tuple[str, ...]] = {
    "f4": ("f8", "f2", "i4"), "i8": ("i4", "f4"), "i4": ("i8", "f4"), "u1": ("i1", "i4"),
    "i1": ("u1", "i4"), "b1": ("f4",),
}  # fmt: skip


# ---- changes -------------------------------------------------------------------------------------


def resized(array: Array, axis: int, size: int) -> Array:
    """The array with an axis of another size; its elements are repeated."""
    old = array.shape[axis]
    if not old:
        shape = (*array.shape[:axis], size, *array.shape[axis + 1 :])
        return np.ones(shape, array.dtype)
    return np.take(array, np.arange(size) % old, axis)


def _sizes(array: Array) -> Iterator[tuple[str, Array]]:
    """Each size less 1, plus 1, 0, and times a thousand."""
    for axis, n in enumerate(array.shape):
        for size in dict.fromkeys((n - 1, n + 1, 0, n * 1000)):
            if 0 <= size != n and array.size // max(n, 1) * size <= MAX_ELEMENTS:
                yield f"size {axis} = {size}", resized(array, axis, size)


def _ranks(array: Array) -> Iterator[tuple[str, Array]]:
    yield "rank +1 before", array[None]
    yield "rank +1 after", array[..., None]
    if array.ndim:
        yield "rank -1", np.array(array[0]) if len(array) else np.ones(array.shape[1:], array.dtype)
    if array.ndim > 1:
        yield "one axis", array.reshape(-1)
        yield "transposed", np.ascontiguousarray(array.T)
    if array.size:
        yield "scalar", array.reshape(-1)[:1].reshape(())


def _types(array: Array) -> Iterator[tuple[str, Array]]:
    for name in _TYPES.get(array.dtype.str[1:], ()):
        with np.errstate(all="ignore"):
            yield f"type {name}", array.astype(name)


def _values(array: Array) -> Iterator[tuple[str, Array]]:
    kind = array.dtype.kind
    if array.size > (FEW if kind in "iu" else 1):
        return
    for place in range(array.size):
        old = array.reshape(-1)[place].item()
        for value in _integers(old) if kind in "iu" else _FLOATS if kind == "f" else (not old,):
            changed = array.copy()
            try:
                with np.errstate(all="ignore"):
                    changed.reshape(-1)[place] = value
            except OverflowError:
                continue
            yield f"value {place} = {value}", changed


def _integers(old: int) -> list[int]:
    values = dict.fromkeys((old - 1, old + 1, -old, *_INTEGERS))
    return [v for v in values if v != old and -(1 << 63) <= v < 1 << 63]


def operand_mutants(
    case: Case, names: Sequence[str] | None = None, sizes_only: bool = False
) -> Iterator[Mutant]:
    """One change of one operand, of these or of all."""
    for name in case.arrays if names is None else names:
        array = case.arrays[name]
        makers = [_sizes(array)]
        if not sizes_only:
            makers += [_ranks(array), _values(array), _types(array)]
        for maker in makers:
            for label, changed in maker:
                yield f"{name} {label}", replace(case, arrays={**case.arrays, name: changed})
        if not sizes_only:
            others = case.constants ^ {name}
            yield f"{name} known or not", replace(case, constants=others)
            steps = tuple(
                replace(s, inputs=tuple("" if i == name else i for i in s.inputs))
                for s in case.steps
            )
            yield f"{name} left out", replace(case, steps=steps)


def _attribute(value: Any) -> Iterator[Any]:
    if isinstance(value, int):
        yield from _integers(value)
    elif isinstance(value, float):
        yield from _FLOATS
    elif isinstance(value, str):
        yield from ("", "BOGUS", "SAME_UPPER", "VALID", "Relu", "Tanh", "none")
    elif isinstance(value, list):
        yield from ([], value[:-1], [*value, *value[-1:]])
        for place, item in enumerate(value):
            for other in _attribute(item):
                yield [*value[:place], other, *value[place + 1 :]]


def attribute_mutants(case: Case) -> Iterator[Mutant]:
    """One attribute changed or omitted, or one more output."""
    for at, step in enumerate(case.steps):

        def with_step(changed: Any, at: int = at) -> Case:
            return replace(case, steps=(*case.steps[:at], changed, *case.steps[at + 1 :]))

        for name, value in step.attributes.items():
            rest = {n: v for n, v in step.attributes.items() if n != name}
            yield f"{step.operator} without {name}", with_step(replace(step, attributes=rest))
            for other in _attribute(value):
                changed = replace(step, attributes={**rest, name: other})
                yield f"{step.operator} {name} = {other}", with_step(changed)
        more = replace(step, outputs=(*step.outputs, f"more{at}"))
        yield f"{step.operator} one output more", with_step(more)


def mutants(case: Case) -> Iterator[Mutant]:
    """Every single change."""
    yield "", case
    yield "all computed", replace(case, constants=frozenset())
    yield from operand_mutants(case)
    yield from attribute_mutants(case)


def sweep(part: int = 0, parts: int = 1) -> Iterator[Mutant]:
    """Every single change of every case, or one part of them."""
    for number, (label, mutant) in enumerate(
        (f"{case.label}: {label}", mutant)
        for case in all_cases()
        for label, mutant in mutants(case)
    ):
        if number % parts == part and mutant.feeds:
            yield label, mutant


def random_cases(seed: int, maximum: int = 4) -> Iterator[Mutant]:
    """Several changes at once; endless."""
    random = np.random.default_rng(seed)
    cases = all_cases()
    while True:
        mutant = cases[random.integers(len(cases))]
        label = mutant.label
        for _ in range(random.integers(1, maximum + 1)):
            names = [*mutant.arrays, ""]  # an attribute, as often as each operand
            name = names[random.integers(len(names))]
            changes = list(operand_mutants(mutant, [name]) if name else attribute_mutants(mutant))
            change, mutant = changes[random.integers(len(changes))]
            label += f"; {change}"
        if mutant.feeds and all(v.size <= MAX_ELEMENTS for v in mutant.arrays.values()):
            yield label, mutant


# ---- outcomes ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Outcome:
    """Arrays, or the reason of a refusal."""

    arrays: list[Array] | None
    reason: str = ""


def by_definition(data: bytes, feeds: Mapping[str, Array], prepared: bool = False) -> Outcome:
    """The outcome of the definitions, of the graph or of the `prepared` graph."""
    try:
        model = open_onnx(data)
        model = prepare(model) if prepared else model
        return Outcome(list(Evaluator(model).run(feeds).values()))
    except HalfbyteError as error:
        return Outcome(None, str(error))


def by_programs(data: bytes, feeds: Mapping[str, Array], backend: str = "native") -> Outcome:
    """The outcome of programs."""
    try:
        model = prepare(open_onnx(data))
        run = Runner(model, lambda program: open_program(program, backend, 1))
        try:
            return Outcome(list(run.run(feeds, [v.name for v in model.graph.outputs]).values()))
        finally:
            run.close()
    except HalfbyteError as error:
        return Outcome(None, str(error))


def _judge(pipe: Connection) -> None:
    """Run the graphs of a pipe in ONNX Runtime; some graphs kill the process."""
    import onnx
    from tests.onnx.graphs import Net, by_onnxruntime  # noqa: F401

    resource.setrlimit(resource.RLIMIT_AS, (JUDGE_BYTES, JUDGE_BYTES))
    while True:
        data, feeds = pipe.recv()
        try:
            pipe.send((by_onnxruntime(onnx.load_from_string(data), feeds), ""))
        except Exception as error:
            pipe.send((None, str(error)))


class Judge:
    """ONNX Runtime in a process of its own, which is restarted if it dies or hangs."""

    def __init__(self) -> None:
        self._context = multiprocessing.get_context("spawn")
        self._start()

    def _start(self) -> None:
        self._pipe, theirs = self._context.Pipe()
        self._process = self._context.Process(target=_judge, args=(theirs,), daemon=True)
        self._process.start()
        theirs.close()

    def run(self, data: bytes, feeds: Mapping[str, Array]) -> Outcome | None:
        """The outcome; None if there is no answer."""
        try:
            self._pipe.send((data, dict(feeds)))
            if self._pipe.poll(30):
                return Outcome(*self._pipe.recv())
        except (EOFError, OSError):
            pass
        self.close()
        self._start()
        return None

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.join()
        self._pipe.close()


# ---- the verdict ---------------------------------------------------------------------------------


def bounds(case: Case, wanted: Array) -> float:
    """How far floats may differ: by the rounding of each term of a sum over all operands.

    Each product or sum has an error of EPS times its terms, which are at most the product of the
    largest numbers of all operands; quotients by small numbers show in the result.
    """
    terms = max((v.size for v in case.arrays.values()), default=1)
    finite = [np.abs(v[np.isfinite(v)]).max(initial=0) for v in _floats(case)]
    product = math.prod(max(1.0, float(top)) for top in finite)
    top = np.abs(wanted[np.isfinite(wanted)]).max(initial=0)
    largest = max(1.0, float(top), product if case.rounding else 0.0)
    return largest * (EPS * (64 + terms) + case.rounding)


def _floats(case: Case) -> list[Array]:
    return [v for v in case.arrays.values() if v.dtype.kind == "f"]


def difference(case: Case, actual: Outcome, expected: Outcome) -> str:
    """The difference in a word and numbers; '' if there is none."""
    if actual.arrays is None or expected.arrays is None:
        if (actual.arrays is None) == (expected.arrays is None):
            return ""
        return (
            f"refuses: {actual.reason}" if actual.arrays is None else f"accepts: {expected.reason}"
        )
    if len(actual.arrays) != len(expected.arrays):
        return f"outputs: {len(actual.arrays)}, expected {len(expected.arrays)}"
    for ours, theirs in zip(actual.arrays, expected.arrays, strict=True):
        if (ours is None) != (theirs is None):
            return "outputs: only one of two exists"
        if ours is None:
            continue
        if ours.shape != theirs.shape:
            return f"shape: {ours.shape}, expected {theirs.shape}"
        if ours.dtype != theirs.dtype:
            return f"dtype: {ours.dtype}, expected {theirs.dtype}"
        if problem := _apart(case, ours, theirs):
            return f"values: {problem}"
    return ""


def _apart(case: Case, ours: Array, theirs: Array) -> str:
    if ours.dtype.kind in "iu" and ours.dtype.itemsize == 1:  # quantized; ties may differ
        off = np.abs(ours.astype(np.int64) - theirs).max(initial=0)
        return f"{off} steps" if off > 1 else ""
    if ours.dtype.kind != "f":
        return "" if np.array_equal(ours, theirs) else "not equal"
    same = np.isfinite(theirs)
    if not np.array_equal(same, np.isfinite(ours)):
        return "finite elsewhere"
    if not np.array_equal(ours[~same], theirs[~same], equal_nan=True):
        return "not a number elsewhere"
    worst = np.abs(ours[same].astype(np.float64) - theirs[same]).max(initial=0)
    bound = bounds(case, theirs)
    bound *= 2**13 if theirs.dtype == np.float16 else 1
    return f"{worst:.3g} apart, bound {bound:.3g}" if worst > bound else ""


def excluded(label: str, problem: str, known: Sequence[Exclusion]) -> str:
    """The reason why this may differ; '' if it may not."""
    for where, what, reason in known:
        if re.search(where, label) and re.search(what, problem):
            return reason
    return ""


def problems(
    label: str, case: Case, judge: Judge | None, backends: Sequence[str] = ("native",)
) -> Iterator[tuple[str, str]]:
    """Each engine that differs, and the difference."""
    data, feeds = case.proto().SerializeToString(), case.feeds
    expected = by_definition(data, feeds)
    ways = {"prepared": by_definition(data, feeds, prepared=True)}
    ways |= {backend: by_programs(data, feeds, backend) for backend in backends}
    for who, actual in ways.items():
        problem = difference(case, actual, expected)
        if problem and not excluded(label, problem, OWN_EXCLUSIONS):
            yield who, problem
    if judge is None or any(step.domain == OWN for step in case.steps):
        return
    theirs = judge.run(data, feeds)
    problem = "" if theirs is None else difference(case, expected, theirs)
    if problem and not excluded(label, problem, EXCLUSIONS):
        yield "onnxruntime", problem


def main() -> None:
    """Run random graphs for some minutes; print a line for each that differs."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--sweep", action="store_true", help="every single change instead")
    parser.add_argument("--only", default="", help="cases whose label has this pattern")
    options = parser.parse_args()
    end, counts = time.monotonic() + 60 * options.minutes, Counter[str]()
    judge = Judge()
    for label, mutant in sweep() if options.sweep else random_cases(options.seed):
        if time.monotonic() > end:
            break
        if not re.search(options.only, label):
            continue
        counts["graphs"] += 1
        try:
            for who, problem in problems(label, mutant, judge):
                counts[who] += 1
                print(f"{who}\t{label}\t{problem}"[:400], flush=True)
        except Exception as error:
            counts["raised"] += 1
            print(f"raised\t{label}\t{error!r}"[:400], flush=True)
    judge.close()
    print(dict(counts))
    raise SystemExit(counts.keys() != {"graphs"})


if __name__ == "__main__":
    main()
