"""Existing output files: halfbyte replaces its own, and others only on request."""

from __future__ import annotations

import argparse
import json
import struct
from collections.abc import Callable
from pathlib import Path

from halfbyte.cli.common import ask
from halfbyte.errors import OutputError
from halfbyte.formats.gguf import MAGIC, QUANTIZED_BY, STRING
from halfbyte.outputs import reporting

IsOwn = Callable[[Path], bool]

PAGE_MARK = '<meta name="generator" content="halfbyte compare">'
_START = 1 << 16  # bytes at the start of a file that identify it
_MAX_JSON = 1 << 26
_HEAD = 24  # bytes of a GGUF file before its metadata
_OWN = struct.pack(
    f"<Q{len(QUANTIZED_BY[0])}sIQ{len(QUANTIZED_BY[1])}s",
    len(QUANTIZED_BY[0]), QUANTIZED_BY[0].encode(), STRING,
    len(QUANTIZED_BY[1]), QUANTIZED_BY[1].encode(),
)  # fmt: skip


def add_force(parser: argparse._ActionsContainer) -> None:
    """Add the option `--force`."""
    parser.add_argument(
        "--force", action="store_true",
        help="replace files that halfbyte did not write, without asking",
    )  # fmt: skip


def may_replace(path: Path, is_own: IsOwn, *, force: bool, option: str) -> None:
    """Raise `OutputError` for a file that halfbyte did not write, unless the user agrees.

    Also raises, before any work is done, for a path that cannot be written.
    """
    with reporting(path):
        path.parent.stat()
        try:
            status = path.stat()
        except FileNotFoundError:
            return
    if path.is_dir():
        raise OutputError(f"{path}: cannot be written: not a regular file")
    if not path.is_file() or not status.st_size or force or is_own(path):
        return
    if ask(f"{path} exists, and halfbyte did not write it. Replace it?"):
        return
    raise OutputError(
        f"{path}: exists already, and halfbyte did not write it: expected another {option}, or "
        "--force to replace it"
    )


def is_own_gguf(path: Path) -> bool:
    """Whether `quantize` wrote a file, which its first metadata entry says."""
    start = _start(path)
    return start.startswith(MAGIC) and start[_HEAD : _HEAD + len(_OWN)] == _OWN


def is_own_imatrix(path: Path) -> bool:
    """Whether `quantize` wrote a file of importance, in GGUF: older ones do not say by whom."""
    return is_own_gguf(path) and b"imatrix.chunk_count" in _start(path)


def is_own_onnx(path: Path) -> bool:
    """Whether `quantize` wrote a file: only it writes versions before the graph."""
    start, at = _start(path), 0
    while at + 1 < len(start):
        field, kind, at = start[at] >> 3, start[at] & 7, at + 1
        if field in (7, 8):
            return field == 8
        value, shift = 0, 0
        while at < len(start) and shift < 63:
            value |= (start[at] & 127) << shift
            shift, at = shift + 7, at + 1
            if start[at - 1] < 128:
                break
        if kind == 2:
            at += value
        elif kind != 0:
            return False
    return False


def is_own_json(*keys: str) -> IsOwn:
    """A check whether a file contains a JSON object with these keys."""

    def is_own(path: Path) -> bool:
        try:
            if path.stat().st_size > _MAX_JSON:
                return False
            content = json.loads(path.read_bytes())
        except (OSError, ValueError, RecursionError):
            return False
        content = content[0] if isinstance(content, list) and content else content
        return isinstance(content, dict) and all(key in content for key in keys)

    return is_own


def is_own_npz(path: Path) -> bool:
    """Whether a file is a zip whose first member is an array."""
    start = _start(path)
    length = int.from_bytes(start[26:28], "little")
    return start.startswith(b"PK\3\4") and start[30 : 30 + length].endswith(b".npy")


def is_own_plot(path: Path) -> bool:
    """Whether Matplotlib drew a file, which it notes in all its formats."""
    with path.open("rb") as file:
        start = file.read(_START)
        file.seek(max(0, path.stat().st_size - _START))
        return b"atplotlib" in start + file.read()


def is_own_page(path: Path) -> bool:
    """Whether `compare` wrote a file, which is said at its beginning."""
    return PAGE_MARK.encode() in _start(path)


def _start(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(_START)
