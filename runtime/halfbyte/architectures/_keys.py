"""Reading an architecture's metadata; what was not read is refused at the end."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from halfbyte.errors import FormatError, UnsupportedError
from halfbyte.formats import metadata
from halfbyte.formats.model_file import ModelFile

# Metadata beside what is read; each must say what is built here.
_OTHERS: dict[str, object] = {
    "vocab_size": metadata.ANY,  # the embedding tells
    "tensor_data_layout": metadata.ANY,
    "attention.layer_norm_epsilon": metadata.ANY,  # where there is no LayerNorm
    "rope.scaling.factor": 1,
    "rope.scaling.original_context_length": metadata.ANY,  # for types other than "none"
    "expert_count": 0,
    "expert_used_count": 0,
    "attention.causal": True,
    "attention.sliding_window": 0,
    "use_parallel_residual": False,
}


class Keys:
    """The metadata of one architecture, keys without its name; remembers which were read."""

    def __init__(self, file: ModelFile, architecture: str) -> None:
        self.file, self._prefix = file, architecture + "."
        self._read: set[str] = set()

    def size(self, key: str, high: int, default: int | None = None, low: int = 1) -> int:
        """An integer from `low` to `high`."""
        name = self._name(key)
        if default is None:
            return metadata.integer(self.file, name, low, high)
        return metadata.integer(self.file, name, low, high, default)

    def number(self, key: str, default: float | None = None) -> float:
        """A positive number."""
        name = self._name(key)
        if default is None:
            return metadata.number(self.file, name)
        return metadata.number(self.file, name, default)

    def has(self, key: str) -> bool:
        """Whether it is there."""
        return self._prefix + key in self.file.metadata

    def error(self, key: str, message: str) -> FormatError:
        """What to raise for a key's value."""
        return FormatError(f"{self.file.path}: metadata '{self._prefix}{key}': {message}")

    def rope_factor(self, *known: str) -> float:
        """What positions are divided by; other kinds of scaling than `known` are refused."""
        kind = "none"
        if self.has("rope.scaling.type"):
            kind = metadata.text(self.file, self._name("rope.scaling.type"))
        if kind == "linear":
            return self.number("rope.scaling.factor")
        if kind not in ("none", *known):
            expected = " or ".join(map(repr, ("none", "linear", *known)))
            raise UnsupportedError(
                f"{self.file.path}: metadata '{self._prefix}rope.scaling.type': expected "
                f"{expected}, found {kind[:40]!r}"
            )
        return 1.0

    def windows(self, layers: int, period: int = 0) -> tuple[int, ...]:
        """The window of each layer, 0 for all positions.

        ``attention.sliding_window_pattern`` is either a flag for each layer, or a period whose
        last layer sees all; 0, the default, stands for a window everywhere.
        """
        window = self.size("attention.sliding_window", 1 << 24, 0, low=0)
        key = "attention.sliding_window_pattern"
        flags: Any = self.file.metadata.get(self._prefix + key)
        if not isinstance(flags, np.ndarray):
            period = self.size(key, 1 << 10, period, low=0)
            flags = np.arange(1, layers + 1) % period != 0 if period else np.ones(layers, bool)
        else:
            self._name(key)
            if flags.shape != (layers,) or flags.dtype != np.bool_:
                raise self.error(key, f"expected {layers} flags")
        return tuple(window if flag else 0 for flag in flags.tolist())

    def refuse_others(self, others: Mapping[str, object] | None = None) -> None:
        """Refuse what was not read and does not say what is built."""
        metadata.refuse_others(self.file, self._prefix, self._read, {**_OTHERS, **(others or {})})

    def _name(self, key: str) -> str:
        self._read.add(key)
        return self._prefix + key
