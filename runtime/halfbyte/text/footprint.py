"""Memory that a model will take, computed before it is allocated, and memory of this process."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from halfbyte.core.buffer import Buffer, Kind
from halfbyte.core.passes.stream_weights import window_bytes
from halfbyte.core.program import Program
from halfbyte.formats.derived import ConvertedTensor
from halfbyte.formats.mapped import is_mapped
from halfbyte.weights import Tensor
from halfbyte.weights.registry import is_packed

FILE = "model's file"  # a kind of memory in a tab

# A token of the vocabulary takes a string, dictionary entries and a score (CPython, 64 bits), and
# its probabilities while the next token is chosen; a merge takes a string and its rank.
TOKEN_BYTES = 320
MERGE_BYTES = 110
# The same in WebAssembly, whose pointers have 32 bits.
TAB_TOKEN_BYTES = 150
# Of a tab's heap: Pyodide, NumPy and halfbyte, before a model is loaded.
TAB_BYTES = 41_600_000
# What loading and running add to the plan in a tab: modules, fragments of the heap.
REST_BYTES = 3_000_000
# The same in a process: the command line, Jinja and random numbers, which are imported when they
# are needed (10 MB); kernels, threads, copies of logits, and words that a tokenizer caches (5 MB).
PROCESS_REST_BYTES = 16_000_000
# A process that has imported halfbyte: the interpreter, NumPy and its libraries; 40 MB were
# measured. The figure is fixed, so that a budget has the same answer each time. If the process
# held more at import, that counts, rounded up in steps.
INTERPRETER_BYTES = 44_000_000
_STEP = 8_000_000


def planned(
    program: Program,
    tokens: int,
    to_pack: Iterable[Buffer] = (),
    to_copy: Iterable[Buffer] = (),
    merges: int = 0,
) -> dict[str, int]:
    """Bytes by kind: the program's, the tokenizer's and the interpreter's.

    Mapped weights count in full: their pages are resident once they have been read, although the
    system may drop them; it may not drop packed ones, nor those converted to a layout of memory,
    packed or not. Of streamed weights the two windows count.

    Parameters
    ----------
    tokens, merges : int
        Of the vocabulary.
    to_pack : iterable of Buffer
        Weights that will be packed; others may be packed already.
    to_copy : iterable of Buffer
        Weights that will be copied out of the file.
    """
    by_kind, unpacked = program.bytes_by_kind(), set(to_pack)
    windows = window_bytes(program)
    copies = [b for b in to_copy if b.kind is Kind.WEIGHT]
    vectors = sum(b.nbytes for b in copies if len(b.shape) == 1)
    copied = sum(b.nbytes for b in copies) - vectors
    made = sum(b.nbytes for b in converted(program))
    weights = [b for b in program.buffers if b.kind is Kind.WEIGHT]
    packed = sum(b.nbytes for b in weights if b in unpacked or is_packed(b.dtype))
    packed -= sum(b.nbytes for b in converted(program) if b in unpacked)
    return {
        "weights (mapped)": by_kind[Kind.WEIGHT] - packed - made - copied - vectors,
        "weights (packed)": packed,
        "weights (converted)": made,
        "weights (copied)": copied,
        "weights (streamed)": windows,
        "KV cache": by_kind[Kind.CACHE],
        **({"states": by_kind[Kind.STATE]} if by_kind[Kind.STATE] else {}),
        "activations": by_kind[Kind.SCRATCH] + by_kind[Kind.INPUT] + by_kind[Kind.OUTPUT] - windows,
        "constants": by_kind[Kind.CONSTANT] + vectors,
        "tokenizer": tokens * TOKEN_BYTES + merges * MERGE_BYTES,
        "interpreter": process_bytes(),
    }


def converted(program: Program) -> list[Buffer]:
    """Weights whose bytes in memory are not those of the file, and come beside them."""
    return [b for b in program.buffers if isinstance(b.value, ConvertedTensor)]


def bytes_in_file(program: Program) -> int:
    """Bytes of the program's weights in the model's file."""
    return program.bytes_by_kind()[Kind.WEIGHT] + sum(
        b.value.source.nbytes - b.nbytes
        for b in program.buffers
        if isinstance(b.value, ConvertedTensor)
    )


def planned_graph(
    programs: Iterable[Program], prepared: Iterable[npt.NDArray[Any]] = ()
) -> dict[str, int]:
    """Bytes by kind for one call of a graph, whose programs share weights, and the interpreter's.

    Weights that are used where the file has them are "mapped"; others that products multiply with
    are "packed". All other constants of programs count as constants, and so do initializers of the
    `prepared` graph that were computed and are not in the file.
    """
    memory = dict.fromkeys(
        ("weights (mapped)", "weights (packed)", "activations", "constants", "interpreter"), 0
    )
    multiplied: set[Buffer] = set()
    buffers: dict[Buffer, None] = {}
    host: list[npt.NDArray[Any]] = []
    for program in programs:
        host += [array for i in program.instructions for array in i.operator.holds]
        multiplied.update(i.operands["w"].root for i in program.instructions if "w" in i.operands)
        buffers |= dict.fromkeys(b for b in program.buffers if b.source is None)
        memory["activations"] += sum(
            size for kind, size in program.bytes_by_kind().items() if kind in _PASSING
        )
    seen = set()
    for buffer in buffers:
        array = buffer.value.data if isinstance(buffer.value, Tensor) else buffer.value
        if isinstance(array, np.ndarray):
            weight = buffer.kind is Kind.WEIGHT or buffer in multiplied
            memory[_where(array, "weights (packed)" if weight else "constants")] += buffer.nbytes
            seen.add(array.ctypes.data)
    own = [array for array in prepared if not is_mapped(array)]
    for array in (*host, *own):
        if array.nbytes and array.ctypes.data not in seen:
            memory[_where(array, "constants")] += array.nbytes
            seen.add(array.ctypes.data)
    memory["interpreter"] = process_bytes()
    return memory


_PASSING = frozenset({Kind.SCRATCH, Kind.INPUT, Kind.OUTPUT})


def _where(array: npt.NDArray[Any], own: str) -> str:
    return "weights (mapped)" if is_mapped(array) else own


def in_tab(memory: Mapping[str, int], file: int) -> dict[str, int]:
    """The same in a browser's tab, whose heap holds the model's whole file, of `file` bytes.

    `memory` does not count weights that are packed in place, in the file; converted ones are
    beside it.
    """
    own = {k: v for k, v in memory.items() if k not in ("weights (mapped)", "weights (streamed)")}
    if "tokenizer" in own:
        own["tokenizer"] = own["tokenizer"] * TAB_TOKEN_BYTES // TOKEN_BYTES
    return {FILE: file, **own, "interpreter": TAB_BYTES + REST_BYTES}


def in_app(memory: Mapping[str, int]) -> dict[str, int]:
    """The same in a device's app, whose interpreter has not imported what this one has."""
    return {**memory, "interpreter": INTERPRETER_BYTES + PROCESS_REST_BYTES}


def process_bytes() -> int:
    """Bytes of a process beside a model: the interpreter's, and what loading adds."""
    return interpreter_bytes() + PROCESS_REST_BYTES


def interpreter_bytes() -> int:
    """Bytes of a process that imported halfbyte, before it loads a model."""
    more = max(_at_import - INTERPRETER_BYTES, 0)
    return INTERPRETER_BYTES + -(-more // _STEP) * _STEP


def resident_bytes() -> int:
    """This process's resident memory now; a fixed estimate if the system does not tell."""
    if sys.platform == "emscripten":  # the heap never shrinks: all of it counts
        return int(import_module("pyodide_js")._module.HEAPU8.length)
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    except OSError:
        return INTERPRETER_BYTES
    import os

    return pages * os.sysconf("SC_PAGE_SIZE")


def peak_bytes() -> int:
    """This process's peak resident memory so far; 0 if the system does not tell."""
    if sys.platform == "emscripten":
        return resident_bytes()
    try:  # Linux: getrusage also counts the parent's pages from before the exec
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
