"""Latent attention: keys and values of all heads are products with one vector for each token.

Only this vector and the rotated part of keys, which heads share, are cached, as the key and the
value of one group of heads. Queries are multiplied with their head's matrix of keys (`attn_k_b`)
before that, results with its matrix of values (`attn_v_b`) after it; in older files one matrix
(`attn_kv_b`) has both. Source: DeepSeek-AI 2024, DeepSeek-V2.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from halfbyte.core import ops
from halfbyte.core.buffer import Buffer, Dim, maximum
from halfbyte.formats import metadata
from halfbyte.formats.derived import reordered, widened
from halfbyte.text.architectures import CHANNELS, _block
from halfbyte.text.architectures._block import Block, Config
from halfbyte.text.architectures._decoder import Decoder, RotaryConfig
from halfbyte.text.architectures._keys import Keys
from halfbyte.text.architectures._rotary import Rope

if TYPE_CHECKING:
    from halfbyte.formats.huggingface.names import Translation

EQUALIZED = {
    **CHANNELS,
    "attn_norm": ("attn_q", "attn_q_a", "attn_kv_a_mqa"),
    "attn_q_a_norm": ("attn_q_b",),
}
NAMES = {
    "self_attn.q_a_proj": "attn_q_a",
    "self_attn.q_a_layernorm": "attn_q_a_norm",
    "self_attn.q_b_proj": "attn_q_b",
    "self_attn.kv_a_proj_with_mqa": "attn_kv_a_mqa",
    "self_attn.kv_a_layernorm": "attn_kv_a_norm",
    "self_attn.kv_b_proj": "attn_kv_b",
}
_MAX_RANK, _MAX_HEAD = 1 << 14, 1 << 12
_EPSILON = 1e-6  # of norms of these vectors, whatever that of other norms
_MULTIPLIER = "rope.scaling.yarn_log_multiplier"
_OTHERS = dict.fromkeys(("attention.head_count_kv", "attention.value_length"), metadata.ANY)


def translate(config: Translation, architecture: str, epsilon: float) -> None:
    """Set the sizes of a decoder with latent attention."""
    keys = config.keys
    keys.expect("hidden_act", "silu")
    for key in ("attention_bias", "mlp_bias"):
        keys.expect(key, False, None)
    plain, rotated = (keys.integer(f"qk_{n}_head_dim", maximum=_MAX_HEAD) for n in ("nope", "rope"))
    rank, values = keys.integer("kv_lora_rank"), keys.integer("v_head_dim", maximum=_MAX_HEAD)
    config.keys = keys = keys.replaced(head_dim=plain + rotated)
    config.decoder(architecture, default_epsilon=epsilon)
    heads, dim = config.size("attention.head_count"), config.size("embedding_length")
    keys.expect("num_key_value_heads", heads, None)
    config.metadata |= {
        "attention.value_length": np.uint32(values),
        "attention.kv_lora_rank": np.uint32(rank),
        "rope.dimension_count": np.uint32(rotated),
    }
    queries = keys.integer("q_lora_rank") if keys.get("q_lora_rank") else 0
    if queries:
        config.metadata["attention.q_lora_rank"] = np.uint32(queries)
    config.shapes |= {
        "attn_q_a": (queries, dim),
        "attn_q_a_norm": (queries,),
        "attn_q_b": (heads * (plain + rotated), queries),
        "attn_kv_a_mqa": (rank + rotated, dim),
        "attn_kv_a_norm": (rank,),
        "attn_kv_b": (heads * (plain + values), rank),
        "attn_output": (dim, heads * values),
    }


@dataclass(frozen=True)
class Latent:
    """Hyperparameters of latent attention.

    Attributes
    ----------
    rank, query_rank : int
        Elements of the vector of a token, and of that of its queries (0: none).
    plain, values : int
        Elements of a head's keys without positions, and of its values.
    scale : float
        Of products of queries and keys.
    interleaved : bool
        As in a `Block`.
    factors : str
        A tensor that divides the frequencies of rotary positions, if there is one.
    """

    rank: int
    query_rank: int
    plain: int
    values: int
    scale: float
    interleaved: bool
    factors: str = ""

    def mixed(self, model: Decoder, x: Buffer, block: str) -> Buffer:
        """A layer's result for x [n, dim]."""
        heads = model.config.heads
        order: _Order = model.once("order of heads", lambda: _Order(model, x, self.rank))
        q, rotated = self._queries(model, x, block)
        keys, values = self._matrices(model, block)
        q = order.products(order.by_head(q, self.plain), keys, self.rank)
        y, shared = model.fused(x, block + "attn_kv_a_mqa", (self.rank, _config(model).rotated))
        y = self._normed(model, y, block + "attn_kv_a_norm", self.rank)
        k = order.joined(y, self._rotate(model, shared), model.n)
        q = order.joined(q, rotated, order.rows)
        mixed = model.attend(block, q, k, k, rope=None, scale=self.scale)
        y = order.products(order.latent(mixed), values, self.values)
        y = y.view((model.n, heads * self.values))
        return model.linear(y, block + "attn_output", model.config.dim)

    def _queries(self, model: Decoder, x: Buffer, block: str) -> tuple[Buffer, Buffer]:
        """The parts of all heads' queries without positions, and with them."""
        name, heads = block + "attn_q", model.config.heads
        if self.query_rank:
            x = model.linear(x, block + "attn_q_a", self.query_rank)
            x = self._normed(model, x, block + "attn_q_a_norm", self.query_rank)
            name = block + "attn_q_b"
        rows = np.arange(heads * (self.plain + _config(model).rotated)).reshape(heads, -1)
        q, rotated = model.picked(x, name, [rows[:, : self.plain], rows[:, self.plain :]])
        return q, self._rotate(model, rotated)

    def _matrices(self, model: Decoder, block: str) -> tuple[Buffer, Buffer]:
        """The matrices of heads for keys [heads, rank, plain] and values [heads, values, rank]."""
        heads, name = model.config.heads, block + "attn_kv_b.weight"
        if not model.has(name):
            return (
                model.weight(block + "attn_k_b.weight", heads, self.rank, self.plain),
                model.weight(block + "attn_v_b.weight", heads, self.values, self.rank),
            )
        each = self.plain + self.values
        both = model.tensor(name, heads * each, self.rank)
        rows = np.arange(heads * each).reshape(heads, each)
        keys = widened(
            both, f"{name}[keys]",
            lambda w: w.reshape(heads, each, -1)[:, : self.plain].swapaxes(1, 2),
        )  # fmt: skip
        values = reordered(both, f"{name}[values]", rows[:, self.plain :], both)
        return model.program.weight(keys), model.program.weight(values)

    def _normed(self, model: Decoder, x: Buffer, name: str, width: int) -> Buffer:
        y: Buffer = ops.rms_norm(
            x, model.weight(f"{name}.weight", width), epsilon=_EPSILON, heads=1
        )
        return y

    def _rotate(self, model: Decoder, x: Buffer) -> Buffer:
        rope: Rope = model.once(
            "latent rope",
            lambda: model.rope(_config(model), interleaved=self.interleaved, factors=self.factors),
        )
        y: Buffer = ops.rotary_embedding(
            x, rope.cos, rope.sin, head_dim=_config(model).rotated, position=model.position,
            interleaved=rope.interleaved,
        )  # fmt: skip
        return y


