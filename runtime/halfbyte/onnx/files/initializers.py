"""Initializers of a graph whose numbers are in memory apart from NumPy's, as in a browser's tab.

They are copied out when something reads them, and dropped when nothing refers to the copy.
"""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, MutableMapping
from typing import Any, TypeGuard
from weakref import WeakValueDictionary

import numpy as np
import numpy.typing as npt

from halfbyte.formats.mapped import is_apart

_SMALL = 1 << 12  # bytes of an array that stays in NumPy's memory
_RECENT = 1 << 23  # bytes of copies that are kept for a while: passes look at values many times


class Initializers(MutableMapping[str, Any]):
    """Constants by name: as a `dict`, but large arrays are put into `memory`.

    Parameters
    ----------
    memory : Memory
        One that is apart; see `halfbyte.core.backends.shared`.
    """

    def __init__(self, memory: Any) -> None:
        self.memory = memory
        self.stored: dict[str, Any] = {}  # arrays in either memory, and sparse tensors
        self._copies: WeakValueDictionary[str, Any] = WeakValueDictionary()
        self._names: dict[int, str] = {}  # by the identity of arrays that exist
        self._recent: deque[npt.NDArray[Any]] = deque()

    def __getitem__(self, name: str) -> Any:
        value = self.stored[name]
        if not is_apart(value):
            return value
        copy = self._copies.get(name)
        if copy is None:
            copy = np.asarray(value)
            copy.flags.writeable = False
            self._watch(name, copy)
        self._keep(copy)
        return copy

    def __setitem__(self, name: str, value: Any) -> None:
        self._copies.pop(name, None)
        if isinstance(value, np.ndarray):
            self._watch(name, value)
            if value.nbytes >= _SMALL and not value.dtype.hasobject:
                value = self.memory.reach(value)
        self.stored[name] = value

    def __delitem__(self, name: str) -> None:
        del self.stored[name]
        self._copies.pop(name, None)

    def __iter__(self) -> Iterator[str]:
        return iter(self.stored)

    def __len__(self) -> int:
        return len(self.stored)

    def __contains__(self, name: object) -> bool:
        return name in self.stored

    def name_of(self, array: npt.NDArray[Any]) -> str | None:
        """The name whose value is this very array; None if there is none."""
        name = self._names.get(id(array))
        return name if name in self.stored and self._copies.get(name) is array else None

    def release(self) -> None:
        """Drop the copies that were read last, if nobody else has them."""
        self._recent.clear()

    def _watch(self, name: str, array: npt.NDArray[Any]) -> None:
        """Know the name of an array, as long as the array exists."""
        self._copies[name] = array
        self._names[id(array)] = name
        weakref.finalize(array, self._names.pop, id(array), None).atexit = False

    def _keep(self, copy: npt.NDArray[Any]) -> None:
        """Let the copies that were read last exist for a while."""
        if copy.nbytes > _RECENT or (self._recent and self._recent[-1] is copy):
            return
        self._recent.append(copy)
        while sum(kept.nbytes for kept in self._recent) > _RECENT:
            self._recent.popleft()


def stored(initializers: Mapping[str, Any]) -> Mapping[str, Any]:
    """The values as they are stored, of which dtype, shape and size are known without a copy."""
    return initializers.stored if isinstance(initializers, Initializers) else initializers


def release(initializers: Mapping[str, Any]) -> None:
    """Drop copies of values in memory apart that were kept for the next reader."""
    if isinstance(initializers, Initializers):
        initializers.release()


def empty_like(initializers: Mapping[str, Any]) -> MutableMapping[str, Any]:
    """An empty mapping that keeps its arrays where this one does."""
    return Initializers(initializers.memory) if isinstance(initializers, Initializers) else {}


def some_of(initializers: Mapping[str, Any], names: Iterable[str]) -> MutableMapping[str, Any]:
    """The initializers of these names, as far as there are any; nothing is copied."""
    kept, have = empty_like(initializers), stored(initializers)
    into = kept.stored if isinstance(kept, Initializers) else kept
    into.update((name, have[name]) for name in names if name in have)
    return kept


def name_of(initializers: Mapping[str, Any], array: npt.NDArray[Any]) -> str | None:
    """The name whose value is this very array; None if there is none."""
    if isinstance(initializers, Initializers):
        return initializers.name_of(array)
    return next((name for name, value in initializers.items() if value is array), None)


def is_stored_array(value: Any) -> TypeGuard[npt.NDArray[Any]]:
    """Whether a stored value is a dense array, in either memory."""
    return isinstance(value, np.ndarray) or is_apart(value)
