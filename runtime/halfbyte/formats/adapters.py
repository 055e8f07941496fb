"""Low-rank adapters (LoRA): small files that change the matrices of a language model.

A matrix W [m, k] becomes W + scale * factor * B A, with A [r, k] and B [m, r]. `scale` is the
user's, `factor` is the trainer's: alpha / r, or alpha / sqrt(r) (rank-stabilized). Sources: Hu et
al. 2021, LoRA; Kalajdzievski 2023, A Rank Stabilization Scaling Factor.

This module reads llama.cpp's GGUF files, `huggingface.adapter` reads folders of PEFT.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from halfbyte.errors import FormatError, UnsupportedError
from halfbyte.formats import gguf, metadata
from halfbyte.formats.mapped import map_file
from halfbyte.formats.metadata import PASSED
from halfbyte.formats.model_file import ModelFile
from halfbyte.weights import F32Array, Tensor

MAX_RANK = 1 << 12
HEAD, EMBEDDING = "output.weight", "token_embd.weight"
_ONE_ROW = "ffn_gate_inp_shexp.weight"  # a vector in GGUF, a matrix of one row elsewhere


@dataclass(frozen=True)
class LowRank:
    """The change of one matrix [m, k]: factor * b a."""

    source: str  # A's name in the file, for messages
    a: F32Array  # [r, k]
    b: F32Array  # [m, r]
    factor: float


@dataclass(frozen=True)
class Adapter:
    """An adapter of a model: changes by GGUF's names of matrices.

    That of the embedding is the change of a head that has no matrix of its own.
    """

    path: Path
    changes: Mapping[str, LowRank]

    def of(self, tensor: Tensor) -> LowRank | None:
        """The change of a matrix, or of the rows of a larger one that it is a part of."""
        whole = tensor.whole or tensor
        change = self.changes.get(whole.name)
        if change is None or whole is tensor:
            return change
        return replace(change, b=change.b[tensor.picked])


class Half(NamedTuple):
    """A or B of a matrix, as found in a file."""

    target: str  # GGUF's name of the matrix
    side: str  # "a" or "b"
    tensor: Tensor
    transform: Callable[[F32Array], F32Array] = lambda values: values
    matrices: int = 1  # one below the other, whose B this is

    def values(self, path: Path) -> F32Array:
        """The numbers in GGUF's order; raises `FormatError` if they are not finite."""
        values = self.tensor.decode()
        if not np.isfinite(values).all():
            raise FormatError(f"{path}: tensor {self.tensor.name!r}: expected finite numbers")
        return self.transform(values)


def read_gguf_adapter(path: Path, model: ModelFile) -> Adapter:
    """An adapter in llama.cpp's GGUF format.

    Raises
    ------
    FormatError, UnsupportedError
        It is no adapter, it is for another model, or a tensor does not fit; the message names it.
    """
    file = gguf.read_gguf(path, map_file(path))
    for key, expected in (
        ("general.type", "adapter"), ("adapter.type", "lora"),
        ("general.architecture", metadata.text(model, "general.architecture")),
    ):  # fmt: skip
        if (found := file.metadata.get(key)) != expected:
            shown = f"{found!r:.80}" if isinstance(found, str) else "nothing"
            raise UnsupportedError(
                f"{path}: metadata {key!r}: expected {expected!r}, found {shown}"
            )
    alpha = metadata.number(file, "adapter.lora.alpha")
    passed = {"lora.task_name": PASSED, "lora.prompt_prefix": PASSED}
    metadata.refuse_others(file, "adapter.", {"type", "lora.alpha"}, passed)
    halves = []
    for name, tensor in file.tensors.items():
        target, _, end = name.rpartition(".")
        if end not in ("lora_a", "lora_b"):
            raise UnsupportedError(
                f"{path}: tensor {name!r}: expected only .lora_a and .lora_b of matrices"
            )
        halves.append(Half(target, end[-1], tensor))
    return paired(path, model, halves, lambda target, rank: alpha / rank)


def paired(
    path: Path, model: ModelFile, halves: Iterable[Half], factor: Callable[[str, int], float]
) -> Adapter:
    """The adapter of these tensors, each checked against the model's.

    `factor` is that of a matrix, by its name and the rank.
    """
    pairs: dict[str, dict[str, Half]] = {}
    for half in halves:
        pairs.setdefault(half.target, {})[half.side] = half
    if not pairs:
        raise FormatError(f"{path}: expected an adapter, found no tensors")
    changes = {}
    for target, pair in pairs.items():
        if len(pair) < 2:
            [half] = pair.values()
            raise FormatError(
                f"{path}: tensor {half.tensor.name!r}: expected A and B, found one of them"
            )
        a, b = pair["a"], pair["b"]
        name, rank = _check(path, model, a, b)
        left, right = a.values(path), b.values(path)
        changes[name] = LowRank(a.tensor.name, left, right, factor(target, rank))
    return Adapter(path, changes)


def _check(path: Path, model: ModelFile, a: Half, b: Half) -> tuple[str, int]:
    """The name of the matrix and the rank of its change; raises if it does not fit."""
    where = f"{path}: tensor {a.tensor.name!r}"
    name = EMBEDDING if a.target == HEAD and HEAD not in model.tensors else a.target
    matrix = model.tensors.get(name)
    if matrix is None:
        raise FormatError(f"{where}: {model.path.name} has no matrix {a.target!r}")
    size = (1, matrix.columns) if name.endswith(_ONE_ROW) else matrix.shape
    if len(size) != 2 or a.target == EMBEDDING:
        raise UnsupportedError(
            f"{where}: expected an adapter of matrices that activations are multiplied with, "
            f"found one of {a.target!r}"
        )
    rank = a.tensor.shape[0]
    for half, shape in ((a, (rank, size[1])), (b, (size[0] * b.matrices, rank))):
        if half.tensor.shape != shape:
            raise FormatError(
                f"{path}: tensor {half.tensor.name!r}: expected {list(shape)}, for {name!r} "
                f"{list(size)}, found {list(half.tensor.shape)}"
            )
    if rank > MAX_RANK:
        raise UnsupportedError(f"{where}: expected a rank of at most {MAX_RANK}, found {rank}")
    return name, rank
