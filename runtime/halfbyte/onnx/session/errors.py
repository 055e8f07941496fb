"""What a session raises: ONNX Runtime's exceptions, under its names.

There they are plain exceptions; here they are `HalfbyteError` too. Where ONNX Runtime raises one of
Python's own, the error is both: it can be caught either way.
"""

from __future__ import annotations

from halfbyte.errors import HalfbyteError, MemoryBudgetError, UnsupportedError


class Fail(HalfbyteError):
    """A model contradicts itself, or a node cannot do what it is asked for."""


class InvalidArgument(HalfbyteError):
    """A feed or a name is not one of the model's, or of another type or shape; or no model."""


class NoSuchFile(HalfbyteError):
    """There is no such file."""


class NoModel(HalfbyteError):
    """There is no model; the name is here to be caught."""


class NotFound(HalfbyteError):
    """Something is not there; the name is here to be caught."""


class EngineError(HalfbyteError):
    """An engine failed; the name is here to be caught."""


class RuntimeException(HalfbyteError):
    """There is too little memory."""


class InvalidProtobuf(HalfbyteError):
    """The bytes are no ONNX model."""


class ModelLoaded(HalfbyteError):
    """A model is loaded already; the name is here to be caught."""


class ModelLoadCanceled(HalfbyteError):
    """Loading was stopped; the name is here to be caught."""


class ModelRequiresCompilation(HalfbyteError):
    """A model must be compiled first; the name is here to be caught."""


class NotImplemented(HalfbyteError):
    """An operator, version, type or option that is not built.

    Raised as `errors.NotImplemented`: the bare name is Python's own in every other module.
    """


class InvalidGraph(HalfbyteError):
    """A node that its operator's definition does not allow."""


class EPFail(HalfbyteError):
    """A provider failed; the name is here to be caught."""


class DeviceReset(HalfbyteError):
    """A device was reset; the name is here to be caught."""


class ValueProblem(HalfbyteError, ValueError):
    """A `ValueError` of ONNX Runtime's: a required input is missing, providers make no sense."""


class TypeProblem(HalfbyteError, TypeError):
    """A `TypeError` of ONNX Runtime's: an argument is of a type that is never taken."""


class RuntimeProblem(HalfbyteError, RuntimeError):
    """A `RuntimeError` of ONNX Runtime's: a value or a device that cannot be used."""


ALL = (
    Fail, InvalidArgument, NoSuchFile, NoModel, NotFound, EngineError, RuntimeException,
    InvalidProtobuf, ModelLoaded, ModelLoadCanceled, ModelRequiresCompilation, NotImplemented,
    InvalidGraph, EPFail, DeviceReset,
)  # fmt: skip


def translated(error: HalfbyteError) -> HalfbyteError:
    """An error of what lies below as a session's."""
    if isinstance(error, (*ALL, ValueProblem, TypeProblem, RuntimeProblem)):
        return error
    if isinstance(error, UnsupportedError):
        return NotImplemented(str(error))
    if isinstance(error, MemoryBudgetError):
        return RuntimeException(str(error))
    return Fail(str(error))
