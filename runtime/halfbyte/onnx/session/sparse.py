"""`SparseTensor`: a tensor of which most elements are zero, as ONNX Runtime has it."""

from __future__ import annotations

import math
from enum import IntEnum
from typing import Any

import numpy as np
import numpy.typing as npt

from halfbyte.onnx.files import model
from halfbyte.onnx.session.errors import NotImplemented as NotThere
from halfbyte.onnx.session.errors import RuntimeProblem
from halfbyte.onnx.session.metadata import element_name

Array = npt.NDArray[Any]


class OrtSparseFormat(IntEnum):
    """How places are stored."""

    ORT_SPARSE_UNDEFINED = 0
    ORT_SPARSE_COO = 1
    ORT_SPARSE_CSRC = 2
    ORT_SPARSE_BLOCK_SPARSE = 4


class CooView:
    """Places of elements: linear [n], or [n, 2]."""

    def __init__(self, indices: Array) -> None:
        self._indices = indices

    def indices(self) -> Array:
        """The places."""
        return self._indices


class CsrView:
    """Places of elements: columns `inner` [n], and where rows begin, `outer` [rows + 1]."""

    def __init__(self, inner: Array, outer: Array) -> None:
        self._inner, self._outer = inner, outer

    def inner(self) -> Array:
        """The columns."""
        return self._inner

    def outer(self) -> Array:
        """Where rows begin, and the number of elements."""
        return self._outer


class SparseTensor:
    """Values and their places; made by `sparse_coo_from_numpy` and `sparse_csr_from_numpy`."""

    def __init__(self, tensor: model.SparseTensor, csr: CsrView | None = None) -> None:
        self.tensor = tensor
        self._csr = csr

    @classmethod
    def sparse_coo_from_numpy(
        cls, dense_shape: Array, values: Array, coo_indices: Array, ort_device: Any = None
    ) -> SparseTensor:
        """A tensor of values [n] at places: linear [n], or [n, 2].

        Raises
        ------
        RuntimeProblem
            A place is outside the shape, or there are not as many places as values.
        """
        shape = tuple(int(size) for size in dense_shape)
        places = np.asarray(coo_indices, np.int64)
        if places.ndim == 1 and len(places) == 2 * len(values) and len(shape) == 2:
            places = places.reshape(-1, 2)
        limits = np.array([math.prod(shape)] if places.ndim == 1 else shape)
        if len(places) != len(values) or (places.ndim == 2 and places.shape[1] != len(shape)):
            raise RuntimeProblem(
                f"places {list(places.shape)} for {len(values)} values: expected one a value"
            )
        if places.size and (places.min() < 0 or np.any(places >= limits)):
            raise RuntimeProblem(f"a place outside the shape {list(shape)}")
        return cls(model.SparseTensor(np.asarray(values), places, shape))

    @classmethod
    def sparse_csr_from_numpy(
        cls,
        dense_shape: Array,
        values: Array,
        inner_indices: Array,
        outer_indices: Array,
        ort_device: Any = None,
    ) -> SparseTensor:
        """A matrix of values [n] in columns `inner_indices` [n]; rows begin at `outer_indices`."""
        shape = tuple(int(size) for size in dense_shape)
        inner, outer = np.asarray(inner_indices, np.int64), np.asarray(outer_indices, np.int64)
        fits = len(shape) == 2 and len(outer) == shape[0] + 1 and np.all(np.diff(outer) >= 0)
        if not fits or outer[0] != 0 or outer[-1] != len(inner):
            raise RuntimeProblem(f"rows of a matrix {list(shape)}: expected {shape} + 1 beginnings")
        rows = np.repeat(np.arange(shape[0]), np.diff(outer))
        places = np.stack([rows, inner], axis=1)
        tensor = cls.sparse_coo_from_numpy(np.array(shape), values, places)
        return cls(tensor.tensor, CsrView(inner, outer))

    def values(self) -> Array:
        """The values."""
        return self.tensor.values

    def as_coo_view(self) -> CooView:
        """The places, of a tensor made of them."""
        if self._csr is not None:
            raise RuntimeProblem("a tensor of rows and columns: expected one of places")
        return CooView(self.tensor.indices)

    def as_csrc_view(self) -> CsrView:
        """Columns and rows, of a tensor made of them."""
        if self._csr is None:
            raise RuntimeProblem("a tensor of places: expected one of rows and columns")
        return self._csr

    def as_blocksparse_view(self) -> Any:
        """Refused: there are no tensors of blocks."""
        raise NotThere("sparse tensors of blocks are not in halfbyte")

    def to_cuda(self, ort_device: Any) -> Any:
        """Refused: there is one device."""
        raise NotThere("SparseTensor.to_cuda: the processor is the only device")

    def format(self) -> OrtSparseFormat:
        """How places are stored."""
        csr = self._csr is not None
        return OrtSparseFormat.ORT_SPARSE_CSRC if csr else OrtSparseFormat.ORT_SPARSE_COO

    def dense_shape(self) -> npt.NDArray[np.int64]:
        """The shape of the tensor with all its zeros."""
        return np.array(self.tensor.shape, np.int64)

    def data_type(self) -> str:
        """The type as ONNX Runtime writes it."""
        return f"sparse_tensor({element_name(self.tensor.values.dtype)})"

    def device_name(self) -> str:
        """The name of the device."""
        return "cpu"

    def _get_c_tensor(self) -> SparseTensor:
        return self
