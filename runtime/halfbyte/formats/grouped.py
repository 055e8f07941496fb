"""int8 tensors with one float32 scale per group of consecutive weights, given in GGUF's formats."""

from __future__ import annotations

import weakref

import numpy as np
import numpy.typing as npt

from halfbyte.weights import F32, Q8_0, U8, F32Array, Tensor, WeightFormat


class GroupedTensor(Tensor):
    """A tensor whose bytes are made from int8 groups each time `data` is asked for.

    The result is the caller's to keep: while it lives, asking again gives the same array; then
    its memory is free. So a reader that takes one tensor at a time needs memory for one.

    Parameters
    ----------
    q : int8 [numel]
    scales : float32 [numel / group]
        Weights are q times the scale of their group.
    """

    q: npt.NDArray[np.int8]
    scales: F32Array

    def __init__(
        self, name: str, shape: tuple[int, ...], q: npt.NDArray[np.int8], scales: F32Array
    ) -> None:
        group = q.size // scales.size
        blocks = group % Q8_0.block == 0 and shape[-1] % Q8_0.block == 0
        weight_format: type[WeightFormat] = Q8_0 if blocks else F32
        for field, value in {
            "name": name, "format": weight_format, "shape": shape, "q": q, "scales": scales,
            "_made": None,
        }.items():  # fmt: skip
            object.__setattr__(self, field, value)

    @property
    def data(self) -> U8:
        """The tensor's bytes in its `format`."""
        made: U8 | None = self._made() if self._made is not None else None
        if made is None:
            made = self._make()
            object.__setattr__(self, "_made", weakref.ref(made))
        return made

    _made: weakref.ref[U8] | None

    def _make(self) -> U8:
        groups = self.q.reshape(len(self.scales), -1)
        if self.format is F32:
            values = groups * self.scales[:, None]
            return values.reshape(-1).view(np.uint8)
        blocks = np.empty(self.q.size // Q8_0.block, Q8_0.layout)
        blocks["qs"] = self.q.reshape(-1, Q8_0.block)
        blocks["d"] = self.scales.repeat(groups.shape[1] // Q8_0.block)
        return blocks.view(np.uint8)


def scale_error(scales: F32Array) -> float:
    """Largest relative error of rounding scales to F16."""
    used = scales[scales > 0]
    if used.size == 0:
        return 0.0
    return float(np.max(np.abs(used.astype(np.float16).astype(np.float32) - used) / used))
