"""GPT-2 (Radford et al. 2019) with past keys and values, as exporters write it.

Parameter names and layouts are those of transformers: projections are [in, out] and written as
Reshape, Gemm, Reshape.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx
from tools.onnx_models.builder import FLOAT, INT64, GraphBuilder, Shape
from tools.onnx_models.parts import LOWEST, gelu, layer_norm, masked, merge_heads, split_heads
from tools.onnx_models.weights import F32Array, Random, Weights


@dataclass(frozen=True)
class Gpt2Config:
    """Sizes; `tied` transposes the embeddings in the graph, where exporters write a copy."""

    layers: int
    width: int
    heads: int
    vocabulary: int = 50257
    positions: int = 1024
    epsilon: float = 1e-5
    opset: int = 17
    decomposed: bool = False
    tied: bool = False


SIZES = {
    "gpt2": Gpt2Config(12, 768, 12),
    "gpt2-medium": Gpt2Config(24, 1024, 16),
    "gpt2-small": Gpt2Config(2, 64, 4, vocabulary=1000, positions=128),
}


class _Decoder:
    """One graph, and values that its layers share."""

    def __init__(self, config: Gpt2Config, weights: Weights) -> None:
        self.config, self._weights = config, weights
        self.graph = GraphBuilder("gpt2", config.opset)

    def _vector(self, name: str, size: int, mean: float = 0.0) -> F32Array:
        return self._weights.take(name, (size,), mean=mean)

    def conv1d(self, x: str, name: str, inputs: int, outputs: int, deviation: float = 1.0) -> str:
        """y = x W + b over the last axis: Reshape to a matrix, Gemm, Reshape back."""
        g = self.graph
        values = self._weights.take(
            f"{name}.weight", (inputs, outputs), deviation / np.sqrt(inputs)
        )
        weight = g.weight(f"{name}.weight", values)
        bias = g.weight(f"{name}.bias", self._vector(f"{name}.bias", outputs))
        shape = g.shape_of(g.dim(x, 0), g.dim(x, 1), outputs)
        y = g.node("Gemm", g.node("Reshape", x, g.ints(-1, inputs)), weight, bias)
        return g.node("Reshape", y, shape)

    def norm(self, x: str, name: str) -> str:
        """LayerNorm over the last axis."""
        c = self.config
        gain = self._vector(f"{name}.weight", c.width, mean=1.0)
        bias = self._vector(f"{name}.bias", c.width)
        return layer_norm(self.graph, x, name, gain, bias, c.epsilon, decomposed=c.decomposed)

    def attention(self, x: str, mask: str, index: int) -> str:
        """Causal attention over the past and the new tokens; adds the present outputs."""
        g, c, name = self.graph, self.config, f"h.{index}.attn"
        qkv = g.split(self.conv1d(x, f"{name}.c_attn", c.width, 3 * c.width), [c.width] * 3, 2)
        size = c.width // c.heads
        q, k, v = (split_heads(g, y, c.heads, size, [0, 2, 1, 3]) for y in qkv)
        k, v = (
            g.node(
                "Concat", f"past_key_values.{index}.{kind}", y,
                axis=2, output=f"present.{index}.{kind}",
            )
            for kind, y in (("key", k), ("value", v))
        )  # fmt: skip
        scores = g.node("MatMul", q, g.node("Transpose", k, perm=[0, 1, 3, 2]))
        scores = self.causal(g.node("Div", scores, g.constant(size**0.5)), q, k)
        weights = g.node("Softmax", g.node("Add", scores, mask), axis=-1)
        y = merge_heads(g, g.node("MatMul", weights, v), c.width)
        return self.conv1d(y, f"{name}.c_proj", c.width, c.width, self._residual)

    @property
    def _residual(self) -> float:
        """Factor that keeps the sum of all layers as large as one layer."""
        return float((2 * self.config.layers) ** -0.5)

    def causal(self, scores: str, q: str, k: str) -> str:
        """Scores of later tokens become the lowest float32: rows [keys - queries, keys) of a
        triangle of all positions choose."""
        g, n = self.graph, self.config.positions
        triangle = g.weight("attn.bias", np.tri(n, dtype=np.bool_)[None, None])
        keys, queries = g.dim(k, 2), g.dim(q, 2)
        first, last = (g.unsqueeze(d, 0) for d in (g.node("Sub", keys, queries), keys))
        rows = g.node("Slice", triangle, first, last, g.ints(2))
        square = g.node("Slice", rows, g.ints(0), last, g.ints(3))
        return g.node("Where", square, scores, g.constant(LOWEST))

    def layer(self, x: str, mask: str, index: int) -> str:
        """Norm and attention, added; norm and feed-forward network, added."""
        g, c, name = self.graph, self.config, f"h.{index}"
        with g.scope(name):
            x = g.node("Add", self.attention(self.norm(x, f"{name}.ln_1"), mask, index), x)
            y = self.conv1d(self.norm(x, f"{name}.ln_2"), f"{name}.mlp.c_fc", c.width, 4 * c.width)
            y = gelu(g, y, "tanh")
            y = self.conv1d(y, f"{name}.mlp.c_proj", 4 * c.width, c.width, self._residual)
            return g.node("Add", x, y)

    def embeddings(self, ids: str, positions: str) -> str:
        """Words + positions: [batch, sequence, width]."""
        g, c = self.graph, self.config
        words, places = (
            g.node("Gather", g.weight(f"{n}.weight", self.table(n, rows)), index)
            for n, rows, index in (("wte", c.vocabulary, ids), ("wpe", c.positions, positions))
        )
        return g.node("Add", words, places)

    def table(self, name: str, rows: int) -> F32Array:
        """Embeddings [rows, width]."""
        return self._weights.take(f"{name}.weight", (rows, self.config.width))

    def head(self, x: str) -> None:
        """Logits: the product with the embeddings of all tokens."""
        g, c = self.graph, self.config
        if c.tied:
            matrix = g.node("Transpose", "wte.weight", perm=[1, 0])
        else:
            matrix = g.weight("lm_head.weight", self.table("wte", c.vocabulary).T)
        g.node("MatMul", x, matrix, output="logits")
        g.output("logits", FLOAT, ["batch", "sequence", c.vocabulary])


def _declare_past(g: GraphBuilder, config: Gpt2Config) -> None:
    """Inputs and outputs of keys and values, layer by layer."""
    size = config.width // config.heads
    total = "past_sequence + sequence"
    for index in range(config.layers):
        for kind in ("key", "value"):
            past: Shape = ["batch", config.heads, "past_sequence", size]
            g.input(f"past_key_values.{index}.{kind}", FLOAT, past)
            g.output(f"present.{index}.{kind}", FLOAT, ["batch", config.heads, total, size])


def build(config: Gpt2Config, weights: Weights | None = None) -> onnx.ModelProto:
    """The model.

    Inputs: `input_ids` and `position_ids` int64 [batch, sequence], `attention_mask` int64 [batch,
    past + sequence], and for each layer `past_key_values.<i>.key` and `.value`, float32 [batch,
    heads, past, width / heads], where past may be 0. Outputs: `logits` float32 [batch, sequence,
    vocabulary]; `present.<i>.key` and `.value` [batch, heads, past + sequence, width / heads].
    """
    decoder = _Decoder(config, weights or Random())
    g = decoder.graph
    ids = g.input("input_ids", INT64, ["batch", "sequence"])
    mask = g.input("attention_mask", INT64, ["batch", "past_sequence + sequence"])
    positions = g.input("position_ids", INT64, ["batch", "sequence"])
    added = masked(g, g.unsqueeze(g.unsqueeze(mask, 1), 2))
    x = decoder.embeddings(ids, positions)
    for index in range(config.layers):
        x = decoder.layer(x, added, index)
    decoder.head(decoder.norm(x, "ln_f"))
    _declare_past(g, config)
    return g.model()
