"""What surrounds every command: streams that take any text, and one line for what goes wrong.

It imports nothing that takes time, so that Ctrl-C finds it in place from the start.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from contextlib import suppress

from halfbyte.errors import HalfbyteError, printable

BAD_INPUT, INTERRUPTED = 2, 130


def guarded(command: Callable[[], int], *, debug: bool) -> int:
    """Run a command; what a user can mend becomes one line on stderr, not a traceback."""
    _open_streams()
    try:
        try:
            return command()
        finally:
            sys.stdout.flush()  # here, where a reader that has gone is no error
    except KeyboardInterrupt:
        _say("\ninterrupted")
        return INTERRUPTED
    except BrokenPipeError:  # nothing is left to say
        return 0
    except Exception as error:
        if debug:
            raise
        _say(printable(f"error: {_explained(error)}"))
        return BAD_INPUT
    finally:
        _drop_what_cannot_be_written()


def _explained(error: Exception) -> str:
    if isinstance(error, HalfbyteError):
        return str(error)
    if isinstance(error, MemoryError):
        return (
            "there is not enough memory; a smaller model, --context or --memory-budget needs less"
        )
    if isinstance(error, OSError) and error.strerror:
        where = "" if error.filename is None else f"{os.fsdecode(error.filename)}: "
        return f"{where}{error.strerror}"
    return (
        f"{type(error).__name__}: {error}; this is a mistake in halfbyte, please report it with "
        "what --debug prints"
    )


def _say(text: str) -> None:
    with suppress(OSError):
        print(text, file=sys.stderr)


def _open_streams() -> None:
    """Closed streams lead nowhere; what an encoding has no character for is escaped."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_RDWR), mode))
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    if hasattr(sys.stdin, "reconfigure"):
        sys.stdin.reconfigure(errors="replace")


def _drop_what_cannot_be_written() -> None:
    """Of a stream that leads nowhere: Python would try again at exit, and complain."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            with suppress(OSError, ValueError):
                os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
