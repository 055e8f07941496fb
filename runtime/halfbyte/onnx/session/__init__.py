"""ONNX Runtime's interface, for graphs.

    session = halfbyte.InferenceSession("model.onnx")
    outputs = session.run(None, {"input": array})

- `session` has the class and `described` its part that describes the model; `binding`, `values`,
  `options`, `metadata` and `errors` have ONNX Runtime's other classes.
- `opening` reads a model, with the replacements that the options give; `checking` compares every
  node with its operator's definition before anything runs.
- `feeds` checks the values of a call. `arrays` converts types that NumPy lacks: callers have
  ml_dtypes' arrays, graphs have one-field dtypes.
- A session keeps a `Runner` for each set of initializers that are replaced by inputs.

`halfbyte.onnx.standin` registers all of it as `onnxruntime`. `import halfbyte` imports none of this
before it is used.
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
from halfbyte.onnx.session.session import InferenceSession, SessionMemory
from halfbyte.onnx.session.values import OrtValue

__all__ = [
    "EPFail", "EngineError", "ExecutionMode", "ExecutionOrder", "Fail", "GraphOptimizationLevel",
    "IOBinding", "InferenceSession", "InvalidArgument", "InvalidGraph", "InvalidProtobuf",
    "ModelLoaded", "ModelMetadata", "NoModel", "NoSuchFile", "NodeArg", "NotImplemented",
    "OrtValue", "RunOptions", "RuntimeException", "SessionMemory", "SessionOptions",
]  # fmt: skip
