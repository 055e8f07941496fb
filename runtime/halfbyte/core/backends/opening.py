"""The package's own kernels: finds their library and opens it once."""

from __future__ import annotations

import ctypes
import os
import sys
from functools import cache
from pathlib import Path

from halfbyte.core.backends.library import Library, declare, packaged
from halfbyte.core.backends.memory import Memory
from halfbyte.errors import UnsupportedError


def kernels_path() -> Path:
    """Path of the library installed for this machine, or the value of HALFBYTE_KERNELS."""
    chosen = os.environ.get("HALFBYTE_KERNELS")
    if chosen:
        return Path(chosen)
    suffix = {"darwin": ".dylib", "win32": ".dll"}.get(sys.platform, ".so")
    if path := packaged(f"_kernels{suffix}"):
        return path
    raise UnsupportedError(
        f"no _kernels{suffix} beside the package halfbyte: it was installed without its kernels; "
        "backend numpy works all the same"
    )


@cache
def library() -> Library:
    """The package's own library; raises `UnsupportedError` if there is none."""
    if sys.platform == "emscripten" and "HALFBYTE_KERNELS" not in os.environ:
        from halfbyte.core.backends import emscripten

        return emscripten.open_library()
    path = kernels_path()
    try:
        functions = ctypes.CDLL(str(path))
    except OSError as error:
        raise UnsupportedError(f"{path}: cannot be loaded: {error}") from None
    return Library(declare(functions), Memory())


@cache
def instruction_sets() -> list[str]:
    """Names of the compiled tables that this machine can run, best first."""
    try:
        return library().instruction_sets
    except UnsupportedError:
        return []
