"""WordPiece as BERT does it: the tokenizer that GGUF calls "bert".

A text is cleaned of control characters, words are separated at whitespace, around punctuation and
around Chinese characters; accents and capitals go where the model asks for it. Of each word the
longest token that begins it is taken, then the longest that goes on, and so forth; where none does,
the whole word is unknown. Tokens that begin a word are spelled with U+2581 before them.
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
    """See the module; made from metadata."""

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
        if vocabulary.flag("add_sep_token", True):
            self.after = [vocabulary.ids["seperator"]]

    def token_bytes(self, token: int) -> bytes:
        """UTF-8 that a token stands for, with a space before a word, but for marks that end one."""
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
        found = longest_matches(word, self._first, self._rest, self._longest)
        return found or [(self.unknown or 0, 0, size)]


def longest_matches(
    word: str, first: Mapping[str, int], rest: Mapping[str, int], longest: int
) -> list[Piece]:
    """The longest token that begins a word, then the longest that goes on, and so forth.

    Nothing where none goes on. `first` has the ids of tokens that begin words, `rest` of those that
    go on, without what marks them as such; none has more than `longest` characters.
    """
    size, start = len(word), 0
    found: list[Piece] = []
    while start < size:
        tokens = rest if start else first
        for end in range(min(size, start + longest), start, -1):
            token = tokens.get(word[start:end])
            if token is not None:
                found.append((token, start, end))
                start = end
                break
        else:
            return []
    return found
