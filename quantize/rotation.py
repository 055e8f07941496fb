"""Rotating a language model's residual stream: the same function, with channels of similar size.

With an orthogonal matrix R, a model whose residual stream is x R computes what it did with x if its
embeddings are E R, matrices that read the stream W R, and those that write to it R^T W: RMSNorm
only looks at a row's length. Gains of norms do not commute with R, so they are multiplied into the
columns of the matrices after them first, and become 1. A head that was the embedding is stored as a
matrix of its own then, since only the head reads a norm.

R is a Hadamard matrix of the largest power of two in the row's size, times (Kronecker) the cosine
transform of the odd rest, after random signs from a fixed seed. So a channel that is far larger
than the others, which costs those that share its scale their precision, is spread over all.

Source: Ashkboos et al. 2024, QuaRot; the rotation of the residual stream, which needs no operators.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from halfbyte.errors import UnsupportedError
from halfbyte.formats import ModelFile
from halfbyte.formats.derived import DerivedTensor
from halfbyte.quantize.recipe import is_coarse
from halfbyte.text import architectures
from halfbyte.text.architectures._block import TABLES, Block
from halfbyte.weights import F32 as FLOAT
from halfbyte.weights import U8, Tensor

F64Array = npt.NDArray[np.float64]

EMBEDDING, HEAD, NORM = "token_embd.weight", "output.weight", "output_norm.weight"
_ATTENTION = re.compile(r"attn_(q|k|v|qkv)\.weight")
_FEED_FORWARD = re.compile(r"ffn_(gate|up|gate_inp)(_exps|_shexp)?\.weight")
_WRITERS = re.compile(r"(attn_output|ffn_down(_exps|_shexp)?)\.(weight|bias)")
# What neither reads the residual stream nor writes to it
_OTHERS = re.compile(
    r"attn_(q|k|v|qkv)\.bias|attn_[qk]_norm\.weight|attn_sinks\.weight|"
    r"ffn_(gate|up|gate_inp)(_exps|_shexp)?\.bias|exp_probs_b\.bias"
)


class Rotation:
    """R for rows of a size; see the module."""

    def __init__(self, size: int) -> None:
        self.power = size & -size
        rest = np.arange(size // self.power)
        waves = np.cos(np.pi * (2 * rest[:, None] + 1) * rest / (2 * len(rest)))
        self._cosines: F64Array = waves / np.sqrt(np.square(waves).sum(axis=0))
        self._signs = np.random.default_rng(0).choice([-1.0, 1.0], size)

    def __call__(self, x: npt.NDArray[np.floating]) -> F64Array:
        """x R, for rows [n, size]."""
        y = (x * self._signs).reshape(len(x), self.power, -1) @ self._cosines
        apart = 1
        while apart < self.power:
            pairs = y.reshape(len(x), self.power // (2 * apart), 2, -1)
            first, second = pairs[:, :, 0], pairs[:, :, 1]
            y = np.stack([first + second, first - second], axis=2)
            apart *= 2
        rotated: F64Array = y.reshape(x.shape) / np.sqrt(self.power)
        return rotated


def rotated(file: ModelFile) -> ModelFile:
    """The model with its residual stream rotated; its tensors are computed as they are needed.

    Raises
    ------
    UnsupportedError
        The architecture has other than RMSNorms before its parts, or tensors of which it is not
        known how they take part; the outputs are vectors; matrices are quantized already.
    """
    block = _block(file)
    size = file.tensors[EMBEDDING].columns
    rotation = Rotation(size)
    gains = {name: _gain(file, name) for name in _norms(file, block)}
    tensors = {name: _turned(file, name, block, rotation, gains) for name in file.tensors}
    notes = [*file.notes]
    if HEAD not in tensors:
        source = _renamed(file.tensors[EMBEDDING], HEAD)
        tensors[HEAD] = _reader(source, gains[NORM], rotation)
        notes.append("the head, which was the embedding, is a matrix of its own")
    return replace(file, tensors=tensors, notes=notes)


def _refuse(file: ModelFile, why: str) -> UnsupportedError:
    return UnsupportedError(f"{file.path}: cannot be rotated: {why}")


def _block(file: ModelFile) -> Block:
    """The block of the model's architecture; raises where it cannot be rotated."""
    name = file.metadata.get("general.architecture")
    block = getattr(architectures.get(name), "BLOCK", None) if architectures.has(name) else None
    if not isinstance(block, Block) or block.norm != "rms":
        raise _refuse(file, f"expected an architecture with RMSNorms like Llama, found {name!r}")
    if not block.before or block.after or block.first or block.positions is not None:
        raise _refuse(file, f"{name!r} has norms in other places than before its parts")
    if f"{name}.pooling_type" in file.metadata:
        raise _refuse(file, "its outputs are vectors, which would be rotated too")
    for needed in (EMBEDDING, NORM):
        if needed not in file.tensors:
            raise _refuse(file, f"expected a tensor {needed!r}")
    for tensor in file.tensors.values():
        if len(tensor.shape) > 1 and is_coarse(tensor.format):
            raise _refuse(file, f"tensor {tensor.name!r} is {tensor.format.name} already")
    return block


