"""The pre-tokenizers of tokenizer.json: steps that split a piece of a text into pieces.

A piece has its characters, the span of the text that each comes from (None if spans are not
wanted), and whether it begins the text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from halfbyte.errors import FormatError, UnsupportedError
from halfbyte.formats.json_file import field, optional
from halfbyte.formats.pretokenizers import DIGIT, GPT2
from halfbyte.formats.tokens import write_bytes
from halfbyte.text.tokenizers.characters import is_punctuation
from halfbyte.text.tokenizers.regexes import compiled
from halfbyte.text.tokenizers.unicode_classes import ranges, translate, written

Spans = list[tuple[int, int]] | None
Piece = tuple[str, Spans, bool]
Splitter = Callable[[Piece], Iterator[Piece]]
Range = tuple[int, int, bool]  # start, end, and whether the pattern matched


def make_splitters(path: Path, steps: Iterable[dict[str, Any]]) -> list[Splitter]:
    """The steps of a pipeline; raises `FormatError` and `UnsupportedError`."""
    return [make_splitter(path, step) for step in steps]


def split(steps: Iterable[Splitter], text: str, spans: Spans, first: bool) -> list[Piece]:
    """The pieces after all steps in order; none is empty."""
    pieces: list[Piece] = [(text, spans, first)]
    for step in steps:
        pieces = [part for piece in pieces for part in step(piece) if part[0]]
    return pieces


def make_splitter(path: Path, step: dict[str, Any]) -> Splitter:
    kind = field(path, step, "type", str, "pre_tokenizer.")
    if kind == "ByteLevel":
        return _byte_level(path, step)
    if kind == "Metaspace":
        return _metaspace(path, step)
    if kind == "Split":
        behavior = field(path, step, "behavior", str, "pre_tokenizer.")
        invert = optional(path, step, "invert", False, bool, "pre_tokenizer.")
        return _pattern(path, compiled(path, step, "pre_tokenizer."), behavior, invert)
    if kind == "CharDelimiterSplit":
        delimiter = field(path, step, "delimiter", str, "pre_tokenizer.")
        return _pattern(path, re.compile(re.escape(delimiter)), "Removed")
    if kind == "Digits":
        single = optional(path, step, "individual_digits", False, bool, "pre_tokenizer.")
        return _pattern(path, _regex(DIGIT), "Isolated" if single else "Contiguous")
    if kind == "Punctuation":
        behavior = optional(path, step, "behavior", "Isolated", str, "pre_tokenizer.")
        return _pattern(path, _punctuation(), behavior)
    if kind == "WhitespaceSplit":
        return _pattern(path, _regex(r"\s"), "Removed")
    if kind == "Whitespace":
        return _pattern(path, _regex(r"\w+|[^\w\s]+"), "Removed", invert=True)
    if kind == "BertPreTokenizer":
        spaces = _pattern(path, _regex(r"\s"), "Removed")
        marks = _pattern(path, _punctuation(), "Isolated")
        return lambda piece: (part for word in spaces(piece) for part in marks(word))
    raise UnsupportedError(f"{path}: expected a known pre_tokenizer, found {kind[:40]!r}")


def _regex(pattern: str) -> re.Pattern[str]:
    return re.compile(translate(pattern))


def _punctuation() -> re.Pattern[str]:
    marks = "".join(re.escape(chr(code)) for code in range(128) if is_punctuation(chr(code)))
    return re.compile(f"[{marks}{written(ranges('P'))}]")


def _cut(piece: Piece, parts: Iterable[tuple[int, int]]) -> Iterator[Piece]:
    text, spans, first = piece
    for start, end in parts:
        yield text[start:end], spans and spans[start:end], first and start == 0


def _pattern(path: Path, pattern: re.Pattern[str], behavior: str, invert: bool = False) -> Splitter:
    """Splits at the matches of a pattern; the behavior says what becomes of them."""
    join = _BEHAVIORS.get(behavior)
    if join is None:
        raise FormatError(f"{path}: 'pre_tokenizer.behavior': {behavior[:40]!r} is not known")
    return lambda piece: _cut(piece, join(_ranges(pattern, piece[0], invert)))


def _ranges(pattern: re.Pattern[str], text: str, invert: bool) -> Iterator[Range]:
    at = 0
    for match in pattern.finditer(text):
        start, end = match.span()
        if start == end:
            continue
        if at < start:
            yield at, start, invert
        yield start, end, not invert
        at = end
    if at < len(text):
        yield at, len(text), invert


def _isolated(parts: Iterator[Range]) -> Iterator[tuple[int, int]]:
    return ((start, end) for start, end, _ in parts)


def _removed(parts: Iterator[Range]) -> Iterator[tuple[int, int]]:
    return ((start, end) for start, end, matched in parts if not matched)


def _contiguous(parts: Iterator[Range]) -> Iterator[tuple[int, int]]:
    return _joined(parts, lambda matched, before: matched == before)


def _with_previous(parts: Iterator[Range]) -> Iterator[tuple[int, int]]:
    return _joined(parts, lambda matched, before: matched and not before)


def _joined(
    parts: Iterator[Range], joins: Callable[[bool, bool], bool]
) -> Iterator[tuple[int, int]]:
    joined: list[tuple[int, int]] = []
    before = False
    for start, end, matched in parts:
        if joined and joins(matched, before):
            joined[-1] = joined[-1][0], end
        else:
            joined.append((start, end))
        before = matched
    return iter(joined)


def _with_next(parts: Iterator[Range]) -> Iterator[tuple[int, int]]:
    joined: list[tuple[int, int]] = []
    before = False
    for start, end, matched in reversed(list(parts)):
        if joined and matched and not before:
            joined[-1] = start, joined[-1][1]
        else:
            joined.append((start, end))
        before = matched
    return reversed(joined)


_BEHAVIORS = {
    "Isolated": _isolated, "Removed": _removed, "Contiguous": _contiguous,
    "MergedWithPrevious": _with_previous, "MergedWithNext": _with_next,
}  # fmt: skip


def _put_before(piece: Piece, character: str) -> Piece:
    text, spans, first = piece
    return character + text, spans and [(spans[0][0], spans[0][0]), *spans], first


def _byte_level(path: Path, step: dict[str, Any]) -> Splitter:
    """Optionally splits like GPT-2; bytes become visible characters."""
    prefix = optional(path, step, "add_prefix_space", True, bool, "pre_tokenizer.")
    use_regex = optional(path, step, "use_regex", True, bool, "pre_tokenizer.")
    words = _pattern(path, _regex(GPT2), "Isolated")

    def split_bytes(piece: Piece) -> Iterator[Piece]:
        if prefix and not piece[0].startswith(" "):
            piece = _put_before(piece, " ")
        for text, spans, first in words(piece) if use_regex else (piece,):
            utf8 = text.encode()
            if spans and len(utf8) > len(text):
                spans = [span for c, span in zip(text, spans, strict=True) for _ in c.encode()]
            yield write_bytes(utf8), spans, first

    return split_bytes


def _metaspace(path: Path, step: dict[str, Any]) -> Splitter:
    """Marks spaces, puts a mark before a piece without one, and begins a piece at each mark."""
    mark = optional(path, step, "replacement", "\u2581", str, "pre_tokenizer.")
    old = optional(path, step, "add_prefix_space", True, bool, "pre_tokenizer.")
    scheme = optional(
        path, step, "prepend_scheme", "always" if old else "never", str, "pre_tokenizer."
    )
    splits = optional(path, step, "split", True, bool, "pre_tokenizer.")
    if len(mark) != 1 or scheme not in ("always", "first", "never"):
        raise FormatError(f"{path}: pre_tokenizer {str(step)[:200]}: is not a Metaspace")
    words = _pattern(path, re.compile(re.escape(mark)), "MergedWithNext")

    def split_marks(piece: Piece) -> Iterator[Piece]:
        text, spans, first = piece
        piece = text.replace(" ", mark), spans, first
        if (scheme == "always" or (scheme == "first" and first)) and not piece[0].startswith(mark):
            piece = _put_before(piece, mark)
        return words(piece) if splits else iter((piece,))

    return split_marks
