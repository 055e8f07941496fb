"""How much a model's predictions change when one of its tensors is quantized.

A tensor's loss is the mean KL divergence of the next token's distribution when only this tensor is
in its smallest format: the model runs from the tensor's layer on. For the other formats it is this
figure times the ratio of the errors |(W - Q) X^T|^2 in the matrix's outputs, since KL grows with
the square of small changes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from halfbyte.errors import HalfbyteError
from halfbyte.quantize.allocation import Option
from halfbyte.quantize.calibration.segments import Segments, State, Tokens
from halfbyte.quantize.calibration.statistics import Moments, Statistics
from halfbyte.quantize.encode import Codec
from halfbyte.quantize.methods import GRAM_BYTES, Task, weighted
from halfbyte.quantize.tuning.blas import single_threaded
from halfbyte.weights import FORMATS, F32Array, ScaledFormat, Tensor

F64 = npt.NDArray[np.float64]

FORMAT_NAMES = (
    "Q2_K", "Q3_K", "IQ4_XS", "MXFP4", "Q4_K", "IQ4_NL", "Q4_0", "Q5_K", "Q5_0", "Q5_1", "Q6_K",
    "Q8_0",
)  # fmt: skip
TOKENS = 512  # of the runs for one tensor
_ROWS = 256  # of a tensor, whose errors are measured
_LOGIT_ROWS = 32


@dataclass(frozen=True)
class Sensitivity:
    """A tensor's formats, and what each costs."""

    formats: Sequence[type[ScaledFormat]]
    options: Sequence[Option]


def candidates(tensor: Tensor) -> list[type[ScaledFormat]]:
    """The formats that a tensor may take, the smallest first."""
    known = [FORMATS[name] for name in FORMAT_NAMES]
    fitting = [f for f in known if issubclass(f, ScaledFormat) and tensor.columns % f.block == 0]
    return sorted(fitting, key=lambda f: f.row_bytes(tensor.columns))


class Inputs(NamedTuple):
    """What is known of a tensor: what enters its matrices, and the first segment that uses it."""

    name: str
    moments: Moments | None
    first: int
    states: Sequence[State]


@dataclass(frozen=True)
class Probe:
    """Measures a tensor: its loss in its smallest format, and the errors of all.

    Attributes
    ----------
    segments : Segments
    expected : sequence of dict
        The logits of each window.
    codec : Codec
    """

    segments: Segments
    expected: Sequence[State]
    codec: Codec

    def __call__(self, inputs: Inputs) -> tuple[float, list[float]]:
        """The divergence in nats, and mean square errors."""
        tensor, moments = self.segments.file.tensors[inputs.name], inputs.moments
        formats = candidates(tensor)
        rows = weighted(self.codec, tensor, formats[0], _importance(tensor, moments))
        encoded = Tensor(tensor.name, formats[0], tensor.shape, rows.reshape(-1))
        with np.errstate(over="ignore", invalid="ignore"):
            errors = _errors(self.codec, tensor, formats, moments)
            loss = self._divergence(encoded, inputs)
        if not np.isfinite([loss, *errors]).all():
            raise HalfbyteError(
                f"tensor {tensor.name!r}: expected finite numbers in {formats[0].name}, found a "
                f"divergence of {loss:.4g} and errors up to {max(errors):.4g}: its values are too "
                "large to measure"
            )
        return loss, errors

    def _divergence(self, tensor: Tensor, inputs: Inputs) -> float:
        """Mean KL with another tensor, from what the first segment reads that uses it."""
        changed = self.segments.changed({tensor.name: tensor})
        current = inputs.states
        for number in range(inputs.first, len(self.segments)):
            segment = changed.get(number, self.segments[number])
            current = list(self.segments.run(segment, current))
        return mean_divergence(self.expected, current)


def measure(task: Task, names: Sequence[str]) -> dict[str, Sensitivity]:
    """The sensitivity of the named tensors of a task's model; its formats do not matter."""
    segments = Segments(task.file, _some(task.windows), task.threads)
    with single_threaded():
        states, moments = [segments.start()], dict[str, Moments]()
        for segment in segments:
            statistics = Statistics(GRAM_BYTES)
            states.append(list(segments.run(segment, states[-1], statistics)))
            for name, found in statistics.moments.items():
                moments.setdefault(name, found)
        probe = Probe(segments, states.pop(), task.codec)

        def inputs(name: str) -> Inputs:
            users = (number for number, each in enumerate(segments) if each.uses({name}))
            first = next(users, len(segments) - 1)
            return Inputs(name, moments.get(name), first, states[first])

        measured = {}
        for name, result in task.engine.map(probe, ((name, inputs(name)) for name in names)):
            measured[name] = _sensitivity(task.file.tensors[name], *result)
            task.done(1 / len(names))
    return measured


def _sensitivity(tensor: Tensor, loss: float, errors: Sequence[float]) -> Sensitivity:
    formats, top = candidates(tensor), errors[0] or 1.0
    sizes = [tensor.row_count * f.row_bytes(tensor.columns) for f in formats]
    options = [Option(s, loss * e / top) for s, e in zip(sizes, errors, strict=True)]
    return Sensitivity(formats, options)


def _some(windows: Sequence[Tokens]) -> list[Tokens]:
    """Windows of `TOKENS` tokens together, from all parts of the text."""
    order = np.random.default_rng(0).permutation(len(windows))
    some, total = [], 0
    for number in order:
        some.append(windows[number][: TOKENS - total])
        total += len(some[-1])
        if total >= TOKENS:
            break
    return some


def _importance(tensor: Tensor, moments: Moments | None) -> F32Array:
    if moments is None:  # no product reads it
        return np.ones((1, tensor.columns), np.float32)
    return moments.means()


def _errors(
    codec: Codec, tensor: Tensor, formats: Sequence[type[ScaledFormat]], moments: Moments | None
) -> list[float]:
    """The mean square error in the outputs of some rows, by each format."""
    importance = _importance(tensor, moments)
    matrix = int(moments.counts.argmax()) if moments is not None else 0
    rows = tensor.row_count // len(importance)
    step = max(1, rows // _ROWS)
    x = np.concatenate([codec.values(tensor, matrix * rows + i, 1) for i in range(0, rows, step)])
    errors = []
    for format_ in formats:
        encoded, _ = codec.search(format_, x, importance[matrix])
        off = x - codec.decode(format_, encoded, tensor.columns)
        if moments is None or moments.grams is None:
            errors.append(float((np.square(off) @ importance[matrix]).sum()))
        else:
            errors.append(float(((off @ moments.grams[matrix]) * off).sum()))
    return [max(error, 0.0) for error in errors]


def mean_divergence(expected: Sequence[State], actual: Sequence[State]) -> float:
    """Mean KL of tokens' distributions, some rows at a time: a vocabulary may be large."""
    total, count = 0.0, 0
    for states in zip(expected, actual, strict=True):
        for first in range(0, len(states[0]["logits"]), _LOGIT_ROWS):
            p, q = (_distributions(s["logits"][first : first + _LOGIT_ROWS]) for s in states)
            total += float((np.exp(p) * (p - q)).sum())
            count += len(p)
    return total / count


def _distributions(logits: F32Array) -> F64:
    """Logarithms of probabilities [tokens, vocabulary]."""
    z = logits.astype(np.float64)
    z -= z.max(axis=1, keepdims=True)
    shifted: F64 = z - np.log(np.exp(z).sum(axis=1, keepdims=True))
    return shifted
