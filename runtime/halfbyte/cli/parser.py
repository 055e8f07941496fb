"""Options as all commands have them: one line for what is wrong, and defaults in the help."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

from halfbyte.cli.guard import BAD_INPUT
from halfbyte.errors import printable

Commands = argparse._SubParsersAction  # argparse names its type privately


class Parser(argparse.ArgumentParser):
    """A parser of `argparse`; `examples` are the lines that end its help.

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
        """One line, where argparse prints its usage first."""
        line = printable(f"error: {message}; see `{self.prog} --help`")
        self.exit(BAD_INPUT, f"{line}\n")

    def _print_message(self, message: str, file: Any = None) -> None:
        """Where it cannot be written, say so; argparse passes over that."""
        (file or sys.stderr).write(message)


class _Formatter(argparse.RawDescriptionHelpFormatter):
    """Texts of several lines are left as they are; options say what they are where not given."""

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
    """Numbers with commas between them."""
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r}: expected numbers such as 0.5,0.5") from None


def counts(text: str) -> list[int]:
    """Whole numbers of 1 or more with commas between them."""
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
