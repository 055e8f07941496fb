"""Sources of weights for the builders: a checkpoint, or seeded random numbers."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

F32Array = npt.NDArray[np.float32]


class Weights(Protocol):
    """A source of a model's parameters."""

    def take(
        self, name: str, shape: tuple[int, ...], deviation: float = 0.1, mean: float = 0.0
    ) -> F32Array:
        """The parameter of that name; random sources use deviation and mean."""


class Stored:
    """Parameters of a checkpoint."""

    def __init__(self, tensors: Mapping[str, npt.NDArray[Any]]) -> None:
        self._tensors = tensors

    def take(
        self, name: str, shape: tuple[int, ...], deviation: float = 0.1, mean: float = 0.0
    ) -> F32Array:
        """Raises `ValueError` where it is missing or has another shape."""
        if name not in self._tensors:
            raise ValueError(f"tensor {name!r}: missing from the checkpoint")
        tensor = self._tensors[name]
        if tensor.shape != shape:
            raise ValueError(f"tensor {name!r}: expected shape {shape}, found {tensor.shape}")
        return np.ascontiguousarray(tensor, np.float32)


class Random:
    """Normal numbers that depend only on the seed and the parameters' names.

    Vectors are random as well, so that a swapped or missing one changes the outputs.
    """

    def __init__(self, seed: int = 0) -> None:
        self._seed = seed

    def take(
        self, name: str, shape: tuple[int, ...], deviation: float = 0.1, mean: float = 0.0
    ) -> F32Array:
        """Deterministic: the same name and shape give the same numbers."""
        generator = np.random.default_rng((self._seed, zlib.crc32(name.encode())))
        values = generator.standard_normal(shape, np.float32)
        values *= np.float32(deviation)
        values += np.float32(mean)
        return values
