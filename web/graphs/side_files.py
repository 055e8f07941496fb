"""What goes with a model of words or classes: its tokenizer, or the classes' names."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path, PurePath
from typing import Any

from halfbyte.errors import HalfbyteError
from halfbyte.text.tokenizers import Tokenizer, load_tokenizer

MAX_BYTES = 1 << 26
SUFFIXES = (".json", ".txt", ".model")  # of such files; all others are models


def is_side_file(name: str) -> bool:
    """Whether a file of this name is one."""
    return name.lower().endswith(SUFFIXES)


def tokenizer(name: str, data: Any) -> Tokenizer:
    """A tokenizer from a file's bytes.

    Raises
    ------
    HalfbyteError
        It is none; the message names the file.
    """
    _check_size(name, data)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / (PurePath(name).name or "tokenizer.json")
        path.write_bytes(bytes(data))
        try:
            return load_tokenizer(path)
        except HalfbyteError as error:
            raise HalfbyteError(str(error).replace(str(path), name)) from None


def labels(data: bytes) -> list[str]:
    """Names of classes: lines of text, or a JSON list, or a JSON object from numbers to names.

    Raises
    ------
    ValueError
        Nothing of that.
    HalfbyteError
        Too large.
    """
    _check_size("labels", data)
    text = data.decode("utf-8-sig")
    if text.lstrip()[:1] not in ("[", "{"):
        return [line.strip() for line in text.splitlines() if line.strip()]
    found = json.loads(text)
    if isinstance(found, dict) and found and all(str(key).isdecimal() for key in found):
        found = [found[key] for key in sorted(found, key=int)]
    if isinstance(found, list) and found:
        return [str(item[-1] if isinstance(item, list) and item else item) for item in found]
    raise ValueError("no labels")


def _check_size(name: str, data: Any) -> None:
    if len(data) > MAX_BYTES:
        raise HalfbyteError(
            f"{name}: {len(data) / 1e6:.0f} MB: expected at most {MAX_BYTES / 1e6:.0f} MB"
        )
