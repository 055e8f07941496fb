"""Threads in a browser: workers that run the kernels in a memory which they share with Python.

Pyodide's own memory cannot be shared, so this one is apart; see `shared`. Python's thread publishes
work there and takes part in it, without ever sleeping, which a page's main thread may not do.
Workers sleep between runs (`hb_serve` in run.c). A worker starts only when Python next returns to
the browser's event loop; until then, or if the page's policy forbids workers, nobody waits for it.
"""

from __future__ import annotations

import time
import weakref
from contextlib import suppress
from functools import cache, partial
from importlib import import_module
from pathlib import Path
from typing import Any

from halfbyte.core.backends.instance import SharedFunctions, refuse_workers, to_js, to_object
from halfbyte.core.backends.library import Library
from halfbyte.core.backends.shared import SharedArray
from halfbyte.errors import HalfbyteError

MAX_THREADS = 64
SPINS = 200_000  # idle rounds before a worker sleeps: about a millisecond
PATIENCE = 2.0  # seconds to wait for workers that start
BLOCKED = "the page's Content-Security-Policy forbids workers: its worker-src needs blob:"
DEAD = 10.0  # seconds without the result of a worker, after which it counts as ended
AWAKE = 1.0  # seconds that one look for it may count: a page in the background sleeps for hours


class Crew:
    """The workers that help one thread, shared by all executables with as many threads.

    Attributes
    ----------
    address : int
        Address of their pool in C.
    ready : int
        Workers that have started.
    problem : str
        Why one of them could not start, or failed; empty if that is not known.
    """

    def __init__(self, library: Library, functions: SharedFunctions, threads: int) -> None:
        js: Any = import_module("js")
        create_proxy: Any = import_module("pyodide.ffi").create_proxy
        self.library, self.ready, self.users, self.limit = library, 0, 0, 0
        self.problem, self._lost, self._gone = "", 0, 0
        self._memory = library.memory.aligned(library.pool_size())
        self.address = library.memory.address(self._memory)
        text = Path(__file__).with_name("worker.js").read_text(encoding="utf-8")
        blob = js.Blob.new(to_js([text]), to_object(type="text/javascript"))
        url = js.URL.createObjectURL(blob)
        self._hear, self._fail = create_proxy(self._heard), create_proxy(self._failed)
        self._workers: list[Any] = []
        self._rooms: list[tuple[SharedArray, SharedArray]] = []
        self._all: Any = None  # a future, until all have started
        try:
            for index in range(threads - 1):
                self._start(js.Worker.new(url, to_object(name=f"halfbyte {index + 1}")), functions)
        except Exception:  # some browsers' SecurityError; others fire an event
            self._refuse()
        js.URL.revokeObjectURL(url)

    def _start(self, worker: Any, functions: SharedFunctions) -> None:
        data, stack = functions.room()
        self._rooms.append((data, stack))
        self._workers.append(worker)
        worker.onmessage, worker.onerror = self._hear, self._fail
        worker.postMessage(functions.message(data, stack, pool=self.address, spins=SPINS))

    def wait(self) -> None:
        """Once, let workers start that have not yet, if Python may wait for the browser here."""
        ffi: Any = import_module("pyodide.ffi")
        if self._all is None and self.ready < len(self._workers) and ffi.can_run_sync():
            # Not by looking again and again: the browser would then hear of no worker for seconds.
            asyncio: Any = import_module("asyncio")
            self._all = asyncio.get_event_loop().create_future()
            with suppress(TimeoutError):
                ffi.run_sync(asyncio.wait_for(self._all, PATIENCE))

    def _heard(self, event: Any) -> None:
        if event.data == "ready":
            self.ready += 1
        else:
            self.ready, self._gone = self.ready - 1, self._gone + 1
        if self.ready == len(self._workers):
            self._go_on()
        if self._gone + self._lost == len(self._workers) and self.users <= 0:
            self._forget()  # not before: some may still be about to start

    def _failed(self, event: Any) -> None:
        """A worker could not start, or its code failed, which has a message."""
        event.preventDefault()  # it is known here; the page need not report it
        if message := getattr(event, "message", None):
            self.problem = str(message)
            self._lost += 1
            if self._lost == len(self._workers):
                self.terminate()
        elif self.works:
            self._refuse()
        self._go_on()

    def _refuse(self) -> None:
        """Go on without workers, which this page must not have."""
        self.problem = BLOCKED
        refuse_workers(BLOCKED)
        self.terminate()

    def _go_on(self) -> None:
        if self._all is not None and not self._all.done():
            self._all.set_result(None)

    def _forget(self) -> None:
        """Free all memory: the workers use it no longer."""
        _ended.discard(self)
        for worker in self._workers:  # which may still have something to report
            worker.onmessage = worker.onerror = _quietly()
        self._rooms.clear()
        self._workers.clear()
        self._hear.destroy()
        self._fail.destroy()

    @property
    def works(self) -> bool:
        """Whether there still are workers."""
        return bool(self._workers)

    def stop(self) -> None:
        """Let the workers end; their memory is kept until they say that they have."""
        self.library.pool_stop(self.address)
        _ended.add(self)

    def terminate(self) -> None:
        """End the workers, one of which does not answer any more."""
        for worker in self._workers:
            worker.terminate()
        self._forget()


