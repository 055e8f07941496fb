"""A fair queue for a resource with one user at a time: a model's context, a session's programs.

A turn may have several steps, as a text has tokens. It is kept between steps, so that texts follow
each other instead of undoing each other's work. But a consumer that does not take its next step may
be gone: after `PATIENCE` the next turn in the queue begins, and the other one queues again when it
continues. A thread or asyncio task that asks for another turn gives up its first one at once, with
which it cannot continue while it waits.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from types import TracebackType

from halfbyte.errors import HalfbyteError

PATIENCE = 1.0  # seconds that a turn is kept between two steps while others wait
_IDLE = 0.05  # seconds between checks whether the last step is over


class Turns:
    """The queue of one resource.

    Parameters
    ----------
    closed : callable
        Returns the error for calls after `close`.
    """

    def __init__(self, closed: Callable[[], HalfbyteError]) -> None:
        self._error = closed
        self._closed = False
        self._holder: Turn | None = None
        self._queue: deque[Turn] = deque()
        # Reentrant: the garbage collector may end a text's turn at any point.
        self._lock = threading.RLock()
        self._idle = _Signal()
        self._quick = Turn(self)

    def whole(self, check: Callable[[], None] | None = None) -> AbstractContextManager[object]:
        """A turn of one step: ``with turns.whole():``; does nothing inside a step of this thread.

        `check` is called regularly while waiting; an error that it raises ends the wait.
        """
        return _INSIDE if self._inside else _Whole(self, check)

    @property
    def _inside(self) -> bool:
        """Whether this thread is in a step."""
        holder = self._holder
        return holder is not None and holder.inside and holder.thread == threading.get_ident()

    def try_begin(self) -> bool:
        """Begin a turn of one step at once, if nobody has or waits for one; `finish` ends it."""
        turn = self._quick
        try:
            with self._lock:
                if self._closed or self._holder is not None or self._queue:
                    return False
                turn.thread, turn.inside = threading.get_ident(), True
                self._holder = turn
        except BaseException:  # Ctrl-C too
            self.finish()
            raise
        return True

    def finish(self) -> None:
        """End the turn that `try_begin` began."""
        turn = self._quick
        with self._lock:
            if self._holder is turn and not (self._queue or self._closed):
                turn.inside, self._holder = False, None
                return
        self.end(turn)

    def take(self, turn: Turn, inside: bool) -> bool:
        """Begin `turn` if it is next, or else queue it; returns whether it began."""
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
        """Begin the next turn if the holder does not continue, or cannot while `turn` waits."""
        holder = self._holder
        if holder is None:
            self._next()
        if holder is None or holder.inside:
            return
        same = holder.thread == turn.thread and turn.task in (0, holder.task)
        if same or time.monotonic() - holder.since > PATIENCE:
            self.end(holder)

    def end(self, turn: Turn) -> None:
        """End the turn, or leave the queue; the next turn begins."""
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
        """Signal the end of a step, for which `close` may wait."""
        self._idle.give()

    def close(self) -> None:
        """End all turns after waiting for the current step; later calls raise the error."""
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
        Whether a step is running.
    thread, task : int
        The thread and asyncio task of the last step, or waiting for the next; task is 0 outside
        `ready`.
    since : float
        The time of the last step.
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
        """Wait until the next step may begin, while the event loop runs."""
        import asyncio  # takes 20 ms, which programs without an event loop do not need

        turns, self.task = self._turns, id(asyncio.current_task())
        if turns._holder is self or turns._inside:
            return
        loop, event = asyncio.get_running_loop(), asyncio.Event()

        def wake() -> None:
            with suppress(RuntimeError):  # the loop is closed: the turn will be skipped
                loop.call_soon_threadsafe(event.set)

        self.wake = wake
        try:
            while not turns.take(self, inside=False):
                with suppress(TimeoutError):
                    await asyncio.wait_for(event.wait(), PATIENCE)
                event.clear()
        except BaseException:  # cancellation too
            self.end()
            raise
        finally:
            self.wake = _asleep

    def end(self) -> None:
        """End the turn; another step begins a new one."""
        self._turns.end(self)


class _Whole(Turn):
    """A turn that ends with its step."""

    def __exit__(self, *exception: object) -> None:
        self.end()


class _Signal:
    """A signal that ends one wait, even if the garbage collector gives it during that wait.

    `threading.Event` would deadlock then.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lock.acquire()

    def give(self) -> None:
        with suppress(RuntimeError):  # already given
            self._lock.release()

    def wait(self, seconds: float) -> None:
        self._lock.acquire(timeout=seconds)


_INSIDE = nullcontext()


def _asleep() -> None:
    """The `wake` of a turn that does not wait."""
