"""The package's own kernels: finds their library and opens it once."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from halfbyte.core.backends.library import Library, declare, packaged
from halfbyte.core.backends.memory import Memory
from halfbyte.core.backends.shared import SharedMemory
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
    opened = Library(declare(functions), Memory())
    opened.path = path
    return opened


@cache
def shared_library() -> Library:
    """The library in memory that threads share; raises `UnsupportedError` where they cannot."""
    opened = library()
    if sys.platform == "emscripten" and opened.path is not None:
        from halfbyte.core.backends import workers

        return workers.open_shared(opened.path)
    return opened


def library_for(threads: int) -> Library:
    """The library for so many threads; for one thread where they cannot share memory."""
    return shared_library() if threads > 1 and not one_thread_because() else library()


def place_of_files(backend: str, threads: int) -> Callable[[int], Any] | None:
    """Allocates memory for model files where the kernels of a backend need them; None if anywhere.

    Such bytes are packed in place, so there is one copy of the weights.
    """
    if backend == "numpy":
        return None
    memory = library_for(threads).memory
    return memory.unset if isinstance(memory, SharedMemory) else None


def alone_because(executable: Any) -> str:
    """Why a program runs on one thread, where the page is the reason; empty otherwise."""
    compiled = executable.backend.startswith("native")
    return one_thread_because() if compiled and executable.threads == 1 else ""


def one_thread_because() -> str:
    """Why there can be only one thread; empty if there can be more."""
    if sys.platform == "emscripten":
        from halfbyte.core.backends import workers

        try:
            shared_library()
        except UnsupportedError as error:
            return str(error).removeprefix("no threads: ")
        return workers.why_not()
    return ""


@cache
def instruction_sets() -> list[str]:
    """Names of the compiled tables that this machine can run, best first."""
    try:
        return library().instruction_sets
    except UnsupportedError:
        return []
