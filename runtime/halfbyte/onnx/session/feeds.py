"""Checks of the values that a caller feeds, and their conversion to the graph's types."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from halfbyte.onnx.files.dtypes import DTYPES
from halfbyte.onnx.files.model import SparseTensor, TypeInfo, ValueInfo
from halfbyte.onnx.session.arrays import from_caller
from halfbyte.onnx.session.errors import Fail, InvalidArgument, RuntimeProblem
from halfbyte.onnx.session.metadata import element_name, type_name
from halfbyte.onnx.session.sparse import SparseTensor as Sparse
from halfbyte.onnx.session.values import OrtValue

Array = npt.NDArray[Any]


def checked_feed(value: Any, info: ValueInfo, where: str) -> Any:
    """A feed in the form of the graph's values.

    Parameters
    ----------
    value
        An array, a list of numbers or strings, or an `OrtValue`; for a sequence, a list of them;
        for an optional, also None.
    info : ValueInfo
        The input; an input without a type accepts anything.
    where : str
        The beginning of messages.

    Raises
    ------
    InvalidArgument, RuntimeProblem, Fail
        The value has another type or shape, is not an array, or is None.
    """
    if isinstance(value, OrtValue):
        value = value._value
    if isinstance(value, Sparse):
        value = value.tensor
    kind = info.type
    return value if kind is None else _checked(value, kind, where)


def _checked(value: Any, kind: TypeInfo, where: str) -> Any:
    if kind.kind == "optional":
        if value is None or kind.element is None:
            return None
        return _checked(value, kind.element, where)
    if value is None:
        raise Fail(f"{where}: found None, expected {type_name(kind)}")
    if kind.kind == "sequence":
        return _sequence(value, kind, where)
    if kind.kind == "tensor":
        return _tensor(value, kind, where)
    if kind.kind == "sparse_tensor" and not isinstance(value, SparseTensor):
        raise InvalidArgument(f"{where}: a {type(value).__name__}, expected {type_name(kind)}")
    return value


def _sequence(value: Any, kind: TypeInfo, where: str) -> list[Any]:
    if not isinstance(value, list | tuple):
        raise InvalidArgument(
            f"{where}: a {type(value).__name__}, expected a list for {type_name(kind)}"
        )
    parts = [v._value if isinstance(v, OrtValue) else v for v in value]
    if kind.element is None:
        return parts
    for index, part in enumerate(parts):
        if kind.element.kind == "tensor" and not isinstance(part, np.ndarray):
            raise RuntimeProblem(f"{where}[{index}]: a {type(part).__name__}, expected an array")
    return [_checked(part, kind.element, f"{where}[{i}]") for i, part in enumerate(parts)]


def _tensor(value: Any, kind: TypeInfo, where: str) -> Array:
    wanted = DTYPES.get(kind.dtype)
    if isinstance(value, list):
        value = _from_list(value, wanted, where)
    if not isinstance(value, np.ndarray):
        raise RuntimeProblem(f"{where}: a {type(value).__name__}, expected an array")
    array = from_caller(value)
    if wanted is not None and array.dtype != wanted:
        raise InvalidArgument(
            f"{where}: Unexpected input data type. Actual: (tensor({element_name(array.dtype)})), "
            f"expected: ({type_name(kind)})"
        )
    if not kind.shape:  # as in ONNX Runtime, a number may come in an array of any shape
        return array
    if len(kind.shape) != array.ndim:
        raise InvalidArgument(
            f"{where}: Invalid rank: found {array.ndim} dimensions {list(array.shape)}, expected "
            f"{len(kind.shape)}: {list(kind.shape)}"
        )
    sizes = zip(array.shape, kind.shape, strict=True)
    wrong = [i for i, (n, d) in enumerate(sizes) if isinstance(d, int) and d != n]
    if wrong:
        raise InvalidArgument(
            f"{where}: Got invalid dimensions {wrong}: found {list(array.shape)}, expected "
            f"{list(kind.shape)}"
        )
    return array


def _from_list(value: list[Any], wanted: np.dtype[Any] | None, where: str) -> Array:
    """An array of a dtype from nested lists of numbers or strings."""
    if wanted is None or wanted.names:
        raise RuntimeProblem(f"{where}: a list, expected an array")
    try:
        return np.array(value, wanted)
    except (ValueError, TypeError, OverflowError) as error:
        raise InvalidArgument(
            f"{where}: a list that cannot become an array of {element_name(wanted)}: {error}"
        ) from None
