"""Added tokens: cut out of a text before it is tokenized, or only put around it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from halfbyte.errors import FormatError
from halfbyte.formats.json_file import field, kind_of, optional


@dataclass(frozen=True)
class Added:
    """An added token.

    Attributes
    ----------
    special : bool
        It is a control token.
    lstrip, rstrip : bool
        It absorbs the whitespace before or after it.
    single_word : bool
        It does not match inside a longer word.
    normalized : bool
        It is searched for in normalized text.
    """

    id: int
    content: str
    special: bool
    lstrip: bool = False
    rstrip: bool = False
    single_word: bool = False
    normalized: bool = False


def read_added(path: Path, value: Any, number: int | None = None) -> Added:
    """An added token of tokenizer.json, or of tokenizer_config.json, whose ids are keys."""
    if not isinstance(value, dict):
        raise FormatError(f"{path}: added token: expected an object, found {kind_of(value)}")
    content = field(path, value, "content", str, "added_tokens.")
    special, lstrip, rstrip, single_word = (
        optional(path, value, name, False, bool, "added_tokens.")
        for name in ("special", "lstrip", "rstrip", "single_word")
    )
    normalized = optional(path, value, "normalized", not special, bool, "added_tokens.")
    number = field(path, value, "id", int, "added_tokens.") if number is None else number
    return Added(number, content, special, lstrip, rstrip, single_word, normalized)
