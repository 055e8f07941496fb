"""Reader of untrusted JSON: bounded, with errors that name file, field and kind."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any, TypeVar

from halfbyte.errors import FormatError
from halfbyte.formats.mapped import map_file

T = TypeVar("T")

MAX_BYTES = 1 << 26  # tokenizers of 260,000 tokens take 35 MB
_MAX_DEPTH = 64
_MAX_ITEMS = 1 << 21  # objects and arrays, which take far more memory in Python than in the file
_KINDS = {
    dict: "an object", list: "an array", str: "a string", int: "an integer", float: "a number",
    bool: "true or false", type(None): "null",
}  # fmt: skip


def read_json(path: Path) -> dict[str, Any]:
    """The object in a JSON file.

    Raises
    ------
    FormatError
        Not UTF-8, not JSON, not an object, larger than 64 MB, nested more than 64 deep, or with a
        key that appears twice in one object.
    """
    return parse_json(path, bytes(map_file(path)[: MAX_BYTES + 1]))


def read_json_list(path: Path) -> list[Any]:
    """As `read_json`, for a file that holds an array."""
    return _parsed(path, bytes(map_file(path)[: MAX_BYTES + 1]), list)


def parse_json(path: Path, content: bytes) -> dict[str, Any]:
    """As `read_json`, for the file's content; `path` is for messages."""
    return _parsed(path, content, dict)


def _parsed(path: Path, content: bytes, kind: type[T]) -> T:
    if len(content) > MAX_BYTES:
        raise FormatError(f"{path}: expected at most {MAX_BYTES} bytes of JSON, found more")
    if content.count(b"[") + content.count(b"{") > _MAX_ITEMS:
        raise FormatError(f"{path}: expected at most {_MAX_ITEMS} objects and arrays, found more")
    try:
        value = json.loads(content.decode("utf-8"), object_pairs_hook=_unique)
    except UnicodeDecodeError as error:
        raise FormatError(f"{path}: JSON is not UTF-8 at offset {error.start}") from None
    except RecursionError:
        raise FormatError(f"{path}: JSON is nested too deep") from None
    except ValueError as error:
        raise FormatError(f"{path}: not JSON: {error}") from None
    if not isinstance(value, kind):
        raise FormatError(f"{path}: expected {_KINDS[kind]}, found {kind_of(value)}")
    _check_depth(path, value)
    return value


def kind_of(value: object) -> str:
    """The kind of a JSON value, for messages."""
    return _KINDS.get(type(value), type(value).__name__)


def field(path: Path, parent: dict[str, Any], name: str, kind: type[T], where: str = "") -> T:
    """The value of an object's field, checked to be of `kind`; `where` locates the object."""
    value = parent.get(name)
    wrong = isinstance(value, bool) and kind is not bool
    if wrong or not isinstance(value, kind):
        shown = "nothing" if name not in parent else kind_of(value)
        raise FormatError(f"{path}: '{where}{name}': expected {_KINDS[kind]}, found {shown}")
    return value


def optional(
    path: Path, parent: dict[str, Any], name: str, default: T, kind: type[T], where: str = ""
) -> T:
    """As `field`, with a default for a field that is missing or null."""
    return default if parent.get(name) is None else field(path, parent, name, kind, where)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    entries = dict(pairs)
    if len(entries) < len(pairs):
        names = Counter(name for name, _ in pairs)
        raise ValueError(f"key {names.most_common(1)[0][0][:80]!r} appears twice")
    return entries


def _check_depth(path: Path, value: object) -> None:
    level: list[Any] = [value]
    for _ in range(_MAX_DEPTH):
        below: list[Any] = []
        for item in level:
            if isinstance(item, dict):
                below += item.values()
            elif isinstance(item, list):
                below += item
        level = [item for item in below if isinstance(item, dict | list)]
        if not level:
            return
    raise FormatError(f"{path}: JSON is nested more than {_MAX_DEPTH} deep")
