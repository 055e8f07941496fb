"""Long work that whoever asked for it may end."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_check: ContextVar[Callable[[], None] | None] = ContextVar("halfbyte_check", default=None)


class _Ended(BaseException):
    """Passes handlers of errors on its way to who asked for the work; holds the error."""


@contextmanager
def interruptible(check: Callable[[], None]) -> Iterator[None]:
    """Inside, `step` calls `check`; what that raises ends the work."""
    token = _check.set(check)
    try:
        yield
    except _Ended as end:
        raise end.args[0] from None
    finally:
        _check.reset(token)


def step() -> None:
    """Called at every step of work that may have very many."""
    if (check := _check.get()) is not None:
        try:
            check()
        except Exception as error:
            raise _Ended(error) from None
