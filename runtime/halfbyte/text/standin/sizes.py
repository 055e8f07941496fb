"""Truncation and padding: options of a tokenizer, applied to encodings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from halfbyte.errors import FormatError
from halfbyte.formats.json_file import field, optional
from halfbyte.text.standin.components import WHERE
from halfbyte.text.standin.encoding import Encoding, check_side

MAX_LENGTH = 1 << 20  # tokens of padding, each of which takes 56 bytes in every encoding
STRATEGIES = {
    "longest_first": "LongestFirst", "only_first": "OnlyFirst", "only_second": "OnlySecond"
}  # fmt: skip


@dataclass(frozen=True)
class Truncation:
    """The options of truncation; raises `ValueError`."""

    max_length: int
    stride: int = 0
    strategy: str = "longest_first"
    direction: str = "right"

    def __post_init__(self) -> None:
        check_side(self.direction)
        if self.strategy not in STRATEGIES:
            raise ValueError(
                f"strategy: expected one of {', '.join(STRATEGIES)}, found "
                f"{str(self.strategy)[:40]!r}"
            )
        for name in ("max_length", "stride"):
            if not getattr(self, name) >= 0:
                raise ValueError(f"{name}: expected 0 or more, found {getattr(self, name)}")

    def check(self, added: int) -> None:
        """Check that a part has more than it repeats, beside the special tokens."""
        left = self.max_length - added
        if left < self.stride:
            raise ValueError(
                f"stride: {self.stride}, expected at most {left}, which is max_length="
                f"{self.max_length} without the {added} special tokens"
            )

    def apply(self, encoding: Encoding, pair: Encoding | None, added: int) -> None:
        """Truncate one or two encodings to which special tokens will be added."""
        size = self.max_length - added
        if size < 0:
            raise ValueError(
                f"max_length: {self.max_length} is less than the {added} special tokens"
            )
        both = [encoding, *([] if pair is None else [pair])]
        if size == 0:
            for one in both:
                one.truncate(0, self.stride, self.direction)
            return
        excess = sum(map(len, both)) - size
        if excess <= 0:
            return
        if self.strategy == "longest_first":
            for one, length in zip(both, self._lengths(both, size), strict=True):
                one.truncate(length, self.stride, self.direction)
            return
        if self.strategy == "only_second" and pair is None:
            raise ValueError("truncation: strategy 'only_second', but there is no second text")
        target = encoding if pair is None or self.strategy == "only_first" else pair
        if len(target) <= excess:
            raise ValueError(
                f"truncation: the text to truncate has {len(target)} tokens, and {excess} are too "
                "many"
            )
        target.truncate(len(target) - excess, self.stride, self.direction)

    @staticmethod
    def _lengths(both: list[Encoding], size: int) -> list[int]:
        """The longer one is truncated, or both to a half."""
        if len(both) == 1:
            return [size]
        first, second = map(len, both)
        short, long = sorted((first, second))
        long = short if short > size else max(short, size - short)
        if short + long > size:
            short = size // 2
            long = short + size % 2
        return [long, short] if first > second else [short, long]

    def options(self) -> dict[str, Any]:
        """The options, by the names of `enable_truncation`."""
        return {
            "max_length": self.max_length, "stride": self.stride, "strategy": self.strategy,
            "direction": self.direction,
        }  # fmt: skip

    def state(self) -> dict[str, Any]:
        """As in tokenizer.json."""
        return {
            "direction": self.direction.capitalize(), "max_length": self.max_length,
            "strategy": STRATEGIES[self.strategy], "stride": self.stride,
        }  # fmt: skip

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> Truncation:
        """From tokenizer.json; raises `FormatError`."""
        where = "truncation."
        strategy = optional(WHERE, state, "strategy", "LongestFirst", str, where)
        names = {value: name for name, value in STRATEGIES.items()}
        size, stride = (
            field(WHERE, state, "max_length", int, where),
            optional(WHERE, state, "stride", 0, int, where),
        )
        direction = optional(WHERE, state, "direction", "Right", str, where).lower()
        try:
            return cls(size, stride, names.get(strategy, strategy), direction)
        except ValueError as error:
            raise FormatError(f"{WHERE}: truncation: {error}") from None


@dataclass(frozen=True)
class Padding:
    """The options of padding; without a length, to the longest text."""

    direction: str = "right"
    pad_to_multiple_of: int | None = None
    pad_id: int = 0
    pad_type_id: int = 0
    pad_token: str = "[PAD]"  # noqa: S105
    length: int | None = None

    def __post_init__(self) -> None:
        check_side(self.direction)
        for name in ("length", "pad_to_multiple_of"):
            size = getattr(self, name)
            if size is not None and not 0 <= size <= MAX_LENGTH:
                raise ValueError(f"{name}: expected 0 to {MAX_LENGTH}, found {size}")

    def apply(self, encodings: Sequence[Encoding]) -> None:
        """Pad encodings to the same length."""
        if not encodings:
            return
        length = max(map(len, encodings)) if self.length is None else self.length
        multiple = self.pad_to_multiple_of
        if multiple and length % multiple:
            length += multiple - length % multiple
        for encoding in encodings:
            encoding.pad(length, self.direction, self.pad_id, self.pad_type_id, self.pad_token)

    def options(self) -> dict[str, Any]:
        """The options, by the names of `enable_padding`."""
        return {
            "length": self.length, "pad_to_multiple_of": self.pad_to_multiple_of,
            "pad_id": self.pad_id, "pad_token": self.pad_token, "pad_type_id": self.pad_type_id,
            "direction": self.direction,
        }  # fmt: skip

    def state(self) -> dict[str, Any]:
        """As in tokenizer.json."""
        strategy = "BatchLongest" if self.length is None else {"Fixed": self.length}
        return {
            "strategy": strategy, "direction": self.direction.capitalize(),
            "pad_to_multiple_of": self.pad_to_multiple_of, "pad_id": self.pad_id,
            "pad_type_id": self.pad_type_id, "pad_token": self.pad_token,
        }  # fmt: skip

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> Padding:
        """From tokenizer.json; raises `FormatError`."""
        where = "padding."
        strategy = state.get("strategy")
        length = field(WHERE, strategy, "Fixed", int, where) if isinstance(strategy, dict) else None
        multiple = state.get("pad_to_multiple_of")
        if multiple is not None:
            multiple = field(WHERE, state, "pad_to_multiple_of", int, where)
        try:
            return cls(
                optional(WHERE, state, "direction", "Right", str, where).lower(), multiple,
                optional(WHERE, state, "pad_id", 0, int, where),
                optional(WHERE, state, "pad_type_id", 0, int, where),
                optional(WHERE, state, "pad_token", "[PAD]", str, where), length,
            )  # fmt: skip
        except ValueError as error:
            raise FormatError(f"{WHERE}: padding: {error}") from None
