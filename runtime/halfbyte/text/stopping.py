"""Strings at which a text ends."""

from __future__ import annotations

from collections.abc import Sequence

from halfbyte import arguments
from halfbyte.errors import HalfbyteError

MAX_STRINGS, MAX_CHARACTERS = 64, 1024  # stop strings, and characters of one


class StopStrings:
    """Passes a stream of text on up to the first stop string, and nothing of the stop string.

    The first is the one that is complete first, and of two the longer one. The pieces in which the
    text arrives make no difference.

    Attributes
    ----------
    reached : bool
        A stop string ended the text.
    """

    def __init__(self, strings: str | Sequence[str] | None) -> None:
        texts = [strings] if isinstance(strings, str) else () if strings is None else strings
        self._strings = arguments.texts("stop", texts)
        if not all(0 < len(string) <= MAX_CHARACTERS for string in self._strings):
            raise HalfbyteError(f"stop: expected strings of 1 to {MAX_CHARACTERS} characters")
        if len(self._strings) > MAX_STRINGS:
            raise HalfbyteError(
                f"stop: {len(self._strings)} strings: expected at most {MAX_STRINGS}"
            )
        self._held = ""  # perhaps the beginning of a stop string
        self.reached = False

    def push(self, piece: str) -> str:
        """The text not yet returned that certainly comes before any stop string."""
        text = self._held + piece
        matches = [(at + len(s), at) for s in self._strings if (at := text.find(s)) >= 0]
        if matches:
            self.reached, self._held = True, ""
            return text[: min(matches)[1]]
        held = max((_overlap(text, s) for s in self._strings), default=0)
        self._held = text[len(text) - held :]
        return text[: len(text) - held]

    def flush(self) -> str:
        """The text that was held back; no more follows."""
        text, self._held = self._held, ""
        return text


def _overlap(text: str, string: str) -> int:
    """Length of the longest suffix of `text` that `string` begins with."""
    lengths = range(min(len(text), len(string) - 1), 0, -1)
    return next((n for n in lengths if text.endswith(string[:n])), 0)
