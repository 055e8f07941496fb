"""The exceptions of sessions: ONNX Runtime's, under its names.

In ONNX Runtime they are plain exceptions; here they are `HalfbyteError` too. Where ONNX Runtime
raises one of Python's own exceptions, the class has both as bases, so that either catches it.
"""

from __future__ import annotations

from halfbyte.errors import HalfbyteError, MemoryBudgetError, UnsupportedError


class Fail(HalfbyteError):
    """A model contradicts itself, or a node cannot compute its outputs."""


class InvalidArgument(HalfbyteError):
    """A name is not the model's, a feed has another type or shape, or a file is empty."""


class NoSuchFile(HalfbyteError):
    """The file does not exist."""


class NoModel(HalfbyteError):
    """There is no model; never raised, here to be caught."""


class NotFound(HalfbyteError):
    """Something was not found; never raised, here to be caught."""


class EngineError(HalfbyteError):
    """An engine failed; never raised, here to be caught."""


class RuntimeException(HalfbyteError):
    """There is too little memory."""


class InvalidProtobuf(HalfbyteError):
    """The bytes are not an ONNX model."""


class ModelLoaded(HalfbyteError):
    """A model is loaded already; never raised, here to be caught."""


class ModelLoadCanceled(HalfbyteError):
    """Loading was canceled."""


class ModelRequiresCompilation(HalfbyteError):
    """A model must be compiled first; never raised, here to be caught."""


class NotImplemented(HalfbyteError):
    """An operator, version, type or option that is not implemented.

    Other modules raise it as `errors.NotImplemented`, because the bare name is a builtin of Python.
    """


class InvalidGraph(HalfbyteError):
    """The definition of its operator does not allow a node."""


class EPFail(HalfbyteError):
    """A provider failed; never raised, here to be caught."""


class DeviceReset(HalfbyteError):
    """A device was reset; never raised, here to be caught."""


class ValueProblem(HalfbyteError, ValueError):
    """ONNX Runtime's `ValueError`: a required input is missing, or providers are malformed."""


class TypeProblem(HalfbyteError, TypeError):
    """ONNX Runtime's `TypeError`: an argument has a type that is never accepted."""


class RuntimeProblem(HalfbyteError, RuntimeError):
    """ONNX Runtime's `RuntimeError`: a value or a device cannot be used."""


ALL = (
    Fail, InvalidArgument, NoSuchFile, NoModel, NotFound, EngineError, RuntimeException,
    InvalidProtobuf, ModelLoaded, ModelLoadCanceled, ModelRequiresCompilation, NotImplemented,
    InvalidGraph, EPFail, DeviceReset,
)  # fmt: skip


def translated(error: HalfbyteError) -> HalfbyteError:
    """An error of a lower layer as one of a session."""
    if isinstance(error, (*ALL, ValueProblem, TypeProblem, RuntimeProblem)):
        return error
    if isinstance(error, UnsupportedError):
        return NotImplemented(str(error))
    if isinstance(error, MemoryBudgetError):
        return RuntimeException(str(error))
    return Fail(str(error))
