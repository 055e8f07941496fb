"""Typed access to a config.json, with errors that say file, key, expected and found."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from halfbyte.errors import FormatError, UnsupportedError

_MISSING: Any = object()
_MAX_INTEGER = (1 << 32) - 1  # GGUF's unsigned integers


class Keys:
    """The keys of one JSON object; null counts as missing."""

    def __init__(self, values: Any, where: str) -> None:
        if not isinstance(values, Mapping):
            raise FormatError(f"{where}: expected an object, found {type(values).__name__}")
        self.values, self.where = values, where

    def get(self, key: str) -> Any:
        """The value of any type, or None."""
        return self.values.get(key)

    def integer(self, key: str, default: int = _MISSING, *, maximum: int = _MAX_INTEGER) -> int:
        """An integer from 1 to `maximum`."""
        value = self._value(key, default, "an integer")
        if isinstance(value, bool) or not isinstance(value, int):
            raise self._wrong(key, "an integer", value)
        if not 1 <= value <= maximum:
            raise FormatError(
                f"{self.where}: key '{key}': expected 1 to {maximum}, found {value!r:.40}"
            )
        return value

    def number(self, key: str, default: float = _MISSING) -> float:
        """A positive number in float32's range."""
        value = self._value(key, default, "a number")
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self._wrong(key, "a number", value)
        if not 1e-37 < value < 3e38:
            raise self._wrong(key, "a positive number in float32's range", value)
        return float(value)

    def numbers(self, key: str, count: int) -> npt.NDArray[np.float32]:
        """A list of `count` positive numbers."""
        values = self.list(key)
        if len(values) != count:
            raise FormatError(
                f"{self.where}: key '{key}': expected {count} numbers, found {len(values)}"
            )
        each = Keys({f"{key}[{i}]": v for i, v in enumerate(values)}, self.where)
        return np.array([each.number(name) for name in each.values], np.float32)

    def boolean(self, key: str, default: bool) -> bool:
        """true or false."""
        value = self._value(key, default, "true or false")
        if not isinstance(value, bool):
            raise self._wrong(key, "true or false", value)
        return value

    def text(self, key: str, default: str = _MISSING) -> str:
        """A string."""
        value = self._value(key, default, "a string")
        if not isinstance(value, str):
            raise self._wrong(key, "a string", value)
        return value

    def one_of(self, key: str, *known: str) -> str:
        """One of these strings, by default the first."""
        value = self.text(key, known[0])
        if value not in known:
            self.expect(key, *known)
        return value

    def list(self, key: str) -> list[Any]:
        """A list; empty if it is missing."""
        value = self._value(key, [], "a list")
        if not isinstance(value, list):
            raise self._wrong(key, "a list", value)
        return value

    def inner(self, key: str) -> Keys:
        """A nested object; empty if it is missing."""
        return Keys(self._value(key, {}, "an object"), f"{self.where}: key '{key}'")

    def otherwise(self, **values: object) -> Keys:
        """A copy with defaults for missing keys."""
        return Keys(values | dict(self.values), self.where)

    def replaced(self, **values: object) -> Keys:
        """A copy with these values."""
        return Keys(dict(self.values) | values, self.where)

    def renamed(self, **names: str) -> Keys:
        """A copy in which a model's own keys have the usual names: usual="own"."""
        own = {new: self.values[old] for new, old in names.items() if self.get(old) is not None}
        return self.replaced(**own)

    def only(self, *keys: str) -> Keys:
        """A copy with these keys only."""
        return Keys({k: v for k, v in self.values.items() if k in keys}, self.where)

    def rope(self) -> Keys:
        """Settings of rotary positions: `rope_parameters`, or `rope_scaling` in older files."""
        key = "rope_scaling" if self.get("rope_parameters") is None else "rope_parameters"
        return self.inner(key)

    def expect(self, key: str, *wanted: object) -> None:
        """Refuse a key whose value is none of these; a missing key is fine."""
        if key in self.values and self.values[key] not in wanted:
            raise UnsupportedError(
                f"{self.where}: key '{key}': expected {' or '.join(map(repr, wanted))}, found "
                f"{self.values[key]!r:.80}"
            )

    def _value(self, key: str, default: Any, expected: str) -> Any:
        value = self.values.get(key)
        if value is not None:
            return value
        if default is _MISSING:
            raise self._wrong(key, expected, None)
        return default

    def _wrong(self, key: str, expected: str, value: Any) -> FormatError:
        shown = "nothing" if value is None else f"{value!r:.40}"
        return FormatError(f"{self.where}: key '{key}': expected {expected}, found {shown}")
