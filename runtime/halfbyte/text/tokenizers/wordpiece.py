"""WordPiece as BERT does it: the tokenizer that GGUF calls "bert".

Control characters are removed; words are separated at whitespace and around punctuation and Chinese
characters; accents and capitals are removed if the model says so. A word becomes the longest token
that begins it, then the longest token that continues it, and so on; if none does, the whole word is
unknown. Tokens that begin a word are spelled with a leading U+2581.
"""

from __future__ import annotations

from collections.abc import Mapping

from halfbyte.formats.model_file import ModelFile
from halfbyte.formats.tokens import CONTROL, NORMAL, UNKNOWN, UNUSED
from halfbyte.text.tokenizers.base import BaseTokenizer, Piece, Span
from halfbyte.text.tokenizers.characters import BertCharacters
from halfbyte.text.tokenizers.decoders import clean
from halfbyte.text.tokenizers.vocabulary import SPACE, Vocabulary

_LONGEST_WORD = 100  # characters; longer ones are unknown


class WordPieceTokenizer(BaseTokenizer):
    """See the module."""

    strips_space = True

    def __init__(self, file: ModelFile) -> None:
        vocabulary = Vocabulary.from_file(file, "bert")
        super().__init__(vocabulary)
        lowercase = vocabulary.flag("normalizer.lowercase", True)
        strip_accents = vocabulary.flag("normalizer.strip_accents", lowercase)
        self._characters = BertCharacters(lowercase, strip_accents, punctuation=True)
        tokens = vocabulary.of_type(NORMAL, UNUSED)
        self._first = {t.removeprefix(SPACE): i for t, i in tokens.items() if t.startswith(SPACE)}
        self._rest = {t: i for t, i in tokens.items() if not t.startswith(SPACE)}
        self._longest = max(map(len, tokens), default=0)
        if vocabulary.flag("add_bos_token", True):
            self.before = [vocabulary.ids["cls"]]
        # with a flag for the end, as in llama.cpp's files of today, that of separators is for pairs
        if vocabulary.flag("add_eos_token", vocabulary.flag("add_sep_token", True)):
            self.after = [vocabulary.ids["seperator"]]

    def token_bytes(self, token: int) -> bytes:
        """UTF-8 that a token stands for; words have a space before them, closing marks do not."""
        if self._check(token) in (UNKNOWN, CONTROL):
            return b""
        return clean(self.vocabulary.tokens[token].replace(SPACE, " ")).encode()

    def _normalize(self, text: str) -> str:
        return text.translate(self._characters)

    def _align(self, text: str) -> tuple[str, list[Span] | None]:
        parts = [self._characters[ord(character)] for character in text]
        origins = [(at, at + 1) for at, part in enumerate(parts) for _ in part]
        return "".join(parts), origins

    def _words(self, text: str) -> list[str]:
        return text.split()

    def _pieces(self, word: str) -> list[Piece]:
        size = len(word)
        if size > _LONGEST_WORD:
            return [(self.unknown or 0, 0, size)]
        pieces = longest_matches(word, self._first, self._rest, self._longest)
        return pieces or [(self.unknown or 0, 0, size)]


def longest_matches(
    word: str, first: Mapping[str, int], rest: Mapping[str, int], longest: int
) -> list[Piece]:
    """The longest token that begins a word, then the longest that continues it, and so on.

    Empty if no token continues it. `first` has the ids of tokens that begin words, `rest` those of
    tokens that continue them, without their prefix; none is longer than `longest` characters.
    """
    size, start = len(word), 0
    pieces: list[Piece] = []
    while start < size:
        tokens = rest if start else first
        for end in range(min(size, start + longest), start, -1):
            token = tokens.get(word[start:end])
            if token is not None:
                pieces.append((token, start, end))
                start = end
                break
        else:
            return []
    return pieces
