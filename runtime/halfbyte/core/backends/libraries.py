"""The package's own kernels: finds their library and opens it once."""

from __future__ import annotations

import ctypes
import os
import sys
from functools import cache
from pathlib import Path
from typing import Any

from halfbyte.core.backends.library import Library, declare, packaged
from halfbyte.core.backends.memory import Memory
from halfbyte.core.backends.shared import memory_of
from halfbyte.core.program import Program
from halfbyte.errors import UnsupportedError
from halfbyte.formats.derived import DerivedTensor
from halfbyte.weights import Tensor

WIDE = "kernels-64.wasm"


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


@cache
def wide_library() -> Library:
    """As `shared_library`, in a browser's memory of 64 bits; raises `UnsupportedError`.

    Also raises `ImportError` if a page has not unpacked the part of the package with its file.
    """
    from halfbyte.core.backends import emscripten, workers

    path = packaged(WIDE)
    if path is None:
        raise ImportError(f"{WIDE} is not in the package", name="halfbyte")
    opened = workers.open_shared(path)
    if not emscripten.answers_rightly(opened):
        raise UnsupportedError(f"no 64-bit memory: {WIDE} computes wrongly in this browser")
    return opened


def library_for(threads: int, program: Program | None = None) -> Library:
    """The library for so many threads; for one thread where they cannot share memory.

    A program's weights may be in the memory of one already.
    """
    for buffer in program.buffers if program else ():
        value = buffer.value
        if isinstance(value, DerivedTensor):  # asking for its bytes would compute all of them
            continue
        memory = memory_of(value.data if isinstance(value, Tensor) else value)
        if memory is not None:
            return shared_library() if memory is shared_library().memory else wide_library()
    return shared_library() if threads > 1 and not why_no_threads() else library()


def why_one_thread(executable: Any) -> str:
    """Why a program runs on one thread, where the page is the reason; empty otherwise."""
    compiled = executable.backend.startswith("native")
    return why_no_threads() if compiled and executable.threads == 1 else ""


def why_no_threads() -> str:
    """Why there can be only one thread; empty if there can be more."""
    if sys.platform == "emscripten":
        from halfbyte.core.backends import instance

        try:
            shared_library()
        except UnsupportedError as error:
            return str(error).removeprefix("no threads: ")
        return instance.why_not()
    return ""


@cache
def instruction_sets() -> list[str]:
    """Names of the compiled tables that this machine can run, best first."""
    try:
        return library().instruction_sets
    except UnsupportedError:
        return []