def _config(model: Decoder) -> RotaryConfig:
    """The model's sizes, with those of rotary positions."""
    return cast(RotaryConfig, model.config)


class _Order:
    """Rows of tokens' heads, in the order of tokens or of heads, whose matrices differ.

    Parameters
    ----------
    x : Buffer
        Any rows [n, dim] of numbers of four bytes, whose length counts.
    rank : int
        As in `Latent`.
    """

    def __init__(self, model: Decoder, x: Buffer, rank: int) -> None:
        self.program, self.n, self.heads = model.program, model.n, model.config.heads
        heads, n = self.heads, self.n.maximum
        self.rows = model.program.computed_size("heads*n", heads * n, lambda r: heads * r["n"])
        self._tokens = model.program.computed_size("1*n", n, lambda r: r["n"])
        self._any = x.part(0, (self.rows,), "i32")
        self._by_head = self._turned(0, 1, self._tokens, heads).view((self.n, heads))
        self._by_token = self._turned(0, 1, heads, self._tokens).view((self.n, heads))
        whole = rank + _config(model).rotated
        self._width = math.gcd(rank, whole)
        self._parts = self._places(rank // self._width, whole // self._width)
        zeros = model.program.constant("zeros of heads", np.zeros(heads, np.int32))
        self._ends = ops.range_from(zeros, start=self.n, step=self.n)

    def _turned(self, start: int, step: int, rows: Dim, columns: Dim) -> Buffer:
        """start, start + step, ... as a matrix of this size, transposed."""
        numbers = ops.range_from(self._any, start=start, step=step)
        y: Buffer = ops.transpose(numbers.view((1, rows, columns)))
        return y

    def _places(self, count: int, of: int) -> Buffer:
        """The places of the first `count` of the `of` parts of each row, in the order of heads."""
        places = self.program.scratch("i32", (self.rows, count))
        for part in range(count):
            each = self._turned(part, of, self._tokens, self.heads)
            ops.concat_part(places, each.view((self.rows, 1)), offset=part)
        return places.view((self.n, self.heads * count))

    def by_head(self, x: Buffer, width: int) -> Buffer:
        """Rows [n, heads, width] in the order of heads."""
        y: Buffer = ops.expert_rows(x.view((self.rows, width)), self._by_head)
        return y

    def latent(self, x: Buffer) -> Buffer:
        """The first part of rows [n, heads, rank + rotated], in the order of heads."""
        width = maximum(x.shape[1]) // self._width
        rows = self.program.computed_size(
            f"{width}*n", width * self.n.maximum, lambda r: width * r["n"]
        )
        y: Buffer = ops.expert_rows(x.view((rows, self._width)), self._parts)
        return y

    def products(self, x: Buffer, w: Buffer, width: int) -> Buffer:
        """Products of rows in the order of heads with their matrix, in the order of tokens."""
        each = ops.matmul_experts(x, w, self._ends, u=self.heads)
        y: Buffer = ops.expert_rows(each.view((self.rows, width)), self._by_token)
        return y

    def joined(self, first: Buffer, second: Buffer, rows: Dim) -> Buffer:
        """Rows of both, side by side."""
        parts = []
        for x in (first, second):
            width = maximum(x.shape[0]) * maximum(x.shape[1]) // maximum(rows)
            parts.append(x.view((rows, width), "i32"))
        widths = [maximum(part.shape[1]) for part in parts]
        y = self.program.scratch("f32", (self.n, sum(widths) * maximum(rows) // self.n.maximum))
        ops.concat_part(y.view((rows, sum(widths)), "i32"), parts[0], offset=0)
        ops.concat_part(y.view((rows, sum(widths)), "i32"), parts[1], offset=widths[0])
        return y


def read_config(
    keys: Keys, block: Block, *, interleaved: bool, factors: str = "",
    others: dict[str, object] | None = None, **own: Any,
) -> Config:  # fmt: skip
    """Hyperparameters of a decoder with latent attention."""
    heads = keys.size("attention.head_count", _MAX_HEAD)
    rank = keys.size("attention.kv_lora_rank", _MAX_RANK)
    whole = keys.size("attention.key_length", _MAX_HEAD)
    whole = keys.size("attention.key_length_mla", _MAX_HEAD, whole)
    rotated = keys.size("rope.dimension_count", whole - 1)
    values = keys.size("attention.value_length", _MAX_HEAD, whole)
    multiplier = keys.optional(_MULTIPLIER)
    gain = 1 + multiplier * math.log(keys.number("rope.scaling.factor", 1.0))
    latent = Latent(
        rank=rank,
        query_rank=keys.size("attention.q_lora_rank", _MAX_RANK, 0, low=0),
        plain=whole - rotated,
        values=keys.size("attention.value_length_mla", _MAX_HEAD, values),
        scale=gain * gain * whole**-0.5,
        interleaved=interleaved,
        factors=factors,
    )
    layers = keys.size("block_count", 1 << 10)
    config = _block.read_config(
        keys, block, kv_heads=heads, mixer=latent, attends=(False,) * layers,
        others={**_OTHERS, **(others or {})}, **own,
    )  # fmt: skip
    if config.heads > config.dim:
        raise keys.error("attention.head_count", f"expected at most {config.dim}, found {heads}")
    yarn = replace(config.yarn, gain=1.0) if config.yarn else None
    return replace(config, kv_heads=1, head_dim=rank + rotated, yarn=yarn)
