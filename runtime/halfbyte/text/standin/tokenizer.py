"""`tokenizers.Tokenizer`: texts to ids and back, with what is known about each token."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from operator import index
from typing import Any, cast

from halfbyte.errors import UnsupportedError
from halfbyte.text.standin.added import AddedToken, AddedVocabulary, tokens_of
from halfbyte.text.standin.components import WHERE, Component
from halfbyte.text.standin.decoders import Decoder
from halfbyte.text.standin.encoding import Encoding
from halfbyte.text.standin.files import Saved
from halfbyte.text.standin.models import Model
from halfbyte.text.standin.normalized import NormalizedString
from halfbyte.text.standin.normalizers import Normalizer
from halfbyte.text.standin.pre_tokenizers import PreTokenizer
from halfbyte.text.standin.processors import PostProcessor
from halfbyte.text.standin.sizes import Padding, Truncation
from halfbyte.text.tokenizers.base import without_surrogates

Span = tuple[int, int]
_KINDS: dict[str, type[Component]] = {
    "model": Model, "normalizer": Normalizer, "pre_tokenizer": PreTokenizer,
    "post_processor": PostProcessor, "decoder": Decoder,
}  # fmt: skip


class Tokenizer(Saved):
    """Texts to ids and back.

    A text is cut at added tokens; the parts between are normalized, split into words, and words
    become tokens. Then come truncation, special tokens and padding.
    """

    pre_tokenizer: PreTokenizer | None
    post_processor: PostProcessor | None
    decoder: Decoder | None

    def __init__(self, model: Model) -> None:
        super().__init__(model)
        self._normalizer: Normalizer | None = None
        self.pre_tokenizer = self.post_processor = self.decoder = None
        self.added = AddedVocabulary()
        self.truncated: Truncation | None = None
        self.padded: Padding | None = None

    def __setattr__(self, name: str, value: Any) -> None:
        kind = _KINDS.get(name)
        if kind and not isinstance(value, kind) and (value is not None or kind is Model):
            raise TypeError(
                f"Tokenizer.{name}: expected a {kind.KIND}, found {type(value).__name__}"
            )
        super().__setattr__(name, value)

    def __repr__(self) -> str:
        parts = ("normalizer", "pre_tokenizer", "post_processor", "decoder", "model")
        shown = ", ".join(f"{part}={getattr(self, part)!r}" for part in parts)
        return f'Tokenizer(version="1.0", {shown})'

    @property
    def normalizer(self) -> Normalizer | None:
        """Changes texts before they are split."""
        return self._normalizer

    @normalizer.setter
    def normalizer(self, normalizer: Normalizer | None) -> None:
        self._normalizer = normalizer
        self.added.normalize(normalizer)

    # ---- texts to ids ----------------------------------------------------------------------------

    def encode(
        self, sequence: Any, pair: Any = None, is_pretokenized: bool = False,
        add_special_tokens: bool = True,
    ) -> Encoding:  # fmt: skip
        """The tokens of a text, or of two; of lists of words if they are pretokenized."""
        return self._encode(sequence, pair, is_pretokenized, add_special_tokens)

    def encode_batch(
        self, input: Iterable[Any], is_pretokenized: bool = False, add_special_tokens: bool = True
    ) -> list[Encoding]:
        """The tokens of several texts, or pairs of them."""
        encodings = [
            self._encode(*_pair(item, is_pretokenized), is_pretokenized, add_special_tokens)
            for item in input
        ]
        if self.padded:
            self.padded.apply(encodings)
        return encodings

    def encode_batch_fast(
        self, input: Iterable[Any], is_pretokenized: bool = False, add_special_tokens: bool = True
    ) -> list[Encoding]:
        """As `encode_batch`; callers do not need spans, texts and words of tokens."""
        return self.encode_batch(input, is_pretokenized, add_special_tokens)

    def _encode(self, text: Any, pair: Any, words: bool, special: bool) -> Encoding:
        first = self._encode_one(text, 0, words)
        second = None if pair is None else self._encode_one(pair, 1, words)
        return self.post_process(first, second, special)

    def _encode_one(self, text: Any, type_id: int, words: bool) -> Encoding:
        encoding = Encoding()
        if not words:
            if not isinstance(text, str):
                raise TypeError(
                    f"TextInputSequence must be str, found {type(text).__name__}: {str(text)[:80]}"
                )
            self._add_text(encoding, text, None)
        else:
            for at, word in enumerate(_words(text)):
                self._add_text(encoding, word, at)
        count = len(encoding.ids)
        encoding.type_ids = [type_id] * count
        encoding.special_tokens_mask, encoding.attention_mask = [0] * count, [1] * count
        return encoding

    def _add_text(self, encoding: Encoding, text: str, word: int | None) -> None:
        """Append the tokens of a text."""
        text = without_surrogates(text)
        for at, (part, spans, token) in enumerate(self._parts(text)):
            if token is not None:
                encoding.ids.append(token)
                encoding.tokens.append(part)
                encoding.offsets.append((spans[0][0], spans[-1][1]))
                encoding.word_ids.append(at if word is None else word)
            else:
                for i, start, end, content in self.model.pieces(part):
                    encoding.ids.append(i)
                    encoding.tokens.append(content)
                    encoding.offsets.append((spans[start][0], spans[end - 1][1]))
                    encoding.word_ids.append(at if word is None else word)

    def _parts(self, text: str) -> Iterable[tuple[str, list[Span], int | None]]:
        """The parts of a text: words, or added tokens."""
        for start, end, token in self.added.cut(text, normalized=False):
            spans = [(at, at + 1) for at in range(start, end)]
            if token is not None:
                yield text[start:end], spans, token
                continue
            part = NormalizedString.part(text, text[start:end], spans)
            if self._normalizer is not None:
                self._normalizer.normalize(part)
            for first, last, inner in self.added.cut(part.text, normalized=True):
                content, places = part.text[first:last], part.spans[first:last]
                if inner is not None or self.pre_tokenizer is None:
                    yield content, places, inner
                    continue
                for word, origins, _ in self.pre_tokenizer.pieces(text, [(content, places, True)]):
                    yield word, cast(list[Span], origins), None

    def post_process(
        self, encoding: Encoding, pair: Encoding | None = None, add_special_tokens: bool = True
    ) -> Encoding:
        """Truncate, add special tokens, and pad."""
        if self.truncated:
            added = self.num_special_tokens_to_add(pair is not None) if add_special_tokens else 0
            self.truncated.apply(encoding, pair, added)
        if self.post_processor is not None:
            encoding = self.post_processor.process(encoding, pair, add_special_tokens)
        elif pair is not None:
            for number, one in enumerate((encoding, pair)):
                one.set_sequence_id(number)
            encoding = Encoding.merge([encoding, pair], growing_offsets=False)
        if self.padded:
            self.padded.apply([encoding])
        return encoding

    def num_special_tokens_to_add(self, is_pair: bool) -> int:
        """How many tokens are added to a text, or to two."""
        processor = self.post_processor
        return 0 if processor is None else processor.num_special_tokens_to_add(is_pair)

    async def async_encode(self, *arguments: Any, **keywords: Any) -> Encoding:
        """As `encode`, after the event loop has run."""
        await asyncio.sleep(0)
        return self.encode(*arguments, **keywords)

    async def async_encode_batch(self, *arguments: Any, **keywords: Any) -> list[Encoding]:
        """As `encode_batch`, after the event loop has run."""
        await asyncio.sleep(0)
        return self.encode_batch(*arguments, **keywords)

    async_encode_batch_fast = async_encode_batch

    # ---- ids to texts ----------------------------------------------------------------------------

    def decode(self, ids: Iterable[int], skip_special_tokens: bool = True) -> str:
        """The text of ids; those that are not in the vocabulary are left out."""
        tokens = []
        for number in ids:
            token = self.id_to_token(index(number))
            if token is not None and not (skip_special_tokens and token in self.added.special):
                tokens.append(token)
        if self.decoder is None:
            return " ".join(tokens)
        return self.decoder.decode(tokens)

    def decode_batch(
        self, sequences: Iterable[Iterable[int]], skip_special_tokens: bool = True
    ) -> list[str]:
        """The texts of several lists of ids."""
        return [self.decode(ids, skip_special_tokens) for ids in sequences]

    async def async_decode_batch(
        self, sequences: Iterable[Iterable[int]], skip_special_tokens: bool = True
    ) -> list[str]:
        """As `decode_batch`, after the event loop has run."""
        await asyncio.sleep(0)
        return self.decode_batch(sequences, skip_special_tokens)

    # ---- the vocabulary --------------------------------------------------------------------------

    def token_to_id(self, token: str) -> int | None:
        """The id of a token."""
        return self.added.ids.get(token, self.model.token_to_id(token))

    def id_to_token(self, id: int) -> str | None:
        """The token with an id."""
        text = self.added.text(id)
        return self.model.id_to_token(id) if text is None else text

    def get_vocab(self, with_added_tokens: bool = True) -> dict[str, int]:
        """All tokens and their ids."""
        return self.model.get_vocab() | (self.added.ids if with_added_tokens else {})

    def get_vocab_size(self, with_added_tokens: bool = True) -> int:
        """The number of tokens."""
        ids = self.model.ids
        more = sum(token not in ids for token in self.added.ids) if with_added_tokens else 0
        return len(ids) + more

    def get_added_tokens_decoder(self) -> dict[int, AddedToken]:
        """Added tokens by their ids."""
        return dict(sorted(self.added.tokens.items()))

    def add_tokens(self, tokens: Iterable[str | AddedToken]) -> int:
        """Add tokens, and return how many are new."""
        return self.added.add(tokens_of(tokens, special=False), self.model, self._normalizer)

    def add_special_tokens(self, tokens: Iterable[str | AddedToken]) -> int:
        """Add tokens that `decode` leaves out, and return how many are new."""
        return self.added.add(tokens_of(tokens, special=True), self.model, self._normalizer)

    @property
    def encode_special_tokens(self) -> bool:
        """Whether special tokens that a text spells are text."""
        return self.added.encode_special

    @encode_special_tokens.setter
    def encode_special_tokens(self, value: bool) -> None:
        self.added.encode_special = value

    # ---- truncation and padding ------------------------------------------------------------------

    @property
    def truncation(self) -> dict[str, Any] | None:
        """The options of truncation, or None."""
        return self.truncated.options() if self.truncated else None

    def enable_truncation(
        self, max_length: int, stride: int = 0, strategy: str = "longest_first",
        direction: str = "right",
    ) -> None:  # fmt: skip
        """Truncate to so many tokens; `stride` tokens are repeated in the next part."""
        truncation = Truncation(max_length, stride, strategy, direction)
        truncation.check(self.num_special_tokens_to_add(False))
        self.truncated = truncation

    def no_truncation(self) -> None:
        """Do not truncate."""
        self.truncated = None

    @property
    def padding(self) -> dict[str, Any] | None:
        """The options of padding, or None."""
        return self.padded.options() if self.padded else None

    def enable_padding(
        self, direction: str = "right", pad_id: int = 0, pad_type_id: int = 0,
        pad_token: str = "[PAD]", length: int | None = None,  # noqa: S107
        pad_to_multiple_of: int | None = None, max_length: int | None = None,
    ) -> None:  # fmt: skip
        """Pad to a length, or to the longest text of a batch; `max_length` is an older name."""
        length = max_length if length is None else length
        self.padded = Padding(direction, pad_to_multiple_of, pad_id, pad_type_id, pad_token, length)

    def no_padding(self) -> None:
        """Do not pad."""
        self.padded = None

    # ---- training --------------------------------------------------------------------------------

    def train(self, files: Sequence[str], trainer: Any = None) -> None:
        """Refused."""
        raise UnsupportedError(f"{WHERE}: training is not in halfbyte")

    def train_from_iterator(self, iterator: Any, trainer: Any = None, length: Any = None) -> None:
        """Refused."""
        raise UnsupportedError(f"{WHERE}: training is not in halfbyte")


def _pair(item: Any, words: bool) -> tuple[Any, Any]:
    """A text and perhaps a second one, of an item of a batch."""
    if not words:
        if isinstance(item, tuple | list) and len(item) == 2:
            return item[0], item[1]
        return item, None
    if isinstance(item, tuple | list) and len(item) == 2 and not isinstance(item[0], str):
        return item[0], item[1]
    return item, None


def _words(text: Any) -> list[str]:
    """The words of a text that is pretokenized."""
    if hasattr(text, "tolist"):
        text = text.tolist()
    if not isinstance(text, tuple | list) or not all(isinstance(word, str) for word in text):
        raise TypeError(
            f"PreTokenizedInputSequence must be a list or a tuple of str, found {str(text)[:80]}"
        )
    return list(text)
