"""halfbyte under ONNX Runtime's name, for packages that import `onnxruntime`.

`install_as_onnxruntime` puts modules into `sys.modules` that have the classes and functions which
packages use for inference, and tells `importlib.metadata` of a distribution `onnxruntime`, so that
installers, micropip among them, take it for installed. What is not for inference is not there:
`onnxruntime.tools`, `quantization`, `transformers`, `datasets`.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import sys
from collections.abc import Iterable, Iterator
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
from halfbyte.onnx.session.values import OrtValue

NAME = "onnxruntime"
# Whose interface this is. Packages compare it with the oldest one that they work with.
VERSION = "1.31.1"
_CAPI = f"{NAME}.capi"


def install_as_onnxruntime(*, force: bool = False) -> ModuleType:
    """Make `import onnxruntime` import halfbyte, in this process.

    Parameters
    ----------
    force : bool
        Also where the real one is installed or imported; what holds its classes already keeps them.

    Returns
    -------
    module
        `onnxruntime`; the same one at every call.

    Raises
    ------
    UnsupportedError
        The real one is there.
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
    except ImportError:  # of a finder that refuses it
        return False


# ---- the modules ---------------------------------------------------------------------------------


def get_available_providers() -> list[str]:
    """The processor alone."""
    return [PROVIDER]


def get_all_providers() -> list[str]:
    """The processor alone."""
    return [PROVIDER]


def get_device() -> str:
    """The processor."""
    return "CPU"


def get_version_string() -> str:
    """The version of ONNX Runtime whose interface this is."""
    return VERSION


def get_build_info() -> str:
    """What this is."""
    return f"halfbyte, in the place of ONNX Runtime {VERSION}"


def has_collective_ops() -> bool:
    """There are none."""
    return False


def take_and_do_nothing(*arguments: Any, **keywords: Any) -> None:
    """For settings of logs, telemetry and libraries that are not here."""


def make_modules() -> dict[str, ModuleType]:
    """`onnxruntime` and what is in it, by their names."""
    exceptions = {error.__name__: error for error in errors.ALL}
    nothing = (
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
    shared.update(dict.fromkeys(nothing, take_and_do_nothing))
    state = {**shared, **exceptions, "SessionIOBinding": IOBinding}
    contents: dict[str, dict[str, Any]] = {
        NAME: {
            **shared, "IOBinding": IOBinding, "SessionIOBinding": IOBinding,
            "preload_dlls": take_and_do_nothing, "print_debug_info": take_and_do_nothing,
            "__version__": VERSION, "__halfbyte__": True,
        },
        _CAPI: {},
        f"{_CAPI}.onnxruntime_pybind11_state": state,
        f"{_CAPI}._pybind_state": state,
        f"{_CAPI}.onnxruntime_inference_collection": {
            n: state[n] for n in ("InferenceSession", "OrtValue", "SessionIOBinding")
        } | {"IOBinding": IOBinding, "Session": InferenceSession},
    }  # fmt: skip
    made = {name: _module(name, content) for name, content in contents.items()}
    for name, module in made.items():
        parent, _, last = name.rpartition(".")
        if parent:
            setattr(made[parent], last, module)
    return made


def _module(name: str, content: dict[str, Any]) -> ModuleType:
    module = ModuleType(name, get_build_info())
    is_package = name in (NAME, _CAPI)
    module.__spec__ = ModuleSpec(name, None, origin="halfbyte", is_package=is_package)
    if is_package:
        module.__path__ = []  # nothing else is found in it
    module.__dict__.update(content)
    return module


# ---- the distribution ----------------------------------------------------------------------------


class _Distribution(importlib.metadata.Distribution):
    """What installers read."""

    def read_text(self, filename: str) -> str | None:
        if filename == "METADATA":
            message = EmailMessage()
            message["Metadata-Version"] = "2.1"
            message["Name"] = NAME
            message["Version"] = VERSION
            message["Summary"] = get_build_info()
            return str(message)
        # Pyodide's name of where a package is from: without it, micropip does not list the package.
        return "halfbyte" if filename in ("INSTALLER", "PYODIDE_SOURCE") else None

    def locate_file(self, path: Any) -> Any:
        return Path(__file__).parent / path


class _Metadata(importlib.metadata.DistributionFinder):
    """Finds that distribution, and no modules."""

    def find_spec(self, *arguments: Any) -> None:
        return None

    def find_distributions(
        self, context: importlib.metadata.DistributionFinder.Context | None = None
    ) -> Iterable[importlib.metadata.Distribution]:
        return self._found(context.name if context is not None else None)

    def _found(self, name: str | None) -> Iterator[importlib.metadata.Distribution]:
        if name is None or name.lower() == NAME:
            yield _Distribution()
