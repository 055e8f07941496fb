"""Channels of like size, exactly: powers of two moved between tensors that meet.

Trained models have channels far larger than the rest; where 32 activations share one int8 scale,
such a channel takes the precision of its neighbours. The gain of an RMSNorm and the columns of the
matrices behind it, or a row of `ffn_up` and a column of `ffn_down`, may be scaled against each
other without changing the model: by a power of two not even its rounding in float32. So a channel
whose columns are 2^k times the typical ones gets gain * 2^k and columns * 2^-k, if |k| >= 2.

Sizes are root mean squares, of rows scaled to length one first, so that large rows do not decide
for the columns. Source of the idea: Nagel et al. 2019, Data-Free Quantization through Weight
Equalization; Xiao et al. 2023, SmoothQuant.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from halfbyte.formats import ModelFile
from halfbyte.quantize.encode import Codec, slices
from halfbyte.quantize.recipe import hidden_pairs
from halfbyte.weights import Tensor

F32 = npt.NDArray[np.float32]

MIN_EXPONENT = 2  # smaller exponents are left alone
MAX_EXPONENT = 24  # larger ones come from channels that are dead, or nearly


@dataclass
class Scales:
    """Powers of two by tensor: of a matrix's columns (or a vector's elements) and its rows."""

    columns: dict[str, F32] = field(default_factory=dict)
    rows: dict[str, F32] = field(default_factory=dict)

    def apply(self, name: str, first: int, values: F32) -> F32:
        """Scaled copy of rows `first`... of a tensor; the same array where nothing is to do."""
        with np.errstate(over="ignore"):  # what is not finite is refused before it is encoded
            if name in self.columns:
                values = values * self.columns[name]
            if name in self.rows:
                values = values * self.rows[name][first : first + len(values), None]
        return values


def exponents(rms: F32) -> npt.NDArray[np.int32]:
    """k = round(log2(size / median size)) where |k| >= MIN_EXPONENT, else 0; [channels] of sizes.

    Sizes that are zero, or squares beyond float32, say nothing: 0.
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

    `done` is told bytes as they are read. Exact only where
    `recipe.equalized` names all that a channel meets.
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
    """RMS of the columns of several matrices together, rows of length one."""
    energy = np.zeros(matrices[0].columns, np.float32)
    for matrix in matrices:
        for part in slices(file, matrix, codec):
            length = np.sqrt(np.einsum("ij,ij->i", part.values, part.values))
            if not np.isfinite(length).all():
                file.check_values(matrix, part.values, part.first)
            length[length == 0] = 1
            codec.add_column_energy(energy, part.values / length[:, None])
            done(part.data.nbytes)
    return np.sqrt(energy / sum(m.shape[0] for m in matrices)).astype(np.float32)


def _row_sizes(
    file: ModelFile, matrix: Tensor, scales: Scales, codec: Codec, done: Callable[[int], None]
) -> F32:
    """RMS of the rows of a matrix whose columns are scaled already."""
    sizes = np.empty(matrix.shape[0], np.float32)
    for part in slices(file, matrix, codec):
        values = scales.apply(matrix.name, part.first, part.values)
        energy = np.einsum("ij,ij->i", values, values)
        sizes[part.first : part.first + len(values)] = np.sqrt(energy / matrix.columns)
        done(part.data.nbytes)
    return sizes
