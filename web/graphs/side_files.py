"""Files that accompany a model: its tokenizer, or the names of its classes."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path, PurePath
from typing import Any

from halfbyte.errors import HalfbyteError
from halfbyte.text.tokenizers import Tokenizer, load_tokenizer

MAX_BYTES = 1 << 26
SUFFIXES = (".json", ".txt", ".model")  # all other files are models


def is_side_file(name: str) -> bool:
    """Whether a file of this name is a tokenizer or labels."""
    return name.lower().endswith(SUFFIXES)


def labels_or_tokenizer(name: str, data: Any) -> list[str] | Tokenizer:
    """Whichever of them a file is; for errors see `tokenizer`."""
    try:
        return labels(bytes(data))
    except ValueError:
        return tokenizer(name, data)


def tokenizer(name: str, data: Any) -> Tokenizer:
    """A tokenizer from a file's bytes.

    Raises
    ------
    HalfbyteError
        The file is not a tokenizer; the message names it.
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
    """Names of classes: lines of text, a JSON list, or a JSON object from numbers to names.

    Raises
    ------
    ValueError
        The data has none of these forms.
    HalfbyteError
        The data is too large.
    """
    _check_size("labels", data)
    text = data.decode("utf-8-sig")
    if text.lstrip()[:1] not in ("[", "{"):
        return [line.strip() for line in text.splitlines() if line.strip()]
    names = json.loads(text)
    if isinstance(names, dict) and names and all(str(key).isdecimal() for key in names):
        names = [names[key] for key in sorted(names, key=int)]
    if isinstance(names, list) and names:
        return [str(item[-1] if isinstance(item, list) and item else item) for item in names]
    raise ValueError("no labels")


def _check_size(name: str, data: Any) -> None:
    if len(data) > MAX_BYTES:
        raise HalfbyteError(
            f"{name}: {len(data) / 1e6:.0f} MB: expected at most {MAX_BYTES / 1e6:.0f} MB"
        )
