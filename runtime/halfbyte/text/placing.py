"""Where a model's file goes in a browser: chosen by what the model needs, before it is fetched.

On one thread that is Pyodide's heap, on several the memory that they share, beyond 4 GB a memory of
64 bits, whose kernels are slower.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from halfbyte.core.backends import libraries
from halfbyte.core.backends.library import Library
from halfbyte.core.backends.shared import SharedArray
from halfbyte.download import Place
from halfbyte.download.transfer import ARRAY_BYTES, HEAP_BYTES, LARGE
from halfbyte.errors import MemoryBudgetError, OutOfMemoryError, UnsupportedError
from halfbyte.formats import gguf
from halfbyte.text import footprint
from halfbyte.text.footprint import FILE
from halfbyte.text.planning import Settings, plan
from halfbyte.weights import U8

MARGIN = 16 << 20  # bytes beside a plan: stacks of threads, scratch of packing, holes
_OTHERS = "other files"  # of a model in several
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

    Attributes
    ----------
    total : int
        Bytes of all files of a model in several, which go to one memory; else 0.
    """

    def __init__(self, name: str, settings: Settings, backend: str, threads: int) -> None:
        self._name, self._settings = name, settings
        self._backend, self._threads = backend, threads
        self.total = 0
        self._pool: Any = None  # keeps workers until the model has a pool of its own
        self._chosen: list[_Room] = []  # for several files, once the first has its place

    def check(self, size: int) -> None:
        """Refuse a file for which no memory has room."""
        self._in_first(self._files(size), lambda library: None)

    def allocate(self, size: int, start: U8) -> U8:
        """Bytes in the first memory that has room for the model."""
        data = self.apart(size, start)
        return super().allocate(size, start) if data is None else data

    def apart(self, size: int, start: U8) -> U8 | None:
        """As `allocate`; None if that is Pyodide's heap."""
        needs = self._needs(size, start)
        room, data = self._in_first(needs, lambda library: library and self._take(library, size))
        self._chosen = [room] if self.total else []
        return data

    def _take(self, library: Library, size: int) -> Any:
        memory: Any = library.memory
        data = memory.unset(size)
        if library.new_pool and not self._pool:  # workers start while the file arrives
            self._pool = library.new_pool(library, self._threads, wait=False)
        return data

    def _needs(self, size: int, start: U8) -> dict[str, int]:
        """Bytes by kind; only the files' if they are small, or the header is not known."""
        file = None
        if size >= LARGE and not self.total and start[: len(gguf.MAGIC)].tobytes() == gguf.MAGIC:
            pages = SharedArray.without_memory(size)
            file = gguf.read_start(Path(self._name), pages, start.data)
        if file is None:
            return self._files(size)
        planned = plan(file, self._settings).memory
        beside = {kind: n for kind, n in planned.items() if kind != "weights (packed)"}
        return footprint.in_tab(beside, size)

    def _files(self, size: int) -> dict[str, int]:
        """Bytes of one file, and of the others that go where it goes."""
        others = 0 if self._chosen else max(self.total - size, 0)
        return {FILE: size, **({_OTHERS: others} if others else {})}

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
        raise MemoryBudgetError(f"{_listed(needs)}: {'; '.join(dict.fromkeys(reasons))}")

    def _rooms(self) -> Iterator[_Room]:
        """Check each memory for room; those with threads come first, if several are wanted."""
        shared = partial(_apart, libraries.shared_library, 32)
        alone = self._threads <= 1 or bool(libraries.why_no_threads())
        yield from (_in_heap, shared) if alone else (shared, _in_heap)
        if self._backend == "native":
            yield partial(_apart, libraries.wide_library, 64)


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
            f"{_listed(needs)} beside what is in memory now: {_mb(memory.room)} are left of "
            f"{_mb(memory.bytes.limit)}"
        )
    return library


def _listed(needs: dict[str, int]) -> str:
    kinds = ", ".join(f"{kind} {_mb(n)}" for kind, n in needs.items() if n >= 5e5)
    return f"{_mb(sum(needs.values()))} do not fit ({kinds})"


def _mb(size: float) -> str:
    return f"{size / 1e6:,.0f} MB"
