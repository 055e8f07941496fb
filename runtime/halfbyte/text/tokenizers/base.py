"""The base of all tokenizers: special tokens, offsets, caches, and decoding.

A text is cut at added tokens; each part is normalized and split into words, and words become
tokens, which are cached. A family of tokenizers defines the last three steps. Offsets come from
the same steps.
"""

from __future__ import annotations

import codecs
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from functools import lru_cache
from weakref import WeakMethod

from halfbyte.errors import HalfbyteError
from halfbyte.formats.tokens import BETWEEN, CONTROL, UNKNOWN, UNUSED, USER_DEFINED, padding
from halfbyte.text.tokenizers.literals import Literals
from halfbyte.text.tokenizers.unicode_classes import WHITESPACE, translate
from halfbyte.text.tokenizers.vocabulary import Vocabulary

Span = tuple[int, int]  # first character, and the one after the last
Piece = tuple[int, int, int]  # token id, and its span

_SPACES = re.compile(translate(r"\s*"))
CACHED_WORDS = 1 << 14
CACHED_LENGTH = 48


class BaseTokenizer(ABC):
    """A `Tokenizer` without the steps that its family defines.

    Attributes
    ----------
    vocabulary : Vocabulary
        The metadata it is made from.
    before, after : list of int
        Special tokens around a text.
    fuses_unknown : bool
        Neighbouring unknown tokens become one.
    strips_space : bool
        The space before the first token is not part of the text.
    restarts : frozenset of int
        Tokens after which a text begins again.
    strips_end : bool
        The space after the last token is not part of the text.
    """

    fuses_unknown = False
    strips_space = False
    restarts: frozenset[int] = frozenset()
    strips_end = False

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.vocabulary = vocabulary
        self.stop_ids = vocabulary.stop_ids
        self.before: list[int] = []
        self.after: list[int] = []
        self._added = self._literals_of(self._user_defined())
        self._special: tuple[Literals, dict[str, int]] | None = None
        self._lstrip, self._rstrip = map(vocabulary.stripping, ("lstrip", "rstrip"))
        ids = WeakMethod(self._ids)  # so that no cycle keeps a model's memory
        self._cached = lru_cache(CACHED_WORDS)(lambda word: ids()(word))  # type: ignore[misc]
        content = WeakMethod(self.token_bytes)
        self.cached_bytes = lru_cache(CACHED_WORDS)(lambda token: content()(token))  # type: ignore[misc]

    # ---- defined by a family ---------------------------------------------------------------------

    @abstractmethod
    def _words(self, text: str) -> list[str]:
        """Split a normalized text into words, in order."""

    @abstractmethod
    def _pieces(self, word: str) -> list[Piece]:
        """The tokens of a word, with their spans in it."""

    @abstractmethod
    def token_bytes(self, token: int) -> bytes:
        """UTF-8 (perhaps a part of a character) that a token stands for.

        Raises
        ------
        HalfbyteError
            It is not in the vocabulary.
        """

    def first_bytes(self, token: int) -> bytes:
        """`token_bytes` for the first token of a text."""
        return self.token_bytes(token).removeprefix(b" ")

    def _normalize(self, text: str) -> str:
        """Normalize a part of a text."""
        return text

    def _align(self, text: str) -> tuple[str, list[Span] | None]:
        """`_normalize`, and the span that each character comes from (None: its own place)."""
        return text, None

    def _user_defined(self) -> dict[str, int]:
        """Tokens that are cut out of a text before it is normalized."""
        return self.vocabulary.of_type(USER_DEFINED)

    # ---- text to ids -----------------------------------------------------------------------------

    @property
    def vocab_size(self) -> int:
        return len(self.vocabulary.tokens)

    @property
    def between(self) -> list[int]:
        vocabulary, separator = self.vocabulary, self.vocabulary.ids.get("seperator", self.eos)
        ids = vocabulary.listed(BETWEEN)
        if ids is not None:
            return ids
        bert = vocabulary.file.metadata.get("tokenizer.ggml.model") == "bert"
        if bert and "tokenizer.ggml.add_eos_token" not in vocabulary.file.metadata:
            return self.after  # in such files the flag is about a text alone
        twice = self.after and vocabulary.flag("add_sep_token", not bert)
        return [*self.after, separator] if twice else self.after

    @property
    def bos(self) -> int:
        ids = self.vocabulary.ids
        return ids.get("bos", ids.get("cls", ids.get("eos", 0)))

    @property
    def eos(self) -> int:
        ids = self.vocabulary.ids
        return ids.get("eos", ids.get("seperator", self.bos))

    @property
    def unknown(self) -> int | None:
        """The token for text that has no other."""
        return self.vocabulary.ids.get("unknown")

    def encode(
        self, text: str, add_special_tokens: bool = True, parse_special: bool = False
    ) -> list[int]:
        text = without_surrogates(text)
        ids = [*self.before] if add_special_tokens else []
        ids += self._encode_parts(text, parse_special)
        return ids + self.after if add_special_tokens else ids

    def encode_batch(
        self, texts: Iterable[str], add_special_tokens: bool = True, parse_special: bool = False
    ) -> list[list[int]]:
        return [self.encode(text, add_special_tokens, parse_special) for text in texts]

    def encode_with_offsets(
        self, text: str, add_special_tokens: bool = True, parse_special: bool = False
    ) -> tuple[list[int], list[Span]]:
        text = without_surrogates(text)
        pieces = [(token, 0, 0) for token in self.before if add_special_tokens]
        pieces += self._trace_parts(text, parse_special)
        pieces += [(token, len(text), len(text)) for token in self.after if add_special_tokens]
        return [token for token, _, _ in pieces], [(start, end) for _, start, end in pieces]

    def _encode_parts(self, text: str, parse_special: bool) -> Iterator[int]:
        for start, end, token in self._parts(text, parse_special):
            if token is None:
                yield from self._encode_text(text[start:end])
            else:
                yield token

    def _trace_parts(self, text: str, parse_special: bool) -> Iterator[Piece]:
        for start, end, token in self._parts(text, parse_special):
            if token is None:
                yield from ((i, a + start, b + start) for i, a, b in self._trace(text[start:end]))
            else:
                yield token, start, end

    def _literals_of(self, tokens: dict[str, int]) -> tuple[Literals, dict[str, int]]:
        return Literals(tokens), tokens

    def _parts(self, text: str, parse_special: bool) -> Iterator[tuple[int, int, int | None]]:
        """Spans of a text in order: of an added token, or (None) of text to encode."""
        literals, ids = self._added
        if parse_special:
            if self._special is None:
                self._special = self._literals_of(self.vocabulary.of_type(CONTROL, UNKNOWN) | ids)
            literals, ids = self._special
        at = 0
        for start, end in literals.spans(text):
            if start < at:
                continue  # in whitespace that a token took
            token = ids[text[start:end]]
            before = at + len(text[at:start].rstrip(WHITESPACE)) if token in self._lstrip else start
            if before > at:
                yield at, before, None
            yield start, end, token
            spaces = _SPACES.match(text, end) if token in self._rstrip else None
            at = spaces.end() if spaces else end
        if at < len(text):
            yield at, len(text), None

    def _encode_text(self, text: str) -> list[int]:
        cached, uncached = self._cached, self._ids
        ids = [
            token
            for word in self._words(self._normalize(text))
            for token in (cached(word) if len(word) <= CACHED_LENGTH else uncached(word))
        ]
        if self.fuses_unknown and self.unknown in ids:
            return [ids[i] for i in range(len(ids)) if not self._continues(ids, i)]
        return ids

    def _ids(self, word: str) -> list[int]:
        return [token for token, _, _ in self._pieces(word)]

    def _continues(self, ids: list[int], index: int) -> bool:
        """Whether a token and the one before it are both unknown."""
        return index > 0 and ids[index] == ids[index - 1] == self.unknown

    def _trace(self, text: str) -> Iterator[Piece]:
        """The tokens of a part of a text, with their spans in it."""
        normalized, origins = self._align(text)
        pieces: list[Piece] = []
        at = 0
        for word in self._words(normalized):
            at = normalized.index(word, at)
            for token, start, end in self._pieces(word):
                if self.fuses_unknown and pieces and pieces[-1][0] == token == self.unknown:
                    start = pieces.pop()[1] - at
                pieces.append((token, at + start, at + end))
            at += len(word)
        for token, start, end in pieces:
            if origins is None or start == end:
                yield token, start, end
            else:
                yield token, origins[start][0], origins[end - 1][1]

    # ---- ids to text -----------------------------------------------------------------------------

    def decode(self, ids: Iterable[int]) -> str:
        ids = list(ids)
        if self.strips_end or not self.restarts.isdisjoint(ids[1:]):
            decoder = self.stream()
            return "".join([*map(decoder.push, ids), decoder.flush()])
        contents = list(map(self.cached_bytes, ids))
        if self.strips_space and any(contents):
            first = next(i for i, content in enumerate(contents) if content)
            contents[first] = self.first_bytes(ids[first])
        return b"".join(contents).decode(errors="replace")

    def stream(self, previous: Iterable[int] = ()) -> Decoder:
        decoder = Decoder(self)
        for token in previous:
            decoder.push(token)
        return decoder

    def _check(self, token: int) -> int:
        """The type of a token; raises `HalfbyteError` if there is no such id."""
        if not 0 <= token < self.vocab_size:
            raise HalfbyteError(f"token id {token}: expected 0 to {self.vocab_size - 1}")
        kind = int(self.vocabulary.types[token])
        if kind == UNUSED and self.vocabulary.tokens[token] == padding(token):
            return CONTROL  # a row of the embedding without a token has no text
        return kind


class Decoder:
    """See `StreamDecoder`."""

    def __init__(self, tokenizer: BaseTokenizer) -> None:
        self._tokenizer = tokenizer
        self._utf8 = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._at_start = tokenizer.strips_space
        self._held = b""  # a space, which is part of the text if more follows

    def push(self, token: int) -> str:
        """The text that this token completes; may be empty."""
        content = self._tokenizer.cached_bytes(token)
        if token in self._tokenizer.restarts:
            self._at_start = self._tokenizer.strips_space
        if self._at_start and content:
            self._at_start = False
            content = self._tokenizer.first_bytes(token)
        if self._tokenizer.strips_end and content:
            content, self._held = self._held + content, b""
            if content.endswith(b" "):
                content, self._held = content[:-1], b" "
        return self._utf8.decode(content)

    def flush(self) -> str:
        """A replacement character for an unfinished character, or nothing."""
        return self._utf8.decode(b"", final=True)


def without_surrogates(text: str) -> str:
    """The text with question marks in place of surrogates, of the same length."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode(errors="replace").decode()
    return text
