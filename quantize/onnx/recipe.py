"""Which weight of a graph takes which type."""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase

from halfbyte.errors import HalfbyteError

PRESETS = {"int8": "int8", "int4": "int4", "fp16": "F16", "bf16": "BF16"}
"""What may be asked for, and the type that it means."""

_NAMES = PRESETS | {"Q8_0": "int8", "Q4_0": "int4", "F16": "F16", "BF16": "BF16",
                  "fp32": "F32", "F32": "F32"}  # fmt: skip


class Keep:
    """``--keep``: types by patterns of names.

    Parameters
    ----------
    pairs : pairs of pattern and type
        Of several patterns that match the last decides.
    names : iterable of str
        Names of the model's nodes and weights.

    Raises
    ------
    HalfbyteError
        A type that does not exist, or a pattern that matches nothing.
    """

    def __init__(self, pairs: Iterable[tuple[str, str]], names: Iterable[str], where: str) -> None:
        known = list(names)
        self._pairs = []
        for pattern, name in pairs:
            if name not in _NAMES:
                raise HalfbyteError(f"type '{name}': expected one of {list(_NAMES)}")
            if not any(fnmatchcase(one, pattern) for one in known):
                raise HalfbyteError(f"{where}: no node's or weight's name matches '{pattern}'")
            self._pairs.append((pattern, _NAMES[name]))

    def type_of(self, *names: str) -> str | None:
        """The type for what has these names; None where no pattern matches."""
        found = None
        for pattern, type_ in self._pairs:
            if any(fnmatchcase(name, pattern) for name in names if name):
                found = type_
        return found
