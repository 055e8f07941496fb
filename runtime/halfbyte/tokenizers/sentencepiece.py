"""SentencePiece BPE with byte fallback: the tokenizer that GGUF calls "llama".

Spaces become U+2581. The characters of a text are merged pairwise, each time the pair whose union
has the highest score of all (the leftmost of equals), until no neighbours' union is a token. A
character that is no token becomes the byte tokens <0x00> ... <0xFF> of its UTF-8. User-defined
tokens are cut out of the text first, the leftmost, then the longest, and never merged.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from heapq import heapify, heappop, heappush

import numpy as np
import numpy.typing as npt

from halfbyte.errors import FormatError, HalfbyteError
from halfbyte.formats.metadata import integer
from halfbyte.formats.model_file import ModelFile

SPACE = "\u2581"
# GGUF's token types
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6

_WORD = re.compile(f"{SPACE}*[^{SPACE}]+|{SPACE}+")
_SPACE_INSIDE = re.compile(f"[^{SPACE}]{SPACE}")
_CACHED_WORDS = 1 << 14
_CACHED_LENGTH = 48


class SentencePieceTokenizer:
    """See the module; made by :meth:`from_file`."""

    def __init__(
        self,
        tokens: list[str],
        scores: npt.NDArray[np.float32],
        types: npt.NDArray[np.int32],
        *,
        bos: int = 1,
        eos: int = 2,
        unknown: int = 0,
        add_bos: bool = True,
        add_eos: bool = False,
        add_space_prefix: bool = True,
        stop_ids: Iterable[int] = (),
    ) -> None:
        self.bos, self.eos, self.unknown = bos, eos, unknown
        self.add_bos, self.add_eos = add_bos, add_eos
        self.add_space_prefix = add_space_prefix
        # A model that begins a new text has ended the one before.
        self.stop_ids = frozenset((bos, eos, *stop_ids))
        self._tokens = tokens
        self._types = types.tolist()
        self._scores = scores.tolist()
        self._bytes = self._byte_tokens()
        # Special tokens are never made from text that spells them.
        mergeable = (NORMAL, USER_DEFINED, UNUSED)
        self._ids = {
            token: i for i, token in enumerate(tokens) if self._types[i] in mergeable and token
        }
        self._user_defined = {
            token.replace(" ", SPACE): i
            for i, token in enumerate(tokens)
            if self._types[i] == USER_DEFINED and token
        }
        starts = {token[0] for token in self._user_defined}
        self._start = re.compile(f"[{re.escape(''.join(starts))}]") if starts else None
        self._lengths = sorted({len(token) for token in self._user_defined}, reverse=True)
        # Where no token has a space after something else, words can be merged one by one.
        self._splits = not any(_SPACE_INSIDE.search(token) for token in self._ids)
        self._cached_word = lru_cache(_CACHED_WORDS)(self._merge)

    @classmethod
    def from_file(cls, file: ModelFile) -> SentencePieceTokenizer:
        """The tokenizer in a model file's metadata; raises `FormatError`."""
        tokens = _tokens(file)
        with np.errstate(over="ignore"):
            scores = _numbers(file, "scores", len(tokens), "iuf").astype(np.float32)
        if not np.all(np.isfinite(scores)):
            raise FormatError(f"{file.path}: metadata 'tokenizer.ggml.scores': not all are finite")
        types = _numbers(file, "token_type", len(tokens), "iu").astype(np.int32)
        last = len(tokens) - 1

        def special(name: str, default: int) -> int:
            return integer(file, f"tokenizer.ggml.{name}_token_id", 0, last, min(default, last))

        eos = special("eos", 2)
        return cls(
            tokens, scores, types,
            bos=special("bos", 1), eos=eos, unknown=special("unknown", 0),
            add_bos=_flag(file, "add_bos_token", True),
            add_eos=_flag(file, "add_eos_token", False),
            add_space_prefix=_flag(file, "add_space_prefix", True),
            stop_ids=[special("eot", eos)],
        )  # fmt: skip

    @property
    def vocab_size(self) -> int:
        """Number of tokens."""
        return len(self._tokens)

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        """Token ids of a text; with special tokens: BOS before and EOS after, as the model asks.

        The text of a special token is text like any other.
        """
        ids = [self.bos] if add_special_tokens and self.add_bos else []
        if text and self.add_space_prefix:
            text = " " + text
        text = text.replace(" ", SPACE)
        begin = 0
        for start, end in self._user_defined_spans(text):
            self._encode_text(text[begin:start], ids)
            ids.append(self._user_defined[text[start:end]])
            begin = end
        self._encode_text(text[begin:], ids)
        if add_special_tokens and self.add_eos:
            ids.append(self.eos)
        return ids

    def decode(self, ids: Iterable[int]) -> str:
        """The text of token ids; special tokens have none, invalid UTF-8 becomes U+FFFD.

        Where a text begins, the space that `encode` puts there is taken out.

        Raises
        ------
        HalfbyteError
            An id that is not in the vocabulary.
        """
        decoder = self.stream()
        return "".join([*map(decoder.push, ids), decoder.flush()])

    def stream(self, previous: Iterable[int] = ()) -> SentencePieceDecoder:
        """A decoder of what follows the ids `previous`, whose text it does not repeat."""
        decoder = SentencePieceDecoder(self)
        for token in previous:
            decoder.push(token)
        return decoder

    def token_bytes(self, token: int) -> bytes:
        """UTF-8 (perhaps a part of a character) that a token stands for."""
        if not 0 <= token < len(self._tokens):
            raise HalfbyteError(f"token id {token}: expected 0 to {len(self._tokens) - 1}")
        kind = self._types[token]
        if kind == BYTE:
            return self._bytes_of_tokens.get(token, b"")
        if kind in (UNKNOWN, CONTROL):
            return b""
        return self._tokens[token].replace(SPACE, " ").encode()

    def _byte_tokens(self) -> dict[int, int]:
        """Byte -> token id."""
        by_name = {f"<0x{byte:02X}>": byte for byte in range(256)}
        found = {
            by_name[token]: i
            for i, token in enumerate(self._tokens)
            if self._types[i] == BYTE and token in by_name
        }
        self._bytes_of_tokens = {i: bytes([byte]) for byte, i in found.items()}
        return found

    def _user_defined_spans(self, text: str) -> Iterator[tuple[int, int]]:
        """Where user-defined tokens begin and end in a text."""
        at = 0
        while self._start and (found := self._start.search(text, at)):
            start = found.start()
            ends = (start + length for length in self._lengths)
            at = next((end for end in ends if text[start:end] in self._user_defined), start)
            if at > start:
                yield start, at
            else:
                at += 1

    def _encode_text(self, text: str, ids: list[int]) -> None:
        for word in _WORD.findall(text) if self._splits else [text]:
            ids += self._cached_word(word) if len(word) <= _CACHED_LENGTH else self._merge(word)

    def _merge(self, text: str) -> list[int]:
        """Merge the characters of a text; O(n log n)."""
        pieces = list(text)  # the piece that begins at a character; "" inside a piece
        end = len(pieces)
        following = list(range(1, end + 1))
        preceding = list(range(-1, end - 1))
        lookup, scores = self._ids.get, self._scores
        heap = []
        for left, union in enumerate(map(str.__add__, pieces, pieces[1:])):
            token = lookup(union)
            if token is not None:
                heap.append((-scores[token], left, union))
        heapify(heap)
        while heap:
            _, left, union = heappop(heap)
            right = following[left]
            if right == end or not pieces[left] or pieces[left] + pieces[right] != union:
                continue  # one of the two was merged with another since
            pieces[left], pieces[right] = union, ""
            after = following[left] = following[right]
            if after < end:
                preceding[after] = left
            for first, second in ((preceding[left], left), (left, after)):
                if first >= 0 and second < end:
                    union = pieces[first] + pieces[second]
                    token = lookup(union)
                    if token is not None:
                        heappush(heap, (-scores[token], first, union))
        return [token for piece in pieces if piece for token in self._piece_ids(piece)]

    def _piece_ids(self, piece: str) -> list[int]:
        token = self._ids.get(piece)
        if token is not None:
            return [token]
        codes = piece.encode("utf-8", errors="replace")
        if all(code in self._bytes for code in codes):
            return [self._bytes[code] for code in codes]
        return [self.unknown]


