"""BERT encoders as exporters write them (Devlin et al. 2018; parameter names of transformers).

Matrices are stored [in, out], as MatMul takes them: the transpose of the checkpoint's.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx
from tools.onnx_models.builder import FLOAT, INT64, GraphBuilder
from tools.onnx_models.parts import gelu, layer_norm, linear, masked, merge_heads, split_heads
from tools.onnx_models.weights import F32Array, Random, Weights


@dataclass(frozen=True)
class BertConfig:
    """Sizes, and the forms in which the graph is written.

    Attributes
    ----------
    gelu
        "erf" spelled out as Div, Erf, Add, Mul, Mul; or "op": opset 20's Gelu.
    decomposed
        LayerNorm from ReduceMean, Sub, Pow, Sqrt, Div, as written before opset 17.
    pooled
        Mean over the tokens and unit length in the graph; the output is `sentence_embedding`.
    pooler
        BERT's own pooler as a second output, `pooler_output`.
    """

    layers: int
    width: int
    heads: int
    ffn: int
    vocabulary: int = 30522
    positions: int = 512
    types: int = 2
    epsilon: float = 1e-12
    opset: int = 17
    gelu: str = "erf"
    decomposed: bool = False
    pooled: bool = False
    pooler: bool = False


SIZES = {
    "bert-base": BertConfig(12, 768, 12, 3072),
    "bert-large": BertConfig(24, 1024, 16, 4096),
    "bert-small": BertConfig(2, 64, 4, 128, vocabulary=1000, positions=128),
}


class _Encoder:
    """One graph, and values that its layers share."""

    def __init__(self, config: BertConfig, weights: Weights, name: str) -> None:
        self.config, self._weights = config, weights
        self.graph = GraphBuilder(name, config.opset)

    def _matrix(self, name: str, outputs: int, inputs: int) -> F32Array:
        return self._weights.take(f"{name}.weight", (outputs, inputs), inputs**-0.5)

    def _vector(self, name: str, size: int, mean: float = 0.0) -> F32Array:
        return self._weights.take(name, (size,), mean=mean)

    def linear(self, x: str, name: str, inputs: int, outputs: int) -> str:
        """y = x Wᵀ + b."""
        weight = self._matrix(name, outputs, inputs).T
        return linear(self.graph, x, name, weight, self._vector(f"{name}.bias", outputs))

    def norm(self, x: str, name: str, output: str = "") -> str:
        """LayerNorm over the last axis."""
        c = self.config
        gain = self._vector(f"{name}.weight", c.width, mean=1.0)
        bias = self._vector(f"{name}.bias", c.width)
        return layer_norm(
            self.graph, x, name, gain, bias, c.epsilon, decomposed=c.decomposed, output=output
        )

    def embeddings(self, ids: str, types: str) -> str:
        """LayerNorm(words + types + positions): [batch, sequence, width]."""
        g, c = self.graph, self.config
        tables = {"word": c.vocabulary, "token_type": c.types, "position": c.positions}
        with g.scope("embeddings"):
            sequence = g.unsqueeze(g.dim(ids, 1), 0)
            numbers = g.weight("embeddings.position_ids", np.arange(c.positions)[None])
            positions = g.node("Slice", numbers, g.ints(0), sequence, g.ints(1))
            words, kinds, places = (
                g.node("Gather", self._table(f"embeddings.{kind}_embeddings", rows), index)
                for (kind, rows), index in zip(tables.items(), (ids, types, positions), strict=True)
            )
            total = g.node("Add", g.node("Add", words, kinds), places)
            return self.norm(total, "embeddings.LayerNorm")

    def _table(self, name: str, rows: int) -> str:
        name = f"{name}.weight"
        return self.graph.weight(name, self._weights.take(name, (rows, self.config.width)))

    def attention(self, x: str, mask: str, name: str) -> str:
        """softmax(Q Kᵀ / sqrt(d) + mask) V, with heads merged, before the projection."""
        g, c = self.graph, self.config
        q, k, v = (
            self.linear(x, f"{name}.{part}", c.width, c.width) for part in ("query", "key", "value")
        )
        size = c.width // c.heads
        q, v = (split_heads(g, y, c.heads, size, [0, 2, 1, 3]) for y in (q, v))
        k = split_heads(g, k, c.heads, size, [0, 2, 3, 1])
        scores = g.node("Div", g.node("MatMul", q, k), g.constant(size**0.5))
        weights = g.node("Softmax", g.node("Add", scores, mask), axis=-1)
        return merge_heads(g, g.node("MatMul", weights, v), c.width)

    def layer(self, x: str, mask: str, index: int, output: str = "") -> str:
        """Attention, then the feed-forward network; each added to its input and normalized."""
        g, c, name = self.graph, self.config, f"encoder.layer.{index}"
        with g.scope(name):
            y = self.attention(x, mask, f"{name}.attention.self")
            y = self.linear(y, f"{name}.attention.output.dense", c.width, c.width)
            x = self.norm(g.node("Add", y, x), f"{name}.attention.output.LayerNorm")
            y = gelu(g, self.linear(x, f"{name}.intermediate.dense", c.width, c.ffn), c.gelu)
            y = self.linear(y, f"{name}.output.dense", c.ffn, c.width)
            return self.norm(g.node("Add", y, x), f"{name}.output.LayerNorm", output)

    def pool(self, x: str, mask: str) -> None:
        """Mean over unmasked tokens, divided by its length."""
        g = self.graph
        with g.scope("pooling"):
            wide = g.node("Expand", g.unsqueeze(mask, -1), g.node("Shape", x))
            wide = g.node("Cast", wide, to=FLOAT)
            total = g.reduce_sum(g.node("Mul", x, wide), 1)
            count = g.node("Clip", g.reduce_sum(wide, 1), g.constant(1e-9))
            mean = g.node("Div", total, count)
            length = g.node("Clip", g.reduce_l2(mean, -1), g.constant(1e-12))
            length = g.node("Expand", length, g.node("Shape", mean))
            g.node("Div", mean, length, output="sentence_embedding")
        g.output("sentence_embedding", FLOAT, ["batch", self.config.width])

    def pooler(self, x: str) -> None:
        """tanh of a projection of the first token."""
        g, width = self.graph, self.config.width
        with g.scope("pooler"):
            first = g.node("Gather", x, g.constant(0, np.int64), axis=1)
            weight = g.weight("pooler.dense.weight", self._matrix("pooler.dense", width, width))
            bias = g.weight("pooler.dense.bias", self._vector("pooler.dense.bias", width))
            g.node("Tanh", g.node("Gemm", first, weight, bias, transB=1), output="pooler_output")
        g.output("pooler_output", FLOAT, ["batch", width])


def build(
    config: BertConfig, weights: Weights | None = None, name: str = "bert"
) -> onnx.ModelProto:
    """The model.

    Inputs, all int64 [batch, sequence]: `input_ids`, `attention_mask`, `token_type_ids`. Outputs:
    `last_hidden_state` [batch, sequence, width], or `sentence_embedding` [batch, width] where
    pooled; then `pooler_output` [batch, width] where asked for.
    """
    encoder = _Encoder(config, weights or Random(), name)
    g = encoder.graph
    ids, mask, types = (
        g.input(name, INT64, ["batch", "sequence"])
        for name in ("input_ids", "attention_mask", "token_type_ids")
    )
    added = masked(g, g.unsqueeze(g.unsqueeze(mask, 1), 2))
    x = encoder.embeddings(ids, types)
    for index in range(config.layers):
        last = index + 1 == config.layers and not config.pooled
        x = encoder.layer(x, added, index, "last_hidden_state" if last else "")
    if config.pooled:
        encoder.pool(x, mask)
    else:
        g.output(x, FLOAT, ["batch", "sequence", config.width])
    if config.pooler:
        encoder.pooler(x)
    return g.model()