@cache
def _quietly() -> Any:
    """Handles an event of no interest; unhandled errors would become the page's."""
    create_proxy: Any = import_module("pyodide.ffi").create_proxy
    return create_proxy(lambda event: event.preventDefault())


_crews: dict[tuple[Library, int], Crew] = {}  # of each memory, by threads
_ended: set[Crew] = set()


class WorkerPool:
    """`threads` - 1 workers that help the calling thread: as `threads.Pool`, in a browser.

    With `wait`, they have started when it is made, if Python may wait for the browser there.
    """

    def __init__(
        self, functions: SharedFunctions, library: Library, threads: int, *, wait: bool = True
    ) -> None:
        if not 1 <= threads <= MAX_THREADS:
            raise HalfbyteError(f"{threads} threads: expected 1 to {MAX_THREADS} in a browser")
        self.address, self._library = 0, library
        self._wanted = int(threads)
        self._helpers = self._wanted - 1  # that share the next run
        self._crew_address = 0
        self._finalizer: weakref.finalize[..., WorkerPool] | None = None
        if threads == 1:
            return
        self._key = library, self._wanted
        if self._key not in _crews:
            _crews[self._key] = Crew(library, functions, threads)
        self._crew: Crew = _crews[self._key]
        self._crew.users += 1
        self._crew_address = self.address = self._crew.address
        self._finalizer = weakref.finalize(self, _leave, self._key, self._crew)
        if wait:
            self._crew.wait()

    @property
    def threads(self) -> int:
        """How many there are, as far as is known: workers may be forbidden, or have ended."""
        return self._wanted if self._crew_address and not self._crew.problem else 1

    def limit(self, threads: int) -> None:
        """Use at most so many threads from the next run on."""
        if self._crew_address and threads != self._helpers + 1:
            self._helpers = threads - 1
            self.address = self._crew_address if self._helpers else 0

    def wake(self) -> None:
        """Announce a run, which must follow, and wake the sleeping workers."""
        if not self.address:
            return
        if self._crew.limit != self._helpers:  # the last run was another model's
            self._crew.limit = self._helpers
            self._library.pool_limit(self.address, self._helpers)
        if self._library.pool_announce(self.address) < self._helpers and not self._crew.problem:
            self._library.pool_wake(self.address)

    def wait(self) -> None:
        """Wait for the workers' parts of an instruction.

        Raises
        ------
        HalfbyteError
            A worker does not answer; from now on, the calling thread works without help.
        """
        waited, start = 0.0, time.monotonic()
        while not self._library.pool_wait(self.address):
            now = time.monotonic()
            waited, start = waited + min(now - start, AWAKE), now
            if waited > DEAD:
                self._crew.problem = "a worker has ended"
                self._crew.terminate()
                _crews.pop(self._key, None)
                self.address = self._crew_address = 0
                raise HalfbyteError(
                    f"a worker thread has not answered for {DEAD:g} seconds: the browser has most "
                    "likely ended it; further runs use one thread"
                )

    def close(self) -> None:
        """End the workers, unless others use them; also done by garbage collection."""
        self.address = self._crew_address = 0
        if self._finalizer is not None:
            self._finalizer()


def _leave(key: tuple[Library, int], crew: Crew) -> None:
    """The last one ends the workers, unless somebody follows before the event loop runs."""
    crew.users -= 1
    if not crew.users:
        asyncio: Any = import_module("asyncio")
        asyncio.get_event_loop().call_soon(_end, key, crew)


def _end(key: tuple[Library, int], crew: Crew) -> None:
    if crew.users or crew in _ended:
        return
    if _crews.get(key) is crew:
        del _crews[key]
    if crew.works:
        crew.stop()


def open_shared(path: Path) -> Library:
    """The kernels of a file in shared memory; raises `UnsupportedError`."""
    functions = SharedFunctions(path)
    return Library(functions, functions.memory, partial(WorkerPool, functions))
