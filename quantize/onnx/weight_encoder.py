"""Weights as integers with scales: what is written, and how far it is from the original."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
from onnx import TensorProto

from halfbyte.quantize.encode import SLICE, Codec
from halfbyte.quantize.onnx import blocks
from halfbyte.quantize.onnx.editor import TYPES, Editor, Weight
from halfbyte.quantize.onnx.model_writer import Payload
from halfbyte.quantize.onnx.source import Source
from halfbyte.quantize.report import Row, decibels
from halfbyte.weights import BF16, F16, F32, Tensor, WeightFormat

F32Array = npt.NDArray[np.float32]
U8 = npt.NDArray[np.uint8]
Array = npt.NDArray[Any]

FORMATS: dict[int, type[WeightFormat]] = {
    TensorProto.FLOAT: F32, TensorProto.FLOAT16: F16, TensorProto.BFLOAT16: BF16,
}  # fmt: skip
"""Formats of the types that are quantized."""


class Numbers:
    """A constant's numbers, some rows at a time.

    Attributes
    ----------
    rows : int
        Length of the first dimension.
    columns : int
        Numbers of a row, all other dimensions together.
    """

    def __init__(self, source: Source, tensor: TensorProto) -> None:
        self.source, self.tensor = source, tensor
        self.shape = tuple(tensor.dims)
        self.rows = self.shape[0] if self.shape else 1
        self.columns = int(np.prod(self.shape[1:], dtype=np.int64))
        self.format = FORMATS[tensor.data_type]
        self._data = source.data(tensor).reshape(self.rows, -1)

    @property
    def nbytes(self) -> int:
        """Bytes that they take now."""
        return self._data.nbytes

    @property
    def size(self) -> int:
        """How many they are."""
        return self.rows * self.columns

    def take(self, first: int, count: int) -> F32Array:
        """Rows as float32 [count, columns]; a copy where the file has them at an odd address."""
        self.source.file.check()
        x = self.format.decode(np.ascontiguousarray(self._data[first : first + count]))
        return np.require(x, requirements=["C", "A"])

    def take_columns(self, first: int, count: int) -> F32Array:
        """Columns, as rows: float32 [count, rows]."""
        self.source.file.check()
        width = self._data.shape[1] // self.columns
        part = self._data[:, first * width : (first + count) * width]
        return np.ascontiguousarray(self.format.decode(np.ascontiguousarray(part)).T)

    def slices(self) -> Iterator[tuple[int, F32Array]]:
        """All rows, a few at a time, with the number of the first; pages are given back."""
        step = max(1, SLICE // max(self.columns, 1))
        for first in range(0, self.rows, step):
            yield first, self.take(first, step)
            self.source.file.forget()

    def top(self) -> float:
        """The largest magnitude; raises `FormatError` for values that are not finite."""
        shown = Tensor(self.tensor.name, self.format, (self.rows, self.columns), self._data)
        parts = (self.source.file.check_values(shown, x, first) for first, x in self.slices())
        return max(parts, default=0.0)


@dataclass
class Result:
    """A tensor in its new type; what is measured is known once it is written."""

    weight: Weight
    type: str
    note: str = ""
    size: int = 0  # bytes, scales among them
    names: tuple[str, ...] = ()  # of the new tensors: the numbers, and scales if it has any
    energy: npt.NDArray[np.float64] = field(default_factory=lambda: np.zeros(2))
    weighted: npt.NDArray[np.float64] | None = None  # error of plain rounding and of the search
    scales: F32Array = field(default_factory=lambda: np.ones(1, np.float32))  # of channels

    def row(self) -> Row:
        """The report's line."""
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
    """Makes new tensors of a model's weights; they are encoded while the model is written.

    Parameters
    ----------
    editor : Editor
        The model.
    codec : Codec
        What encodes.
    rtn : bool
        Plain rounding, without a search of scales.
    advance : callable
        Called with bytes of input as they are done.
    """

    def __init__(
        self, editor: Editor, codec: Codec, rtn: bool, advance: Callable[[int], None]
    ) -> None:
        self.editor, self.codec, self.rtn, self.advance = editor, codec, rtn, advance
        self.results: dict[tuple[object, ...], Result] = {}
        self._tops: dict[str, float] = {}

    def numbers(self, weight: Weight) -> Numbers:
        """A weight's numbers as its tensor has them."""
        return Numbers(self.editor.source, weight.tensor)

    def top(self, weight: Weight) -> float:
        """The largest magnitude; raises `FormatError` for values that are not finite."""
        if weight.name not in self._tops:
            self._tops[weight.name] = self.numbers(weight).top()
        return self._tops[weight.name]

    def blocks(
        self,
        weight: Weight,
        bits: int,
        *,
        by_rows: bool,
        flat: bool = False,
        turned: bool = False,
        factor: float | F32Array = 1.0,
        importance: F32Array | None = None,
        note: str = "",
    ) -> Result:
        """Codes uint8 [N, blocks, bytes] and scales [N, blocks] of Q8_0 or Q4_0.

        Parameters
        ----------
        weight : Weight
            A matrix.
        bits : int
            8 or 4.
        by_rows : bool
            N are the rows of the matrix as it is read, else its columns.
        flat : bool
            Codes as rows [N, bytes of K codes], without what fills the last block up.
        turned : bool
            Each 32 weights of a row come times the Hadamard matrix over 4, which undoes that of
            activations over 8. K is then a multiple of 32.
        factor : float, or float32 [K]
            Multiplies every weight, or each column's, before that.
        importance : float32 [K], optional
            Weight of each column's squared error in the search; by default all count alike.
        """
        columns = by_rows == weight.transposed  # of the tensor, as it lies
        scaled = np.asarray(factor).tobytes()
        key = (weight.name, bits, columns, flat, turned, scaled, weight.data_type)
        if key in self.results:
            return self.results[key]
        format_, numbers = blocks.FORMATS[bits], self.numbers(weight)
        n, k = (numbers.columns, numbers.rows) if columns else (numbers.rows, numbers.columns)
        result = Result(weight, format_.name, note)
        if not self.rtn:
            result.weighted = np.zeros(2)
        scales = np.zeros((n, blocks.block_count(k)), dtype_of(weight.data_type))
        factors = np.asarray(factor, np.float32)
        x_importance = blocks.padded(
            np.ones((1, k), np.float32) if importance is None else importance[None]
        )[0]

        def codes() -> Iterator[Array]:
            take = numbers.take_columns if columns else numbers.take
            step = max(1, SLICE // max(k, 1))
            for first in range(0, n, step):
                x = blocks.padded(take(first, step) * factors)
                x = self.codec.hadamard(x) * np.float32(2) if turned else x
                if self.rtn:
                    encoded = self.codec.encode(format_, x)
                else:
                    encoded, error = self.codec.search(format_, x, x_importance)
                    result.weighted += error.sum(axis=0, dtype=np.float64)
                decoded = self.codec.decode(format_, encoded, x.shape[1])
                result.energy += self.codec.square_error(x, decoded)
                part, scales[first : first + step] = blocks.split(encoded, bits)
                yield part.reshape(len(x), -1)[:, : shape[1]] if flat else part
                self.editor.source.file.forget()
                self.advance(len(x) * numbers.nbytes // n)

        shape: tuple[int, ...] = (n, blocks.block_count(k), blocks.BLOCK * bits // 8)
        if flat:
            shape = (n, k * bits // 8)
        result.names = self._add(f"{weight.name}.q{bits}", TensorProto.UINT8, shape, codes,
                                 scales, weight.data_type)  # fmt: skip
        result.size = int(np.prod(shape, dtype=np.int64)) + scales.nbytes
        self.results[key] = result
        return result

    def channels(
        self,
        weight: Weight,
        axis: int | None,
        *,
        factor: float | F32Array = 1.0,
        note: str = "",
    ) -> Result:
        """Codes int8, -127 ... 127, in the tensor's own shape and order, and their scales.

        A scale is the largest magnitude over 127: of each channel along `axis`, or of all where
        that is None. A channel of zeros has scale 1. All is multiplied by `factor`, or each part
        along the first axis by one of them.
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

        def codes() -> Iterator[Array]:
            for first, x in parts():
                d = along(scales, numbers, axis, first, len(x))
                q = np.clip(np.rint(x / d), -127, 127)
                result.energy += self.codec.square_error(x, np.ascontiguousarray(q * d))
                yield q.astype(np.int8)
                self.advance(len(x) * numbers.nbytes // numbers.rows)

        stored = scales if axis is not None else scales.reshape(())
        stored = stored.astype(dtype_of(weight.data_type))
        result.names = self._add(f"{weight.name}.q8", TensorProto.INT8, numbers.shape, codes,
                                 stored, weight.data_type)  # fmt: skip
        result.size = numbers.size + stored.nbytes
        self.results[key] = result
        return result

    def narrowed(self, weight: Weight, data_type: int, note: str = "") -> Result:
        """The numbers as float16 or bfloat16, in the tensor's own shape and order."""
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
        codes: Callable[[], Iterator[Array]],
        scales: Array,
        scale_type: int,
    ) -> tuple[str, str]:
        """Tensors of codes, and after them of the scales that are known then."""
        size = int(np.prod(shape, dtype=np.int64))
        first = self.editor.add_payload(name, data_type, shape, Payload(size, codes))
        second = self.editor.add_payload(
            f"{first}_scale", scale_type, scales.shape,
            Payload(scales.nbytes, lambda: iter([scales])),
        )  # fmt: skip
        return first, second


def _part(factor: float | F32Array, first: int, count: int) -> F32Array | np.float32:
    """What rows are multiplied by."""
    if isinstance(factor, np.ndarray):
        made: F32Array = factor[first : first + count, None]
        return made
    return np.float32(factor)


def _channel_scales(
    numbers: Numbers,
    parts: Iterator[tuple[int, F32Array]],
    axis: int | None,
    dtype: np.dtype[Any],
) -> F32Array:
    """The largest magnitude of each channel over 127, as numbers of `dtype`; never 0."""
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
    """Scales of the channels along `axis` as they meet some rows [count, columns]."""
    if axis is None:
        return scales
    if axis == 0:
        return scales[first : first + count, None]
    shape = [1] * len(numbers.shape)
    shape[axis] = len(scales)
    return np.broadcast_to(scales.reshape(shape), (1, *numbers.shape[1:])).reshape(1, -1)


def dtype_of(data_type: int) -> np.dtype[Any]:
    """NumPy's type of scales beside weights of a type."""
    return np.dtype(np.float16 if data_type == TensorProto.FLOAT16 else np.float32)
