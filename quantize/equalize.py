"""Equalizing channels exactly, by moving powers of two between tensors.

Trained models have channels far larger than the rest; where 32 activations share one int8 scale,
such a channel costs its neighbours precision. The gain of an RMSNorm and the columns of the
matrices that read it, or a row of `ffn_up` and a column of `ffn_down`, may be scaled against each
other without changing the model; by powers of two, not even its rounding in float32 changes. So a
channel whose columns are 2^k times the typical ones gets gain * 2^k and columns * 2^-k, if
|k| >= 2. This needs all tensors that a channel reaches: the architecture lists them, and a bias
excludes its channel.

Sizes are root mean squares, of rows scaled to length one first, so that large rows do not dominate
the columns. Source of the idea: Nagel et al. 2019, Data-Free Quantization through Weight
Equalization; Xiao et al. 2023, SmoothQuant.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from halfbyte.formats import ModelFile
from halfbyte.formats.derived import DerivedTensor
from halfbyte.quantize.encode import Codec, slices
from halfbyte.quantize.recipe import hidden_pairs
from halfbyte.weights import F32 as FLOAT
from halfbyte.weights import U8, Tensor

F32 = npt.NDArray[np.float32]

MIN_EXPONENT = 2  # smaller ones are ignored
MAX_EXPONENT = 24  # larger ones come from dead channels


@dataclass
class Scales:
    """Powers of two by tensor, for columns of matrices (or elements of vectors) and for rows."""

    columns: dict[str, F32] = field(default_factory=dict)
    rows: dict[str, F32] = field(default_factory=dict)

    def apply(self, name: str, first: int, values: F32) -> F32:
        """Rows of a tensor from `first` on, scaled; the same array where there are no scales."""
        with np.errstate(over="ignore"):  # checked before it is encoded
            if name in self.columns:
                values = values * self.columns[name]
            if name in self.rows:
                values = values * self.rows[name][first : first + len(values), None]
        return values

    def of_file(self, file: ModelFile) -> ModelFile:
        """The model with its tensors scaled, which are computed as they are needed."""
        names = self.columns.keys() | self.rows.keys()
        scaled = {name: self._scaled(file.tensors[name]) for name in names}
        return replace(file, tensors={**file.tensors, **scaled})

    def _scaled(self, tensor: Tensor) -> Tensor:
        def make(first: int, count: int) -> U8:
            values = tensor.format.decode(np.asarray(tensor.take(first, count)))
            return FLOAT.encode(np.ascontiguousarray(self.apply(tensor.name, first, values)))

        return DerivedTensor(tensor.name, FLOAT, tensor.shape, make)


def exponents(rms: F32) -> npt.NDArray[np.int32]:
    """k = round(log2(size / median size)) where |k| >= MIN_EXPONENT, else 0; for sizes [channels].

    It is 0 where a size is zero or not finite.
    """
    known = (rms > 0) & np.isfinite(rms)
    bounded = np.zeros(rms.shape, np.int32)
    if known.any():
        sizes = rms[known].astype(np.float64)
        k = np.rint(np.log2(sizes / np.median(sizes)))
        k[np.abs(k) < MIN_EXPONENT] = 0
        bounded[known] = np.clip(k, -MAX_EXPONENT, MAX_EXPONENT)
    return bounded


def find_scales(
    file: ModelFile,
    groups: dict[str, list[str]],
    codec: Codec,
    done: Callable[[int], None] = lambda nbytes: None,
) -> Scales:
    """Scales for a model whose norms and their readers are `groups` (see `recipe.norm_groups`).

    `done` is called with the bytes read. The result is exact only where `recipe.equalized` lists
    all tensors that a channel reaches.
    """
    scales = Scales()
    for norm, readers in groups.items():
        k = exponents(_column_sizes(file, [file.tensors[r] for r in readers], codec, done))
        if k.any():
            scales.columns[norm] = np.exp2(k).astype(np.float32)
            scales.columns |= dict.fromkeys(readers, np.exp2(-k).astype(np.float32))
    for up, down in hidden_pairs(file).items():
        k = exponents(_row_sizes(file, file.tensors[up], scales, codec, done))
        if k.any():
            scales.rows[up] = np.exp2(-k).astype(np.float32)
            scales.columns[down] = np.exp2(k).astype(np.float32)
    return scales


def _column_sizes(
    file: ModelFile, matrices: list[Tensor], codec: Codec, done: Callable[[int], None]
) -> F32:
    """RMS of the columns of several matrices together, with rows scaled to length one."""
    energy = np.zeros(matrices[0].columns, np.float32)
    for matrix in matrices:
        for part in slices(file, matrix, codec):
            length = np.sqrt(np.einsum("ij,ij->i", part.values, part.values))
            if not np.isfinite(length).all():
                file.check_values(matrix, part.values, part.first)
            length[length == 0] = 1
            codec.add_column_energy(energy, part.values / length[:, None])
            done(part.data.nbytes)
    return np.sqrt(energy / sum(m.row_count for m in matrices)).astype(np.float32)


def _row_sizes(
    file: ModelFile, matrix: Tensor, scales: Scales, codec: Codec, done: Callable[[int], None]
) -> F32:
    """RMS of the rows of a matrix after the scaling of its columns."""
    sizes = np.empty(matrix.shape[0], np.float32)
    for part in slices(file, matrix, codec):
        values = scales.apply(matrix.name, part.first, part.values)
        energy = np.einsum("ij,ij->i", values, values)
        sizes[part.first : part.first + len(values)] = np.sqrt(energy / matrix.columns)
        done(part.data.nbytes)
    return sizes
