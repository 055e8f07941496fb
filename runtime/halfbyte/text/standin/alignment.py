"""How `tokenizers` follows characters through normalization.

A change says where a character of the new text comes from: 0 if it takes the place of the next
character of the old text, 1 if it is new, -n if it takes the place of one and n more disappear. A
new character has the span of the one before it; one that takes the place of several, of the first.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from unicodedata import combining, normalize

from halfbyte.text.tokenizers.charsmap import Charsmap
from halfbyte.text.tokenizers.composition import Form, compose, composites
from halfbyte.text.tokenizers.graphemes import clusters

Span = tuple[int, int]
Change = tuple[str, int]


def transformed(
    spans: list[Span], changes: Iterable[Change], removed: int, start: int
) -> tuple[str, list[Span]]:
    """The text of the changes, and the spans of its characters.

    Parameters
    ----------
    spans : list of (int, int)
        Of the old text's characters.
    changes : iterable of (str, int)
        See the module.
    removed : int
        Characters that disappear before the first one.
    start : int
        Where the old text begins, for what is put before its first character.
    """
    at, last = removed, len(spans) - 1
    letters: list[str] = []
    origins: list[Span] = []
    for letter, change in changes:
        letters.append(letter)
        if change > 0:
            origins.append(spans[min(at - 1, last)] if at > 0 and spans else (start, start))
        else:
            origins.append(spans[min(at, last)] if spans else (start, start))
            at += 1 - change
    return "".join(letters), origins


def replaced(charsmap: Charsmap, text: str) -> list[Change] | None:
    """The changes of SentencePiece's replacements; None if there are none."""
    changes: list[Change] = []
    modified = False
    for start, end in clusters(text):
        whole = text[start:end]
        content = charsmap.shortest(whole) if len(whole.encode()) < 6 else None
        if content is not None:
            modified = True
            _replace(changes, end - start, content)
            continue
        for letter in whole:
            content = charsmap.shortest(letter)
            if content is None:
                changes.append((letter, 0))
            else:
                modified = True
                _replace(changes, 1, content)
    return changes if modified else None


def _replace(changes: list[Change], old: int, content: str) -> None:
    more = len(content) - old
    changes += ((c, int(i >= len(content) - more)) for i, c in enumerate(content))
    if more < 0 and changes:
        letter, change = changes[-1]
        changes[-1] = letter, change + more


def normal_form(text: str, form: Form) -> Iterator[Change]:
    """The changes of a normal form."""
    for part, start, end in composites(text, form):
        old = text[start:end]
        if part == old:
            yield from ((letter, 0) for letter in part)
        else:
            decomposed = _decomposed(old, "NFKD" if "K" in form else "NFD")
            yield from decomposed if form.endswith("D") else _composed(decomposed)


def _decomposed(text: str, form: Form) -> list[Change]:
    """Decomposed characters, with marks in canonical order."""
    changes: list[Change] = []
    marks: list[Change] = []
    for character in text:
        for index, letter in enumerate(compose(character, form)):
            change = letter, int(index > 0)
            if combining(letter):
                marks.append(change)
                continue
            changes += sorted(marks, key=lambda mark: combining(mark[0]))
            marks = []
            changes.append(change)
    return changes + sorted(marks, key=lambda mark: combining(mark[0]))


def _composed(changes: list[Change]) -> Iterator[Change]:
    """Unicode's canonical composition; a union has the changes of both, less one."""
    base: Change | None = None
    marks: list[Change] = []
    last = 0
    for letter, change in changes:
        kind = combining(letter)
        if base is None:
            if kind:
                yield letter, change
            else:
                base = letter, change
            continue
        union = None if last and (last >= kind) else _union(base[0], letter)
        if union is not None:
            base = union, base[1] + change - 1
        elif kind == 0:
            yield base
            yield from marks
            base, marks, last = (letter, change), [], 0
        else:
            marks.append((letter, change))
            last = kind
    if base is not None:
        yield base
        yield from marks


def _union(first: str, second: str) -> str | None:
    union = normalize("NFC", first + second)
    return union if len(union) == 1 and union != second else None
