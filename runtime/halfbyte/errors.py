"""Every error that halfbyte raises on purpose.

A message is one line and says where (file, then tensor or key), what was expected and what was
found, e.g. ``model.gguf: tensor 'blk.0.attn_q.weight': 100 columns is not a multiple of Q4_0's
block of 32``. The command line prints only the message and exits with code 2.

Names and values in a message come from files that anyone may have written: `HalfbyteError` escapes
and shortens them, so that no message controls a terminal or floods it.
"""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches

MAX_MESSAGE = 1999  # characters
_CUT = " ... "


def nearest(name: str, known: Sequence[str]) -> str:
    """The known names that are most like this one, and how many there are besides them."""
    best = get_close_matches(name[:80], known, 3, 0.0)
    rest = len(known) - len(best)
    return f"{best} or {rest} others" if rest else f"{best}"


def printable(text: str, maximum: int = MAX_MESSAGE) -> str:
    """A text of at most `maximum` characters that cannot control a terminal.

    Characters that do not print are escaped as in Python: control characters, line breaks, marks
    without width or for the direction of writing, surrogates. A longer text keeps its beginning and
    its end.
    """
    if len(text) > maximum:
        tail = maximum // 4
        head = maximum - tail - len(_CUT)
        return _escaped(text[:maximum])[:head] + _CUT + _escaped(text[-tail:])[-tail:]
    escaped = _escaped(text)
    return escaped if len(escaped) <= maximum else printable(escaped, maximum)


def _escaped(text: str) -> str:
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


class HalfbyteError(Exception):
    """Base class: something given by the caller cannot be used; the message says what and where."""

    def __str__(self) -> str:
        return printable(super().__str__())


class FormatError(HalfbyteError):
    """A file violates its format: truncated, inconsistent or out of range."""


class ModelError(FormatError):
    """A graph contradicts itself, or lacks a part that it refers to."""


class UnsupportedError(HalfbyteError):
    """A well-formed file asks for something that halfbyte does not implement."""


class TaskError(UnsupportedError):
    """A model that turns texts into vectors is asked to write, or one that writes for vectors."""


class ArgumentTypeError(HalfbyteError, TypeError):
    """An argument of a type that a function does not take, or of a name that it does not have."""


class ThermalError(HalfbyteError):
    """A thermal network, a trip point or a temperature is one that no device can have."""


class OutputError(HalfbyteError):
    """An output could not be written; no partial file is left."""


class ProgramError(HalfbyteError):
    """Operators were combined with shapes, dtypes or sizes that do not fit."""


class MemoryBudgetError(HalfbyteError):
    """The planned memory exceeds what is allowed; the message has the numbers."""


class OutOfMemoryError(MemoryBudgetError):
    """The memory is allowed, but less than that is free now."""


class ProfileError(HalfbyteError):
    """The description of a device lacks something, or contradicts itself."""
