"""Runs a command with streams that take any text, and with errors of one line.

This module imports quickly, so that Ctrl-C is handled from the start.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from contextlib import suppress

from halfbyte.errors import HalfbyteError, printable

BAD_INPUT, INTERRUPTED = 2, 130


def guarded(command: Callable[[], int], *, debug: bool) -> int:
    """Run a command; errors become one line on stderr, not a traceback, unless `debug`."""
    _open_streams()
    try:
        try:
            return command()
        finally:
            sys.stdout.flush()  # here, where a closed pipe is not an error
    except KeyboardInterrupt:
        _say("\ninterrupted")
        return INTERRUPTED
    except BrokenPipeError:  # nobody reads the output
        return 0
    except Exception as error:
        if debug:
            raise
        _say(printable(f"error: {_explained(error)}"))
        return BAD_INPUT
    finally:
        _discard_unwritable_output()


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
        "the output of --debug"
    )


def _say(text: str) -> None:
    with suppress(OSError):
        print(text, file=sys.stderr)


def _open_streams() -> None:
    """Replace closed streams by the null device; escape characters that encodings lack."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_RDWR), mode))
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    if hasattr(sys.stdin, "reconfigure"):
        sys.stdin.reconfigure(errors="replace")


def _discard_unwritable_output() -> None:
    """Discard buffered output that cannot be written: Python would try again at exit, and fail."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            with suppress(OSError, ValueError):
                os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
