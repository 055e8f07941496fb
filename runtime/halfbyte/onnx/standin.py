"""halfbyte under ONNX Runtime's name, for packages that import `onnxruntime`.

`install_as_onnxruntime` registers modules with what packages use for inference. What is not for
inference can be imported, and is refused when it is called (:mod:`halfbyte.onnx.interface.absent`).
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

from halfbyte.onnx.interface import backend, functions, quantization
from halfbyte.onnx.interface.absent import absent
from halfbyte.onnx.interface.functions import NAME, PACKAGE, VERSION, do_nothing
from halfbyte.onnx.reference.random import set_seed
from halfbyte.onnx.session import devices, errors
from halfbyte.onnx.session.binding import IOBinding
from halfbyte.onnx.session.metadata import ModelMetadata, NodeArg
from halfbyte.onnx.session.options import (
    ExecutionMode,
    ExecutionOrder,
    GraphOptimizationLevel,
    RunOptions,
    SessionOptions,
)
from halfbyte.onnx.session.session import InferenceSession
from halfbyte.onnx.session.sparse import OrtSparseFormat, SparseTensor
from halfbyte.onnx.session.type_helper import TypeHelper
from halfbyte.onnx.session.values import OrtValue
from halfbyte.onnx.session.vectors import OrtValueVector, copy_tensors
from halfbyte.standins import Contents, public

__all__ = ["PACKAGE", "VERSION", "contents", "install_as_onnxruntime"]

_CAPI = f"{NAME}.capi"
_IGNORED = (
    "set_default_logger_severity", "set_default_logger_verbosity", "enable_telemetry_events",
    "disable_telemetry_events", "set_global_thread_pool_sizes", "create_and_register_allocator",
    "create_and_register_allocator_v2",
)  # fmt: skip


def install_as_onnxruntime(*, force: bool = False) -> ModuleType:
    """Make `import onnxruntime` import halfbyte, in this process.

    Parameters
    ----------
    force : bool
        Also if the real package is installed or imported; code that already has its classes keeps
        them.

    Returns
    -------
    module
        `onnxruntime`; every call returns the same module.

    Raises
    ------
    UnsupportedError
        The real package is installed or imported.
    """
    return PACKAGE.install(contents, "install_as_onnxruntime", force)


def contents() -> Contents:
    """`onnxruntime` and its submodules."""
    classes = (
        InferenceSession, SessionOptions, RunOptions, OrtValue, NodeArg, ModelMetadata,
        GraphOptimizationLevel, ExecutionMode, ExecutionOrder, SparseTensor, OrtSparseFormat,
    )  # fmt: skip
    shared: dict[str, Any] = {thing.__name__: thing for thing in classes}
    hidden = ("do_nothing", "get_example")
    shared |= {n: f for n, f in public(functions).items() if n not in hidden}
    shared |= public(devices) | dict.fromkeys(_IGNORED, do_nothing)
    shared |= {"set_seed": set_seed, "copy_tensors": copy_tensors, "SessionIOBinding": IOBinding}
    modules = absent()
    shared |= modules.pop(NAME)
    exceptions = {error.__name__: error for error in errors.ALL}
    state = {**shared, **exceptions, "OrtValueVector": OrtValueVector}
    collection = {
        n: shared[n]
        for n in ("InferenceSession", "OrtValue", "SessionIOBinding", "OrtDevice", "SparseTensor")
    } | {"IOBinding": IOBinding, "Session": InferenceSession}
    settings = public(quantization)
    own: dict[str, dict[str, Any]] = {
        NAME: {
            **shared, "IOBinding": IOBinding, "preload_dlls": do_nothing,
            "print_debug_info": do_nothing, "package_name": NAME, "version": VERSION,
            "cuda_version": "",
        },
        _CAPI: {},
        f"{_CAPI}.onnxruntime_pybind11_state": state,
        f"{_CAPI}._pybind_state": state,
        f"{_CAPI}.onnxruntime_inference_collection": collection,
        f"{NAME}.backend": public(backend),
        f"{NAME}.backend.backend": public(backend),
        f"{NAME}.backend.backend_rep": {"OnnxRuntimeBackendRep": backend.OnnxRuntimeBackendRep},
        f"{NAME}.datasets": {"get_example": functions.get_example},
        f"{NAME}.quantization": settings,
        f"{NAME}.quantization.quant_utils": settings,
        f"{NAME}.quantization.calibrate": settings,
        f"{NAME}.transformers": {},
        f"{NAME}.transformers.io_binding_helper": {"TypeHelper": TypeHelper},
        f"{NAME}.tools": {},
    }  # fmt: skip
    return {name: own.get(name, {}) | modules.get(name, {}) for name in (*own, *modules)}
