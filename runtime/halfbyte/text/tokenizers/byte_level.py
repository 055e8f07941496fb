"""Byte-level BPE: the tokenizer that GGUF calls "gpt2".

A text is split by the regular expressions of its family. The UTF-8 bytes of a piece are written as
256 visible characters (Latin-1's visible ones stand for themselves, the others are from U+0100 on),
and merged in pairs, the pair that comes first in the list of merges first.
"""

from __future__ import annotations

from itertools import repeat

from halfbyte.errors import FormatError, UnsupportedError
from halfbyte.formats.model_file import ModelFile
from halfbyte.formats.pretokenizers import SPLITS
from halfbyte.formats.tokens import CONTROL, LETTERS, NORMAL, UNKNOWN, UNUSED, write_bytes
from halfbyte.text.tokenizers.base import BaseTokenizer, Piece, Span
from halfbyte.text.tokenizers.composition import compose, composites
from halfbyte.text.tokenizers.merging import merge
from halfbyte.text.tokenizers.unicode_classes import Splitter
from halfbyte.text.tokenizers.vocabulary import Vocabulary

_BYTES = {character: byte for byte, character in LETTERS.items()}


class ByteLevelTokenizer(BaseTokenizer):
    """See the module."""

    def __init__(self, file: ModelFile) -> None:
        vocabulary = Vocabulary.from_file(file, "gpt2")
        super().__init__(vocabulary)
        split = SPLITS[_split_name(file)]
        self._composed, self._ignore_merges = split.composed, split.ignore_merges
        self._splitters = [Splitter(pattern) for pattern in split.patterns]
        self._prefix = vocabulary.flag("add_space_prefix", False)
        self._ids_of = vocabulary.of_type(NORMAL, UNUSED, CONTROL)
        merges = vocabulary.merges
        self._ranks = dict(zip(merges, range(len(merges)), strict=True))
        self._check_merges(file)
        if vocabulary.flag("add_bos_token", split.add_bos):
            self.before = [self.bos]
        if vocabulary.flag("add_eos_token", False):
            self.after = [self.eos]

    def token_bytes(self, token: int) -> bytes:
        kind = self._check(token)
        text = self.vocabulary.tokens[token]
        if kind in (UNKNOWN, CONTROL):
            return b""
        if kind == NORMAL:
            values = [_BYTES.get(character) for character in text]
            if None not in values:
                return bytes(values)  # type: ignore[arg-type]
        return text.encode()

    def _normalize(self, text: str) -> str:
        if self._composed:
            text = compose(text)
        return " " + text if self._prefixed(text) else text

    def _align(self, text: str) -> tuple[str, list[Span] | None]:
        normalized = self._normalize(text)
        if normalized == text:
            return text, None
        origins = [(0, 0)] if self._prefixed(text) else []
        parts = composites(text) if self._composed else ((c, i, i + 1) for i, c in enumerate(text))
        for part, start, end in parts:
            origins += [(start, end)] * len(part)
        return normalized, origins

    def _prefixed(self, text: str) -> bool:
        return self._prefix and not text.startswith(" ")

    def _words(self, text: str) -> list[str]:
        words = [text]
        for splitter in self._splitters:
            words = [word for part in words for word in splitter.split(part)]
        return words

    def _pieces(self, word: str) -> list[Piece]:
        utf8 = word.encode()
        letters = write_bytes(utf8)
        if self._ignore_merges and letters in self._ids_of:
            return [(self._ids_of[letters], 0, len(word))]
        places = range(len(word) + 1)  # the character that each byte belongs to
        if len(utf8) > len(word):
            places = [i for i, c in enumerate(word) for _ in c.encode()]  # type: ignore[assignment]
        pieces: list[Piece] = []
        at = 0
        for part in merge(list(letters), self._ranks, " "):
            token = self._ids_of.get(part)
            end = at + len(part)
            if token is not None:  # the originals too drop a byte without a token
                pieces.append((token, places[at], places[end - 1] + 1))
            at = end
        return pieces

    def _check_merges(self, file: ModelFile) -> None:
        """Refuse merges whose result is not a token, or that have an empty part."""
        ids, parts = self._ids_of, map(str.partition, self._ranks, repeat(" "))
        for pair, (left, _, right) in zip(self._ranks, parts, strict=True):
            if not (left and right and left + right in ids):
                raise FormatError(
                    f"{file.path}: metadata 'tokenizer.ggml.merges': {pair[:80]!r} does not make a "
                    "token of two parts"
                )


def _split_name(file: ModelFile) -> str:
    key = "tokenizer.ggml.pre"
    name = file.metadata.get(key)
    if isinstance(name, str) and name in SPLITS:
        return name
    shown = "nothing" if name is None else repr(name)[:80]
    raise UnsupportedError(
        f"{file.path}: metadata '{key}': found {shown}, a way of splitting text that halfbyte "
        f"does not know: expected one of {', '.join(sorted(SPLITS))}"
    )
