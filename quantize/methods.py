"""Methods that round a language model's matrices by what enters them: more work, and better files.

A method takes a `Task`, the float model with the formats that were chosen, and tokens to run it on,
and returns encoded rows of some tensors, by name; the others are encoded as without it. `METHODS`
lists them by the names of the command's ``--method``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from halfbyte.formats import ModelFile
from halfbyte.quantize import compensation
from halfbyte.quantize.calibration.segments import Segment, Segments, Tokens
from halfbyte.quantize.calibration.statistics import Moments, Statistics
from halfbyte.quantize.encode import SLICE, Codec
from halfbyte.quantize.engines import Engine, Local
from halfbyte.quantize.rounding import Rounding, Stored, rounded
from halfbyte.quantize.tuning.blas import single_threaded
from halfbyte.quantize.tuning.checkpoint import refuse_others
from halfbyte.quantize.tuning.tuner import Schedule, check_model, check_windows, tune
from halfbyte.weights import U8, F32Array, ScaledFormat, Tensor

GRAM_BYTES = 1 << 30  # of the inputs of a tensor; those that need more have second moments only


@dataclass(frozen=True)
class Task:
    """What a method works on.

    Attributes
    ----------
    file : ModelFile
        The model in floats, as it is to be approximated.
    formats : mapping of str to type
        Of the tensors to encode.
    windows : sequence of int32 [tokens]
    codec : Codec
    threads : int
    done : callable
        Called with shares of the work; the method's `COSTS` in all.
    note : callable
        Called with what the report should say.
    divergence : callable
        Called with the model's divergence, in nats, where it is known.
    checkpoint : path or None
        A file from which an interrupted run goes on.
    engine : Engine
        Where parts that are independent are computed.
    """

    file: ModelFile
    formats: Mapping[str, type[ScaledFormat]]
    windows: Sequence[Tokens]
    codec: Codec
    threads: int = 1
    done: Callable[[float], None] = lambda share: None
    note: Callable[[str], None] = lambda text: None
    divergence: Callable[[float], None] = lambda nats: None
    checkpoint: Path | None = None
    engine: Engine = Local()  # noqa: RUF009 - it has no state


Method = Callable[[Task], Mapping[str, U8]]
Part = tuple[tuple[str, ...], Rounding]  # names of tensors, and rows of them


def check_before(method: str, file: ModelFile, checkpoint: Path) -> None:
    """Raise, before the work, where a method does not support a model, or would replace a file."""
    if method == "tuned":
        Segments(file, [np.zeros(1, np.int32)])
        check_model(file)
        refuse_others(checkpoint)


def observed(
    task: Task, gram_bytes: int, threads: int | None = None
) -> Iterator[tuple[Segment, Mapping[str, Moments]]]:
    """Run the model over the windows, layer by layer: what entered each layer's matrices.

    Memory is that of a layer in floats, its Gram matrices, and what passes to the next layer.
    """
    segments = Segments(task.file, task.windows, threads or task.threads)
    states = segments.start()
    for segment in segments:
        statistics = Statistics(gram_bytes)
        after = []
        for state in segments.run(segment, states, statistics, logits=False):
            after.append(state)
            task.done(1 / (len(segments) * len(states)))
        states = after
        yield segment, statistics.moments


def moments(task: Task) -> dict[str, Moments]:
    """Second moments of what enters all matrices."""
    known: dict[str, Moments] = {}
    for _, found in observed(task, 0):
        known.update(found)
    return known


def search(task: Task) -> dict[str, U8]:
    """The search of scales, with the second moments of channels as weights."""
    seen: set[str] = set()

    def found() -> Iterator[tuple[Tensor, F32Array]]:
        for segment, known in observed(task, 0):
            for name, tensor in segment.matrices.items():
                if name in task.formats and name not in seen:
                    seen.add(name)
                    yield tensor, known[name].means()

    return searched(task, found())


def searched(task: Task, tensors: Iterable[tuple[Tensor, F32Array]]) -> dict[str, U8]:
    """Rows of tensors by the search; weights are [matrices, columns]."""

    def parts() -> Iterator[Part]:
        for tensor, importance in tensors:
            format_ = task.formats[tensor.name]
            for rows, weights in _slices(tensor, importance):
                stored = Stored(tensor.take(rows.start, len(rows)), tensor.format)
                yield (tensor.name,), Rounding((stored,), tensor.columns, format_, weights)

    return _rounded(task, parts())


def weighted(codec: Codec, tensor: Tensor, format_: type[ScaledFormat], importance: F32Array) -> U8:
    """Rows of a tensor by the search; weights are [matrices, columns]."""
    return np.concatenate([
        codec.search(format_, codec.values(tensor, rows.start, len(rows)), weights)[0]
        for rows, weights in _slices(tensor, importance)
    ])  # fmt: skip


def _slices(tensor: Tensor, importance: F32Array) -> Iterator[tuple[range, F32Array]]:
    """Some rows of a tensor at a time, and their matrix's weights."""
    size = tensor.row_count // len(importance)
    step = max(1, SLICE // tensor.columns)
    for number, weights in enumerate(importance):
        rows = range(number * size, (number + 1) * size)
        for first in range(0, size, step):
            yield rows[first : first + step], weights


def gptq(task: Task) -> dict[str, U8]:
    """Rounding with compensation, of the matrices that products read; see `compensation`.

    Experts whose tokens are few, and tensors whose Gram matrices need more than `GRAM_BYTES`, are
    encoded by the search with weights of channels. Half of the threads round the matrices of a
    layer while the others run the next one.
    """
    rounding = task.threads // 2

    def parts() -> Iterator[Part]:
        seen: set[str] = set()
        for segment, found in observed(task, GRAM_BYTES, task.threads - rounding):
            alike: dict[tuple[int, type[ScaledFormat]], list[Tensor]] = {}
            for name, tensor in segment.matrices.items():
                if name in task.formats and name not in seen:
                    seen.add(name)
                    alike.setdefault((id(found[name]), task.formats[name]), []).append(tensor)
            for (_, format_), tensors in alike.items():
                yield from _together(tensors, format_, found[tensors[0].name])

    with single_threaded():
        return _rounded(task, parts(), rounding)


def _together(
    tensors: Sequence[Tensor], format_: type[ScaledFormat], found: Moments
) -> Iterator[Part]:
    """Tensors that read the same numbers, in the same format: all rows of a matrix at once."""
    count, means = len(found.counts), found.means()
    names, columns = tuple(tensor.name for tensor in tensors), tensors[0].columns
    sizes = [tensor.row_count // count for tensor in tensors]
    for number, rows in enumerate(found.counts.tolist()):
        stored = tuple(
            Stored(tensor.take(number * size, size), tensor.format)
            for tensor, size in zip(tensors, sizes, strict=True)
        )
        gram = None
        if found.grams is not None and rows >= _MIN_ROWS:
            gram = compensation.Gram(found.grams[number], rows)
        yield names, Rounding(stored, columns, format_, means[number], gram)


def _rounded(task: Task, parts: Iterable[Part], threads: int = 0) -> dict[str, U8]:
    """Rows of all parts, by tensor."""
    encoded: dict[str, list[U8]] = {}
    for names, rows in task.engine.map(partial(rounded, task.codec), parts, threads=threads):
        for name, each in zip(names, rows, strict=True):
            encoded.setdefault(name, []).append(each)
    return {n: each[0] if len(each) == 1 else np.concatenate(each) for n, each in encoded.items()}


def tuned(task: Task) -> dict[str, U8]:
    """As by `gptq`, then scales, minima and vectors by distillation; see `tuning`."""
    size = max(1, sum(map(len, task.windows)) // len(task.windows))
    weights = sum(tensor.row_count * tensor.columns for tensor in task.file.tensors.values())
    schedule = Schedule.of(size, weights)
    check_windows(task.windows)
    encoded, start = gptq(task), dict[str, Tensor]()
    for name, tensor in task.file.tensors.items():
        start[name] = tensor
        if (format_ := task.formats.get(name)) is not None:
            if name not in encoded:
                ones = np.ones((1, tensor.columns), np.float32)
                encoded[name] = weighted(task.codec, tensor, format_, ones)
            start[name] = Tensor(name, format_, tensor.shape, encoded[name].reshape(-1))
    done = 0

    def progress(step: int, steps: int, loss: float) -> None:
        nonlocal done
        task.divergence(loss)
        task.done((COSTS["tuned"] - 1) * (step - done) / steps)
        done = step

    result = tune(
        task.file, start, task.windows, schedule, threads=task.threads,
        checkpoint=task.checkpoint, progress=progress,
    )  # fmt: skip
    where = "on tokens that were held out"
    task.note(
        f"tuned: divergence {result.before:.3g} -> {result.after:.3g} nats {where}"
        if result.step
        else f"not tuned: no step made the divergence {where}, {result.before:.3g} nats, smaller"
    )
    return encoded | dict(result.encoded)


_MIN_ROWS = 64  # that a Gram matrix needs
METHODS: dict[str, Method] = {"search": search, "gptq": gptq, "tuned": tuned}
COSTS = {"search": 1, "gptq": 1, "tuned": 9}
"""How long methods take, in runs of the model over the tokens."""
NEED_TOKENS = frozenset({"gptq", "tuned"})
"""Those that have the model write a text where none is given."""
