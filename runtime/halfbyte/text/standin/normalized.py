"""A text while it is normalized, which knows where its characters come from."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any, cast

from halfbyte.text.standin.alignment import Change, Span, normal_form, transformed
from halfbyte.text.standin.components import WHERE, Regex, pattern_of
from halfbyte.text.tokenizers.composition import Form
from halfbyte.text.tokenizers.regexes import compiled
from halfbyte.text.tokenizers.splitting import make_splitter
from halfbyte.text.tokenizers.unicode_classes import WHITESPACE, lower

Range = int | tuple[int, int] | slice


class NormalizedString:
    """A text, and the span of the original that each of its characters comes from."""

    def __init__(self, sequence: str) -> None:
        self.whole = sequence
        self.text = sequence
        self.spans: list[Span] = [(at, at + 1) for at in range(len(sequence))]
        self.start, self.end = 0, len(sequence)  # of the part of the original

    @classmethod
    def part(cls, whole: str, text: str, spans: list[Span]) -> NormalizedString:
        """A part that is not empty of a text."""
        part = cls.__new__(cls)
        part.whole, part.text, part.spans = whole, text, spans
        part.start, part.end = spans[0][0], spans[-1][1]
        return part

    @property
    def normalized(self) -> str:
        """The text as it is now."""
        return self.text

    @property
    def original(self) -> str:
        """The text as it was."""
        return self.whole[self.start : self.end]

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return f'NormalizedString(original="{self.original}", normalized="{self.text}")'

    def transform(self, changes: Iterable[Change], removed: int = 0) -> None:
        """Apply changes; see :mod:`halfbyte.text.standin.alignment`."""
        self.text, self.spans = transformed(self.spans, changes, removed, self.start)

    # ---- steps -----------------------------------------------------------------------------------

    def translate(self, table: dict[int, str]) -> None:
        """Replace single characters, or remove them."""
        new = self.text.translate(table)
        if new == self.text:
            return
        if len(new) != len(self.text) or any(len(table[ord(c)]) != 1 for c in self.text):
            pairs = zip(self.text, self.spans, strict=True)
            self.spans = [span for c, span in pairs for _ in table[ord(c)]]
        self.text = new

    def normal_form(self, form: Form) -> None:
        """Bring the text into one of Unicode's normal forms."""
        if not self.text.isascii():
            self.transform(normal_form(self.text, form))

    def nfc(self) -> None:
        """Normal form C."""
        self.normal_form("NFC")

    def nfd(self) -> None:
        """Normal form D."""
        self.normal_form("NFD")

    def nfkc(self) -> None:
        """Normal form KC."""
        self.normal_form("NFKC")

    def nfkd(self) -> None:
        """Normal form KD."""
        self.normal_form("NFKD")

    def lowercase(self) -> None:
        """Replace capitals."""
        self.translate({ord(c): lower(c) for c in set(self.text)})

    def uppercase(self) -> None:
        """Replace small letters."""
        self.translate({ord(c): c.upper() for c in set(self.text)})

    def prepend(self, s: str) -> None:
        """Put a string before a text that is not empty; it has the first character's span."""
        if self.text:
            self.spans = [self.spans[0]] * len(s) + self.spans
            self.text = s + self.text

    def append(self, s: str) -> None:
        """Put a string after a text; it has the last character's span."""
        last = self.spans[-1] if self.spans else (self.start, self.start)
        self.spans = self.spans + [last] * len(s)
        self.text += s

    def strip(self, left: bool = True, right: bool = True) -> None:
        """Remove whitespace at the ends."""
        start = len(self.text) - len(self.text.lstrip(WHITESPACE)) if left else 0
        end = len(self.text.rstrip(WHITESPACE)) if right else len(self.text)
        end = max(start, end)
        self.text, self.spans = self.text[start:end], self.spans[start:end]

    def lstrip(self) -> None:
        """Remove whitespace at the beginning."""
        self.strip(right=False)

    def rstrip(self) -> None:
        """Remove whitespace at the end."""
        self.strip(left=False)

    def clear(self) -> None:
        """Remove the text."""
        self.text, self.spans = "", []

    def filter(self, func: Callable[[str], bool]) -> None:
        """Keep the characters for which a function is true."""
        kept = [i for i, c in enumerate(self.text) if func(c)]
        self.text, self.spans = "".join(self.text[i] for i in kept), [self.spans[i] for i in kept]

    def map(self, func: Callable[[str], str]) -> None:
        """Replace each character by the one that a function returns."""
        self.text = "".join(func(c)[:1] for c in self.text)

    def for_each(self, func: Callable[[str], object]) -> None:
        """Call a function with each character."""
        for character in self.text:
            func(character)

    def replace(self, pattern: str | Regex, content: str) -> None:
        """Replace what matches; see `replace_matches`."""
        self.replace_matches(compiled(WHERE, {"pattern": pattern_of(pattern)}, ""), content)

    def replace_matches(self, pattern: re.Pattern[str], content: str) -> None:
        """Replace the matches of a pattern; the content has the span of the last character."""
        letters: list[str] = []
        spans: list[Span] = []
        at = 0
        for match in pattern.finditer(self.text):
            start, end = match.span()
            letters += (self.text[at:start], content)
            spans += self.spans[at:start]
            spans += [self.spans[end - 1] if end else (self.start, self.start)] * len(content)
            at = end
        if letters:
            self.text = "".join(letters) + self.text[at:]
            self.spans = spans + self.spans[at:]

    # ---- parts -----------------------------------------------------------------------------------

    def split(self, pattern: str | Regex, behavior: Any) -> list[NormalizedString]:
        """The parts between or around what matches."""
        step = {"type": "Split", "pattern": pattern_of(pattern), "behavior": behavior_of(behavior)}
        parts = make_splitter(WHERE, step)((self.text, self.spans, True))
        return [NormalizedString.part(self.whole, t, cast(list[Span], s)) for t, s, _ in parts if t]

    def slice(self, range: Range) -> NormalizedString | None:
        """A part of the text, by the places of its characters; None if there is no such part."""
        size = len(self.text)
        if isinstance(range, int):
            range = (range if range >= 0 else size + range, range + 1 if range != -1 else size)
        elif isinstance(range, slice):
            start, stop, _ = range.indices(size)
            range = start, stop
        start, end = range
        if not 0 <= start <= end <= size:
            return None
        if start == end:
            part = NormalizedString("")
            part.start = part.end = self.start + start
            return part
        return NormalizedString.part(self.whole, self.text[start:end], self.spans[start:end])

    def __getitem__(self, range: Range) -> NormalizedString | None:
        return self.slice(range)


_BEHAVIORS = {
    "removed": "Removed", "isolated": "Isolated", "contiguous": "Contiguous",
    "merged_with_previous": "MergedWithPrevious", "merged_with_next": "MergedWithNext",
}  # fmt: skip


def behavior_of(value: Any) -> str:
    """What becomes of matches, as in tokenizer.json."""
    name = str(getattr(value, "value", value))
    if name not in _BEHAVIORS and name not in _BEHAVIORS.values():
        raise ValueError(f"behavior: expected one of {', '.join(_BEHAVIORS)}, found {name[:40]!r}")
    return _BEHAVIORS.get(name, name)


def behavior_shown(name: str) -> str:
    """What becomes of matches, as `tokenizers` shows it."""
    return name.lower()
