"""`OrtValue`: a value with ONNX's type, which the caller keeps from run to run."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from halfbyte.errors import OutOfMemoryError
from halfbyte.onnx.files.dtypes import DTYPES, NUMBERS, SPECIAL
from halfbyte.onnx.files.model import SparseTensor
from halfbyte.onnx.session.arrays import from_caller, to_caller
from halfbyte.onnx.session.errors import InvalidArgument, RuntimeProblem, TypeProblem
from halfbyte.onnx.session.metadata import element_name
from halfbyte.onnx.session.sparse import SparseTensor as Sparse

Array = npt.NDArray[Any]
MAX_DIMENSIONS = 64  # NumPy's limit


class OrtValue:
    """A tensor, a list of tensors, or an empty optional.

    The methods named `ortvalue_from_...` and runs return such values.
    """

    def __init__(self, value: Any) -> None:
        self._value = value

    @classmethod
    def ortvalue_from_numpy(
        cls, array: Array, device_type: str = "cpu", device_id: int = 0, vendor_id: int = -1
    ) -> OrtValue:
        """A value from an array, whose memory it shares if that is contiguous."""
        check_device(device_type)
        if not isinstance(array, np.ndarray):
            raise TypeProblem(f"expected an array, found {type(array).__name__}")
        tensor = from_caller(array)
        if tensor.dtype not in NUMBERS:
            raise RuntimeProblem(f"an array of {array.dtype}: expected one of ONNX's types")
        return cls(tensor if tensor.flags.c_contiguous else tensor.copy())

    @classmethod
    def ortvalue_from_numpy_with_onnx_type(cls, data: Array, /, onnx_element_type: int) -> OrtValue:
        """A value from an array with bytes of another type, such as bfloat16 in uint16."""
        wanted = _dtype(onnx_element_type)
        array = from_caller(data)
        if array.dtype == wanted:
            return cls.ortvalue_from_numpy(array)
        if array.dtype.itemsize != wanted.itemsize or "O" in (array.dtype.kind, wanted.kind):
            raise RuntimeProblem(
                f"elements of {array.dtype}: expected the {wanted.itemsize} bytes of "
                f"{element_name(wanted)}"
            )
        return cls(np.ascontiguousarray(array).view(wanted))

    @classmethod
    def ortvalue_from_shape_and_type(
        cls,
        shape: Sequence[int],
        element_type: Any,
        device_type: str = "cpu",
        device_id: int = 0,
        vendor_id: int = -1,
    ) -> OrtValue:
        """A tensor of zeros; the type is one of NumPy's or a number of ONNX's."""
        check_device(device_type)
        sizes, dtype = sizes_of(shape), _dtype(element_type)
        try:
            return cls(np.zeros(sizes, dtype))
        except (MemoryError, ValueError) as error:
            raise OutOfMemoryError(f"{math.prod(sizes)} elements of {dtype}: {error}") from None

    @classmethod
    def from_dlpack(cls, data: Any, /) -> OrtValue:
        """A value that shares the memory of another library's tensor on the processor."""
        return cls.ortvalue_from_numpy(np.from_dlpack(data))

    @classmethod
    def ort_value_from_sparse_tensor(cls, sparse_tensor: Sparse) -> OrtValue:
        """A value of a sparse tensor."""
        return cls(sparse_tensor.tensor)

    def as_sparse_tensor(self) -> Sparse:
        """The sparse tensor; raises `RuntimeProblem` for other values."""
        if not isinstance(self._value, SparseTensor):
            raise RuntimeProblem(f"a value of {self.data_type()}: expected a sparse tensor")
        return Sparse(self._value)

    def numpy(self) -> Any:
        """The array, or a list of arrays for a sequence."""
        if isinstance(self._value, SparseTensor):
            raise RuntimeProblem("a sparse tensor: expected a dense one")
        return to_caller(self._value)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        if copy is False and dtype not in (None, self._tensor().dtype):
            raise ValueError(f"an array of {dtype} cannot be made without a copy")
        array = np.asarray(self.numpy(), dtype)
        return array.copy() if copy else array

    def __dlpack__(self, **options: Any) -> Any:
        """The tensor for other libraries, which share its memory."""
        return self._tensor().__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        """The device: the processor."""
        return self._tensor().__dlpack_device__()

    def data_type(self) -> str:
        """The type as ONNX Runtime writes it, such as "tensor(float)"."""
        if isinstance(self._value, list):
            inner = OrtValue(self._value[0]).data_type() if self._value else "tensor(undefined)"
            return f"seq({inner})"
        if isinstance(self._value, SparseTensor):
            return f"sparse_tensor({element_name(self._value.values.dtype)})"
        return f"tensor({element_name(self._tensor().dtype)})"

    def element_type(self) -> int:
        """ONNX's number of the tensor's element type."""
        return NUMBERS.get(self._tensor().dtype, 0)

    def shape(self) -> list[int]:
        """The shape of the tensor."""
        return list(self._tensor().shape)

    def tensor_size_in_bytes(self) -> int:
        """The bytes of the tensor, with one byte for each narrow element."""
        return self._tensor().nbytes

    def data_ptr(self) -> int:
        """The address of the tensor's first element."""
        return int(self._tensor().ctypes.data)

    def device_name(self) -> str:
        """The name of the device."""
        return "cpu"

    def has_value(self) -> bool:
        """Whether there is a value: an optional may be empty."""
        return self._value is not None

    def is_tensor(self) -> bool:
        """Whether it is a dense tensor."""
        return isinstance(self._value, np.ndarray)

    def is_sparse_tensor(self) -> bool:
        """Whether it is a sparse tensor."""
        return isinstance(self._value, SparseTensor)

    def is_tensor_sequence(self) -> bool:
        """Whether it is a list of tensors."""
        return isinstance(self._value, list)

    def update_inplace(self, data: Array | OrtValue) -> None:
        """Copy a tensor of the same type and shape into this one."""
        source = data._tensor() if isinstance(data, OrtValue) else from_caller(np.asarray(data))
        target = self._tensor()
        if (source.dtype, source.shape) != (target.dtype, target.shape):
            raise RuntimeProblem(
                f"{element_name(source.dtype)}{list(source.shape)}: expected "
                f"{element_name(target.dtype)}{list(target.shape)}"
            )
        target[...] = source

    def _get_c_value(self) -> OrtValue:
        return self

    @property
    def _ortvalue(self) -> OrtValue:
        return self

    def _tensor(self) -> Array:
        if not isinstance(self._value, np.ndarray):
            raise RuntimeProblem(f"a {type(self._value).__name__}: expected a tensor")
        return self._value


def check_device(name: str) -> None:
    """Raise `RuntimeProblem` for any device but the processor."""
    if name.lower() != "cpu":
        raise RuntimeProblem(f"device {name!r}: expected 'cpu', the only one here")


def sizes_of(shape: Sequence[int]) -> tuple[int, ...]:
    """A shape as a tuple of integers."""
    try:
        sizes = tuple(operator.index(size) for size in shape)
    except TypeError:
        raise TypeProblem(f"a shape {shape!r}: expected integers") from None
    if len(sizes) > MAX_DIMENSIONS or any(size < 0 for size in sizes):
        raise InvalidArgument(f"a shape {list(sizes)}: expected sizes of 0 or more")
    return sizes


def _dtype(kind: Any) -> np.dtype[Any]:
    """The dtype for a number of ONNX's, or for a type of NumPy or ml_dtypes."""
    if isinstance(kind, int):
        if kind not in DTYPES:
            raise RuntimeProblem(f"element type {kind}: expected one of 1 to {max(SPECIAL)}")
        return DTYPES[kind]
    dtype = from_caller(np.empty(0, kind)).dtype
    if dtype not in NUMBERS:
        raise RuntimeProblem(f"element type {kind}: expected one of ONNX's")
    return dtype