def _norms(file: ModelFile, block: Block) -> list[str]:
    ends = (f".{block.attn_norm}.weight", f".{block.ffn_norm}.weight")
    return [name for name in file.tensors if name == NORM or name.endswith(ends)]


def _gain(file: ModelFile, name: str) -> F64Array:
    return file.tensors[name].decode().astype(np.float64).reshape(-1)


def _turned(
    file: ModelFile, name: str, block: Block, rotation: Rotation, gains: dict[str, F64Array]
) -> Tensor:
    """A tensor as the rotated stream needs it."""
    tensor, (prefix, part) = file.tensors[name], _split(name)
    if name in gains:
        ones = np.ones(tensor.shape, np.float32)
        return Tensor(name, FLOAT, tensor.shape, FLOAT.encode(ones.reshape(1, -1)).reshape(-1))
    if name == EMBEDDING:
        return _reader(tensor, np.ones(tensor.columns), rotation)
    if name == HEAD:
        return _reader(tensor, gains[NORM], rotation)
    if prefix and _WRITERS.fullmatch(part):
        is_vector = part.endswith("bias")
        return _reader(tensor, np.ones(()), rotation) if is_vector else _writer(tensor, rotation)
    if prefix and (_ATTENTION.fullmatch(part) or _FEED_FORWARD.fullmatch(part)):
        norm = f"{prefix}{block.attn_norm}.weight"
        if part.startswith("ffn"):
            own = f"{prefix}{block.ffn_norm}.weight"
            norm = own if own in gains else norm
        if norm not in gains or gains[norm].shape != (tensor.columns,):
            raise _refuse(file, f"tensor {name!r} reads no norm of its {tensor.columns} columns")
        return _reader(tensor, gains[norm], rotation)
    if (prefix and _OTHERS.fullmatch(part)) or name in TABLES or name == "output.bias":
        return tensor
    raise _refuse(file, f"it is not known what tensor {name!r} reads and writes")


def _split(name: str) -> tuple[str, str]:
    match = re.match(r"blk\.\d+\.", name)
    prefix = match[0] if match else ""
    return prefix, name.removeprefix(prefix)


def _renamed(tensor: Tensor, name: str) -> Tensor:
    """The same tensor under another name."""
    return DerivedTensor(name, tensor.format, tensor.shape, tensor.take)


def _derived(tensor: Tensor, make: Callable[[int, int], F64Array]) -> Tensor:
    def encoded(first: int, count: int) -> U8:
        return FLOAT.encode(np.ascontiguousarray(make(first, count), np.float32))

    return DerivedTensor(tensor.name, FLOAT, tensor.shape, encoded)


def _values(tensor: Tensor, first: int, count: int) -> F64Array:
    rows = np.ascontiguousarray(tensor.take(first, count))
    return tensor.format.decode(rows).astype(np.float64)


def _reader(tensor: Tensor, gain: F64Array, rotation: Rotation) -> Tensor:
    """Rows times the gain, rotated."""
    return _derived(tensor, lambda first, count: rotation(_values(tensor, first, count) * gain))


def _writer(tensor: Tensor, rotation: Rotation) -> Tensor:
    """A matrix, or each of a stack, whose columns are rotated: R^T W."""
    rows = tensor.shape[-2]

    @lru_cache(maxsize=1)
    def matrix(number: int) -> npt.NDArray[np.float32]:
        columns = rotation(_values(tensor, number * rows, rows).T)
        return columns.T.astype(np.float32)

    def make(first: int, count: int) -> F64Array:
        parts = []
        for number in range(first // rows, -(-(first + count) // rows)):
            start = max(first - number * rows, 0)
            end = min(first + count - number * rows, rows)
            parts.append(matrix(number)[start:end])
            if end == rows:
                matrix.cache_clear()
        return np.concatenate(parts)

    return _derived(tensor, make)
