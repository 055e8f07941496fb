"""What is learned: scales and minima of matrices, and vectors.

A run of the model sees exactly the numbers that the file would hold: scales are rounded as the
format stores them, and gradients pass through that rounding as if it were not there. Integers stay
as they are. Source of the idea: Apple 2025, mlx-lm's DWQ.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
import numpy.typing as npt

from halfbyte.weights import F32, U8, F32Array, ScaledFormat, Tensor, WeightFormat

_FADING = (0.9, 0.95)  # of Adam's two means
_VECTORS = np.float32(0.5)  # steps of vectors, in parts of their mean magnitude


class Adam:
    """Means of gradients and of their squares, and the step that follows from them.

    Source: Kingma and Ba 2015.
    """

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.mean, self.square = np.zeros((2, *shape), np.float32)
        self.count = 0

    def step(self, gradient: F32Array) -> F32Array:
        """About 1 in magnitude where a gradient keeps its sign."""
        self.count += 1
        for mean, new, fading in (
            (self.mean, gradient, _FADING[0]), (self.square, gradient * gradient, _FADING[1]),
        ):  # fmt: skip
            mean += np.float32(1 - fading) * (new - mean)
        first, second = (np.float32(1 - fading**self.count) for fading in _FADING)
        step: F32Array = (self.mean / first) / (np.sqrt(self.square / second) + np.float32(1e-20))
        return step


class Learned(Protocol):
    """A tensor of which something is learned."""

    @property
    def state(self) -> dict[str, npt.NDArray[np.float32]]:
        """The arrays that change, to be read or filled."""

    def values(self) -> F32Array:
        """The numbers that the file would hold."""

    def encoded(self) -> U8:
        """Their bytes, [rows, row_bytes]."""

    def descend(self, gradient: F32Array, rate: float) -> None:
        """A step against the gradient of the values."""

    def count(self, steps: int) -> None:
        """Go on after so many steps."""


class Vector:
    """A norm's gain or a bias, in F32."""

    def __init__(self, start: F32Array) -> None:
        self._x, self._adam = start.astype(np.float32).copy(), Adam(start.shape)
        self._unit = np.abs(self._x).mean() * _VECTORS

    @property
    def state(self) -> dict[str, F32Array]:
        """See :class:`Learned`."""
        return {"x": self._x, "mean": self._adam.mean, "square": self._adam.square}

    def values(self) -> F32Array:
        """See :class:`Learned`."""
        return self._x

    def encoded(self) -> U8:
        """See :class:`Learned`."""
        return F32.encode(self._x.reshape(1, -1).copy())  # steps go on changing it

    def descend(self, gradient: F32Array, rate: float) -> None:
        """See :class:`Learned`."""
        self._x -= np.float32(rate) * self._unit * self._adam.step(gradient)

    def count(self, steps: int) -> None:
        """See :class:`Learned`."""
        self._adam.count = steps


class Matrix:
    """Rows d q + m of a scaled format: d and m are learned, q are the integers of the start.

    Where there is an m, a step of d leaves the middle of a block's values where it is, as it does
    in formats whose middle is 0: otherwise a step of d would move all values.

    Memory: a byte a weight and, for a scale or minimum, sixteen bytes.
    """

    def __init__(self, tensor: Tensor) -> None:
        format_ = _scaled(tensor)
        self.format, self._data = format_, np.asarray(tensor.rows)
        q, d, m = format_.quantized(self._data)
        if m is not None and not format_.minimum:  # products see integers from 0 on
            q, m = q + np.int8(format_.levels.low), None
        rows, blocks = len(q), tensor.columns // format_.block
        shape = (rows, blocks, format_.block // format_.part)
        finer = d.shape[1] // (shape[1] * shape[2])  # formats that products add in halves
        self._q = q.reshape(*shape, format_.part)
        self._d = d[:, ::finer].reshape(shape).copy()
        self._m = (np.zeros_like(d) if m is None else m)[:, ::finer].reshape(shape).copy()
        self._unit = np.abs(self._d)
        self._adams = {"d": Adam(shape)} | ({"m": Adam(shape)} if format_.minimum else {})

    @property
    def state(self) -> dict[str, F32Array]:
        """See :class:`Learned`."""
        state = {"d": self._d}
        if self.format.minimum:
            state["m"] = self._m
        for name, adam in self._adams.items():
            state |= {f"{name}.mean": adam.mean, f"{name}.square": adam.square}
        return state

    def values(self) -> F32Array:
        """See :class:`Learned`."""
        blocks = np.empty(self._d.shape[:2], self.format.layout)
        with np.errstate(all="ignore"):
            by = self.format.rounded(blocks, self._d, self._m)
        values = self._q * by.d[..., None]
        if self.format.minimum:
            values += by.m[..., None]
        return values.reshape(len(values), -1)

    def encoded(self) -> U8:
        """See :class:`Learned`."""
        data = self._data.copy()
        with np.errstate(all="ignore"):
            self.format.rounded(data.view(self.format.layout), self._d, self._m)
        return data

    def descend(self, gradient: F32Array, rate: float) -> None:
        """See :class:`Learned`."""
        parts = gradient.reshape(self._q.shape)
        step = np.float32(rate) * self._unit
        of_scale = np.einsum("rbpi,rbpi->rbp", parts, self._q)
        if not self.format.minimum:
            self._d -= step * self._adams["d"].step(of_scale)
            return
        middle, of_minimum = np.float32(self.format.levels.high / 2), parts.sum(axis=-1)
        by = step * self._adams["d"].step(of_scale - middle * of_minimum)
        self._d -= by
        self._m += middle * by - middle / 2 * step * self._adams["m"].step(of_minimum)
        if self.format.negative:
            np.minimum(self._m, 0, out=self._m)

    def count(self, steps: int) -> None:
        """See :class:`Learned`."""
        for adam in self._adams.values():
            adam.count = steps


def learns(format_: type[WeightFormat]) -> bool:
    """Whether something is learned of its matrices: they have scales that are not powers of two.

    Formats that programs run in another layout are left out: nobody tunes what was trained for
    three values.
    """
    return issubclass(format_, ScaledFormat) and not format_.powers and format_.in_memory is None


def _scaled(tensor: Tensor) -> type[ScaledFormat]:
    if not issubclass(tensor.format, ScaledFormat):
        raise TypeError(f"tensor {tensor.name!r}: expected a scaled format")
    return tensor.format
