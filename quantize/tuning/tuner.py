"""Distillation: scales, minima and vectors of a quantized model, for the float model's logits.

A step runs a few windows of tokens through the quantized model, layer by layer, and back. The loss
is the mean divergence of its next-token distributions from those of the float model, whose last
hidden states are computed once: its logits follow from them, some rows at a time. Of each layer,
only what enters it is kept; the rest is computed again on the way back (gradient checkpointing).

Memory is that of the quantized model, a byte for each weight of its layers, two layers in floats
(weights and gradients), and a layer's intermediate results for one window and thread.

Some windows are never learned from. The step whose divergence there is smallest is the result, and
the start if none is smaller: the tuned model is never worse than that.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from halfbyte.core.program import Program
from halfbyte.errors import HalfbyteError, UnsupportedError
from halfbyte.formats import ModelFile
from halfbyte.quantize.tuning.blas import single_threaded
from halfbyte.quantize.tuning.checkpoint import check_of, read, write
from halfbyte.quantize.tuning.learned import Learned, Matrix
from halfbyte.quantize.tuning.pieces import cut
from halfbyte.quantize.tuning.tensors import encoded, floats, in_floats, learned_of
from halfbyte.text.planning import Settings, capture_model
from halfbyte.weights import U8, F32Array, Tensor

Tokens = npt.NDArray[np.int32]
Progress = Callable[[int, int, float], None]  # steps so far and in all, the divergence
T = TypeVar("T")
R = TypeVar("R")

_HELD = 8  # one of so many windows is not learned from
_WARMUP = 10  # steps
_WORK = 6.7e12  # weights times tokens learned from, in all: 10 minutes of two cores
_STEPS = (40, 160)


@dataclass(frozen=True)
class Schedule:
    """How long is learned, and how fast: rates rise, then fall as a cosine.

    Attributes
    ----------
    steps : int
    windows : int
        In a step.
    rate : float
        Of scales and minima, in parts of a scale.
    vector_rate : float
        Of vectors, in parts of their mean magnitude.
    every : int
        Steps between looks at the windows that are held out.
    seed : int
        Of the order of windows.
    """

    steps: int = 160
    windows: int = 2
    rate: float = 0.006
    vector_rate: float = 0.006
    every: int = 20
    seed: int = 0

    @classmethod
    def of(cls, size: int, weights: int) -> Schedule:
        """Steps for windows of about `size` tokens, and a model of so many weights."""
        steps = int(min(max(_WORK / (weights * cls.windows * size), _STEPS[0]), _STEPS[1]))
        return cls(steps=steps, every=max(1, steps // 8))

    def share(self, step: int) -> float:
        """Of the rates, in a step."""
        return min(1, (step + 1) / _WARMUP) * (1 + math.cos(math.pi * step / self.steps)) / 2


@dataclass(frozen=True)
class Tuned:
    """The result: bytes [rows, row_bytes] of changed tensors, and divergences before and after."""

    encoded: Mapping[str, U8]
    before: float
    after: float
    step: int


def tune(
    file: ModelFile,
    start: Mapping[str, Tensor],
    windows: Sequence[Tokens],
    schedule: Schedule | None = None,
    *,
    threads: int = 1,
    checkpoint: Path | None = None,
    progress: Progress | None = None,
) -> Tuned:
    """Tune a quantized model.

    Parameters
    ----------
    file : ModelFile
        The model in floats.
    start : mapping of str to Tensor
        All tensors of the quantized model; its vectors will be F32.
    windows : sequence of int32 [tokens]
        At least two.
    schedule : Schedule, optional
    threads : int
        Windows that are run at once. The result is the same with any number.
    checkpoint : path, optional
        A file from which an interrupted run goes on, and which is removed at the end.
    progress : callable, optional

    Raises
    ------
    HalfbyteError
        There are too few windows, or the architecture has operators without gradients, which
        `check_model` finds before.
    """
    check_windows(windows)
    with single_threaded(), ThreadPoolExecutor(threads) as pool:
        run = _Run(file, start, windows, schedule or Schedule(), pool, threads)
        try:
            return run.result(checkpoint, progress or (lambda step, steps, loss: None))
        finally:
            run.close()


def check_windows(windows: Sequence[Tokens]) -> None:
    """Raise `HalfbyteError` where none can be held out."""
    if len(windows) < 2:
        raise HalfbyteError(
            f"tuning: expected at least 2 windows of tokens, found {len(windows)}, of "
            f"{sum(map(len, windows))} tokens: a longer text is needed"
        )


def check_model(file: ModelFile) -> None:
    """Raise `UnsupportedError` for an architecture that cannot be tuned."""
    try:
        for shape in dict.fromkeys(piece.shape for piece in cut(_captured(file, 1))[1:]):
            shape.check()
    except HalfbyteError as error:
        name = file.metadata.get("general.architecture")
        raise UnsupportedError(
            f"{file.path}: expected an architecture that can be tuned, found {name!r}, which "
            f"--method gptq rounds: {error}"
        ) from None


def _captured(file: ModelFile, longest: int) -> Program:
    settings = Settings(context=longest, batch=longest, cache="f32", activations="float")
    return capture_model(file, settings)


class _Run:
    def __init__(
        self, file: ModelFile, start: Mapping[str, Tensor], windows: Sequence[Tokens],
        schedule: Schedule, pool: ThreadPoolExecutor, threads: int,
    ) -> None:  # fmt: skip
        self.schedule, self._pool, self._threads = schedule, pool, threads
        held = max(1, len(windows) // _HELD)
        order = sorted(windows, key=len)  # a short rest of a text would say little
        self.windows, self.held = order[:-held], order[-held:]
        vectors = {n: in_floats(t) if len(t.shape) == 1 else t for n, t in start.items()}
        longest = max(map(len, windows))
        self._teacher = cut(_captured(file, longest))
        self._pieces = cut(_captured(replace(file, tensors=vectors), longest))
        self._learned = [learned_of(piece, vectors) for piece in self._pieces]
        self._fixed = [
            {slot: floats(value) for slot, value in piece.tensors.items() if slot not in learned}
            for piece, learned in zip(self._pieces, self._learned, strict=True)
        ]
        self._check = check_of(asdict(schedule), *windows, *(t.data for t in start.values()))
        self._step, self._best, self._before, self._after = 0, 0, np.inf, np.inf
        self._encoded: dict[str, U8] = {}

    def result(self, checkpoint: Path | None, progress: Progress) -> Tuned:
        """Learn, from the last checkpoint on if there is one."""
        self._targets = self._hidden(self.windows)
        self._held_targets = self._hidden(self.held)
        steps = self.schedule.steps
        if checkpoint is not None and self._read(checkpoint):
            progress(self._step, steps, self._after)
        else:
            self._before = self._after = self._divergence()
            progress(0, steps, self._before)
        while self._step < steps:
            self._descend(self._chosen(self._step))
            self._step += 1
            if self._step % self.schedule.every == 0 or self._step == steps:
                loss = self._divergence()
                if loss < self._after:
                    self._after, self._best = loss, self._step
                    self._encoded = encoded(self._pieces, self._learned)
                progress(self._step, steps, self._after)
                if checkpoint is not None and self._step < steps:
                    self._write(checkpoint)
        if checkpoint is not None:
            checkpoint.unlink(missing_ok=True)
        return Tuned(self._encoded, self._before, self._after, self._best)

    def _chosen(self, step: int) -> list[int]:
        """Numbers of a step's windows: each is used once before any is used again."""
        count = min(self.schedule.windows, len(self.windows))
        rounds, place = divmod(step * count, len(self.windows))
        orders = [
            np.random.default_rng((self.schedule.seed, r)).permutation(len(self.windows))
            for r in (rounds, rounds + 1)
        ]
        return [int(i) for i in np.concatenate(orders)[place : place + count]]

    def _hidden(self, windows: Sequence[Tokens]) -> list[F32Array]:
        """What the float model's head reads."""
        first, *layers, _ = self._teacher
        states = self._each(lambda w, worker: first.shape.run(w, worker).copy(), windows)
        for piece, other in zip(layers, self._pieces[1:-1], strict=True):
            other.shape.load({slot: floats(value) for slot, value in piece.tensors.items()})
            states = self._each(lambda x, worker: other.shape.run(x, worker).copy(), states)  # noqa: B023
        head = self._teacher[-1]
        head.shape.load({slot: floats(value) for slot, value in head.tensors.items()})
        return states

    def _forward(self, windows: Sequence[Tokens]) -> list[list[F32Array]]:
        """What enters each layer, and the head, of each window."""
        first, *layers, _ = self._pieces
        states = [self._each(lambda w, worker: first.shape.run(w, worker).copy(), windows)]
        for number, piece in enumerate(layers, 1):
            self._load(number)
            states.append(
                self._each(lambda x, worker: piece.shape.run(x, worker).copy(), states[-1])  # noqa: B023
            )
        self._load(len(self._pieces) - 1)
        return states

    def _load(self, number: int) -> None:
        learned = self._learned[number]
        values = self._each(lambda each, worker: each.values(), list(learned.values()))
        new = dict(zip(learned, values, strict=True))
        self._pieces[number].shape.load(new | self._fixed[number])

    def _divergence(self) -> float:
        """The mean over the windows that are held out."""
        states = self._forward(self.held)[-1]
        pairs = list(zip(states, self._held_targets, strict=True))
        losses = self._each(lambda pair, worker: self._lost(*pair, worker), pairs)
        return float(sum(losses) / sum(map(len, states)))

    def _lost(self, x: F32Array, target: F32Array, worker: int) -> float:
        """The summed divergence of a window."""
        return sum(
            float(self._pieces[-1].shape.losses(x[part], wanted, worker).sum(dtype=np.float64))
            for part, wanted in self._wanted(target, worker)
        )

    def _wanted(self, target: F32Array, worker: int) -> Iterator[tuple[slice, F32Array]]:
        """The float model's logits of some rows at a time, a view that the next ones overwrite."""
        head = self._teacher[-1].shape
        for first in range(0, len(target), head.most):
            part = slice(first, first + head.most)
            yield part, head.run(target[part], worker)

    def _loss(
        self, x: F32Array, target: F32Array, worker: int
    ) -> tuple[float, F32Array, dict[str, F32Array]]:
        """The summed divergence of a window, and its gradients: of x, and by slot of the head."""
        total, dx, slots = 0.0, np.empty_like(x), dict[str, F32Array]()
        for part, wanted in self._wanted(target, worker):
            seed = np.ones((len(wanted), 1), np.float32)
            found = self._pieces[-1].shape.gradients(x[part], seed, wanted, worker)
            total += float(found.pop("y").sum(dtype=np.float64))
            dx[part] = found.pop("x")
            for slot, gradient in found.items():
                slots[slot] = gradient + slots[slot] if slot in slots else gradient.copy()
        return total, dx, slots

    def _descend(self, chosen: Sequence[int]) -> None:
        """A step."""
        states = self._forward([self.windows[i] for i in chosen])
        pairs = list(zip(states[-1], (self._targets[i] for i in chosen), strict=True))
        losses = self._each(lambda pair, worker: self._loss(*pair, worker), pairs)
        size = np.float32(1 / sum(map(len, states[-1])))
        dys = [dx * size for _, dx, _ in losses]
        self._learn(len(self._pieces) - 1, [slots for _, _, slots in losses])
        for number in range(len(self._pieces) - 2, 0, -1):
            self._load(number)
            shape = self._pieces[number].shape

            def back(pair: tuple[F32Array, F32Array], worker: int) -> dict[str, F32Array]:
                found = shape.gradients(*pair, worker=worker)  # noqa: B023
                return {slot: gradient.copy() for slot, gradient in found.items()}

            pairs = list(zip(states[number - 1], dys, strict=True))
            gradients = self._each(back, pairs)
            dys = [found.pop("x") for found in gradients]
            self._learn(number, gradients)

    def _learn(self, number: int, gradients: Sequence[Mapping[str, F32Array]]) -> None:
        schedule, share = self.schedule, self.schedule.share(self._step)

        def descend(item: tuple[str, Learned], worker: int) -> None:
            slot, learned = item
            first, *others = (each[slot] for each in gradients)
            rate = schedule.rate if isinstance(learned, Matrix) else schedule.vector_rate
            learned.descend(sum(others, first), share * rate)

        self._each(descend, list(self._learned[number].items()))

    def _each(self, of: Callable[[T, int], R], items: Sequence[T]) -> list[R]:
        """Results in order; each thread has executables of its own."""

        def some(worker: int) -> list[R]:
            return [of(item, worker) for item in items[worker :: self._threads]]

        results: list[Any] = [None] * len(items)
        workers = range(min(self._threads, len(items)))
        for worker, part in zip(workers, self._pool.map(some, workers), strict=True):
            results[worker :: self._threads] = part
        return results

    def _states(self) -> dict[str, npt.NDArray[Any]]:
        """All arrays that steps change, by name."""
        return {
            f"{piece.prefix}{slot}/{name}": x
            for piece, learned in zip(self._pieces, self._learned, strict=True)
            for slot, each in learned.items()
            for name, x in each.state.items()
        }

    def _write(self, path: Path) -> None:
        numbers = (self._step, self._best, self._before, self._after)
        write(path, self._check, numbers, self._states(), self._encoded)

    def _read(self, path: Path) -> bool:
        found = read(path, self._check, self._states())
        if found is None:
            return False
        (step, best, self._before, self._after), self._encoded = found
        self._step, self._best = int(step), int(best)
        for each in (each for learned in self._learned for each in learned.values()):
            each.count(self._step)
        return True

    def close(self) -> None:
        """Free the memory of programs."""
        for piece in (*self._teacher, *self._pieces):
            piece.shape.close()
