"""SentencePiece's normalization: characters are replaced, then spaces are merged and marked."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from halfbyte.text.tokenizers.charsmap import Charsmap
from halfbyte.text.tokenizers.literals import Literals
from halfbyte.text.tokenizers.vocabulary import SPACE

_Span = tuple[int, int]
_SPACES = re.compile(" {2,}")


class Normalizer:
    """Normalizes a text as SentencePiece does before it looks tokens up.

    Parameters
    ----------
    charsmap : Charsmap, optional
        Replaces characters.
    kept : iterable of str
        Strings in which no character is replaced.
    add_prefix : bool
        A space is put before a text.
    merge_spaces : bool
        Runs of spaces become one, and none is left at the ends.
    """

    def __init__(
        self,
        charsmap: Charsmap | None,
        kept: Iterable[str],
        *,
        add_prefix: bool,
        merge_spaces: bool,
    ) -> None:
        self.add_prefix, self._merge_spaces = add_prefix, merge_spaces
        self._charsmap = charsmap
        self._kept = Literals(kept)

    def __call__(self, text: str) -> str:
        """The normalized text."""
        if self._charsmap:
            text = "".join(part for part, _, _ in self._replaced(text))
        if self._merge_spaces:
            text = _SPACES.sub(" ", text).strip(" ")
        if not text:
            return ""
        text = (" " + text if self.add_prefix else text).replace(" ", SPACE)
        return text.rstrip(SPACE) if self._merge_spaces else text

    def align(self, text: str) -> tuple[str, list[_Span]]:
        """The normalized text, and the span of the text that each character comes from."""
        characters: list[str] = []
        origins: list[_Span] = []
        for part, start, end in self._replaced(text):
            one_to_one = end - start == len(part)
            for index, character in enumerate(part):
                origin = (start + index, start + index + 1) if one_to_one else (start, end)
                if self._merge_spaces and character == " " and characters[-1:] in ([], [" "]):
                    if origins:
                        origins[-1] = origins[-1][0], origin[1]
                    continue
                characters.append(character)
                origins.append(origin)
        if characters and self.add_prefix:
            characters.insert(0, " ")
            origins.insert(0, (origins[0][0], origins[0][0]))
        normalized = "".join(characters).replace(" ", SPACE)
        if self._merge_spaces:
            normalized = normalized.rstrip(SPACE)
        return normalized, origins[: len(normalized)]

    def _replaced(self, text: str) -> Iterator[tuple[str, int, int]]:
        """The text in parts, with characters replaced, and the spans that they come from."""
        if not self._charsmap:
            yield text, 0, len(text)
            return
        at = 0
        for start, end in (*self._kept.spans(text), (len(text), len(text))):
            for part, first, last in self._charsmap.parts(text[at:start]):
                yield part, at + first, at + last
            yield text[start:end], start, end
            at = end
