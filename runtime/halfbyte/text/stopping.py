"""Strings at which a text ends."""

from __future__ import annotations

from collections.abc import Sequence

from halfbyte import arguments
from halfbyte.errors import HalfbyteError

MAX_STRINGS, MAX_CHARACTERS = 64, 1024  # stop strings, and characters of one


class StopStrings:
    """Passes a stream of text on up to the first stop string, of which nothing is ever passed on.

    The first is the one that is complete first, the longer of two; it does not matter in which
    pieces the text arrives.

    Attributes
    ----------
    found : bool
        A stop string was there; the text is over.
    """

    def __init__(self, strings: str | Sequence[str] | None) -> None:
        given = [strings] if isinstance(strings, str) else () if strings is None else strings
        self._strings = arguments.texts("stop", given)
        if not all(0 < len(string) <= MAX_CHARACTERS for string in self._strings):
            raise HalfbyteError(f"stop: expected strings of 1 to {MAX_CHARACTERS} characters")
        if len(self._strings) > MAX_STRINGS:
            raise HalfbyteError(
                f"stop: {len(self._strings)} strings: expected at most {MAX_STRINGS}"
            )
        self._held = ""  # may be the beginning of a stop string
        self.found = False

    def push(self, piece: str) -> str:
        """What is certainly before any stop string, of all text so far that was not returned."""
        text = self._held + piece
        places = [(at + len(s), at) for s in self._strings if (at := text.find(s)) >= 0]
        if places:
            self.found, self._held = True, ""
            return text[: min(places)[1]]
        held = max((_overlap(text, s) for s in self._strings), default=0)
        self._held = text[len(text) - held :]
        return text[: len(text) - held]

    def flush(self) -> str:
        """What was held back; no more text follows."""
        text, self._held = self._held, ""
        return text


def _overlap(text: str, string: str) -> int:
    """Length of the longest end of `text` that `string` begins with."""
    lengths = range(min(len(text), len(string) - 1), 0, -1)
    return next((n for n in lengths if text.endswith(string[:n])), 0)
