"""Long work that its caller may interrupt."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_check: ContextVar[Callable[[], None] | None] = ContextVar("halfbyte_check", default=None)


class _Ended(BaseException):
    """Carries an error past handlers of `Exception` to the caller of the work."""


@contextmanager
def interruptible(check: Callable[[], None]) -> Iterator[None]:
    """Inside, `step` calls `check`; an error that it raises ends the work."""
    token = _check.set(check)
    try:
        yield
    except _Ended as end:
        raise end.args[0] from None
    finally:
        _check.reset(token)


def step() -> None:
    """Call this at every step of work that may have many."""
    if (check := _check.get()) is not None:
        try:
            check()
        except Exception as error:
            raise _Ended(error) from None
