"""Texts given to commands: as arguments, in a file, or through a pipe."""

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
    """A text as arguments, or `--file`."""
    parser.add_argument(
        "text_parts", metavar=metavar, nargs="*",
        help=f"{text}; several words are joined to one text; - reads stdin, which is also read "
        "when it is a pipe or a file and no text is given",
    )  # fmt: skip
    parser.add_argument(
        "-f", "--file", metavar="FILE", help="read the text from a UTF-8 file; - is stdin"
    )


def take_remaining(command: str, options: argparse.Namespace, remaining: Sequence[str]) -> None:
    """Add the parts of a text that stand between and after options, which argparse leaves over."""
    unknown = [part for part in remaining if part.startswith("-") and part != _STDIN]
    if unknown or (remaining and not hasattr(options, "text_parts")):
        Parser(prog=f"halfbyte {command}").error(f"unknown: {' '.join(unknown or remaining)}")
    if remaining:
        options.text_parts += remaining


def given_text(options: argparse.Namespace) -> str | None:
    """The text that the user gave, or None."""
    parts: list[str] = options.text_parts
    if options.file is not None and parts:
        raise HalfbyteError(f"--file {options.file}: expected a text or --file, found both")
    if options.file is not None:
        return read_text(options.file)
    if parts == [_STDIN] or (not parts and _is_piped()):
        return read_text(_STDIN)
    return " ".join(parts) if parts else None


def read_text(path: str, *, whole: bool = False) -> str:
    """A UTF-8 text, without a line break at its end; `whole` keeps that too.

    Raises
    ------
    HalfbyteError
        The text is not UTF-8, or has more than 64 MiB.
    """
    name = "stdin" if path == _STDIN else path
    if path == _STDIN:
        _announce_waiting()
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


def _announce_waiting() -> None:
    """Say that stdin is read, if nothing arrives for a second."""
    try:
        is_silent = not select.select([sys.stdin], [], [], 1)[0]
    except (OSError, ValueError):  # on Windows, select() takes only sockets
        return
    if is_silent:
        print("reading the text from stdin, up to its end (Ctrl-D)", file=sys.stderr)
