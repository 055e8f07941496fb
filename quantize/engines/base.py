"""The interface of engines, and the one that computes in this process."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Self, TypeVar

K = TypeVar("K")
T = TypeVar("T")
R = TypeVar("R")

_AHEAD = 3  # parts: with the one that is computed, those of a layer


class Engine(ABC):
    """Computes independent parts; a context manager."""

    @abstractmethod
    def map(
        self, work: Callable[[T], R], parts: Iterable[tuple[K, T]], *, threads: int = 0
    ) -> Iterator[tuple[K, R]]:
        """Results of parts, in their order.

        Parameters
        ----------
        work : callable
            Pure. It may hold data that all parts share; other processes get a pickled copy.
        parts : iterable of (key, part)
            Read as results are taken, some parts ahead. Keys stay here, and name parts in errors.
        threads : int
            Of this process, which compute parts beside the reading of others, where no others do.
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
    """Computes each part here, when its result is asked for or on threads."""

    def map(
        self, work: Callable[[T], R], parts: Iterable[tuple[K, T]], *, threads: int = 0
    ) -> Iterator[tuple[K, R]]:
        """Results of parts, in their order."""
        if not threads:
            return ((key, work(part)) for key, part in parts)
        return _on_threads(work, parts, threads)

    def close(self) -> None:
        """Do nothing."""


def _on_threads(
    work: Callable[[T], R], parts: Iterable[tuple[K, T]], threads: int
) -> Iterator[tuple[K, R]]:
    """As many parts at once, and few ahead of them, since each may be large.

    Were none ahead, the thread that reads parts would wait for all of a layer's but the last.
    """
    begun = deque[tuple[K, Future[R]]]()
    with ThreadPoolExecutor(threads) as pool:
        for key, part in parts:
            begun.append((key, pool.submit(work, part)))
            if len(begun) > threads + _AHEAD:
                first, result = begun.popleft()
                yield first, result.result()
        for first, result in begun:
            yield first, result.result()
