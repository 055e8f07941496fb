"""What vectors pass through after pooling: matrices of the model's, and heads that score pairs."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from halfbyte.core.ops.activation import gelu
from halfbyte.core.ops.norm import layer_norm
from halfbyte.errors import FormatError, UnsupportedError
from halfbyte.formats import metadata
from halfbyte.formats.embedding import DENSE, DENSE_NUMBERS, SCORED, SCORING, Pooling, strings
from halfbyte.formats.model_file import ModelFile
from halfbyte.text import architectures
from halfbyte.weights import F32Array

_ACTIVATIONS: dict[str, Callable[[F32Array], F32Array]] = {
    "identity": lambda x: x,
    "tanh": np.tanh,
    "relu": lambda x: np.maximum(x, np.float32(0)),
    "gelu": lambda x: gelu.meaning(x[None], approximate="none")[0],
}


class Layer:
    """y = activation(w x + bias), for one vector: products of several may be rounded otherwise."""

    def __init__(self, file: ModelFile, name: str, rows: int, width: int, activation: str) -> None:
        self.weight = _values(file, f"{name}.weight", rows, width)
        bias = f"{name}.bias" in file.tensors
        self.bias = _values(file, f"{name}.bias", rows) if bias else np.zeros(rows, np.float32)
        self.activation = _ACTIVATIONS[activation]

    def __call__(self, x: F32Array) -> F32Array:
        y: F32Array = self.activation(self.weight @ x + self.bias)
        return y


class DenseLayers:
    """The matrices of a model's vectors, ``dense_2`` and so on; there may be none.

    Attributes
    ----------
    width : int
        Numbers of the results.
    """

    def __init__(self, file: ModelFile, width: int) -> None:
        self.width = width
        names = [f"dense_{n}" for n in DENSE_NUMBERS if f"dense_{n}.weight" in file.tensors]
        kinds = strings(file, DENSE) or ["identity"] * len(names)
        if len(kinds) != len(names) or not {"identity", "tanh"}.issuperset(kinds):
            raise FormatError(
                f"{file.path}: metadata '{DENSE}': expected {len(names)} of 'identity' and 'tanh'"
            )
        self._layers = []
        for name, kind in zip(names, kinds, strict=True):
            rows = file.tensors[f"{name}.weight"].shape[0]
            self._layers.append(Layer(file, name, rows, self.width, kind))
            self.width = rows

    def __call__(self, vectors: F32Array) -> F32Array:
        """Vectors [n, width] of vectors of the model's width."""
        for layer in self._layers:
            vectors = np.array([layer(x) for x in vectors], np.float32).reshape(
                len(vectors), len(layer.bias)
            )
        return vectors


class ScoringHead:
    """Scores of pooled vectors: a matrix with an activation and a norm, if any, then the last one.

    Without keys for them, the activation is tanh and the pooled vector that of the first token,
    unless the architecture's `HEAD` has others.

    Attributes
    ----------
    pooling : Pooling
        What the head reads.
    """

    def __init__(self, file: ModelFile) -> None:
        name = metadata.text(file, "general.architecture")
        dim = metadata.integer(file, f"{name}.embedding_length", 1, 1 << 20)
        if "cls.output.weight" not in file.tensors:
            raise FormatError(f"{file.path}: no tensor for 'cls.output.weight', the head's")
        if file.tensors["cls.output.weight"].shape != (1, dim):
            raise UnsupportedError(
                f"{file.path}: tensor 'cls.output.weight': expected [1, {dim}], found "
                f"{list(file.tensors['cls.output.weight'].shape)}"
            )
        activation, pooling = getattr(architectures.find(file), "HEAD", ("tanh", Pooling.CLS))
        if f"{name}.{SCORING}" in file.metadata:
            activation = metadata.text(file, f"{name}.{SCORING}")
        self._first = None
        if "cls.weight" in file.tensors:
            self._first = Layer(file, "cls", dim, dim, activation)
        self._norm = None
        if "cls.norm.weight" in file.tensors:
            bias = np.zeros(dim, np.float32)
            if "cls.norm.bias" in file.tensors:
                bias = _values(file, "cls.norm.bias", dim)
            epsilon = metadata.number(file, f"{name}.attention.layer_norm_epsilon")
            self._norm = _values(file, "cls.norm.weight", dim), bias, epsilon
        self._last = Layer(file, "cls.output", 1, dim, "identity")
        self.pooling = Pooling(metadata.integer(file, f"{name}.{SCORED}", 1, 2, pooling))

    def __call__(self, vectors: F32Array) -> F32Array:
        """Scores [n] of vectors [n, dim]."""
        return np.array([self._score(vector) for vector in vectors], np.float32)

    def _score(self, vector: F32Array) -> float:
        if self._first is not None:
            vector = self._first(vector)
        if self._norm is not None:
            gain, bias, epsilon = self._norm
            [vector] = layer_norm.meaning(vector[None], gain, bias, epsilon=epsilon)
        return float(self._last(vector)[0])


def _values(file: ModelFile, name: str, *shape: int) -> F32Array:
    values: F32Array = metadata.tensor(file, name, shape).decode()
    return values
