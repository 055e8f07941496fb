"""ONNX Runtime's interface, for graphs.

    session = halfbyte.InferenceSession("model.onnx")
    outputs = session.run(None, {"input": array})

`session` has the class, `described` what it says of its model, `options`, `values`, `binding`,
`metadata` and `errors` what goes in and comes out; `opening`, `checking` and `feeds` say what is
wrong with a model or a feed. `halfbyte.onnx.standin` registers all of it as `onnxruntime`.
"""

from halfbyte.onnx.session.binding import IOBinding
from halfbyte.onnx.session.errors import (
    EngineError,
    EPFail,
    Fail,
    InvalidArgument,
    InvalidGraph,
    InvalidProtobuf,
    ModelLoaded,
    NoModel,
    NoSuchFile,
    NotImplemented,
    RuntimeException,
)
from halfbyte.onnx.session.metadata import ModelMetadata, NodeArg
from halfbyte.onnx.session.options import (
    ExecutionMode,
    ExecutionOrder,
    GraphOptimizationLevel,
    RunOptions,
    SessionOptions,
)
from halfbyte.onnx.session.session import InferenceSession
from halfbyte.onnx.session.values import OrtValue

__all__ = [
    "EPFail", "EngineError", "ExecutionMode", "ExecutionOrder", "Fail", "GraphOptimizationLevel",
    "IOBinding", "InferenceSession", "InvalidArgument", "InvalidGraph", "InvalidProtobuf",
    "ModelLoaded", "ModelMetadata", "NoModel", "NoSuchFile", "NodeArg", "NotImplemented",
    "OrtValue", "RunOptions", "RuntimeException", "SessionOptions",
]  # fmt: skip
