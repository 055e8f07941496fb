"""What all tokenizers share: special tokens, offsets, caches, and the way back to text.

A text is cut at tokens that stand in it as they are; each part is normalized, split into words,
and a word becomes tokens. A family of tokenizers says how the last three are done.
"""

from __future__ import annotations

import codecs
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from functools import lru_cache
from weakref import WeakMethod

from halfbyte.errors import HalfbyteError
from halfbyte.formats.tokens import CONTROL, UNKNOWN, UNUSED, USER_DEFINED, padding
from halfbyte.text.tokenizers.literals import Literals
from halfbyte.text.tokenizers.unicode_classes import WHITESPACE, translate
from halfbyte.text.tokenizers.vocabulary import Vocabulary

Span = tuple[int, int]  # first character, and the one after the last
Piece = tuple[int, int, int]  # token id, and its span

_SPACES = re.compile(translate(r"\s*"))
CACHED_WORDS = 1 << 14
CACHED_LENGTH = 48


class BaseTokenizer(ABC):
    """A tokenizer but for what its family decides.

    Attributes
    ----------
    vocabulary : Vocabulary
        The metadata it is made from.
    before, after : list of int
        Special tokens around a text.
    fuses_unknown : bool
        Neighbouring unknown tokens become one.
    strips_space : bool
        The space before the first token of a text is no part of it.
    restarts : frozenset of int
        Tokens after which a text begins again.
    strips_end : bool
        Nor is the one after the last.
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
        self._cut = self._taken(self._user_defined())
        self._special: tuple[Literals, dict[str, int]] | None = None
        self._lstrip, self._rstrip = map(vocabulary.stripping, ("lstrip", "rstrip"))
        ids = WeakMethod(self._ids)  # so that a model's memory goes with the last reference to it
        self._cached = lru_cache(CACHED_WORDS)(lambda word: ids()(word))  # type: ignore[misc]

    # ---- what a family decides -------------------------------------------------------------------

    @abstractmethod
    def _words(self, text: str) -> list[str]:
        """The words of a normalized text, which they make up together."""

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
        """The same for the first token of a text."""
        return self.token_bytes(token).removeprefix(b" ")

    def _normalize(self, text: str) -> str:
        """A part of a text as words are made from it."""
        return text

    def _align(self, text: str) -> tuple[str, list[Span] | None]:
        """The same, and where each of its characters comes from; None: from its own place."""
        return text, None

    def _user_defined(self) -> dict[str, int]:
        """Tokens that are taken from every text before it is normalized."""
        return self.vocabulary.of_type(USER_DEFINED)

    # ---- text to ids -----------------------------------------------------------------------------

    @property
    def vocab_size(self) -> int:
        """Number of tokens."""
        return len(self.vocabulary.tokens)

    @property
    def bos(self) -> int:
        """The token that begins a text; where there is none, the one that ends a text before."""
        ids = self.vocabulary.ids
        return ids.get("bos", ids.get("cls", ids.get("eos", 0)))

    @property
    def eos(self) -> int:
        """The token that ends a text."""
        ids = self.vocabulary.ids
        return ids.get("eos", ids.get("seperator", self.bos))

    @property
    def unknown(self) -> int | None:
        """The token for what no other stands for."""
        return self.vocabulary.ids.get("unknown")

    def encode(
        self, text: str, add_special_tokens: bool = True, parse_special: bool = False
    ) -> list[int]:
        """Token ids of a text.

        Parameters
        ----------
        text : str
            Halves of surrogate pairs in it become question marks.
        add_special_tokens : bool
            Put around it what the model expects there.
        parse_special : bool
            Control tokens that the text spells are these tokens, not text.
        """
        text = _without_surrogates(text)
        ids = [*self.before] if add_special_tokens else []
        ids += self._encode_parts(text, parse_special)
        return ids + self.after if add_special_tokens else ids

    def encode_batch(
        self, texts: Iterable[str], add_special_tokens: bool = True, parse_special: bool = False
    ) -> list[list[int]]:
        """Token ids of several texts."""
        return [self.encode(text, add_special_tokens, parse_special) for text in texts]

    def encode_with_offsets(
        self, text: str, add_special_tokens: bool = True, parse_special: bool = False
    ) -> tuple[list[int], list[Span]]:
        """Token ids, and for each the characters of the text that it stands for.

        Tokens that stand for parts of one character all have that character; special tokens around
        the text, and what a model puts before words, have none.
        """
        text = _without_surrogates(text)
        found = [(token, 0, 0) for token in self.before if add_special_tokens]
        found += self._trace_parts(text, parse_special)
        found += [(token, len(text), len(text)) for token in self.after if add_special_tokens]
        return [token for token, _, _ in found], [(start, end) for _, start, end in found]

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

    def _taken(self, tokens: dict[str, int]) -> tuple[Literals, dict[str, int]]:
        return Literals(tokens), tokens

    def _parts(self, text: str, parse_special: bool) -> Iterator[tuple[int, int, int | None]]:
        """Spans of a text in turn: of a token, or (None) of what is to be encoded."""
        literals, ids = self._cut
        if parse_special:
            if self._special is None:
                self._special = self._taken(self.vocabulary.of_type(CONTROL, UNKNOWN) | ids)
            literals, ids = self._special
        at = 0
        for start, end in literals.spans(text):
            if start < at:
                continue  # whitespace that a token took
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
        """Whether a token is unknown as the one before it is."""
        return index > 0 and ids[index] == ids[index - 1] == self.unknown

    def _trace(self, text: str) -> Iterator[Piece]:
        """The tokens of a part of a text, with their spans in it."""
        normalized, origins = self._align(text)
        found: list[Piece] = []
        at = 0
        for word in self._words(normalized):
            at = normalized.index(word, at)
            for token, start, end in self._pieces(word):
                if self.fuses_unknown and found and found[-1][0] == token == self.unknown:
                    start = found.pop()[1] - at
                found.append((token, at + start, at + end))
            at += len(word)
        for token, start, end in found:
            if origins is None or start == end:
                yield token, start, end
            else:
                yield token, origins[start][0], origins[end - 1][1]

    # ---- ids to text -----------------------------------------------------------------------------

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

    def stream(self, previous: Iterable[int] = ()) -> Decoder:
        """A decoder of what follows the ids `previous`, whose text it does not repeat."""
        decoder = Decoder(self)
        for token in previous:
            decoder.push(token)
        return decoder

    def _check(self, token: int) -> int:
        """The type of a token; raises `HalfbyteError` where there is none of this id."""
        if not 0 <= token < self.vocab_size:
            raise HalfbyteError(f"token id {token}: expected 0 to {self.vocab_size - 1}")
        kind = self.vocabulary.types[token]
        if kind == UNUSED and self.vocabulary.tokens[token] == padding(token):
            return CONTROL  # a row of the embedding that no token has: it is no text
        return kind


class Decoder:
    """Turns token ids into text one by one, never half a character."""

    def __init__(self, tokenizer: BaseTokenizer) -> None:
        self._tokenizer = tokenizer
        self._utf8 = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._at_start = tokenizer.strips_space
        self._held = b""  # a space that is no part of the text where nothing follows

    def push(self, token: int) -> str:
        """Text that is complete with this token; may be empty."""
        content = self._tokenizer.token_bytes(token)
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


def _without_surrogates(text: str) -> str:
    """The text with halves of surrogate pairs as question marks, of the same length."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode(errors="replace").decode()
    return text
