"""Added tokens in a text, found as by PyPI's `tokenizers`."""

from __future__ import annotations

import re
from collections.abc import Container, Iterator

from halfbyte.text.tokenizers.literals import Literals
from halfbyte.text.tokenizers.unicode_classes import WHITESPACE, WORD, translate

_WORD_END = re.compile(translate(rf"[{WORD}]$").replace("$", r"\Z"))
_SPACES = re.compile(translate(r"\s*"))
_WORD_START = re.compile(translate(rf"[{WORD}]"))
Cut = tuple[int, int, int | None]  # a span, and the token that is there


class AddedTokens:
    """Tokens to cut out of texts.

    Parameters
    ----------
    ids : dict
        Their ids, by what is searched for, which is not empty.
    single_word, lstrip, rstrip : frozenset
        Ids of tokens that are not found inside a longer word, and of those that take the
        whitespace before or after them.
    """

    def __init__(
        self,
        ids: dict[str, int],
        single_word: Container[int],
        lstrip: Container[int],
        rstrip: Container[int],
    ) -> None:
        self._ids = ids
        self._literals = Literals(ids)
        self._single_word, self._lstrip, self._rstrip = single_word, lstrip, rstrip

    def cut(self, text: str, hidden: Container[int]) -> Iterator[Cut]:
        """Spans of a text in order: of an added token, or (None) of the text between.

        Tokens in `hidden` are text.
        """
        at = 0
        for start, end in self._literals.spans(text):
            token = self._ids[text[start:end]]
            if start < at or token in hidden:
                continue
            if token in self._single_word and (
                _WORD_START.match(text, end) or _WORD_END.search(text[max(0, start - 1) : start])
            ):
                continue
            if token in self._lstrip:
                start = at + len(text[at:start].rstrip(WHITESPACE))
            if token in self._rstrip:
                end = _SPACES.match(text, end).end()  # type: ignore[union-attr]
            if start > at:
                yield at, start, None
            yield start, end, token
            at = end
        if at < len(text):
            yield at, len(text), None
