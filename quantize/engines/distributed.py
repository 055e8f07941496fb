"""Parts on the workers of a cluster, a few ahead; those that are lost with a node, again."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any, Generic, Protocol
from uuid import uuid4

from halfbyte.errors import HalfbyteError
from halfbyte.quantize.engines.base import Engine, K, R, T
from halfbyte.quantize.engines.packing import Packed, packed, unpacked

TRIES = 4
_AHEAD = 2  # parts for each worker


class LostError(Exception):
    """A part's result will not come: its worker or its node ended. The message says why."""


class Cluster(Protocol):
    """Workers that run `halfbyte.quantize.engines.worker.run`."""

    def slots(self) -> int:
        """How many parts are computed at once."""

    def share(self, work: Packed) -> Any:
        """Keep work for all workers; returns a handle."""

    def submit(self, key: str, work: Any, part: Packed) -> Any:
        """Begin a part, with the handle of its work and the work's key; returns a handle."""

    def result(self, handle: Any) -> Packed | str:
        """Wait for what `worker.run` returns. Raises `LostError`, or what it raised."""

    def cancel(self, handles: Iterable[Any]) -> None:
        """Give parts up."""

    def close(self) -> None:
        """Leave the cluster."""


@dataclass
class _Begun(Generic[K]):
    key: K
    part: Packed  # for another try
    handle: Any
    tries: int = 1


class Distributed(Engine):
    """An engine on a cluster.

    Parameters
    ----------
    cluster : Cluster
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def map(
        self, work: Callable[[T], R], parts: Iterable[tuple[K, T]], *, threads: int = 0
    ) -> Iterator[tuple[K, R]]:
        """Results of parts, in their order; workers compute them, no threads.

        Raises
        ------
        HalfbyteError
            A worker must not compute parts, or one was lost with its worker `TRIES` times.
        """
        name, shared = uuid4().hex, self._cluster.share(packed(work))

        def begin(part: Packed) -> Any:
            return self._cluster.submit(name, shared, part)

        source, begun = iter(parts), deque[_Begun[K]]()
        try:
            while True:
                room = _AHEAD * max(1, self._cluster.slots()) - len(begun)
                for key, part in islice(source, max(0, room)):
                    bytes_ = packed(part)
                    begun.append(_Begun(key, bytes_, begin(bytes_)))
                if not begun:
                    return
                result = self._result(begun[0], begin)
                yield begun.popleft().key, unpacked(result)
        finally:
            self._cluster.cancel([each.handle for each in begun])

    def _result(self, begun: _Begun[K], begin: Callable[[Packed], Any]) -> Packed:
        while True:
            try:
                result = self._cluster.result(begun.handle)
            except LostError as error:
                if begun.tries == TRIES:
                    raise HalfbyteError(
                        f"tensor {_shown(begun.key)}: its part failed on all {TRIES} tries: {error}"
                    ) from None
                begun.handle = begin(begun.part)
                begun.tries += 1
                continue
            if isinstance(result, str):
                raise HalfbyteError(f"a worker cannot take part in this run: {result}")
            return result

    def close(self) -> None:
        """Leave the cluster, whose workers end what they do for this run."""
        self._cluster.close()


def _shown(key: object) -> str:
    return ", ".join(map(repr, key)) if isinstance(key, tuple) else repr(key)
