"""Types that weights of a graph can be given by name."""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase

from halfbyte.errors import HalfbyteError

PRESETS = {"int8": "int8", "int4": "int4", "fp16": "F16", "bf16": "BF16"}
"""Names of the presets, and the types that they stand for."""

_NAMES = PRESETS | {"Q8_0": "int8", "Q4_0": "int4", "F16": "F16", "BF16": "BF16",
                  "fp32": "F32", "F32": "F32"}  # fmt: skip


class Keep:
    """The option ``--keep``: types by patterns of names.

    Parameters
    ----------
    pairs : pairs of pattern and type
        Of several matching patterns, the last decides.
    names : iterable of str
        Names of the model's nodes and weights.

    Raises
    ------
    HalfbyteError
        A type does not exist, or a pattern matches no name.
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
        """The type of a weight with these names (its own, its node's); None where none matches."""
        for pattern, type_ in reversed(self._pairs):
            if any(fnmatchcase(name, pattern) for name in names if name):
                return type_
        return None
