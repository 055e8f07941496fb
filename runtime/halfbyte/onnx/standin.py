"""halfbyte under ONNX Runtime's name, for packages that import `onnxruntime`.

`install_as_onnxruntime` puts modules into `sys.modules` with the classes and functions that
packages use for inference, and a finder of `importlib.metadata` that reports a distribution
`onnxruntime`: pip and micropip take it for installed, in whichever order packages arrive. Modules
that are not for inference are missing: `onnxruntime.tools`, `quantization`, `datasets`, and
`transformers`, of which there is `io_binding_helper.TypeHelper`.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import sys
from collections.abc import Iterable
from email.message import EmailMessage
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

from halfbyte.errors import UnsupportedError
from halfbyte.onnx.reference.random import set_seed
from halfbyte.onnx.session import errors
from halfbyte.onnx.session.binding import IOBinding
from halfbyte.onnx.session.metadata import ModelMetadata, NodeArg
from halfbyte.onnx.session.options import (
    ExecutionMode,
    ExecutionOrder,
    GraphOptimizationLevel,
    RunOptions,
    SessionOptions,
)
from halfbyte.onnx.session.providers import PROVIDER
from halfbyte.onnx.session.session import InferenceSession
from halfbyte.onnx.session.type_helper import TypeHelper
from halfbyte.onnx.session.values import OrtValue

NAME = "onnxruntime"
# The ONNX Runtime with this interface. Packages compare it with the oldest one that they support.
VERSION = "1.31.1"
_CAPI = f"{NAME}.capi"
_TRANSFORMERS = f"{NAME}.transformers"


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
    present = sys.modules.get(NAME)
    if present is not None and getattr(present, "__halfbyte__", False):
        return present
    if not force and (present is not None or _is_installed()):
        raise UnsupportedError(
            f"{NAME} is installed: use it, or take its place with "
            "install_as_onnxruntime(force=True)"
        )
    for name in [n for n in sys.modules if n == NAME or n.startswith(f"{NAME}.")]:
        del sys.modules[name]
    modules = make_modules()
    sys.modules.update(modules)
    sys.meta_path.insert(0, _Metadata())
    return modules[NAME]


def _is_installed() -> bool:
    try:
        return importlib.util.find_spec(NAME) is not None
    except ImportError:  # raised by a finder that blocks the name
        return False


# ---- the modules ---------------------------------------------------------------------------------


def get_available_providers() -> list[str]:
    """The processor only."""
    return [PROVIDER]


def get_all_providers() -> list[str]:
    """The processor only."""
    return [PROVIDER]


def get_device() -> str:
    """The processor."""
    return "CPU"


def get_version_string() -> str:
    """The version of ONNX Runtime with this interface."""
    return VERSION


def get_build_info() -> str:
    """The name of this package, and the version that it stands in for."""
    return f"halfbyte, in the place of ONNX Runtime {VERSION}"


def has_collective_ops() -> bool:
    """Whether there are collective operators: no."""
    return False


def do_nothing(*arguments: Any, **keywords: Any) -> None:
    """For settings of logs, telemetry and libraries, which do not exist here."""


def make_modules() -> dict[str, ModuleType]:
    """`onnxruntime` and its submodules, by name."""
    exceptions = {error.__name__: error for error in errors.ALL}
    ignored = (
        "set_default_logger_severity", "set_default_logger_verbosity", "enable_telemetry_events",
        "disable_telemetry_events", "set_global_thread_pool_sizes",
    )  # fmt: skip
    functions = (
        get_available_providers, get_all_providers, get_device, get_version_string,
        get_build_info, has_collective_ops, set_seed,
    )  # fmt: skip
    classes = (
        InferenceSession, SessionOptions, RunOptions, OrtValue, NodeArg, ModelMetadata,
        GraphOptimizationLevel, ExecutionMode, ExecutionOrder,
    )  # fmt: skip
    shared: dict[str, Any] = {thing.__name__: thing for thing in (*classes, *functions)}
    shared.update(dict.fromkeys(ignored, do_nothing))
    state = {**shared, **exceptions, "SessionIOBinding": IOBinding}
    contents: dict[str, dict[str, Any]] = {
        NAME: {
            **shared, "IOBinding": IOBinding, "SessionIOBinding": IOBinding,
            "preload_dlls": do_nothing, "print_debug_info": do_nothing,
            "__version__": VERSION, "__halfbyte__": True,
        },
        _CAPI: {},
        f"{_CAPI}.onnxruntime_pybind11_state": state,
        f"{_CAPI}._pybind_state": state,
        f"{_CAPI}.onnxruntime_inference_collection": {
            n: state[n] for n in ("InferenceSession", "OrtValue", "SessionIOBinding")
        } | {"IOBinding": IOBinding, "Session": InferenceSession},
        _TRANSFORMERS: {},
        f"{_TRANSFORMERS}.io_binding_helper": {"TypeHelper": TypeHelper},
    }  # fmt: skip
    modules = {name: _module(name, content) for name, content in contents.items()}
    for name, module in modules.items():
        parent, _, last = name.rpartition(".")
        if parent:
            setattr(modules[parent], last, module)
    return modules


def _module(name: str, content: dict[str, Any]) -> ModuleType:
    module = ModuleType(name, get_build_info())
    is_package = name in (NAME, _CAPI, _TRANSFORMERS)
    module.__spec__ = ModuleSpec(name, None, origin="halfbyte", is_package=is_package)
    if is_package:
        module.__path__ = []  # a package without other modules
    module.__dict__.update(content)
    return module


# ---- the distribution ----------------------------------------------------------------------------


class _Distribution(importlib.metadata.Distribution):
    """The metadata that installers read."""

    def read_text(self, filename: str) -> str | None:
        if filename == "METADATA":
            message = EmailMessage()
            message["Metadata-Version"] = "2.1"
            message["Name"] = NAME
            message["Version"] = VERSION
            message["Summary"] = get_build_info()
            return str(message)
        # Pyodide's record of a package's source: without it, micropip does not list the package.
        return "halfbyte" if filename in ("INSTALLER", "PYODIDE_SOURCE") else None

    def locate_file(self, path: Any) -> Any:
        return Path(__file__).parent / path


class _Metadata(importlib.metadata.DistributionFinder):
    """Finds the distribution, and no modules."""

    def find_spec(self, *arguments: Any) -> None:
        return None

    def find_distributions(
        self, context: importlib.metadata.DistributionFinder.Context | None = None
    ) -> Iterable[importlib.metadata.Distribution]:
        name = context.name if context is not None else None
        return [_Distribution()] if name is None or name.lower() == NAME else []
