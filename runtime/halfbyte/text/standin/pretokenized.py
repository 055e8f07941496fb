"""A text while it is split and tokenized."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from halfbyte.text.standin.encoding import Encoding
from halfbyte.text.standin.normalized import NormalizedString

Span = tuple[int, int]


@dataclass(frozen=True)
class Token:
    """A token of a part of a text."""

    id: int
    value: str
    offsets: Span

    def as_tuple(self) -> tuple[int, str, Span]:
        """Id, text and span."""
        return self.id, self.value, self.offsets


@dataclass
class Split:
    """A part of a text, and its tokens once it has some."""

    normalized: NormalizedString
    tokens: list[Token] | None = None


class PreTokenizedString:
    """A text in parts."""

    def __init__(self, s: str) -> None:
        self._text = s
        self.parts: list[Split] = [Split(NormalizedString(s))]

    def split(self, func: Callable[[int, NormalizedString], Iterable[NormalizedString]]) -> None:
        """Replace each part without tokens by those that a function returns."""
        parts: list[Split] = []
        for index, part in enumerate(self.parts):
            if part.tokens is None:
                parts += (Split(new) for new in func(index, part.normalized) if new.text)
            else:
                parts.append(part)
        self.parts = parts

    def normalize(self, func: Callable[[NormalizedString], object]) -> None:
        """Call a function that changes them with the parts without tokens."""
        for part in self.parts:
            if part.tokens is None:
                func(part.normalized)

    def tokenize(self, func: Callable[[str], Iterable[Token]]) -> None:
        """Give tokens to the parts without them."""
        for part in self.parts:
            if part.tokens is None:
                part.tokens = list(func(part.normalized.text))

    def get_splits(
        self, offset_referential: Any = "original", offset_type: Any = "char"
    ) -> list[tuple[str, Span, list[Token] | None]]:
        """Text, span and tokens of each part."""
        normalized = getattr(offset_referential, "value", offset_referential) == "normalized"
        in_bytes = getattr(offset_type, "value", offset_type) == "byte"
        splits: list[tuple[str, Span, list[Token] | None]] = []
        at = 0
        for part in self.parts:
            text = part.normalized.text
            start, end = part.normalized.start, part.normalized.end
            if normalized:
                at, start, end = at + len(text), at, at + len(text)
            if in_bytes:
                whole = "".join(p.normalized.text for p in self.parts) if normalized else self._text
                start, end = len(whole[:start].encode()), len(whole[:end].encode())
            splits.append((text, (start, end), part.tokens))
        return splits

    def to_encoding(self, type_id: int = 0, word_idx: int | None = None) -> Encoding:
        """The tokens of all parts."""
        encoding = Encoding()
        for index, part in enumerate(self.parts):
            if part.tokens is None:
                raise ValueError("a part has no tokens: call tokenize() first")
            spans = part.normalized.spans
            for token in part.tokens:
                start, end = token.offsets
                span = (spans[start][0], spans[end - 1][1]) if start < end <= len(spans) else (
                    token.offsets
                )  # fmt: skip
                word = index if word_idx is None else word_idx
                encoding.push(token.id, token.value, span, word, type_id)
        return encoding
