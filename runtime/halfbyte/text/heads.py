"""What turns the vector of a text into its score."""

from __future__ import annotations

import numpy as np

from halfbyte.errors import FormatError, UnsupportedError
from halfbyte.formats import metadata
from halfbyte.formats.model_file import ModelFile
from halfbyte.weights import F32Array


class ScoringHead:
    """Scores of vectors of first tokens: tanh of a matrix, if there is one, then the last one."""

    def __init__(self, file: ModelFile) -> None:
        dim = metadata.integer(
            file, f"{metadata.text(file, 'general.architecture')}.embedding_length", 1, 1 << 20
        )
        if "cls.output.weight" not in file.tensors:
            raise FormatError(f"{file.path}: no tensor for 'cls.output.weight', the head's")
        if file.tensors["cls.output.weight"].shape != (1, dim):
            raise UnsupportedError(
                f"{file.path}: tensor 'cls.output.weight': expected [1, {dim}], found "
                f"{list(file.tensors['cls.output.weight'].shape)}"
            )
        self._layers = [
            (
                self._values(file, f"{name}.weight", rows, dim),
                self._bias(file, f"{name}.bias", rows),
            )
            for name, rows in (("cls", dim), ("cls.output", 1))
            if f"{name}.weight" in file.tensors
        ]

    @staticmethod
    def _values(file: ModelFile, name: str, *shape: int) -> F32Array:
        values: F32Array = metadata.tensor(file, name, shape).decode()
        return values

    def _bias(self, file: ModelFile, name: str, rows: int) -> F32Array:
        if name not in file.tensors:
            return np.zeros(rows, np.float32)
        return self._values(file, name, rows)

    def __call__(self, vectors: F32Array) -> F32Array:
        """Scores [n] of vectors [n, dim]."""
        return np.array([self._score(vector) for vector in vectors], np.float32)

    def _score(self, vector: F32Array) -> float:
        """Of one vector: products of several may be rounded otherwise."""
        for weight, bias in self._layers:
            y = weight @ vector + bias
            vector = np.tanh(y)
        return float(y[0])
