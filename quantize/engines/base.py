"""The interface of engines, and the one that computes in this process."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from types import TracebackType
from typing import Self, TypeVar

K = TypeVar("K")
T = TypeVar("T")
R = TypeVar("R")


class Engine(ABC):
    """Computes independent parts; a context manager."""

    @abstractmethod
    def map(self, work: Callable[[T], R], parts: Iterable[tuple[K, T]]) -> Iterator[tuple[K, R]]:
        """Results of parts, in their order.

        Parameters
        ----------
        work : callable
            Pure. It may hold data that all parts share; other processes get a pickled copy.
        parts : iterable of (key, part)
            Read as results are taken, some parts ahead. Keys stay here, and name parts in errors.
        """

    @abstractmethod
    def close(self) -> None:
        """End what is still computed."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


class Local(Engine):
    """Computes each part when its result is asked for, here."""

    def map(self, work: Callable[[T], R], parts: Iterable[tuple[K, T]]) -> Iterator[tuple[K, R]]:
        """Results of parts, in their order."""
        return ((key, work(part)) for key, part in parts)

    def close(self) -> None:
        """Do nothing."""
