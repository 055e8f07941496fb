"""New tensors of weights: quantized with scales, or in a narrower float type.

Shapes are known at once; the numbers are computed while the model is written. So is the error of
each tensor, which the report needs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
from onnx import TensorProto

from halfbyte.errors import FormatError
from halfbyte.quantize import compensation
from halfbyte.quantize.compensation import Gram
from halfbyte.quantize.encode import SLICE, Codec
from halfbyte.quantize.onnx import blocks
from halfbyte.quantize.onnx.editor import TYPES, Editor, Weight
from halfbyte.quantize.onnx.model_writer import Payload
from halfbyte.quantize.onnx.numbers import FORMATS, F32Array, Numbers, dtype_of
from halfbyte.quantize.report import Row, decibels
from halfbyte.quantize.tuning.blas import single_threaded
from halfbyte.weights import ScaledFormat

U8 = npt.NDArray[np.uint8]
Array = npt.NDArray[Any]
Factors = tuple[F32Array, F32Array]  # as `compensation.factors` returns them


@dataclass
class Result:
    """A tensor in its new type; sums of errors are complete once it is written."""

    weight: Weight
    type: str
    note: str = ""
    size: int = 0  # bytes, including scales
    names: tuple[str, ...] = ()  # of the new tensors: the numbers, and the scales if it has any
    energy: npt.NDArray[np.float64] = field(default_factory=lambda: np.zeros(2))
    weighted: npt.NDArray[np.float64] | None = None  # errors of plain rounding and of the search
    scales: F32Array = field(default_factory=lambda: np.ones(1, np.float32))  # of channels

    def row(self) -> Row:
        """The row of the report."""
        tensor = self.weight.tensor
        return Row(
            name=tensor.name,
            shape=tuple(tensor.dims),
            source=TYPES[tensor.data_type],
            type=self.type,
            bytes=self.size,
            bits_per_weight=8 * self.size / max(int(np.prod(tensor.dims, dtype=np.int64)), 1),
            snr_db=decibels(*self.energy),
            search_gain_db=None if self.weighted is None else decibels(*self.weighted),
            equalized=0,
            note=self.note,
        )


class Encoder:
    """Adds new tensors of a model's weights; they are encoded while the model is written.

    Parameters
    ----------
    editor : Editor
        The model.
    codec : Codec
    rtn : bool
        Round to nearest, without a search of scales.
    advance : callable
        Called with the number of input bytes that were processed.
    """

    def __init__(
        self, editor: Editor, codec: Codec, rtn: bool, advance: Callable[[int], None]
    ) -> None:
        self.editor, self.codec, self.rtn, self.advance = editor, codec, rtn, advance
        self.results: dict[tuple[object, ...], Result] = {}
        self._tops: dict[str, float] = {}

    def numbers(self, weight: Weight) -> Numbers:
        """The numbers of a weight as stored."""
        return Numbers(self.editor.source, weight.tensor)

    def top(self, weight: Weight) -> float:
        """The largest magnitude; raises `FormatError` for values that are not finite."""
        if weight.name not in self._tops:
            self._tops[weight.name] = self.numbers(weight).top()
        return self._tops[weight.name]

    def has_infinities(self, weight: Weight) -> bool:
        """Whether numbers are infinite, and none is NaN."""
        if weight.tensor.data_type not in FORMATS:
            return False
        try:
            self.top(weight)
        except FormatError:
            return not any(np.isnan(x).any() for _, x in self.numbers(weight).slices())
        return False

    def blocks(
        self,
        weight: Weight,
        bits: int,
        *,
        by_rows: bool,
        flat: bool = False,
        rotated: bool = False,
        factor: float | F32Array = 1.0,
        importance: F32Array | None = None,
        gram: Callable[[], Gram | None] = lambda: None,
        note: str = "",
    ) -> Result:
        """Quantized values uint8 [N, blocks, bytes] and scales [N, blocks] of Q8_0 or Q4_0.

        Parameters
        ----------
        weight : Weight
            A matrix.
        bits : int
            8 or 4.
        by_rows : bool
            Whether N are the rows of the matrix as it is read; otherwise its columns.
        flat : bool
            Whether quantized values are rows [N, bytes], without the padding of the last block.
        rotated : bool
            Multiply each 32 weights of a row by the Hadamard matrix / 4, which undoes the rotation
            of activations by the matrix / 8. K must be a multiple of 32.
        factor : float, or float32 [K]
            Multiplies all weights, or each column, before the rotation.
        importance : float32 [K], optional
            Weight of each column's squared error in the search; by default all are equal.
        gram : callable, optional
            Returns the Gram matrix of the rows that the matrix multiplies, before `factor` and the
            rotation: rounding then is that of `halfbyte.quantize.compensation`.
        """
        columns = by_rows == weight.transposed  # of the tensor as stored
        key = (
            weight.name, bits, columns, flat, rotated, np.asarray(factor).tobytes(),
            weight.data_type,
        )  # fmt: skip
        if key in self.results:
            return self.results[key]
        format_, numbers = blocks.FORMATS[bits], self.numbers(weight)
        n, k = (numbers.columns, numbers.rows) if columns else (numbers.rows, numbers.columns)
        result = Result(weight, format_.name, note)
        if not self.rtn:
            result.weighted = np.zeros(2)
        scales = np.zeros((n, blocks.block_count(k)), dtype_of(weight.data_type))
        shape: tuple[int, ...] = (n, blocks.block_count(k), blocks.BLOCK * bits // 8)
        if flat:
            shape = (n, k * bits // 8)
        ones = np.ones(k, np.float32) if importance is None else importance
        weights = blocks.padded(ones[None])[0]

        def parts() -> Iterator[Array]:
            take = numbers.take_columns if columns else numbers.take
            factors = self._compensation(gram(), factor, rotated=rotated)
            step = max(1, SLICE // max(k, 1))
            for first in range(0, n, step):
                x = blocks.padded(take(first, step) * np.asarray(factor, np.float32))
                x = self.codec.hadamard(x) * np.float32(2) if rotated else x
                encoded = self._encoded_blocks(format_, x, weights, factors, result)
                part, scales[first : first + step] = blocks.split(encoded, bits)
                yield part.reshape(len(x), -1)[:, : shape[1]] if flat else part
                self.editor.source.file.forget()
                self.advance(len(x) * numbers.nbytes // n)

        result.names = self._add(f"{weight.name}.q{bits}", TensorProto.UINT8, shape, parts,
                                 scales, weight.data_type)  # fmt: skip
        result.size = int(np.prod(shape, dtype=np.int64)) + scales.nbytes
        self.results[key] = result
        return result

    def _compensation(
        self, gram: Gram | None, factor: float | F32Array, *, rotated: bool
    ) -> Factors | None:
        """What `compensation` needs, of rows that are divided by `factor` and rotated."""
        if gram is None or self.rtn or not np.all(factor):
            return None
        scales = np.broadcast_to(np.asarray(factor, np.float32), len(gram.matrix))
        h = gram.matrix / scales / scales[:, None]
        for _ in range(2):  # rows, then columns
            h = blocks.padded(h)
            h = np.ascontiguousarray((self.codec.hadamard(h) if rotated else h).T)
        with single_threaded():
            return compensation.factors(h, gram.rows)

    def _encoded_blocks(
        self,
        format_: type[ScaledFormat],
        x: F32Array,
        importance: F32Array,
        factors: Factors | None,
        result: Result,
    ) -> U8:
        """Rows of blocks; their errors are added to the result."""
        if factors is not None:
            result.weighted = None
            with single_threaded():
                encoded = compensation.compensated(x, *factors, format_, self.codec.steps)
        elif result.weighted is None:  # --rtn
            encoded = self.codec.encode(format_, x)
        else:
            encoded, error = self.codec.search(format_, x, importance)
            result.weighted += error.sum(axis=0, dtype=np.float64)
        decoded = self.codec.decode(format_, encoded, x.shape[1])
        result.energy += self.codec.square_error(x, decoded)
        return encoded

    def channels(
        self,
        weight: Weight,
        axis: int | None,
        *,
        factor: float | F32Array = 1.0,
        note: str = "",
    ) -> Result:
        """Quantized values int8, -127 ... 127, in the tensor's own shape, and their scales.

        A scale is the largest magnitude / 127, of each channel along `axis`, or of the tensor where
        `axis` is None. A channel of zeros has scale 1. `factor` multiplies the tensor first: one
        number, or one for each part along the first axis.
        """
        key = (weight.name, "int8", axis, np.asarray(factor).tobytes(), weight.data_type)
        if key in self.results:
            return self.results[key]
        numbers = self.numbers(weight)
        result = Result(weight, "int8", note)

        def parts() -> Iterator[tuple[int, F32Array]]:
            for first, x in numbers.slices():
                yield first, x * _part(factor, first, len(x))

        scales = _channel_scales(numbers, parts(), axis, dtype_of(weight.data_type))
        result.scales = scales

        def quantized() -> Iterator[Array]:
            for first, x in parts():
                d = along(scales, numbers, axis, first, len(x))
                q = np.clip(np.rint(x / d), -127, 127)
                result.energy += self.codec.square_error(x, np.ascontiguousarray(q * d))
                yield q.astype(np.int8)
                self.advance(len(x) * numbers.nbytes // numbers.rows)

        stored = scales if axis is not None else scales.reshape(())
        stored = stored.astype(dtype_of(weight.data_type))
        result.names = self._add(f"{weight.name}.q8", TensorProto.INT8, numbers.shape, quantized,
                                 stored, weight.data_type)  # fmt: skip
        result.size = numbers.size + stored.nbytes
        self.results[key] = result
        return result

    def narrowed(self, weight: Weight, data_type: int, note: str = "") -> Result:
        """The numbers as float16 or bfloat16, in the tensor's own shape."""
        key = (weight.name, data_type)
        if key in self.results:
            return self.results[key]
        format_, numbers = FORMATS[data_type], self.numbers(weight)
        result = Result(weight, format_.name, note)

        def parts() -> Iterator[Array]:
            for _, x in numbers.slices():
                encoded = self.codec.encode(format_, np.ascontiguousarray(x))
                decoded = self.codec.decode(format_, encoded, x.shape[1])
                result.energy += self.codec.square_error(x, decoded)
                yield encoded
                self.advance(len(x) * numbers.nbytes // numbers.rows)

        result.size = numbers.size * format_.block_bytes
        name = self.editor.add_payload(
            f"{weight.name}.{format_.name.lower()}", data_type, numbers.shape,
            Payload(result.size, parts),
        )  # fmt: skip
        result.names = (name,)
        self.results[key] = result
        return result

    def _add(
        self,
        name: str,
        data_type: int,
        shape: tuple[int, ...],
        quantized: Callable[[], Iterator[Array]],
        scales: Array,
        scale_type: int,
    ) -> tuple[str, str]:
        """Add quantized values, and after them their scales, which are known by then."""
        size = int(np.prod(shape, dtype=np.int64))
        first = self.editor.add_payload(name, data_type, shape, Payload(size, quantized))
        second = self.editor.add_payload(
            f"{first}_scale", scale_type, scales.shape,
            Payload(scales.nbytes, lambda: iter([scales])),
        )  # fmt: skip
        return first, second


def _part(factor: float | F32Array, first: int, count: int) -> F32Array | np.float32:
    """The factor of some rows."""
    if isinstance(factor, np.ndarray):
        column: F32Array = factor[first : first + count, None]
        return column
    return np.float32(factor)


def _channel_scales(
    numbers: Numbers,
    parts: Iterator[tuple[int, F32Array]],
    axis: int | None,
    dtype: np.dtype[Any],
) -> F32Array:
    """The largest magnitude / 127 of each channel, rounded to `dtype`; never 0."""
    tops = np.zeros(1 if axis is None else numbers.shape[axis], np.float32)
    for first, x in parts:
        size = np.abs(x)
        if axis is None:
            tops = np.maximum(tops, size.max())
        elif axis == 0:
            tops[first : first + len(x)] = size.max(axis=1)
        else:
            other = (*range(axis), *range(axis + 1, len(numbers.shape)))
            tops = np.maximum(tops, size.reshape(len(x), *numbers.shape[1:]).max(axis=other))
    scales = (tops / np.float32(127)).astype(dtype)
    return np.where(scales > 0, scales, np.float32(1)).astype(np.float32)


def along(scales: F32Array, numbers: Numbers, axis: int | None, first: int, count: int) -> F32Array:
    """Scales of channels along `axis`, in a shape that broadcasts to rows [count, columns]."""
    if axis is None:
        return scales
    if axis == 0:
        return scales[first : first + count, None]
    shape = [1] * len(numbers.shape)
    shape[axis] = len(scales)
    return np.broadcast_to(scales.reshape(shape), (1, *numbers.shape[1:])).reshape(1, -1)
