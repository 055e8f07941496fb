"""Forms of values: the buffers of a program that hold a tensor's elements, as kernels need them.

A `Value` has its elements in the order of its shape, with channels last, or in another buffer whose
dimensions are permuted. They are copied where a kernel needs another form, not where a node says
Transpose.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from halfbyte.core import ops
from halfbyte.core.buffer import Buffer, Kind
from halfbyte.core.dtypes import dtype_key
from halfbyte.core.ops.operator import record_host
from halfbyte.core.program import Program
from halfbyte.errors import ProgramError
from halfbyte.onnx.reference.arrays import check_elements, check_shape
from halfbyte.onnx.shared_weights import SharedWeights
from halfbyte.onnx.size_arrays import is_sized, vector
from halfbyte.onnx.values import Array, Value, is_channels_last, sizes_of
from halfbyte.weights import Tensor

Rounding = Callable[[Buffer], tuple[Buffer, ...]]  # a matrix -> its integers and their scales


class Forms:
    """The values of one program, in all forms that were needed so far.

    Attributes
    ----------
    program : Program
    weights : SharedWeights
    """

    def __init__(self, program: Program, weights: SharedWeights, planning: bool = False) -> None:
        self.program, self.weights = program, weights
        # A plan may be for a machine with more memory than this one.
        self._check: Callable[..., Any] = check_shape if planning else check_elements
        # (operand, rounding) -> the instruction's number and its results
        self._quantized: dict[tuple[Buffer, Rounding], tuple[int, tuple[Buffer, ...]]] = {}
        self._forms: list[tuple[Value, str]] = []  # fields of values that were set later, in order
        self._sized_buffers: dict[int, tuple[Any, Buffer]] = {}  # by the identity of the array
        self._rotated: dict[Buffer, Buffer] = {}  # result of a Hadamard product -> its operand

    def value(self, buffer: Buffer, shape: tuple[int, ...] | None = None) -> Value:
        """A value whose elements are in order in a buffer; `shape` is the buffer's by default."""
        sizes = sizes_of(buffer) if shape is None else shape
        self._check(sizes)
        return Value(buffer.dtype, sizes, plain=buffer.view(sizes))

    def allow(self, shape: Sequence[int], dtype: np.dtype[Any]) -> None:
        """Check the size of a result, before a rule allocates what is about as large.

        Raises
        ------
        MemoryBudgetError
            It does not fit.
        """
        self._check(shape, dtype.itemsize)

    def value_channels_last(self, buffer: Buffer) -> Value:
        """A value [n, c, ...] from a buffer [n, ..., c]."""
        n, *between, channels = sizes_of(buffer)
        return Value(buffer.dtype, (n, channels, *between), channels_last=buffer)

    def plain(self, operand: Value | Array) -> Buffer:
        """A tensor's buffer with its elements in the order of its shape."""
        if not isinstance(operand, Value):
            return self.constant(operand)
        if operand.plain is None:
            operand.plain = self.permuted(*operand.origin()).view(operand.shape)
            self._forms.append((operand, "plain"))
        return operand.plain

    def channels_last(self, value: Value) -> Buffer:
        """The buffer [n, ..., c] of a value [n, c, ...]."""
        if value.channels_last is None:
            buffer, order = value.origin()
            value.channels_last = self.permuted(buffer, (order[0], *order[2:], order[1]))
            self._forms.append((value, "channels_last"))
        return value.channels_last

    def transposed(self, value: Value, perm: Sequence[int]) -> Value:
        """The value with its dimensions permuted; elements are moved only when it is needed."""
        buffer, order = value.origin()
        return self.ordered(buffer, [order[i] for i in perm])

    def ordered(self, buffer: Buffer, order: Sequence[int], *, last: bool = False) -> Value:
        """The value whose dimensions are those of a buffer in this order, in the form that fits.

        One of three dimensions has channels last only if what it came from had (`last`): others
        are often matrices, which several readers take in the order of their shape.
        """
        shape = tuple(sizes_of(buffer)[i] for i in order)
        if _ascending(buffer, order):
            return self.value(buffer, shape)
        moved = (order[0], *order[2:], order[1]) if len(order) > 3 - last else ()
        if moved and _ascending(buffer, moved):
            return self.value_channels_last(buffer.view((shape[0], *shape[2:], shape[1])))
        self._check(shape)
        return Value(buffer.dtype, shape, permuted=(buffer, tuple(order)))

    def reshaped(self, value: Value, shape: Sequence[int]) -> Value:
        """The value in another shape of as many elements, which are moved only if they must."""
        if value.plain is None and value.size:
            buffer, order = value.origin()
            view = _split(buffer, order, value.shape, shape)
            if view is not None:
                return self.ordered(*view, last=is_channels_last(value))
        return self.value(self.plain(value).view(tuple(shape)))

    def matrix(self, operand: Value | Array, rows: int, columns: int) -> Buffer:
        """A tensor's buffer as a matrix."""
        return self.plain(operand).view((rows, columns))

    def quantized(
        self, value: Value, rows: int, columns: int, rounding: Rounding = ops.dynamic_quantize
    ) -> tuple[Buffer, ...]:
        """A value as a matrix of integers, with their scales; all readers share one rounding."""
        x = self.matrix(value, rows, columns)
        recorded = self._quantized.get((x.root, rounding))
        if recorded is None or recorded[1][0].shape != x.shape:
            recorded = len(self.program.instructions), rounding(x)
            self._quantized[x.root, rounding] = recorded
        return recorded[1]

    def rotated(self, value: Value) -> Value:
        """Each 32 numbers of a value's rows, times the Hadamard matrix of `ops.hadamard`."""
        x = self.matrix(value, value.size // value.shape[-1], value.shape[-1])
        y = ops.hadamard(x)
        self._rotated[y.root] = x
        return self.value(y, value.shape)

    def before_rotation(self, value: Value, rows: int, columns: int) -> Value | None:
        """The operand of `rotated` whose result a value is, as a matrix; None for other values."""
        operand = None if value.plain is None else self._rotated.get(value.plain.root)
        if operand is None or value.plain is None or value.plain.nbytes != operand.nbytes:
            return None
        return self.value(operand.view((rows, columns)))

    def constant(self, array: Array) -> Buffer:
        """A constant in a program's memory, aligned and contiguous."""
        if is_sized(array):
            return self._sized(array)

        def make() -> Buffer:
            aligned = array if array.flags.aligned else array.copy()
            name = self.weights.name(array) or f"constant{list(array.shape)}"
            return self.program.constant(name, aligned)

        return self.weights.get(array, "plain", make)

    def plan(self, numbers: Sequence[int]) -> Buffer:
        """A constant of int32, whose numbers may depend on sizes that differ between calls."""
        return self.constant(vector(numbers, np.int32))

    def _sized(self, array: Any) -> Buffer:
        """The buffer of a constant that depends on sizes: one for all its readers."""
        known = self._sized_buffers.get(id(array))
        if known is None:
            key = dtype_key(array.dtype)
            if key is None:
                raise ProgramError(f"no buffers of {array.dtype}")
            name = f"constant[{', '.join(map(str, array.shape))}]"
            buffer = Buffer(name, Kind.CONSTANT, key, array.shape, array)
            known = self._sized_buffers[id(array)] = array, buffer
        return known[1]

    def weight(self, tensor: Tensor) -> Buffer:
        """A new buffer of a tensor: several layouts may have the same name."""
        return Buffer(tensor.name, Kind.WEIGHT, tensor.format.dtype, tensor.shape, tensor)

    def mark(self) -> tuple[int, int]:
        """The present state, for `undo`."""
        return len(self.program.instructions), len(self._forms)

    def undo(self, mark: tuple[int, int]) -> None:
        """Drop the instructions recorded since `mark`, and the buffers that they would fill."""
        del self.program.instructions[mark[0] :]
        for value, field in self._forms[mark[1] :]:
            setattr(value, field, None)
        del self._forms[mark[1] :]
        self._quantized = {x: q for x, q in self._quantized.items() if q[0] < mark[0]}

    def permuted(self, buffer: Buffer, order: Sequence[int]) -> Buffer:
        """The elements of a buffer with its dimensions in another order."""
        shape = tuple(sizes_of(buffer)[i] for i in order)
        if _ascending(buffer, order):
            return buffer.view(shape)
        if (moved := self._by_kernel(buffer, order)) is not None:
            return moved
        (moved,) = record_host(
            "Transpose", lambda x: (x.transpose(order),), [buffer], [(buffer.dtype, shape)]
        )
        return moved

    def _by_kernel(self, buffer: Buffer, order: Sequence[int]) -> Buffer | None:
        """`permuted` by a kernel; None if there is none."""
        return None


def _ascending(buffer: Buffer, order: Sequence[int]) -> bool:
    """Whether this order of a buffer's dimensions is that of its memory."""
    real = [i for i in order if buffer.shape[i] != 1]
    return real == sorted(real)


def _split(
    buffer: Buffer, order: Sequence[int], shape: Sequence[int], wanted: Sequence[int]
) -> tuple[Buffer, list[int]] | None:
    """A view of a buffer, and the order of its dimensions that makes a tensor of shape `wanted`.

    The tensor of this `shape` is the buffer in `order`. Dimensions that are merged must follow one
    another in the buffer.
    """
    groups = _groups(shape, wanted)
    if groups is None:
        return None
    real = sorted(i for i in order if buffer.shape[i] != 1)
    runs: dict[int, list[int]] = {}  # first place in memory -> dimensions of the result
    for merged, parts in groups:
        places = [real.index(order[i]) for i in merged]
        if places != list(range(places[0], places[0] + len(places))):
            return None
        runs[places[0]] = parts
    among = [part for _, parts in sorted(runs.items()) for part in parts]
    among += [i for i in range(len(wanted)) if i not in among]  # of one element
    view = buffer.view(tuple(wanted[i] for i in among))
    return view, [among.index(i) for i in range(len(wanted))]


def _groups(
    shape: Sequence[int], wanted: Sequence[int]
) -> list[tuple[list[int], list[int]]] | None:
    """Dimensions of a shape, without those of one element, and those that they become."""
    before = [i for i, size in enumerate(shape) if size != 1]
    after = [i for i, size in enumerate(wanted) if size != 1]
    groups = []
    while before and after:
        merged, parts = [before.pop(0)], [after.pop(0)]
        a, b = shape[merged[0]], wanted[parts[0]]
        while a != b:
            if a < b and before:
                merged.append(before.pop(0))
                a *= shape[merged[-1]]
            elif b < a and after:
                parts.append(after.pop(0))
                b *= wanted[parts[-1]]
            else:
                return None
        groups.append((merged, parts))
    return None if before or after else groups
