"""Cuts a text into passages: sentences, headings and list items, each short enough to embed."""

from __future__ import annotations

import re
from collections.abc import Iterator

MAX_LENGTH = 320  # characters of a passage; longer sentences are cut between their parts
MIN_BYTES = 12  # of UTF-8; a shorter sentence joins the one before it
SHORT_LINE = 50  # characters; a line after a shorter one that begins with a capital starts a block

Span = tuple[int, int]  # first character, and the one after the last

_ITEM = re.compile(r"[ \t]*(?:[-*+•–—▪◦]|#{1,6}|\(?\d{1,3}[.)]|\(?[a-z]\))[ \t]+")
_END = re.compile(
    r"(?<![.!?…])[.!?…]++[\"'”’»)\]]*+(?=\s|$)"
    r"|[。！？｡]+[”』」）]*"  # noqa: RUF001
)
_MARKS = ".!?…。！？｡:;,"  # noqa: RUF001
_LAST_WORD = re.compile(r"\S+$")
_NEXT = re.compile(r"\s*(\S?)")
_PARTS = (re.compile(r"[;:]\s|\s[–—-]\s"), re.compile(r"[,、，]\s?"), re.compile(r"\s"))  # noqa: RUF001
# Words after which a full stop rarely ends a sentence; _NUMBERED only if a number follows.
_WORDS = """
    mr mrs ms dr prof st gen rev sen rep gov capt lt col sgt hon jr sr messrs mme mlle hr fr frl
    approx ca cf vs al ed eds e.g i.e z.b d.h u.a s.o vgl bzw inc ltd dept est op
"""
_NUMBERED = """
    no nos nr vol fig figs eq sec ch p pp art abs jan feb mar apr jun jul aug sep sept oct nov dec
"""
_TITLES, _COUNTED = frozenset(_WORDS.split()), frozenset(_NUMBERED.split())


def passages(text: str) -> list[Span]:
    """The spans of a text's passages, in order; between them is only white space.

    A sentence ends at a full stop, question or exclamation mark followed by white space, except
    after an abbreviation or an initial, or before a lower-case letter; Chinese and Japanese marks
    need no space. A paragraph ends at an empty line, before a list item, and after a short line
    unless the next line begins with a lower-case letter. A heading belongs to the sentence after
    it.
    """
    spans: list[Span] = []
    heading: int | None = None  # start of a heading that joins the next sentence
    blocks = list(_blocks(text))
    headings = [_is_heading(text, *block) for block in blocks] + [True]
    for number, block in enumerate(blocks):
        if heading is None and headings[number] and not headings[number + 1]:
            heading = block[0]
            continue
        for start, end in _joined(text, list(_sentences(text, *block))):
            spans += _cut(text, start if heading is None else heading, end)
            heading = None
    return spans


def _is_heading(text: str, start: int, end: int) -> bool:
    """Whether a block is a short line that is neither a sentence nor a list item."""
    part = text[start:end]
    item = part[0] != "#" and _ITEM.match(part)
    return len(part) < SHORT_LINE and not item and "\n" not in part and part[-1] not in _MARKS


def _blocks(text: str) -> Iterator[Span]:
    """Paragraphs, headings and list items, without white space around them."""
    start = at = 0
    before = ""
    for line in text.splitlines(keepends=True):
        plain = line.strip()
        whole = len(before) < SHORT_LINE and not plain[:1].islower()
        if not plain or whole or _ITEM.match(line):
            yield from _stripped(text, start, at)
            start = at
        before = plain
        at += len(line)
    yield from _stripped(text, start, at)


def _sentences(text: str, start: int, end: int) -> Iterator[Span]:
    """The sentences of a block; an item's mark belongs to its first one."""
    item = _ITEM.match(text, start, end)
    at = item.end() if item else start
    for mark in _END.finditer(text, at, end):
        if mark.start() >= at and not _goes_on(text, start, mark, end):
            yield from _stripped(text, start, mark.end())
            start = mark.end()
    yield from _stripped(text, start, end)


def _goes_on(text: str, start: int, mark: re.Match[str], end: int) -> bool:
    """Whether the sentence does not end at this mark."""
    after = _NEXT.match(text, mark.end(), end)
    following = after[1] if after else ""
    if following.islower():
        return True
    if mark[0] != ".":
        return False
    word = _LAST_WORD.search(text, max(start, mark.start() - 40), mark.start())
    before = word[0].lstrip("(\"'“‘[").lower() if word else ""  # noqa: RUF001
    initial = len(before) == 1 and before.isalpha() and before != "i"
    if before in _COUNTED:
        return following.isdigit()
    return bool(following) and (initial or before in _TITLES)


def _joined(text: str, sentences: list[Span]) -> list[Span]:
    """Join very short sentences to the ones before them, and the first to the one after it."""
    spans: list[Span] = []
    for start, end in sentences:
        sizes = [len(text[a:b].encode("utf-8", "replace")) for a, b in (*spans[-1:], (start, end))]
        if spans and min(sizes) < MIN_BYTES and end - spans[-1][0] <= MAX_LENGTH:
            spans[-1] = spans[-1][0], end
        else:
            spans.append((start, end))
    return spans


def _cut(text: str, start: int, end: int) -> Iterator[Span]:
    """Parts of at most `MAX_LENGTH` characters, cut at punctuation or spaces if possible."""
    while end - start > MAX_LENGTH:
        middle, limit = start + MAX_LENGTH // 2, start + MAX_LENGTH
        cut = limit
        for part in _PARTS:
            places = [m.end() for m in part.finditer(text, middle, limit)]
            if places:
                cut = places[-1]
                break
        yield from _stripped(text, start, cut)
        start = cut
    yield from _stripped(text, start, end)


def _stripped(text: str, start: int, end: int) -> Iterator[Span]:
    """The span without white space around it, if anything is left."""
    part = text[start:end]
    left = len(part) - len(part.lstrip())
    if left < len(part):
        yield start + left, start + len(part.rstrip())
