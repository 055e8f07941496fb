"""The normalizers of tokenizer.json: steps from a text to another.

A step yields the parts of the new text, each with the span of the old text that it comes from. The
characters of a part as long as its span come from there one by one.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, cast

from halfbyte.errors import FormatError, UnsupportedError
from halfbyte.formats.json_file import field, optional
from halfbyte.text.tokenizers.characters import BertCharacters
from halfbyte.text.tokenizers.charsmap import Charsmap
from halfbyte.text.tokenizers.composition import Form, compose, composites
from halfbyte.text.tokenizers.graphemes import clusters
from halfbyte.text.tokenizers.regexes import compiled
from halfbyte.text.tokenizers.unicode_classes import WHITESPACE, is_mark_9, lower

Span = tuple[int, int]
Part = tuple[str, int, int]


class Step:
    """A normalizer; this one changes nothing."""

    def __call__(self, text: str) -> str:
        """The normalized text."""
        return "".join(part for part, _, _ in self.parts(text))

    def parts(self, text: str) -> Iterator[Part]:
        """The normalized text in parts, and the span that each comes from."""
        yield text, 0, len(text)


class Characters(Step):
    """Replaces single characters."""

    def __init__(self, table: dict[int, str]) -> None:
        self._table = table

    def __call__(self, text: str) -> str:
        return text.translate(self._table)

    def parts(self, text: str) -> Iterator[Part]:
        return ((self._table[ord(c)], at, at + 1) for at, c in enumerate(text))


class _Lowercase(dict[int, str]):
    def __missing__(self, code: int) -> str:
        self[code] = text = lower(chr(code))
        return text


class _WithoutMarks(dict[int, str]):
    def __missing__(self, code: int) -> str:
        self[code] = text = "" if is_mark_9(chr(code)) else chr(code)
        return text


_DROPPED = frozenset((*range(1, 9), 0xB, *range(0xE, 0x20), 0x7F, 0x8F, 0x9F))
_BLANK = frozenset(
    (9, 10, 12, 13, 0x1680, *range(0x200B, 0x2010), 0x2028, 0x2029, 0x2581, 0xFEFF, 0xFFFD)
)


class _Nmt(dict[int, str]):
    """Removes characters, or replaces them by spaces, as for machine translation."""

    def __missing__(self, code: int) -> str:
        self[code] = text = "" if code in _DROPPED else " " if code in _BLANK else chr(code)
        return text


class NormalForm(Step):
    """One of Unicode's normal forms."""

    def __init__(self, form: Form) -> None:
        self._form: Form = form

    def __call__(self, text: str) -> str:
        return compose(text, self._form)

    def parts(self, text: str) -> Iterator[Part]:
        return composites(text, self._form)


class Replace(Step):
    """Replaces the matches of a regular expression."""

    def __init__(self, pattern: re.Pattern[str], content: str) -> None:
        self._pattern, self._content = pattern, content

    def parts(self, text: str) -> Iterator[Part]:
        at = 0
        for match in self._pattern.finditer(text):
            start, end = match.span()
            yield text[at:start], at, start
            yield self._content, start, end
            at = end
        yield text[at:], at, len(text)


class Prepend(Step):
    """Puts a string before a text that is not empty."""

    def __init__(self, content: str) -> None:
        self._content = content

    def parts(self, text: str) -> Iterator[Part]:
        if text:
            yield self._content, 0, 0
            yield text, 0, len(text)


class Strip(Step):
    """Removes whitespace at the ends."""

    def __init__(self, left: bool, right: bool) -> None:
        self._left, self._right = left, right

    def parts(self, text: str) -> Iterator[Part]:
        start = len(text) - len(text.lstrip(WHITESPACE)) if self._left else 0
        end = max(start, len(text.rstrip(WHITESPACE)) if self._right else len(text))
        yield text[start:end], start, end


class Precompiled(Step):
    """SentencePiece's replacements, as in `tokenizers`: one for a cluster or a character."""

    def __init__(self, charsmap: Charsmap) -> None:
        self._charsmap = charsmap

    def parts(self, text: str) -> Iterator[Part]:
        for start, end in clusters(text):
            whole = text[start:end]
            content = self._charsmap.shortest(whole) if len(whole.encode()) < 6 else None
            if content is not None:
                yield content, start, end
                continue
            for at in range(start, end):
                content = self._charsmap.shortest(text[at])
                yield text[at] if content is None else content, at, at + 1


def make_normalizers(path: Path, steps: Iterable[dict[str, Any]]) -> list[Step]:
    """The steps of a pipeline; raises `FormatError` and `UnsupportedError`."""
    return [_step(path, step) for step in steps]


def apply(steps: Iterable[Step], text: str) -> str:
    """Apply the steps to a text in order."""
    for step in steps:
        text = step(text)
    return text


def trace(steps: Iterable[Step], text: str) -> tuple[str, list[Span]]:
    """The normalized text, and the span that each of its characters comes from."""
    spans = [(at, at + 1) for at in range(len(text))]
    for step in steps:
        letters: list[str] = []
        origins: list[Span] = []
        for part, start, end in step.parts(text):
            letters.append(part)
            if len(part) == end - start:
                origins += spans[start:end]
            elif start == end:
                at = spans[start][0] if start < len(spans) else spans[-1][1] if spans else 0
                origins += [(at, at)] * len(part)
            else:
                origins += [(spans[start][0], spans[end - 1][1])] * len(part)
        text, spans = "".join(letters), origins
    return text, spans


def _step(path: Path, step: dict[str, Any]) -> Step:
    kind = field(path, step, "type", str, "normalizer.")
    if kind in ("NFC", "NFD", "NFKC", "NFKD"):
        return NormalForm(cast(Form, kind))
    if kind in TABLES:
        return Characters(TABLES[kind]())
    if kind == "BertNormalizer":
        return _bert(path, step)
    if kind == "Replace":
        content = field(path, step, "content", str, "normalizer.")
        return Replace(compiled(path, step, "normalizer."), content)
    if kind == "Prepend":
        return Prepend(field(path, step, "prepend", str, "normalizer."))
    if kind == "Strip":
        sides = ("strip_left", "strip_right")
        left, right = (optional(path, step, side, True, bool, "normalizer.") for side in sides)
        return Strip(left, right)
    if kind == "Precompiled":
        text = field(path, step, "precompiled_charsmap", str, "normalizer.")
        try:
            data = base64.b64decode(text, validate=True)
        except (binascii.Error, ValueError):
            raise FormatError(f"{path}: 'normalizer.precompiled_charsmap': not base64") from None
        where = f"{path}: 'normalizer.precompiled_charsmap'"
        return Precompiled(Charsmap(data, where)) if data else Step()
    raise UnsupportedError(f"{path}: expected a known normalizer, found {kind[:40]!r}")


TABLES = {"Lowercase": _Lowercase, "StripAccents": _WithoutMarks, "Nmt": _Nmt}


def _bert(path: Path, step: dict[str, Any]) -> Step:
    lowercase, clean, chinese = (
        optional(path, step, name, True, bool, "normalizer.")
        for name in ("lowercase", "clean_text", "handle_chinese_chars")
    )
    strip = optional(path, step, "strip_accents", lowercase, bool, "normalizer.")
    return Characters(BertCharacters(lowercase, strip, clean_text=clean, chinese=chinese))
