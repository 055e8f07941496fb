"""What a tokenizer returns: ids, and what is known about each of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Literal

Span = tuple[int, int]
_LISTS = (
    "ids", "type_ids", "tokens", "word_ids", "offsets", "special_tokens_mask", "attention_mask"
)  # fmt: skip


class Encoding:
    """Token ids of a text or of two, with equally many entries in each list.

    Attributes
    ----------
    ids, type_ids : list of int
        Ids, and which of two texts they belong to, as a model expects it.
    tokens : list of str
        Their texts in the vocabulary.
    word_ids : list of int or None
        The word of the text, or of the list of words.
    offsets : list of (int, int)
        The span of the text; (0, 0) for special tokens.
    special_tokens_mask, attention_mask : list of int
        1 for special tokens and padding; 0 for padding.
    overflowing : list of Encoding
        The parts that were cut off.
    ranges : dict of int to range
        The tokens of each text.
    """

    __slots__ = (*_LISTS, "overflowing", "ranges")

    def __init__(self) -> None:
        self.ids: list[int] = []
        self.type_ids: list[int] = []
        self.tokens: list[str] = []
        self.word_ids: list[int | None] = []
        self.offsets: list[Span] = []
        self.special_tokens_mask: list[int] = []
        self.attention_mask: list[int] = []
        self.overflowing: list[Encoding] = []
        self.ranges: dict[int, range] = {}

    def push(self, token: int, text: str, span: Span, word: int | None, type_id: int) -> None:
        """Append a token of a text."""
        self.ids.append(token)
        self.type_ids.append(type_id)
        self.tokens.append(text)
        self.word_ids.append(word)
        self.offsets.append(span)
        self.special_tokens_mask.append(0)
        self.attention_mask.append(1)

    @classmethod
    def special(cls, ids: list[int], tokens: list[str], type_id: int) -> Encoding:
        """Special tokens, which stand for no text."""
        encoding = cls()
        count = len(ids)
        encoding.ids, encoding.tokens = [*ids], [*tokens]
        encoding.type_ids, encoding.word_ids = [type_id] * count, [None] * count
        encoding.offsets, encoding.special_tokens_mask = [(0, 0)] * count, [1] * count
        encoding.attention_mask = [1] * count
        return encoding

    def copy(self) -> Encoding:
        """One with lists of its own."""
        encoding = self._cut(0, len(self.ids))
        encoding.overflowing = [other.copy() for other in self.overflowing]
        encoding.ranges = dict(self.ranges)
        return encoding

    def _cut(self, start: int, end: int) -> Encoding:
        encoding = Encoding()
        for name in _LISTS:
            setattr(encoding, name, getattr(self, name)[start:end])
        return encoding

    def __len__(self) -> int:
        return len(self.ids)

    def __repr__(self) -> str:
        names = ", ".join(("ids", "type_ids", *_LISTS[2:], "overflowing"))
        return f"Encoding(num_tokens={len(self.ids)}, attributes=[{names}])"

    def __getstate__(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__slots__}

    def __setstate__(self, state: dict[str, Any]) -> None:
        for name, value in state.items():
            setattr(self, name, value)

    # ---- where tokens, words and characters are --------------------------------------------------

    @property
    def words(self) -> list[int | None]:
        """The older name of `word_ids`."""
        return self.word_ids

    @property
    def n_sequences(self) -> int:
        """The number of texts."""
        return len(self.ranges) or 1

    @property
    def sequence_ids(self) -> list[int | None]:
        """The text that each token belongs to; None for special tokens and padding."""
        ids: list[int | None] = [None] * len(self.ids)
        for number in range(self.n_sequences):
            span = self._range(number)
            ids[span.start : span.stop] = [number] * len(span)
        return ids

    def set_sequence_id(self, sequence_id: int) -> None:
        """Say that all tokens belong to this text."""
        self.ranges[sequence_id] = range(len(self.ids))

    def _range(self, number: int) -> range:
        return self.ranges.get(number, range(len(self.ids)))

    def token_to_sequence(self, token_index: int) -> int | None:
        """The text that a token belongs to."""
        if token_index > len(self.ids):
            return None
        if not self.ranges:
            return 0
        return next((n for n, span in self.ranges.items() if token_index in span), None)

    def token_to_chars(self, token_index: int) -> Span | None:
        """The span of a token."""
        if self.token_to_sequence(token_index) is None or token_index >= len(self.ids):
            return None
        return self.offsets[token_index]

    def token_to_word(self, token_index: int) -> int | None:
        """The word that a token belongs to."""
        if self.token_to_sequence(token_index) is None or token_index >= len(self.ids):
            return None
        return self.word_ids[token_index]

    def char_to_token(self, char_pos: int, sequence_index: int = 0) -> int | None:
        """The first token whose span has this character."""
        for index in self._range(sequence_index):
            start, end = self.offsets[index]
            if start <= char_pos < end:
                return index
        return None

    def char_to_word(self, char_pos: int, sequence_index: int = 0) -> int | None:
        """The word that has this character."""
        token = self.char_to_token(char_pos, sequence_index)
        return None if token is None else self.token_to_word(token)

    def word_to_tokens(self, word_index: int, sequence_index: int = 0) -> Span | None:
        """The first token of a word, and the one after its last."""
        found = list(self._of_word(word_index, self._range(sequence_index)))
        return (found[0], found[-1] + 1) if found else None

    def _of_word(self, word: int, places: range) -> Iterator[int]:
        for index in places:
            other = self.word_ids[index]
            if other is not None and other > word:
                return
            if other == word:
                yield index

    def word_to_chars(self, word_index: int, sequence_index: int = 0) -> Span | None:
        """The span of a word."""
        tokens = self.word_to_tokens(word_index, sequence_index)
        if tokens is None:
            return None
        return self.offsets[tokens[0]][0], self.offsets[tokens[1] - 1][1]

    # ---- changing them ---------------------------------------------------------------------------

    def truncate(self, max_length: int, stride: int = 0, direction: str = "right") -> None:
        """Keep at most so many tokens; the rest becomes `overflowing`.

        `stride` tokens are repeated in the next part. The text that tokens belong to is lost.
        """
        check_side(direction)
        count = len(self.ids)
        if max_length >= count:
            return
        if max_length == 0:
            other = self.copy()
            self.__setstate__(Encoding().__getstate__())
            self.overflowing.append(other)
            return
        if not stride < max_length:
            raise ValueError(f"stride: expected less than max_length={max_length}, found {stride}")
        parts = [
            self._cut(a, b) for a, b in _parts(count, max_length, max_length - stride, direction)
        ]
        first, *rest = parts
        first.overflowing = rest
        self.__setstate__(first.__getstate__())

    def pad(
        self, length: int, direction: str = "right", pad_id: int = 0, pad_type_id: int = 0,
        pad_token: str = "[PAD]",  # noqa: S107
    ) -> None:  # fmt: skip
        """Add tokens without attention until there are so many, also to `overflowing`."""
        left = check_side(direction) == "left"
        for other in self.overflowing:
            other.pad(length, direction, pad_id, pad_type_id, pad_token)
        count = length - len(self.ids)
        if count <= 0:
            return
        values: tuple[Any, ...] = pad_id, pad_type_id, pad_token, None, (0, 0), 1, 0
        for name, value in zip(_LISTS, values, strict=True):
            old = getattr(self, name)
            setattr(self, name, [value] * count + old if left else old + [value] * count)
        if left:
            self.ranges = {
                n: range(span.start + count, span.stop + count) for n, span in self.ranges.items()
            }

    @staticmethod
    def merge(encodings: Iterable[Encoding], growing_offsets: bool = True) -> Encoding:
        """One after the other; offsets grow if the texts follow each other, too."""
        merged = Encoding()
        for encoding in encodings:
            merged.append(encoding, growing_offsets)
        return merged

    def append(self, pair: Encoding, growing_offsets: bool) -> None:
        """Append another one, and combine what overflows of both."""
        overflowing: list[Encoding] = []
        for mine in (*self.overflowing, self):
            others = pair.overflowing if mine is self else [pair, *pair.overflowing]
            for other in others:
                combined = mine.copy()
                combined.append(other, growing_offsets)
                overflowing.append(combined)
        count = len(self.ids)
        for number, span in pair.ranges.items():
            self.ranges[number] = range(count + span.start, count + span.stop)
        grown = self.offsets[-1][1] if growing_offsets and self.offsets else 0
        for name in _LISTS:
            getattr(self, name).extend(getattr(pair, name))
        if grown:
            self.offsets[count:] = [(a + grown, b + grown) for a, b in pair.offsets]
        self.overflowing = overflowing


def check_side(direction: str) -> Literal["left", "right"]:
    """A direction; raises `ValueError`."""
    if direction not in ("left", "right"):
        raise ValueError(f"direction: expected 'left' or 'right', found {str(direction)[:40]!r}")
    return direction  # type: ignore[return-value]


def _parts(count: int, size: int, step: int, direction: str) -> Iterator[Span]:
    if direction == "right":
        for start in range(0, count, step):
            yield start, min(start + size, count)
            if start + size >= count:
                return
    for end in range(count, 0, -step):
        yield max(0, end - size), end
        if end <= size:
            return
