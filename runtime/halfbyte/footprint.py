"""Memory of a loaded model, known before it is allocated, and this process's own figures."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from importlib import import_module
from pathlib import Path

from halfbyte.layouts import LAYOUTS
from halfbyte.passes.stream_weights import window_bytes
from halfbyte.program import Buffer, Kind, Program

# A token of the vocabulary costs its string, dictionary entries and a score (CPython, 64 bits).
TOKEN_BYTES = 250
# Text of the interpreter, NumPy and its libraries, when they are not measured.
INTERPRETER_BYTES = 35_000_000


def planned(program: Program, tokens: int, to_pack: Iterable[Buffer] = ()) -> dict[str, int]:
    """Bytes by kind: what the program plans, the tokenizer and the interpreter.

    Mapped weights count whole: their pages are resident once they have been read, and the system
    may drop them; packed ones it may not. `tokens` is the size of the vocabulary, `to_pack` are
    weights that will be packed, beside those that are. Of streamed weights two lots count.
    """
    by_kind, waiting = program.bytes_by_kind(), set(to_pack)
    windows = window_bytes(program)
    copied = 0
    if waiting or windows:  # then vectors are copied out of the file: see packing.keep_vectors
        copied = sum(
            b.nbytes for b in program.buffers if b.kind is Kind.WEIGHT and len(b.shape) == 1
        )
    packed = sum(b.nbytes for b in program.buffers if b in waiting or b.dtype.upper() in LAYOUTS)
    return {
        "weights (mapped)": by_kind[Kind.WEIGHT] - packed - copied,
        "weights (packed)": packed,
        "weights (streamed)": windows,
        "KV cache": by_kind[Kind.STATE],
        "activations": by_kind[Kind.SCRATCH] + by_kind[Kind.INPUT] + by_kind[Kind.OUTPUT] - windows,
        "constants": by_kind[Kind.CONSTANT] + copied,
        "tokenizer": tokens * TOKEN_BYTES,
        "interpreter": interpreter_bytes(),
    }


def interpreter_bytes() -> int:
    """What a process that imported halfbyte holds before it loads a model."""
    return _at_import


def resident_bytes() -> int:
    """This process's resident memory now; a fixed estimate where the system does not tell."""
    if sys.platform == "emscripten":  # the heap never shrinks: its size is what the tab holds
        return int(import_module("pyodide_js")._module.HEAPU8.length)
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    except OSError:
        return INTERPRETER_BYTES
    import os

    return pages * os.sysconf("SC_PAGE_SIZE")


def peak_bytes() -> int:
    """This process's peak resident memory so far; 0 where the system does not tell."""
    if sys.platform == "emscripten":
        return resident_bytes()
    try:  # Linux: getrusage would count the parent's pages from before the exec as well
        status = Path("/proc/self/status").read_text(encoding="ascii")
        return 1024 * int(status.split("VmHWM:")[1].split()[0])
    except (OSError, IndexError):
        pass
    try:
        import resource
    except ImportError:
        return 0
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return int(peak) if sys.platform == "darwin" else int(peak) * 1024


_at_import = resident_bytes()
