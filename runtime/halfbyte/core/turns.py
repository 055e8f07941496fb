"""Taking turns at what one may use at a time: first come, first served.

A turn may have several steps, as a text has tokens. Whoever has the turn keeps it between steps, so
that texts follow each other instead of undoing each other's work; but a consumer that does not ask
for its next step may be gone, and then nobody waits for it forever: after `PATIENCE` the next in
the queue takes over, and the other one queues again when it goes on. One that asks for another turn
on the same thread, or in the same asyncio task, gives up the first one at once: it cannot go on
with that while it waits.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from types import TracebackType

from halfbyte.errors import HalfbyteError

PATIENCE = 1.0  # seconds that a turn is kept between two steps while others wait
_IDLE = 0.05  # seconds between two looks at whether the last step is over


class Turns:
    """A queue for one thing.

    Parameters
    ----------
    closed : callable
        The error for who comes after `close`.
    """

    def __init__(self, closed: Callable[[], HalfbyteError]) -> None:
        self._error = closed
        self._closed = False
        self._holder: Turn | None = None
        self._queue: deque[Turn] = deque()
        # Reentrant: the garbage collector may end a text's turn wherever it comes by.
        self._lock = threading.RLock()
        self._idle = _Signal()

    def whole(self, check: Callable[[], None] | None = None) -> AbstractContextManager[object]:
        """A turn of one step: ``with turns.whole():``; within a step of the same thread, nothing.

        `check` is called now and then while others have their turn; what it raises ends the wait.
        """
        return _INSIDE if self._inside else _Whole(self, check)

    @property
    def _inside(self) -> bool:
        """Whether this thread is in a step."""
        holder = self._holder
        return holder is not None and holder.inside and holder.thread == threading.get_ident()

    def take(self, turn: Turn, inside: bool) -> bool:
        """Take the turn if it is this one's now, or else queue."""
        thread = threading.get_ident()
        with self._lock:
            if self._closed:
                raise self._error()
            if self._holder is not turn:
                if turn not in self._queue:
                    turn.thread = thread
                    self._queue.append(turn)
                self._pass_over(turn)
                if self._holder is not turn:
                    return False
            turn.thread, turn.inside = thread, inside
            return True

    def _pass_over(self, turn: Turn) -> None:
        """Let the next one go on where the holder does not, or cannot while this turn waits."""
        holder = self._holder
        if holder is None:
            self._next()
        if holder is None or holder.inside:
            return
        same = holder.thread == turn.thread and turn.task in (0, holder.task)
        if same or time.monotonic() - holder.since > PATIENCE:
            self.end(holder)

    def end(self, turn: Turn) -> None:
        """Give up the turn, or the place in the queue; the next one's turn begins."""
        with self._lock:
            if turn in self._queue:
                self._queue.remove(turn)
            if self._holder is turn:
                turn.inside = False
                self._next()
        if self._closed:
            self.paused()

    def _next(self) -> None:
        self._holder = self._queue.popleft() if self._queue else None
        if self._holder is not None:
            self._holder.since = time.monotonic()
            self._holder.wake()

    def paused(self) -> None:
        """A step is over, which `close` may wait for."""
        self._idle.give()

    def close(self) -> None:
        """End all turns: wait for the step under way; who comes later gets the error."""
        with self._lock:
            self._closed = True
            for turn in self._queue:
                turn.wake()
            self._queue.clear()
        while (holder := self._holder) is not None and holder.inside and not self._inside:
            self._idle.wait(_IDLE)


class Turn:
    """One user's turn; ``with turn:`` is a step, which waits until it may begin.

    Attributes
    ----------
    inside : bool
        In a step.
    thread, task : int
        Who took the last step, or waits for the next one; the task is 0 outside `ready`.
    since : float
        When that was.
    """

    def __init__(self, turns: Turns, check: Callable[[], None] | None = None) -> None:
        self._turns, self._check = turns, check
        self.inside = self._nested = False
        self.thread = self.task = 0
        self.since = 0.0
        self.wake: Callable[[], object] = _asleep

    def __enter__(self) -> None:
        turns = self._turns
        if turns._holder is not self and turns._inside:
            self._nested = True
        elif not turns.take(self, inside=True):
            self._wait()

    def _wait(self) -> None:
        signal = _Signal()
        self.wake = signal.give
        try:
            while not self._turns.take(self, inside=True):
                signal.wait(PATIENCE if self._check is None else PATIENCE / 10)
                if self._check is not None:
                    self._check()
        except BaseException:  # Ctrl-C too
            self.end()
            raise
        finally:
            self.wake = _asleep

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._nested:
            self._nested = False
            return
        self.since = time.monotonic()
        self.inside = False
        if self._turns._closed:
            self._turns.paused()

    async def ready(self) -> None:
        """Wait until the next step may begin; the event loop runs meanwhile."""
        turns, self.task = self._turns, id(asyncio.current_task())
        if turns._holder is self or turns._inside:
            return
        loop, event = asyncio.get_running_loop(), asyncio.Event()

        def wake() -> None:
            with suppress(RuntimeError):  # the loop is closed: the turn will be passed over
                loop.call_soon_threadsafe(event.set)

        self.wake = wake
        try:
            while not turns.take(self, inside=False):
                with suppress(TimeoutError):
                    await asyncio.wait_for(event.wait(), PATIENCE)
                event.clear()
        except BaseException:  # a task that is cancelled too
            self.end()
            raise
        finally:
            self.wake = _asleep

    def end(self) -> None:
        """The turn is over; the next step would begin another one."""
        self._turns.end(self)


class _Whole(Turn):
    """A turn that ends with its step."""

    def __exit__(self, *exception: object) -> None:
        self.end()


class _Signal:
    """Given once, it ends one wait; also where the collector gives it in the midst of that wait.

    `threading.Event` would wait for itself there.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lock.acquire()

    def give(self) -> None:
        with suppress(RuntimeError):  # it was given already
            self._lock.release()

    def wait(self, seconds: float) -> None:
        self._lock.acquire(timeout=seconds)


_INSIDE = nullcontext()


def _asleep() -> None:
    """Who does not wait is not woken."""
