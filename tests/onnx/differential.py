"""Graphs with one thing changed, by NumPy definitions, native programs and ONNX Runtime.

    python -m tests.onnx.differential --minutes 30 --seed 7

All three refuse a graph, or all give the same shapes, types and values. `sweep` changes every size,
rank, type, value and attribute of the graphs of `lowered_cases` in turn; `random_cases` several at
once. Where ONNX Runtime itself differs from ONNX, `EXCLUSIONS` says so.
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
Mutant = tuple[str, Case]  # what was changed, and what came of it
EPS = float(np.finfo(np.float32).eps)
MAX_ELEMENTS = 1 << 18  # elements of an operand
FEW = 12  # an operand of integers with no more is changed value by value: axes, shapes, places
JUDGE_BYTES = 3 << 30
_INTEGERS = (-1, 0, 1, 2, 7, 100, (1 << 31) - 1, 1 << 31, (1 << 63) - 1, -(1 << 63))
_FLOATS = (0.0, -1.0, float("nan"), float("inf"), 1e30, 1e-30)
_TYPES: dict[str, tuple[str, ...]] = {
    "f4": ("f8", "f2", "i4"), "i8": ("i4", "f4"), "i4": ("i8", "f4"), "u1": ("i1", "i4"),
    "i1": ("u1", "i4"), "b1": ("f4",),
}  # fmt: skip


# ---- changes -------------------------------------------------------------------------------------


def resized(array: Array, axis: int, size: int) -> Array:
    """The array with an axis of another size; what it had is repeated."""
    old = array.shape[axis]
    if not old:
        shape = (*array.shape[:axis], size, *array.shape[axis + 1 :])
        return np.ones(shape, array.dtype)
    return np.take(array, np.arange(size) % old, axis)


def _sizes(array: Array) -> Iterator[tuple[str, Array]]:
    """Each dimension, one less, one more, none, and a thousand times as large."""
    for axis, n in enumerate(array.shape):
        for size in dict.fromkeys((n - 1, n + 1, 0, n * 1000)):
            if 0 <= size != n and array.size // max(n, 1) * size <= MAX_ELEMENTS:
                yield f"size {axis} = {size}", resized(array, axis, size)


def _ranks(array: Array) -> Iterator[tuple[str, Array]]:
    yield "rank +1 before", array[None]
    yield "rank +1 behind", array[..., None]
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
            made = array.copy()
            try:
                with np.errstate(all="ignore"):
                    made.reshape(-1)[place] = value
            except OverflowError:
                continue
            yield f"value {place} = {value}", made


def _integers(old: int) -> list[int]:
    found = dict.fromkeys((old - 1, old + 1, -old, *_INTEGERS))
    return [v for v in found if v != old and -(1 << 63) <= v < 1 << 63]


def operand_mutants(
    case: Case, names: Sequence[str] | None = None, sizes_only: bool = False
) -> Iterator[Mutant]:
    """One operand changed, of these or of all."""
    for name in case.arrays if names is None else names:
        array = case.arrays[name]
        makers = [_sizes(array)]
        if not sizes_only:
            makers += [_ranks(array), _values(array), _types(array)]
        for maker in makers:
            for label, made in maker:
                yield f"{name} {label}", replace(case, arrays={**case.arrays, name: made})
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
    """One attribute changed, or left out; one output more."""
    for at, step in enumerate(case.steps):

        def made(changed: Any, at: int = at) -> Case:
            return replace(case, steps=(*case.steps[:at], changed, *case.steps[at + 1 :]))

        for name, value in step.attributes.items():
            rest = {n: v for n, v in step.attributes.items() if n != name}
            yield f"{step.operator} without {name}", made(replace(step, attributes=rest))
            for other in _attribute(value):
                changed = replace(step, attributes={**rest, name: other})
                yield f"{step.operator} {name} = {other}", made(changed)
        more = replace(step, outputs=(*step.outputs, f"more{at}"))
        yield f"{step.operator} one output more", made(more)


def mutants(case: Case) -> Iterator[Mutant]:
    """Every single change."""
    yield "", case
    yield "all computed", replace(case, constants=frozenset())
    yield from operand_mutants(case)
    yield from attribute_mutants(case)


def sweep(part: int = 0, parts: int = 1) -> Iterator[Mutant]:
    """Every single change of every case, or every so many of them."""
    for number, (label, made) in enumerate(
        (f"{case.label}: {label}", made) for case in all_cases() for label, made in mutants(case)
    ):
        if number % parts == part and made.feeds:
            yield label, made


def random_cases(seed: int, most: int = 4) -> Iterator[Mutant]:
    """Several changes at once, without end."""
    random = np.random.default_rng(seed)
    cases = all_cases()
    while True:
        made = cases[random.integers(len(cases))]
        label = made.label
        for _ in range(random.integers(1, most + 1)):
            names = [*made.arrays, ""]  # as often as any operand: an attribute
            name = names[random.integers(len(names))]
            found = list(operand_mutants(made, [name]) if name else attribute_mutants(made))
            change, made = found[random.integers(len(found))]
            label += f"; {change}"
        if made.feeds and all(v.size <= MAX_ELEMENTS for v in made.arrays.values()):
            yield label, made


# ---- what becomes of them ------------------------------------------------------------------------


@dataclass(frozen=True)
class Outcome:
    """Arrays, or the reason why there are none."""

    arrays: list[Array] | None
    reason: str = ""


def by_definition(data: bytes, feeds: Mapping[str, Array], prepared: bool = False) -> Outcome:
    """Node by node; of what fusion made of the graph, if asked for."""
    try:
        model = open_onnx(data)
        model = prepare(model) if prepared else model
        return Outcome(list(Evaluator(model).run(feeds).values()))
    except HalfbyteError as error:
        return Outcome(None, str(error))


def by_programs(data: bytes, feeds: Mapping[str, Array], backend: str = "native") -> Outcome:
    """By kernels."""
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
    """A process that runs what it is sent by ONNX Runtime, which some graphs kill."""
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
    """ONNX Runtime in a process of its own, which is begun again where it died or hangs."""

    def __init__(self) -> None:
        self._context = multiprocessing.get_context("spawn")
        self._start()

    def _start(self) -> None:
        self._pipe, theirs = self._context.Pipe()
        self._process = self._context.Process(target=_judge, args=(theirs,), daemon=True)
        self._process.start()
        theirs.close()

    def run(self, data: bytes, feeds: Mapping[str, Array]) -> Outcome | None:
        """None where it has no answer."""
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
    """How far floats may lie apart: rounding of each term of a sum that all operands are in.

    Each product or sum is off by EPS of what it is made of, which is no larger than the largest
    numbers of all operands multiplied; quotients by small numbers show in the result.
    """
    terms = max((v.size for v in case.arrays.values()), default=1)
    finite = [np.abs(v[np.isfinite(v)]).max(initial=0) for v in _floats(case)]
    product = math.prod(max(1.0, float(top)) for top in finite)
    top = np.abs(wanted[np.isfinite(wanted)]).max(initial=0)
    largest = max(1.0, float(top), product if case.rounding else 0.0)
    return largest * (EPS * (64 + terms) + case.rounding)


def _floats(case: Case) -> list[Array]:
    return [v for v in case.arrays.values() if v.dtype.kind == "f"]


def difference(case: Case, found: Outcome, wanted: Outcome) -> str:
    """What differs, in a word and numbers; '' where nothing does."""
    if found.arrays is None or wanted.arrays is None:
        if (found.arrays is None) == (wanted.arrays is None):
            return ""
        return f"refuses: {found.reason}" if found.arrays is None else f"accepts: {wanted.reason}"
    if len(found.arrays) != len(wanted.arrays):
        return f"outputs: {len(found.arrays)}, expected {len(wanted.arrays)}"
    for ours, theirs in zip(found.arrays, wanted.arrays, strict=True):
        if (ours is None) != (theirs is None):
            return "outputs: one is there for one alone"
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
    if ours.dtype.kind in "iu" and ours.dtype.itemsize == 1:  # codes, of which a tie may be another
        off = np.abs(ours.astype(np.int64) - theirs).max(initial=0)
        return f"{off} codes" if off > 1 else ""
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
    """The reason why this may differ; '' where it may not."""
    for where, what, reason in known:
        if re.search(where, label) and re.search(what, problem):
            return reason
    return ""


def problems(
    label: str, case: Case, judge: Judge | None, backends: Sequence[str] = ("native",)
) -> Iterator[tuple[str, str]]:
    """Who differs, and in what."""
    data, feeds = case.proto().SerializeToString(), case.feeds
    wanted = by_definition(data, feeds)
    ways = {"prepared": by_definition(data, feeds, prepared=True)}
    ways |= {backend: by_programs(data, feeds, backend) for backend in backends}
    for who, found in ways.items():
        problem = difference(case, found, wanted)
        if problem and not excluded(label, problem, OWN_EXCLUSIONS):
            yield who, problem
    if judge is None or any(step.domain == OWN for step in case.steps):
        return
    theirs = judge.run(data, feeds)
    problem = "" if theirs is None else difference(case, wanted, theirs)
    if problem and not excluded(label, problem, EXCLUSIONS):
        yield "onnxruntime", problem


def main() -> None:
    """Random graphs for so many minutes; a line for each that differs."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--sweep", action="store_true", help="every single change instead")
    parser.add_argument("--only", default="", help="cases whose label has this pattern")
    given = parser.parse_args()
    end, counts = time.monotonic() + 60 * given.minutes, Counter[str]()
    judge = Judge()
    for label, made in sweep() if given.sweep else random_cases(given.seed):
        if time.monotonic() > end:
            break
        if not re.search(given.only, label):
            continue
        counts["graphs"] += 1
        try:
            for who, problem in problems(label, made, judge):
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
