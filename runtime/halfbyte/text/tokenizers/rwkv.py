"""RWKV's tokenizer: the longest token at each place of a text, by bytes.

Tokens are bytes, spelled as in Python's source: ``\\t``, ``\\n``, ``\\r``, ``\\xff``, and any other
character after a backslash as itself. llama.cpp finds control tokens in every text; here they are
text unless it is to be parsed for them.
"""

from __future__ import annotations

import re

from halfbyte.errors import FormatError
from halfbyte.formats.model_file import ModelFile
from halfbyte.formats.tokens import CONTROL, NORMAL, UNKNOWN, UNUSED, padding
from halfbyte.text.tokenizers.base import BaseTokenizer, Piece
from halfbyte.text.tokenizers.prefixes import Prefixes
from halfbyte.text.tokenizers.vocabulary import Vocabulary

_ESCAPE = re.compile(rb"\\(?:x([0-9a-fA-F]{2})|([^x]))", re.DOTALL)
_NAMED = {b"t": b"\t", b"n": b"\n", b"r": b"\r"}


class RwkvTokenizer(BaseTokenizer):
    """See the module."""

    def __init__(self, file: ModelFile) -> None:
        vocabulary = Vocabulary.from_file(file, "rwkv")
        super().__init__(vocabulary)
        self._contents: list[bytes] = []
        self._ids_of: dict[str, int] = {}  # by bytes, as Latin-1
        for token, (text, kind) in enumerate(
            zip(vocabulary.tokens, vocabulary.types.tolist(), strict=True)
        ):
            special = kind in (CONTROL, UNKNOWN) or (kind == UNUSED and text == padding(token))
            content = b"" if special else unescaped(file, text)
            self._contents.append(content)
            if content and kind in (NORMAL, UNUSED):
                self._ids_of[content.decode("latin-1")] = token
        self._prefixes = Prefixes(self._ids_of)

    def token_bytes(self, token: int) -> bytes:
        self._check(token)
        return self._contents[token]

    def _words(self, text: str) -> list[str]:
        return [text]

    def _pieces(self, word: str) -> list[Piece]:
        utf8 = word.encode().decode("latin-1")
        places = [i for i, c in enumerate(word) for _ in c.encode()]  # of each byte
        pieces: list[Piece] = []
        at, size = 0, len(utf8)
        while at < size:
            found = self._prefixes.longest(utf8, at)
            end = at + (len(found) or 1)
            token = self._ids_of[found] if found else self.unknown
            if token is not None:
                pieces.append((token, places[at], places[end - 1] + 1))
            at = end
        return pieces


def unescaped(file: ModelFile, text: str) -> bytes:
    """The bytes of a token; raises `FormatError` for an escape that is cut short."""
    utf8 = text.encode()
    content = _ESCAPE.sub(
        lambda m: bytes([int(m[1], 16)]) if m[1] else _NAMED.get(m[2], m[2]), utf8
    )
    if b"\\" in _ESCAPE.sub(b"", utf8):
        raise FormatError(
            f"{file.path}: metadata 'tokenizer.ggml.tokens': {text[:80]!r}: expected \\t, \\n, "
            "\\r, a byte such as \\x0f, or a character after each backslash"
        )
    return content
