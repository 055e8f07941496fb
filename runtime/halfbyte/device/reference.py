"""Reference decoders to be measured: realistic shapes and types, random weights.

`reference_graphs` has the graphs. They share nothing: a decoder is a model file for the text
loader, a graph is nodes and feeds; what is measured of both is `halfbyte.device.timing.Timed`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from halfbyte.formats.model_file import MetadataValue, ModelFile
from halfbyte.weights import F32, FORMATS, Tensor, WeightFormat


@dataclass(frozen=True)
class Shape:
    """Sizes of a decoder whose head is its embedding table."""

    dim: int
    layers: int
    heads: int
    kv_heads: int
    hidden: int
    vocabulary: int
    context: int = 512


def reference_model(shape: Shape, weights: str) -> ModelFile:
    """A decoder of Llama's architecture in memory, its matrices in one type, no tokenizer."""
    random, tensors = np.random.default_rng(0), {}
    for name, size in _tensors(shape):
        kind: type[WeightFormat] = FORMATS[weights] if len(size) == 2 else F32
        tensors[name] = Tensor(name, kind, size, _values(kind, size, random))
    sizes = {
        "context_length": shape.context, "embedding_length": shape.dim,
        "block_count": shape.layers, "feed_forward_length": shape.hidden,
        "attention.head_count": shape.heads, "attention.head_count_kv": shape.kv_heads,
    }  # fmt: skip
    metadata: dict[str, MetadataValue] = {f"llama.{k}": np.uint32(v) for k, v in sizes.items()}
    metadata["general.architecture"] = "llama"
    metadata["llama.attention.layer_norm_rms_epsilon"] = np.float32(1e-5)
    return ModelFile(Path(f"reference-{weights}"), "reference", metadata, tensors)


def _tensors(shape: Shape) -> Iterator[tuple[str, tuple[int, ...]]]:
    dim, hidden, kv = shape.dim, shape.hidden, shape.dim // shape.heads * shape.kv_heads
    yield "token_embd.weight", (shape.vocabulary, dim)
    for layer in range(shape.layers):
        block = f"blk.{layer}."
        yield f"{block}attn_norm.weight", (dim,)
        yield f"{block}ffn_norm.weight", (dim,)
        for name, rows, columns in (
            ("attn_q", dim, dim), ("attn_k", kv, dim), ("attn_v", kv, dim),
            ("attn_output", dim, dim), ("ffn_gate", hidden, dim), ("ffn_up", hidden, dim),
            ("ffn_down", dim, hidden),
        ):  # fmt: skip
            yield f"{block}{name}.weight", (rows, columns)
    yield "output_norm.weight", (dim,)


def _values(
    kind: type[WeightFormat], size: tuple[int, ...], random: np.random.Generator
) -> np.ndarray[tuple[int, ...], np.dtype[np.uint8]]:
    """Sixteen random rows, repeated: encoding all of them would take minutes."""
    if len(size) == 1:
        return kind.encode(np.ones((1, size[0]), np.float32)).reshape(-1)
    rows, columns = size
    sample = random.standard_normal((16, columns), np.float32) * np.float32(columns**-0.5)
    encoded = kind.encode(sample)
    repeated = np.tile(encoded, (-(-rows // len(encoded)), 1))[:rows]
    return np.ascontiguousarray(repeated).reshape(-1)
