"""Functions of `onnxruntime`."""

from __future__ import annotations

from typing import Any, NoReturn

from halfbyte.errors import UnsupportedError
from halfbyte.onnx.session.errors import Fail
from halfbyte.onnx.session.providers import PROVIDER
from halfbyte.standins import StandIn

NAME = "onnxruntime"
# The ONNX Runtime with this interface. Packages compare it with the oldest one that they support.
VERSION = "1.31.1"
PACKAGE = StandIn(NAME, VERSION, f"halfbyte, in the place of ONNX Runtime {VERSION}")


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
    return PACKAGE.summary


def has_collective_ops() -> bool:
    """Whether there are collective operators: no."""
    return False


def do_nothing(*arguments: Any, **keywords: Any) -> None:
    """For settings of logs, telemetry, allocators and libraries, which do not exist here."""


def register_execution_provider_library(name: str, path: str) -> NoReturn:
    """Refuse a library of a provider, which is machine code for ONNX Runtime."""
    raise Fail(f"{path}: the provider {name!r}: libraries of providers cannot be loaded")


def unregister_execution_provider_library(name: str) -> NoReturn:
    """Refuse a name: there are no libraries of providers."""
    raise Fail(f"the provider {name!r} is not registered: libraries of providers cannot be loaded")


def get_example(name: str) -> NoReturn:
    """Refuse an example: `onnxruntime.datasets` has files that are not here."""
    raise UnsupportedError(f"onnxruntime.datasets: the example {name!r} is not in halfbyte")
