"""Threads in a browser: workers that run the kernels in a memory which they share with Python.

Pyodide's own memory cannot be shared, so this one is apart; see `shared`. Python's thread publishes
work there and takes part in it, without ever sleeping, which a page's main thread may not do.
Workers sleep between runs (`hb_serve` in run.c). A worker starts only when Python next returns to
the browser's event loop; until then, or if the page's policy forbids workers, nobody waits for it.
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from halfbyte.core.backends import side_module
from halfbyte.core.backends.library import Library
from halfbyte.core.backends.shared import U8, SharedArray, SharedMemory
from halfbyte.errors import HalfbyteError, UnsupportedError

PAGE = 1 << 16
MAX_PAGES = (65536, 32768, 16384, 8192)  # 4 GB, or the most that the browser reserves
MAX_THREADS = 64
STACK = 8 * PAGE  # bytes, of each thread
MAX_PARTS = 256  # JavaScript arrays that are kept, since making one takes microseconds
SPINS = 200_000  # idle rounds before a worker sleeps: about a millisecond
PATIENCE = 2.0  # seconds to wait for workers that start
BLOCKED = "the page's Content-Security-Policy forbids workers: its worker-src needs blob:"
DEAD = 10.0  # seconds without the result of a worker, after which it counts as ended
AWAKE = 1.0  # seconds that one look for it may count: a page in the background sleeps for hours


_refusal = ""  # of a worker by this page, once it is known


def why_not() -> str:
    """Why this page cannot have threads; empty if it can, as far as is known."""
    js: Any = import_module("js")
    if _refusal:
        return _refusal
    if not getattr(js, "crossOriginIsolated", False):
        return (
            "the page is not cross-origin isolated, which its server has to ask for with the "
            "headers Cross-Origin-Opener-Policy: same-origin and Cross-Origin-Embedder-Policy: "
            "require-corp"
        )
    if not hasattr(js, "SharedArrayBuffer") or not hasattr(js, "Worker"):
        return "the browser has no shared memory, or no workers inside of workers"
    return ""


class JsBytes:
    """The bytes of a shared `WebAssembly.Memory`."""

    def __init__(self, memory: Any) -> None:
        self.memory, self._js = memory, import_module("js")
        self._view = self._js.Uint8Array.new(memory.buffer)
        self._parts: dict[tuple[int, int], Any] = {}  # those used last

    def __len__(self) -> int:
        return int(self._view.length)

    def part(self, address: int, nbytes: int) -> Any:
        """A JavaScript array of these bytes."""
        part = self._parts.get((address, nbytes))
        if part is None:
            if len(self._parts) >= MAX_PARTS:
                self._parts.clear()
            part = self._view.subarray(address, address + nbytes)
            self._parts[address, nbytes] = part
        return part

    def read(self, address: int, out: npt.NDArray[Any]) -> None:
        if out.nbytes:
            self.part(address, out.nbytes).assign_to(bytes_of(out))

    def write(self, address: int, data: npt.NDArray[Any]) -> None:
        if data.nbytes:
            self.part(address, data.nbytes).assign(bytes_of(data))

    def take(self, address: int, data: Any) -> None:
        self._view.set(data, address)

    def clear(self, address: int, nbytes: int) -> None:
        self.part(address, nbytes).fill(0)

    def grow(self, nbytes: int) -> None:
        try:
            self.memory.grow(-(-nbytes // PAGE))
        except Exception as error:  # JavaScript's RangeError
            raise MemoryError(f"{nbytes} bytes: {error}") from None
        self._parts.clear()
        self._view = self._js.Uint8Array.new(self.memory.buffer)


def bytes_of(array: npt.NDArray[Any]) -> U8:
    """The bytes of a C-contiguous array: a view."""
    return array.reshape(-1).view(np.uint8)


class SharedFunctions:
    """The functions of run.h in shared memory.

    Parameters
    ----------
    path : Path
        A file of kernels.

    Raises
    ------
    UnsupportedError
        The page may not share memory, or the browser grants none.
    """

    def __init__(self, path: Path) -> None:
        if reason := why_not():
            raise UnsupportedError(f"no threads: {reason}")
        self._js: Any = import_module("js")
        data = path.read_bytes()
        self.needs = side_module.needs(data)
        self.js_memory, pages = self._new_memory()
        shared = side_module.with_shared_memory(data, pages)
        self.module = self._js.WebAssembly.Module.new(to_js(shared))
        self.memory = SharedMemory(JsBytes(self.js_memory), PAGE)
        self._own = self.room()  # of this thread, kept with it
        self._exports = self._instance(*self._own)

    def _new_memory(self) -> tuple[Any, int]:
        for pages in MAX_PAGES:
            try:
                limits = to_object(initial=16, maximum=pages, shared=True)
                return self._js.WebAssembly.Memory.new(limits), pages
            except Exception as error:  # JavaScript's RangeError
                reason = str(error)
        raise UnsupportedError(f"no threads: the browser grants no shared memory ({reason})")

    def room(self) -> tuple[SharedArray, SharedArray]:
        """Memory for the data and the stack of one more thread."""
        return self.memory.aligned(self.needs.memory), self.memory.unset(STACK)

    def _instance(self, data: SharedArray, stack: SharedArray) -> Any:
        wasm = self._js.WebAssembly

        def number(value: int, mutable: bool) -> Any:
            return wasm.Global.new(to_object(value="i32", mutable=mutable), value)

        table = wasm.Table.new(to_object(element="anyfunc", initial=1 + self.needs.table))
        env = to_object(
            memory=self.js_memory, __indirect_function_table=table,
            __memory_base=number(data.address, mutable=False),
            __table_base=number(1, mutable=False),
            __stack_pointer=number(stack.address + STACK, mutable=True),
        )  # fmt: skip
        exports = wasm.Instance.new(self.module, to_object(env=env)).exports
        if relocate := getattr(exports, "__wasm_apply_data_relocs", None):
            relocate()
        return exports

    def _text(self, address: int) -> bytes | None:
        if not address:
            return None
        text, size = b"", 256
        while b"\0" not in text:
            out = np.empty(min(size, len(self.memory.bytes) - address), np.uint8)
            self.memory.bytes.read(address, out)
            text, size = out.tobytes(), 4 * size
        return text.partition(b"\0")[0]

    def hb_kernel_list(self) -> bytes | None:
        return self._text(self._exports.hb_kernel_list())

    def hb_capability_list(self) -> bytes | None:
        return self._text(self._exports.hb_capability_list())

    def hb_isa_name(self, index: int) -> bytes | None:
        return self._text(self._exports.hb_isa_name(index))

    def hb_open(self, name: bytes) -> int:
        text = self.memory.reach(np.frombuffer(name + b"\0", np.uint8))
        return int(self._exports.hb_open(text.address))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._exports, name)


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
        self.problem, self._lost = "", 0
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
        self._started()

    def _start(self, worker: Any, functions: SharedFunctions) -> None:
        data, stack = functions.room()
        self._rooms.append((data, stack))
        self._workers.append(worker)
        worker.onmessage, worker.onerror = self._hear, self._fail
        worker.postMessage(to_object(
            module=functions.module, memory=functions.js_memory, base=data.address,
            stack=stack.address + STACK, entries=1 + functions.needs.table,
            pool=self.address, spins=SPINS,
        ))  # fmt: skip

    def _started(self) -> None:
        """Let the workers start now, if Python may wait for the browser here."""
        ffi: Any = import_module("pyodide.ffi")
        if ffi.can_run_sync() and self.works:
            # Not by looking again and again: the browser would then hear of no worker for seconds.
            asyncio: Any = import_module("asyncio")
            self._all = asyncio.get_event_loop().create_future()
            with suppress(TimeoutError):
                ffi.run_sync(asyncio.wait_for(self._all, PATIENCE))

    def _heard(self, event: Any) -> None:
        self.ready += 1 if event.data == "ready" else -1
        if self.ready == len(self._workers):
            self._go_on()
        if not self.ready and self.users <= 0:
            self._forget()

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
        global _refusal
        _refusal = self.problem = BLOCKED
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


_crews: dict[int, Crew] = {}
_ended: set[Crew] = set()


class WorkerPool:
    """`threads` - 1 workers that help the calling thread: as `threads.Pool`, in a browser."""

    def __init__(self, library: Library, functions: SharedFunctions, threads: int) -> None:
        if not 1 <= threads <= MAX_THREADS:
            raise HalfbyteError(f"{threads} threads: expected 1 to {MAX_THREADS} in a browser")
        self.address, self._library = 0, library
        self._wanted = int(threads)
        self._helpers = self._wanted - 1  # that share the next run
        self._crew_address = 0
        self._finalizer: weakref.finalize[..., WorkerPool] | None = None
        if threads == 1:
            return
        if threads not in _crews:
            _crews[threads] = Crew(library, functions, threads)
        self._crew: Crew = _crews[threads]
        self._crew.users += 1
        self._crew_address = self.address = self._crew.address
        self._finalizer = weakref.finalize(self, _leave, threads, self._crew)

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
                _crews.pop(self._wanted, None)
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


def _leave(threads: int, crew: Crew) -> None:
    """The last one ends the workers, unless somebody follows before the event loop runs."""
    crew.users -= 1
    if not crew.users:
        asyncio: Any = import_module("asyncio")
        asyncio.get_event_loop().call_soon(_end, threads, crew)


def _end(threads: int, crew: Crew) -> None:
    if crew.users or crew in _ended:
        return
    if _crews.get(threads) is crew:
        del _crews[threads]
    if crew.works:
        crew.stop()


def open_shared(path: Path) -> Library:
    """The kernels of a file in shared memory; raises `UnsupportedError`."""
    functions = SharedFunctions(path)

    def new_pool(library: Library, threads: int) -> WorkerPool:
        return WorkerPool(library, functions, threads)

    return Library(functions, functions.memory, new_pool)


def to_js(value: Any) -> Any:
    """A JavaScript copy of a value."""
    convert: Callable[..., Any] = import_module("pyodide.ffi").to_js
    return convert(value)


def to_object(**values: Any) -> Any:
    """A JavaScript object with these members."""
    js: Any = import_module("js")
    convert: Callable[..., Any] = import_module("pyodide.ffi").to_js
    return convert(values, dict_converter=js.Object.fromEntries)
