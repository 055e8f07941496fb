"""Methods that round a language model's matrices by what enters them: more work, and better files.

A method takes a `Task`, the float model with the formats that were chosen, and tokens to run it on,
and returns encoded rows of some tensors, by name; the others are encoded as without it. `METHODS`
lists them by the names of the command's ``--method``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from halfbyte.formats import ModelFile
from halfbyte.quantize import compensation
from halfbyte.quantize.calibration.segments import Segment, Segments, Tokens
from halfbyte.quantize.calibration.statistics import Moments, Statistics
from halfbyte.quantize.encode import SLICE, Codec
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

    def values(self, tensor: Tensor, first: int, count: int) -> F32Array:
        """Rows of a tensor in floats."""
        part = tensor.take(first, count)
        values = self.codec.decode(tensor.format, part, tensor.columns)
        return np.ascontiguousarray(values, np.float32)


Method = Callable[[Task], Mapping[str, U8]]


def check_before(method: str, file: ModelFile, checkpoint: Path) -> None:
    """Raise, before the work, where a method does not support a model, or would replace a file."""
    if method == "tuned":
        Segments(file, [np.zeros(1, np.int32)])
        check_model(file)
        refuse_others(checkpoint)


def observe(
    task: Task, gram_bytes: int, use: Callable[[Segment, Mapping[str, Moments]], None]
) -> None:
    """Run the model over the windows, layer by layer; `use` gets what entered a layer's matrices.

    Memory is that of a layer in floats, its Gram matrices, and what passes to the next layer.
    """
    segments = Segments(task.file, task.windows, task.threads)
    states = segments.start()
    for segment in segments:
        statistics = Statistics(gram_bytes)
        after = []
        for state in segments.run(segment, states, statistics):
            after.append(state if not segment.is_head else {})
            task.done(1 / (len(segments) * len(states)))
        states = after
        use(segment, statistics.moments)


def moments(task: Task) -> dict[str, Moments]:
    """Second moments of what enters all matrices."""
    known: dict[str, Moments] = {}
    observe(task, 0, lambda segment, found: known.update(found))
    return known


def search(task: Task) -> dict[str, U8]:
    """The search of scales, with the second moments of channels as weights."""
    encoded: dict[str, U8] = {}

    def use(segment: Segment, found: Mapping[str, Moments]) -> None:
        for name, tensor in segment.matrices.items():
            if name in task.formats and name not in encoded:
                encoded[name] = weighted(task, tensor, found[name].means())

    observe(task, 0, use)
    return encoded


def weighted(task: Task, tensor: Tensor, importance: F32Array) -> U8:
    """Rows of a tensor by the search; weights are [matrices, columns]."""
    rows = tensor.row_count // len(importance)
    step = max(1, SLICE // tensor.columns)
    parts = []
    for number, weights in enumerate(importance):
        for first in range(0, rows, step):
            x = task.values(tensor, number * rows + first, min(step, rows - first))
            parts.append(task.codec.search(task.formats[tensor.name], x, weights)[0])
    return np.concatenate(parts)


def gptq(task: Task) -> dict[str, U8]:
    """Rounding with compensation, of the matrices that products read; see `compensation`.

    Experts whose tokens are few, and tensors whose Gram matrices need more than `GRAM_BYTES`, are
    encoded by the search with weights of channels.
    """
    encoded: dict[str, U8] = {}

    def use(segment: Segment, found: Mapping[str, Moments]) -> None:
        alike: dict[tuple[int, type[ScaledFormat]], list[Tensor]] = {}
        for name, tensor in segment.matrices.items():
            if name in task.formats and name not in encoded:
                alike.setdefault((id(found[name]), task.formats[name]), []).append(tensor)
        for tensors in alike.values():
            encoded.update(_compensated(task, tensors, found[tensors[0].name]))

    with single_threaded():
        observe(task, GRAM_BYTES, use)
    return encoded


def _compensated(task: Task, tensors: Sequence[Tensor], found: Moments) -> dict[str, U8]:
    """Rows of tensors that read the same numbers, in the same format, all of a matrix at once."""
    format_, count, means = task.formats[tensors[0].name], len(found.counts), found.means()
    sizes = [tensor.row_count // count for tensor in tensors]
    parts: list[list[U8]] = [[] for _ in tensors]
    for number in range(count):
        pairs = zip(tensors, sizes, strict=True)
        x = np.concatenate([task.values(t, number * size, size) for t, size in pairs])
        if found.grams is None or found.counts[number] < _MIN_ROWS:
            rows = task.codec.search(format_, x, means[number])[0]
        else:
            factors = compensation.factors(found.grams[number], int(found.counts[number]))
            rows = compensation.compensated(x, *factors, format_, task.codec.steps)
        for each, part in zip(parts, np.split(rows, np.cumsum(sizes)[:-1]), strict=True):
            each.append(part)
    return {t.name: np.concatenate(each) for t, each in zip(tensors, parts, strict=True)}


def tuned(task: Task) -> dict[str, U8]:
    """As by `gptq`, then scales, minima and vectors by distillation; see `tuning`."""
    size = max(1, sum(map(len, task.windows)) // len(task.windows))
    schedule = Schedule.of(size)
    check_windows(task.windows)
    encoded, start = gptq(task), dict[str, Tensor]()
    for name, tensor in task.file.tensors.items():
        start[name] = tensor
        if (format_ := task.formats.get(name)) is not None:
            if name not in encoded:
                encoded[name] = weighted(task, tensor, np.ones((1, tensor.columns), np.float32))
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
