"""Helper threads for the kernels: Python threads that sleep here and work in C (run.c).

A thread enters ``hb_help``, claims chunks of work there without the interpreter's lock, returns if
there were none for a while, and sleeps on an event. A run never waits for a thread that has claimed
nothing, so one that wakes late only costs time. A run is announced before it begins, and a helper
that leaves checks once more, so no wake is lost.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from halfbyte.core.backends.library import Library
from halfbyte.errors import HalfbyteError

MAX_THREADS = 4096  # more than any processor has; each takes memory before it runs
SPINS = 20_000  # idle rounds before a helper sleeps: a fraction of a millisecond


class Pool:
    """`threads` - 1 helpers of the calling thread; with one thread there is no pool in C.

    Attributes
    ----------
    address : int
        Address of the pool in C, as `hb_run` takes it; 0 if there is none.
    """

    def __init__(self, library: Library, threads: int, spins: int = SPINS) -> None:
        if not 1 <= threads <= MAX_THREADS:
            raise HalfbyteError(f"{threads} threads: expected 1 to {MAX_THREADS}")
        self.threads = threads
        self.address = 0
        self._announce, self._wait = library.pool_announce, library.pool_wait
        self._events = [threading.Event() for _ in range(threads - 1)]
        self._finalizer: weakref.finalize[..., Pool] | None = None
        if threads == 1:
            return
        memory = library.memory.aligned(library.pool_size())
        self.address = library.memory.address(memory)
        helpers = [
            threading.Thread(
                target=_help,
                args=(library.help, self.address, spins, event, memory),
                daemon=True,
                name="halfbyte",
            )
            for event in self._events
        ]
        started: list[threading.Thread] = []
        self._finalizer = weakref.finalize(
            self, _stop, library, self.address, memory, self._events, started
        )
        for helper in helpers:
            try:
                helper.start()
            except RuntimeError as error:
                self.close()
                raise HalfbyteError(f"{threads} threads: {error}; expected fewer") from None
            started.append(helper)

    def wake(self) -> None:
        """Announce a run, which must follow, and wake the sleeping helpers."""
        if self._events and self._announce(self.address) < len(self._events):
            for event in self._events:
                event.set()

    def wait(self) -> None:
        """Wait for the helpers' parts of an instruction; Ctrl-C counts afterwards."""
        interrupt = None
        done = 0
        while not done:
            try:
                done = self._wait(self.address)
            except KeyboardInterrupt as error:
                interrupt = error
        if interrupt is not None:
            raise interrupt

    def close(self) -> None:
        """Stop the helpers and wait for them; also done when the pool is garbage-collected."""
        if self._finalizer is not None:
            self._finalizer()


def new_pool(library: Library, threads: int) -> Any:
    """The pool of a library: of its own kind, such as workers in a browser, or a `Pool`."""
    return (library.new_pool or Pool)(library, threads)


def run_with(
    pool: Any,
    run: Callable[..., int],
    program: tuple[int, int],
    first: int,
    last: int,
    arguments: tuple[int, ...],
) -> None:
    """Run instructions [first, last), and wait for helpers that the system has taken off a core.

    Parameters
    ----------
    run : callable
        A library's `run`, which returns early if a helper does not finish its part.
    program : (int, int)
        Addresses of the table and the instructions.
    arguments : tuple of int
        Those of `run` after `last`; the pool's address is among them.
    """
    pool.wake()
    done = run(*program, first, last, *arguments)
    try:
        while done < last:
            pool.wait()
            done = run(*program, done + 1, last, *arguments)
    except BaseException:
        run(*program, last, last, *arguments)  # nothing: the run ends
        raise


def _help(
    enter: Callable[[int, int], int],
    address: int,
    spins: int,
    event: threading.Event,
    memory: npt.NDArray[np.uint8],  # kept alive until here
) -> None:
    """The body of a helper. The event is cleared before the work, so that no wake is lost."""
    while True:
        event.wait()
        event.clear()
        if enter(address, spins):
            return


def _stop(
    library: Library,
    address: int,
    memory: npt.NDArray[np.uint8],  # kept alive until here
    events: list[threading.Event],
    helpers: list[threading.Thread],
) -> None:
    library.pool_stop(address)
    for event in events:
        event.set()
    for helper in helpers:
        if helper is not threading.current_thread():  # a helper itself may collect the pool
            helper.join()