class SentencePieceDecoder:
    """Turns token ids into text one by one, never half a character."""

    def __init__(self, tokenizer: SentencePieceTokenizer) -> None:
        self._tokenizer = tokenizer
        self._utf8 = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._at_start = True

    def push(self, token: int) -> str:
        """Text that is complete with this token; may be empty."""
        content = self._tokenizer.token_bytes(token)
        if token == self._tokenizer.bos:
            self._at_start = True
        if self._at_start and content:
            self._at_start = False
            if self._tokenizer.add_space_prefix:
                content = content.removeprefix(b" ")
        return self._utf8.decode(content)

    def flush(self) -> str:
        """A replacement character for an unfinished character, or nothing."""
        return self._utf8.decode(b"", final=True)


def _tokens(file: ModelFile) -> list[str]:
    tokens = file.metadata.get("tokenizer.ggml.tokens")
    if not isinstance(tokens, list) or not all(isinstance(token, str) for token in tokens):
        raise FormatError(f"{file.path}: metadata 'tokenizer.ggml.tokens': expected strings")
    embedding = file.tensors.get("token_embd.weight")
    if embedding is not None and embedding.shape[0] != len(tokens):
        raise FormatError(
            f"{file.path}: tokenizer has {len(tokens)} tokens, but tensor 'token_embd.weight' has "
            f"{embedding.shape[0]} rows"
        )
    if not tokens:
        raise FormatError(f"{file.path}: metadata 'tokenizer.ggml.tokens': is empty")
    return [str(token) for token in tokens]


def _numbers(file: ModelFile, name: str, count: int, kinds: str) -> npt.NDArray[np.generic]:
    """An array of `count` numbers whose dtype is of one of these kinds (NumPy's letters)."""
    key = f"tokenizer.ggml.{name}"
    values = file.metadata.get(key)
    if not isinstance(values, np.ndarray) or values.dtype.kind not in kinds:
        what = "numbers" if "f" in kinds else "integers"
        raise FormatError(f"{file.path}: metadata '{key}': expected an array of {what}")
    if len(values) != count:
        raise FormatError(
            f"{file.path}: metadata '{key}': {len(values)} entries, expected {count}, one a token"
        )
    return values


def _flag(file: ModelFile, name: str, default: bool) -> bool:
    value = file.metadata.get(f"tokenizer.ggml.{name}", default)
    if not isinstance(value, bool):
        found = type(value).__name__
        raise FormatError(
            f"{file.path}: metadata 'tokenizer.ggml.{name}': expected a bool, found {found}"
        )
    return value
