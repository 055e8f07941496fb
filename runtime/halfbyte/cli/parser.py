"""argparse as all commands use it: errors of one line, examples, and defaults in the help."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

from halfbyte.cli.guard import BAD_INPUT
from halfbyte.errors import printable

Commands = argparse._SubParsersAction  # argparse names its type privately


class Parser(argparse.ArgumentParser):
    """An argument parser with examples at the end of its help.

    Attributes
    ----------
    examples : sequence of str
        Commands, each as it is typed.
    """

    def __init__(self, *, examples: Sequence[str] = (), **options: Any) -> None:
        self.examples = tuple(examples)
        if examples:
            lines = "\n".join(["examples:", *(f"  {example}" for example in examples)])
            options["epilog"] = "\n\n".join(filter(None, [lines, options.get("epilog")]))
        super().__init__(**{**options, "formatter_class": _Formatter})

    def error(self, message: str) -> NoReturn:
        """Print one line, without argparse's usage, and exit."""
        line = printable(f"error: {message}; see `{self.prog} --help`")
        self.exit(BAD_INPUT, f"{line}\n")

    def _print_message(self, message: str, file: Any = None) -> None:
        """Write without hiding errors, which argparse ignores."""
        (file or sys.stderr).write(message)


class _Formatter(argparse.RawDescriptionHelpFormatter):
    """Keeps texts of several lines as they are, and adds defaults to the help of options."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        if "\n" in text:
            return super()._fill_text(text, width, indent)
        return argparse.HelpFormatter._fill_text(self, text, width, indent)

    def _get_help_string(self, action: argparse.Action) -> str:
        text, value = action.help or "", action.default
        if value in (None, False, argparse.SUPPRESS, "") or "default" in text:
            return text
        if isinstance(value, list | tuple):
            value = ",".join(map(str, value))
        return f"{text} (default: {value})" if value else text


def whole(text: str) -> int:
    """A whole number."""
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r}: expected a whole number") from None


def number(text: str) -> float:
    """A number."""
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r}: expected a number") from None


def numbers(text: str) -> list[float]:
    """Comma-separated numbers."""
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r}: expected numbers such as 0.5,0.5") from None


def counts(text: str) -> list[int]:
    """Comma-separated whole numbers of 1 or more."""
    try:
        values = [int(part) for part in text.split(",") if part]
    except ValueError:
        values = [0]
    if not values or min(values) < 1:
        raise argparse.ArgumentTypeError(
            f"{text!r}: expected whole numbers of 1 or more, such as 128,512"
        )
    return values


def named_size(text: str) -> tuple[str, int]:
    """A dimension's name and size."""
    name, _, value = text.rpartition("=")
    if not name or not value.isdecimal() or len(value) > 18:
        raise argparse.ArgumentTypeError(f"{text!r}: expected a name and a size, as in batch=2")
    return name, int(value)
