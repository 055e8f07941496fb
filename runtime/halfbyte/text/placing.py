"""Where a model's file goes in a browser: chosen by what the model needs, before it is fetched.

On one thread that is Pyodide's heap, on several the memory that they share, beyond 4 GB a memory of
64 bits, whose kernels are slower.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from halfbyte.core.backends import libraries
from halfbyte.core.backends.library import Library
from halfbyte.core.backends.shared import SharedArray
from halfbyte.download import Place
from halfbyte.download.transfer import ARRAY_BYTES, HEAP_BYTES, LARGE
from halfbyte.errors import MemoryBudgetError, OutOfMemoryError, UnsupportedError
from halfbyte.formats import gguf, gguf_split
from halfbyte.formats.model_file import ModelFile
from halfbyte.text import footprint
from halfbyte.text.footprint import FILE
from halfbyte.text.planning import Settings, plan
from halfbyte.weights import U8

MARGIN = 16 << 20  # bytes beside a plan: stacks of threads, scratch of packing, holes
_HEAP_ONLY = ("tokenizer", "interpreter")  # kinds that are in Pyodide's heap in any case

_Room = Callable[[dict[str, int]], Any]  # kernels of a memory with room for these bytes by kind


class TabPlace(Place):
    """The memory of a browser for one model.

    Parameters
    ----------
    name : str
        The model's file, for messages.
    settings : Settings
        How the model will be opened.
    backend : str
        "native" or the name of one table, which has addresses of 32 bits.
    threads : int
    encodes : bool
        The model will turn texts into vectors.
    """

    def __init__(
        self, name: str, settings: Settings, backend: str, threads: int, *, encodes: bool = False
    ) -> None:
        self._name, self._settings, self._encodes = name, settings, encodes
        self._backend, self._threads = backend, threads
        self._pool: Any = None  # keeps workers until the model has a pool of its own
        self._whole: dict[str, int] = {}  # bytes by kind of a model in several files
        self._chosen: list[_Room] = []  # for these, once the first has its place

    def expect(self, parts: Sequence[ModelFile | None]) -> None:
        """Know the headers of a model in several files, which go to one memory.

        Raises
        ------
        FormatError, UnsupportedError
            They are not a model's.
        """
        files = [part for part in parts if part is not None]
        if len(files) == len(parts):
            self._whole = self._planned(gguf_split.join_parts(files))

    def check(self, size: int) -> None:
        """Refuse a file for which no memory has room."""
        self._in_first(self._known(size), lambda library: None)

    def allocate(self, size: int, start: U8) -> U8:
        """Bytes in the first memory that has room for the model."""
        data = self.apart(size, start)
        return super().allocate(size, start) if data is None else data

    def apart(self, size: int, start: U8) -> U8 | None:
        """As `allocate`; None if that is Pyodide's heap."""
        needs = self._needs(size, start)
        room, data = self._in_first(needs, lambda library: library and self._take(library, size))
        self._chosen = [room] if self._whole else []
        return data

    def _take(self, library: Library, size: int) -> Any:
        memory: Any = library.memory
        data = memory.unset(size)
        if library.new_pool and not self._pool:  # workers start while the file arrives
            self._pool = library.new_pool(library, self._threads, wait=False)
        return data

    def _needs(self, size: int, start: U8) -> dict[str, int]:
        """Bytes by kind; only the file's if it is small, or its header is not known."""
        if size < LARGE or self._whole or start[: len(gguf.MAGIC)].tobytes() != gguf.MAGIC:
            return self._known(size)
        file = header_reader(self._name)(size, start.data)
        return self._known(size) if file is None else self._planned(file)

    def _known(self, size: int) -> dict[str, int]:
        """The same, of a file whose header was not read."""
        return self._whole if self._whole and not self._chosen else {FILE: size}

    def _planned(self, file: ModelFile) -> dict[str, int]:
        planned = plan(file, self._settings, encodes=self._encodes).memory
        beside = {kind: n for kind, n in planned.items() if kind != "weights (packed)"}
        return footprint.in_tab(beside, file.size)

    def _in_first(
        self, needs: dict[str, int], allocate: Callable[[Any], Any]
    ) -> tuple[_Room, U8 | None]:
        """The fastest memory with room, and what it allocates; Pyodide's heap is None."""
        reasons = []
        for room in self._chosen or self._rooms():
            try:
                return room, allocate(room(needs))
            except (UnsupportedError, MemoryError) as error:
                reasons.append(str(error).removeprefix("no threads: "))
        raise MemoryBudgetError(f"{listed(needs)}: {'; '.join(dict.fromkeys(reasons))}")

    def _rooms(self) -> Iterator[_Room]:
        """Check each memory for room; those with threads come first, if several are wanted."""
        shared = partial(_apart, libraries.shared_library, 32)
        alone = self._threads <= 1 or bool(libraries.why_no_threads())
        yield from (_in_heap, shared) if alone else (shared, _in_heap)
        if self._backend == "native":
            yield partial(_apart, libraries.wide_library, 64)


def header_reader(name: str) -> Callable[[int, Any], ModelFile | None]:
    """Makes a GGUF file of its size and first bytes; None if the header goes on after them."""
    path = Path(name)
    return lambda size, start: gguf.read_start(path, SharedArray.without_memory(size), start)


def _in_heap(needs: dict[str, int]) -> None:
    if needs[FILE] > ARRAY_BYTES:
        raise UnsupportedError(f"a file in Pyodide's heap has at most {_mb(ARRAY_BYTES)}")
    if sum(needs.values()) > HEAP_BYTES:
        raise UnsupportedError(f"Pyodide's heap has at most {_mb(HEAP_BYTES)}")


def _apart(open_library: Callable[[], Library], bits: int, needs: dict[str, int]) -> Library:
    library = open_library()
    memory: Any = library.memory
    total = sum(n for kind, n in needs.items() if kind not in _HEAP_ONLY) + MARGIN
    if total > memory.bytes.limit:
        raise UnsupportedError(f"memory of {bits} bits has at most {_mb(memory.bytes.limit)} here")
    if total > memory.room:
        raise OutOfMemoryError(
            f"{listed(needs)} beside what is in memory now: {_mb(memory.room)} are left of "
            f"{_mb(memory.bytes.limit)}"
        )
    return library


def listed(needs: Mapping[str, int]) -> str:
    """Bytes by kind that do not fit, for a message."""
    kinds = ", ".join(f"{kind} {_mb(n)}" for kind, n in needs.items() if n >= 5e5)
    return f"{_mb(sum(needs.values()))} do not fit ({kinds})"


def _mb(size: float) -> str:
    return f"{size / 1e6:,.0f} MB"
