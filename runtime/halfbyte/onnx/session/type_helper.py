"""Types of a session's inputs and outputs for NumPy and PyTorch, as packages ask for them.

The stand-in offers the class as `onnxruntime.transformers.io_binding_helper.TypeHelper`.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable
from typing import Any

import numpy as np

from halfbyte.onnx.session.described import Described
from halfbyte.onnx.session.metadata import NodeArg

_NUMPY: dict[str, type] = {
    "tensor(int64)": np.int64, "tensor(int32)": np.int32, "tensor(float)": np.float32,
    "tensor(float16)": np.float16, "tensor(bool)": bool, "tensor(uint8)": np.uint8,
}  # fmt: skip
_TORCH = ("int64", "int32", "float32", "float16", "bool", "uint8")


class TypeHelper:
    """Conversions between names of types in ONNX Runtime, NumPy's types and PyTorch's.

    All raise ValueError for a name or a type that they do not know.
    """

    @staticmethod
    def get_input_type(ort_session: Described, name: str) -> str:
        """The type of an input, such as "tensor(float)"."""
        return _named(ort_session.get_inputs(), name, "input")

    @staticmethod
    def get_output_type(ort_session: Described, name: str) -> str:
        """The type of an output."""
        return _named(ort_session.get_outputs(), name, "output")

    @staticmethod
    def ort_type_to_numpy_type(ort_type: str) -> type:
        """NumPy's type of a name."""
        if ort_type not in _NUMPY:
            raise ValueError(f"type {ort_type!r}: expected one of {list(_NUMPY)}")
        return _NUMPY[ort_type]

    @staticmethod
    def ort_type_to_torch_type(ort_type: str) -> Any:
        """PyTorch's type of a name."""
        numpy_type = TypeHelper.ort_type_to_numpy_type(ort_type)
        return TypeHelper.numpy_type_to_torch_type(np.dtype(numpy_type))

    @staticmethod
    def numpy_type_to_torch_type(numpy_type: Any) -> Any:
        """PyTorch's type of a type of NumPy."""
        name = np.dtype(numpy_type).name
        if name not in _TORCH:
            raise ValueError(f"type {name!r}: expected one of {_TORCH}")
        return getattr(importlib.import_module("torch"), name)

    @staticmethod
    def torch_type_to_numpy_type(torch_type: Any) -> type:
        """NumPy's type of a type of PyTorch."""
        torch = importlib.import_module("torch")
        for numpy_type in _NUMPY.values():
            if getattr(torch, np.dtype(numpy_type).name) == torch_type:
                return numpy_type
        raise ValueError(f"type {torch_type}: expected one of {_TORCH}")

    @staticmethod
    def get_io_numpy_type_map(ort_session: Described) -> dict[str, type]:
        """NumPy's types of all inputs and outputs, by name."""
        values = (*ort_session.get_inputs(), *ort_session.get_outputs())
        return {value.name: TypeHelper.ort_type_to_numpy_type(value.type) for value in values}


def _named(values: Iterable[NodeArg], name: str, what: str) -> str:
    known = {value.name: value.type for value in values}
    if name not in known:
        raise ValueError(f"{what} {name!r}: expected one of {list(known)}")
    return known[name]
