"""Files that are whole or not there: written beside their place, then renamed."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

from halfbyte.errors import OutputError


def write_file(path: Path, write: Callable[[BinaryIO], object]) -> None:
    """Let `write` fill a file, which takes the place of `path` when it is whole.

    Raises
    ------
    OutputError
        It cannot be written; what was there before still is.
    """
    partial = path.with_name(f".halfbyte-{secrets.token_hex(8)}.part")
    try:
        try:
            with partial.open("xb") as file:
                write(file)
            partial.replace(path)
        finally:
            partial.unlink(missing_ok=True)
    except OSError as error:
        raise OutputError(f"{path}: cannot be written: {error.strerror or error}") from error


def write_text(path: Path, text: str) -> None:
    """Write a text file of UTF-8, with a line's end at its end; see :func:`write_file`."""
    write_file(path, lambda file: file.write(f"{text}\n".encode()))
