"""BERT's normalization of characters: cleaning, separation, removal of accents, lower case."""

from __future__ import annotations

import unicodedata

from halfbyte.text.tokenizers.unicode_classes import category_8, lower

_CHINESE = (
    (0x4E00, 0x9FFF), (0x3400, 0x4DBF), (0x20000, 0x2A6DF), (0x2A700, 0x2B73F),
    (0x2B740, 0x2B81F), (0x2B920, 0x2CEAF), (0xF900, 0xFAFF), (0x2F800, 0x2FA1F),
)  # fmt: skip


class BertCharacters(dict[int, str]):
    """Replacements of code points, for `str.translate`; filled as needed.

    Parameters
    ----------
    lowercase, strip_accents : bool
        Capitals become lower case; accents are removed.
    clean_text : bool
        Control characters are removed, and all whitespace becomes spaces.
    chinese, punctuation : bool
        Spaces are put around Chinese characters and around punctuation.
    """

    def __init__(
        self,
        lowercase: bool,
        strip_accents: bool,
        *,
        clean_text: bool = True,
        chinese: bool = True,
        punctuation: bool = False,
    ) -> None:
        self._lowercase, self._strip_accents = lowercase, strip_accents
        self._clean_text, self._chinese = clean_text, chinese
        self._punctuation = punctuation

    def __missing__(self, code: int) -> str:
        self[code] = text = self._replacement(chr(code))
        return text

    def _replacement(self, character: str) -> str:
        if self._clean_text:
            kind = category_8(character)
            if character in "\t\n\r" or kind in ("Zs", "Zl", "Zp"):
                return " "
            if kind in ("Cc", "Cf", "Co", "Cs") or character == "\ufffd":
                return ""
        text = character
        if self._strip_accents:
            text = unicodedata.normalize("NFD", text)
            text = "".join(letter for letter in text if category_8(letter) != "Mn")
        if self._lowercase:
            text = "".join(lower(letter) for letter in text)
        if self._chinese and any(first <= ord(character) <= last for first, last in _CHINESE):
            return f" {text} "
        if self._punctuation:
            text = "".join(f" {letter} " if is_punctuation(letter) else letter for letter in text)
        return text


def is_punctuation(character: str) -> bool:
    """Whether BERT treats it as punctuation, as it does all of ASCII but letters and digits."""
    if character.isascii():
        return not character.isalnum() and character.isprintable() and character != " "
    return category_8(character).startswith("P")
