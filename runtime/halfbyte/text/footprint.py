"""Memory of a loaded model, known before it is allocated, and this process's own figures."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from halfbyte.core.passes.stream_weights import window_bytes
from halfbyte.core.program import Buffer, Kind, Program
from halfbyte.formats.mapped import is_mapped
from halfbyte.weights import Tensor
from halfbyte.weights.registry import is_packed

FILE = "model's file"  # a kind of memory, in a tab

# A token of the vocabulary costs its string, dictionary entries and a score (CPython, 64 bits), and
# its probabilities while the next token is chosen; a merge is another string and its rank.
TOKEN_BYTES = 320
MERGE_BYTES = 110
# The same in WebAssembly, whose pointers have 32 bits.
TAB_TOKEN_BYTES = 150
# What Pyodide, NumPy and halfbyte have taken of a tab's heap before a model is there.
TAB_BYTES = 41_600_000
# What loading and running leave behind in a tab beside the plan: modules, fragments of the heap.
REST_BYTES = 3_000_000
# The same of a process, where it is more: the command line, Jinja and random numbers are imported
# when they are needed (8 MB), then kernels, threads, and words that a tokenizer remembers (4 MB).
PROCESS_REST_BYTES = 13_000_000
# What a process holds when it has imported halfbyte: the interpreter, NumPy and its libraries.
# 40 MB were measured. The figure is fixed, so that a budget has the same answer each time; where
# the process held more already, it is that, in steps.
INTERPRETER_BYTES = 44_000_000
_STEP = 8_000_000


def planned(
    program: Program, tokens: int, to_pack: Iterable[Buffer] = (), merges: int = 0
) -> dict[str, int]:
    """Bytes by kind: what the program plans, the tokenizer and the interpreter.

    Mapped weights count whole: their pages are resident once they have been read, and the system
    may drop them; packed ones it may not. `tokens` is the size of the vocabulary, `merges` how many
    its tokenizer has, `to_pack` are weights that will be packed, beside those that are. Of streamed
    weights two lots count.
    """
    by_kind, waiting = program.bytes_by_kind(), set(to_pack)
    windows = window_bytes(program)
    copied = 0
    if waiting or windows:  # then vectors are copied out of the file: see packing.keep_vectors
        copied = sum(
            b.nbytes for b in program.buffers if b.kind is Kind.WEIGHT and len(b.shape) == 1
        )
    packed = sum(b.nbytes for b in program.buffers if b in waiting or is_packed(b.dtype))
    return {
        "weights (mapped)": by_kind[Kind.WEIGHT] - packed - copied,
        "weights (packed)": packed,
        "weights (streamed)": windows,
        "KV cache": by_kind[Kind.STATE],
        "activations": by_kind[Kind.SCRATCH] + by_kind[Kind.INPUT] + by_kind[Kind.OUTPUT] - windows,
        "constants": by_kind[Kind.CONSTANT] + copied,
        "tokenizer": tokens * TOKEN_BYTES + merges * MERGE_BYTES,
        "interpreter": process_bytes(),
    }


def planned_graph(
    programs: Iterable[Program], prepared: Iterable[npt.NDArray[Any]] = ()
) -> dict[str, int]:
    """Bytes by kind of a graph's programs for one call, which share weights, and the interpreter.

    Mapped are numbers that lie where the file has them; packed are those that products multiply
    with. `prepared` are initializers of the prepared graph: what was computed then and is no longer
    in the file counts as constants, as do the other constants of programs.
    """
    found = dict.fromkeys(
        ("weights (mapped)", "weights (packed)", "activations", "constants", "interpreter"), 0
    )
    multiplied: set[Buffer] = set()
    buffers: dict[Buffer, None] = {}
    host: list[npt.NDArray[Any]] = []
    for program in programs:
        host += [array for i in program.instructions for array in i.operator.holds]
        multiplied.update(i.operands["w"].root for i in program.instructions if "w" in i.operands)
        buffers |= dict.fromkeys(b for b in program.buffers if b.source is None)
        found["activations"] += sum(
            size for kind, size in program.bytes_by_kind().items() if kind in _PASSING
        )
    seen = set()
    for buffer in buffers:
        array = buffer.value.data if isinstance(buffer.value, Tensor) else buffer.value
        if isinstance(array, np.ndarray):
            weight = buffer.kind is Kind.WEIGHT or buffer in multiplied
            found[_where(array, "weights (packed)" if weight else "constants")] += buffer.nbytes
            seen.add(array.ctypes.data)
    own = [array for array in prepared if not is_mapped(array)]
    for array in (*host, *own):
        if array.nbytes and array.ctypes.data not in seen:
            found[_where(array, "constants")] += array.nbytes
            seen.add(array.ctypes.data)
    found["interpreter"] = process_bytes()
    return found


_PASSING = frozenset({Kind.SCRATCH, Kind.INPUT, Kind.OUTPUT})


def _where(array: npt.NDArray[Any], own: str) -> str:
    return "weights (mapped)" if is_mapped(array) else own


def in_tab(memory: Mapping[str, int], file: int) -> dict[str, int]:
    """The same of a tab of a browser, whose heap has the model's file, of so many bytes, whole.

    `memory` has no weights that are packed where the file has them.
    """
    own = {k: v for k, v in memory.items() if k not in ("weights (mapped)", "weights (streamed)")}
    if "tokenizer" in own:
        own["tokenizer"] = own["tokenizer"] * TAB_TOKEN_BYTES // TOKEN_BYTES
    return {FILE: file, **own, "interpreter": TAB_BYTES + REST_BYTES}


def process_bytes() -> int:
    """What a process holds beside a model: the interpreter, and what loading leaves behind."""
    return interpreter_bytes() + PROCESS_REST_BYTES


def interpreter_bytes() -> int:
    """What a process that imported halfbyte holds before it loads a model."""
    beyond = max(_at_import - INTERPRETER_BYTES, 0)
    return INTERPRETER_BYTES + -(-beyond // _STEP) * _STEP


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
