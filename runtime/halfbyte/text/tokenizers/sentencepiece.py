"""SentencePiece BPE with byte fallback: the tokenizer that GGUF calls "llama".

Spaces become U+2581. The characters of a text are merged in pairs, each time the pair whose union
has the highest score (the leftmost of equals), until no union of neighbours is a token. A character
without a token becomes the byte tokens <0x00> ... <0xFF> of its UTF-8. User-defined tokens are cut
out of the text first, the leftmost, then the longest, and are never merged.
"""

from __future__ import annotations

import re
from itertools import repeat

from halfbyte.formats.model_file import ModelFile
from halfbyte.formats.tokens import BYTE, CONTROL, NORMAL, UNKNOWN, UNUSED, USER_DEFINED
from halfbyte.text.tokenizers.base import BaseTokenizer, Piece, Span
from halfbyte.text.tokenizers.charsmap import Charsmap
from halfbyte.text.tokenizers.literals import Literals
from halfbyte.text.tokenizers.merging import merge
from halfbyte.text.tokenizers.sentencepiece_normalizer import Normalizer
from halfbyte.text.tokenizers.vocabulary import SPACE, Vocabulary

_WORD = re.compile(f"{SPACE}*[^{SPACE}]+|{SPACE}+")


class SentencePieceBase(BaseTokenizer):
    """The base of SentencePiece's two kinds of model; `kind` is GGUF's name."""

    kind = ""
    add_bos = add_eos = add_prefix = False  # defaults of the metadata
    fuses_unknown = True

    def __init__(self, file: ModelFile) -> None:
        vocabulary = Vocabulary.from_file(file, self.kind)
        super().__init__(vocabulary)
        self._bytes = self._byte_tokens()
        user_defined = {
            token.replace(" ", SPACE): i for token, i in vocabulary.of_type(USER_DEFINED).items()
        }
        self._ids_of = vocabulary.of_type(NORMAL, UNUSED) | user_defined
        self._user_ids, self._user = user_defined, Literals(user_defined)
        where = f"{file.path}: metadata 'tokenizer.ggml.precompiled_charsmap'"
        self._normalizer = Normalizer(
            Charsmap(vocabulary.charsmap, where) if vocabulary.charsmap else None,
            user_defined,
            add_prefix=vocabulary.flag("add_space_prefix", self.add_prefix),
            merge_spaces=vocabulary.flag("remove_extra_whitespaces", False),
        )
        self.strips_space = self._normalizer.add_prefix
        self.restarts = frozenset({vocabulary.ids["bos"]} if "bos" in vocabulary.ids else ())
        # If no token has a space inside, words are tokenized independently.
        self._splits = SPACE not in "".join(map(str.lstrip, self._ids_of, repeat(SPACE)))
        if vocabulary.flag("add_bos_token", self.add_bos):
            self.before = [self.bos]
        if vocabulary.flag("add_eos_token", self.add_eos):
            self.after = [self.eos]

    def token_bytes(self, token: int) -> bytes:
        kind = self._check(token)
        if kind == BYTE:
            return self._bytes_of_tokens.get(token, b"")
        if kind in (UNKNOWN, CONTROL):
            return b""
        return self.vocabulary.tokens[token].replace(SPACE, " ").encode()

    def _user_defined(self) -> dict[str, int]:
        return {}  # they are cut out after normalization

    def _normalize(self, text: str) -> str:
        return self._normalizer(text)

    def _align(self, text: str) -> tuple[str, list[Span] | None]:
        return self._normalizer.align(text)

    def _words(self, text: str) -> list[str]:
        words: list[str] = []
        begin = 0
        for start, end in self._user.spans(text):
            words += self._plain_words(text[begin:start])
            words.append(text[start:end])
            begin = end
        return words + self._plain_words(text[begin:])

    def _plain_words(self, text: str) -> list[str]:
        return _WORD.findall(text) if self._splits else [text] if text else []

    def _unknown_piece(self, piece: str, start: int) -> list[Piece]:
        """Byte tokens for a piece without a token, or the unknown token."""
        end = start + len(piece)
        utf8 = piece.encode()
        if all(byte in self._bytes for byte in utf8):
            return [(self._bytes[byte], start, end) for byte in utf8]
        return [(self.unknown or 0, start, end)]

    def _byte_tokens(self) -> dict[int, int]:
        """Byte -> token id."""
        by_name = {f"<0x{byte:02X}>": byte for byte in range(256)}
        tokens = self.vocabulary.of_type(BYTE)
        ids = {by_name[token]: i for token, i in tokens.items() if token in by_name}
        self._bytes_of_tokens = {i: bytes([byte]) for byte, i in ids.items()}
        return ids


class SentencePieceTokenizer(SentencePieceBase):
    """See the module."""

    kind = "llama"
    add_bos = add_prefix = True

    def __init__(self, file: ModelFile) -> None:
        super().__init__(file)
        self._priorities = (-self.vocabulary.scores).tolist()

    def _pieces(self, word: str) -> list[Piece]:
        if word in self._user_ids:
            return [(self._user_ids[word], 0, len(word))]
        pieces: list[Piece] = []
        at = 0
        for piece in merge(list(word), self._ids_of, "", self._priorities):
            token = self._ids_of.get(piece)
            if token is None:
                pieces += self._unknown_piece(piece, at)
            else:
                pieces.append((token, at, at + len(piece)))
            at += len(piece)
        return pieces
