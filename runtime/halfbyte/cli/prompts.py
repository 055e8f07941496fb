"""Texts that commands are given: words, a file, or what comes from a pipe."""

from __future__ import annotations

import argparse
import os
import select
import stat
import sys
from collections.abc import Sequence
from pathlib import Path

from halfbyte.cli.parser import Parser
from halfbyte.errors import HalfbyteError

MAX_BYTES = 1 << 26  # bytes of a text
_STDIN = "-"


def add_text(parser: Parser, metavar: str, text: str) -> None:
    """Words, or `--file`."""
    parser.add_argument(
        "words", metavar=metavar, nargs="*",
        help=f"{text}; several words are one text, - is stdin, which is also read where it is a "
        "pipe or a file and no words are given",
    )  # fmt: skip
    parser.add_argument(
        "-f", "--file", metavar="FILE", help="the same from a file in UTF-8; - is stdin"
    )


def take_words(command: str, options: argparse.Namespace, more: Sequence[str]) -> None:
    """Words of a text that stand between and behind options, which argparse leaves over."""
    unknown = [word for word in more if word.startswith("-") and word != _STDIN]
    if unknown or (more and not hasattr(options, "words")):
        Parser(prog=f"halfbyte {command}").error(f"unknown: {' '.join(unknown or more)}")
    if more:
        options.words += more


def given_text(options: argparse.Namespace) -> str | None:
    """The text that was asked for; None where there is none."""
    words: list[str] = options.words
    if options.file is not None and words:
        raise HalfbyteError(f"--file {options.file}: expected a text or --file, found both")
    if options.file is not None:
        return read_text(options.file)
    if words == [_STDIN] or (not words and _is_piped()):
        return read_text(_STDIN)
    return " ".join(words) if words else None


def read_text(path: str, *, whole: bool = False) -> str:
    """A text in UTF-8, without the line break at its end unless it is wanted `whole`.

    Raises
    ------
    HalfbyteError
        It is in another encoding, or longer than any model reads.
    """
    name = "stdin" if path == _STDIN else path
    if path == _STDIN:
        _say_that_it_waits()
        data = sys.stdin.buffer.read(MAX_BYTES + 1)
    else:
        with Path(path).open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        raise HalfbyteError(f"{name}: expected a text of at most {MAX_BYTES >> 20} MiB, found more")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise HalfbyteError(
            f"{name}: expected text in UTF-8, found the byte 0x{data[error.start]:02x} at "
            f"{error.start}; `iconv -t UTF-8` converts it"
        ) from None
    return text if whole else text.removesuffix("\n").removesuffix("\r")


def _is_piped() -> bool:
    """Whether stdin is a pipe or a file; a terminal and /dev/null are neither."""
    try:
        mode = os.fstat(sys.stdin.fileno()).st_mode
    except (OSError, ValueError):
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISREG(mode) or stat.S_ISSOCK(mode)


def _say_that_it_waits() -> None:
    """Where a pipe is silent for a second, its user may not know that it is read."""
    try:
        is_silent = not select.select([sys.stdin], [], [], 1)[0]
    except (OSError, ValueError):  # Windows selects among sockets alone
        return
    if is_silent:
        print("reading the text from stdin, up to its end (Ctrl-D)", file=sys.stderr)
