"""int8 tensors with one float32 scale per group of consecutive weights, as GGUF's formats."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from halfbyte.errors import FormatError
from halfbyte.formats.derived import DerivedTensor
from halfbyte.weights import F16, F32, Q8_0, U8, F32Array, Tensor, WeightFormat


@dataclass(frozen=True, eq=False)
class Groups:
    """Weights that are int8 times the scale of their group.

    Attributes
    ----------
    q : int8 [numel]
    scales : float32 [numel / group]
    columns : int
        Length of a row; a group may span rows.
    divide : bool
        Weights are int8 divided by their scale instead; zeros if it is infinite.
    """

    q: npt.NDArray[np.int8]
    scales: F32Array
    columns: int
    divide: bool = False

    @property
    def group(self) -> int:
        """The number of weights that share a scale."""
        return self.q.size // self.scales.size

    @property
    def format(self) -> type[WeightFormat]:
        """Q8_0, or F32 if groups or rows are not whole blocks of Q8_0."""
        return F32 if self.group % Q8_0.block or self.columns % Q8_0.block else Q8_0

    def __call__(self, first: int, count: int) -> U8:
        """The bytes of some rows in `format`."""
        elements = slice(first * self.columns, (first + count) * self.columns)
        q, block = self.q[elements], self.format.block
        groups = np.arange(elements.start, elements.stop, block) // self.group
        scales = self._factors(self.scales[groups])
        if self.format is F32:
            return (q * scales).reshape(count, -1).view(np.uint8)
        blocks = np.empty(scales.size, Q8_0.layout)
        blocks["qs"] = q.reshape(-1, block)
        blocks["d"] = scales
        return blocks.reshape(count, -1).view(np.uint8)

    def _factors(self, scales: F32Array) -> F32Array:
        return np.float32(1) / scales if self.divide else scales

    def problem(self) -> str | None:
        """A description of what is wrong with the scales, or None."""
        with np.errstate(all="ignore"):
            factors = self._factors(self.scales)
        if np.all((factors >= 0) & (factors < F16.limit)):
            return None
        what = "1 / scales" if self.divide else "scales"
        return f"{what} are not all in [0, {F16.limit:.0f}), F16's range"

    def scale_error(self) -> float:
        """Largest relative error of rounding the scales to F16."""
        factors = self._factors(self.scales)
        used = factors[factors > 0]
        if used.size == 0:
            return 0.0
        return float(np.max(np.abs(used.astype(np.float16).astype(np.float32) - used) / used))


def grouped_tensor(where: str, name: str, shape: tuple[int, ...], groups: Groups) -> DerivedTensor:
    """A tensor of int8 groups; raises `FormatError` for scales that F16 cannot hold."""
    if problem := groups.problem():
        raise FormatError(f"{where}: tensor {name!r}: {problem}")
    return DerivedTensor(name, groups.format, shape, groups)


def grouped_notes(tensors: dict[str, Tensor]) -> list[str]:
    """A description of how these tensors differ from the file."""
    derived = [t.make for t in tensors.values() if isinstance(t, DerivedTensor)]
    groups = [make for make in derived if isinstance(make, Groups)]
    repacked = [g for g in groups if g.format is Q8_0]
    notes = []
    if repacked:
        worst = max(g.scale_error() for g in repacked)
        notes.append(
            f"{len(repacked)} int8 tensors as Q8_0: weights as in the file, scales rounded to F16 "
            f"(relative error at most {worst:.1e})"
        )
    if widened := len(groups) - len(repacked):
        notes.append(
            f"{widened} int8 tensors as F32: their groups do not fall into Q8_0's blocks of 32"
        )
    return notes
