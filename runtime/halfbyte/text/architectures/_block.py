"""Decoders described by options: what their layers do otherwise than Llama's.

An architecture declares a `Block`, reads its numbers into a `Config` and builds both with `build`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from halfbyte.core import ops
from halfbyte.core.buffer import Buffer, maximum
from halfbyte.core.program import Program, capture
from halfbyte.formats.model_file import ModelFile
from halfbyte.text.architectures import CHANNELS, _decoder, _experts
from halfbyte.text.architectures._decoder import Decoder, RotaryConfig, activated
from halfbyte.text.architectures._experts import Experts
from halfbyte.text.architectures._keys import Keys
from halfbyte.text.architectures._rotary import Rope
from halfbyte.text.architectures._ssm import Mixer
from halfbyte.text.architectures._xielu import XIELU

TABLES = frozenset({"rope_freqs.weight"})

# For `EQUALIZED` in architectures whose attention and feed-forward part read the same norm
PARALLEL: Mapping[str, tuple[str, ...]] = {
    "attn_norm": ("attn_q", "attn_k", "attn_v", "attn_qkv", "ffn_gate", "ffn_up"),
    "output_norm": ("output",),
    "ffn_up": ("ffn_down",),
}
# In those without a norm before a part
AFTER: Mapping[str, tuple[str, ...]] = {key: CHANNELS[key] for key in ("output_norm", "ffn_up")}


@dataclass(frozen=True)
class Block:
    """A layer. By default it is Llama's.

    Attributes
    ----------
    norm : str
        "rms"; "layer" for LayerNorm, with biases if the first layer has them; "plain" and
        "plain_rms" for LayerNorm and RMSNorm without gains.
    first : bool
        A norm of the embeddings, also without a tensor of its own.
    before, after : bool
        Norms of what attention and feed-forward part read, and of their results.
    parallel : bool
        Both parts read the layer's input; without a norm of its own, the feed-forward part reads
        that of attention.
    head_norms : str
        Norms of queries and keys: "heads" for each head, "whole" for all heads together,
        "rotated" for each head after its rotation.
    interleaved : bool
        Rotated pairs are neighbours, rather than half of the rotated elements apart.
    activation : str
        "silu", "gelu" (by erf), "gelu_tanh", "relu" or "relu_squared"; of experts also "limited",
        see :func:`_decoder.glued`.
    gated : bool
        The activation of `gate` multiplies `up`.
    sub_norms : bool
        Norms of what the last matrices of attention and of the feed-forward part read.
    attn_norm, ffn_norm : str
        The tensors of the norms before attention and the feed-forward part.
    gated_heads : bool
        Results of heads are multiplied with sigmoids of gates, whose rows follow those of a head's
        queries in ``attn_q``.
    head_gates : bool
        Results of heads are multiplied with sigmoids of gates, of ``attn_gate``: one for each head,
        or for each element.
    whole_pairs : bool
        As `Yarn.whole`.
    bare : bool
        Attention in the first layer reads its input without a norm.
    dense_head : bool
        A matrix (``cls``), the activation and a norm (``cls.norm``) before the head.
    projected : bool
        Files may have matrices from and to embeddings of another width.
    positions : int or None
        Positions are learned; rows of ``position_embd`` before that of the first position.
    """

    norm: str = "rms"
    first: bool = False
    before: bool = True
    after: bool = False
    parallel: bool = False
    head_norms: str = ""
    interleaved: bool = False
    activation: str = "silu"
    gated: bool = True
    sub_norms: bool = False
    attn_norm: str = "attn_norm"
    ffn_norm: str = "ffn_norm"
    gated_heads: bool = False
    head_gates: bool = False
    whole_pairs: bool = True
    bare: bool = False
    dense_head: bool = False
    projected: bool = False
    positions: int | None = None


@dataclass(frozen=True)
class Config(RotaryConfig):
    """Hyperparameters, with those of options. Factors are 1, and others 0, where not used."""

    embedding_scale: float = 1.0
    residual_scale: float = 1.0  # of the results of attention and feed-forward parts
    output_scale: float = 1.0  # of logits
    scale: float = 0.0  # of products of queries and keys; 0 for 1 / sqrt(head_dim)
    softcap: float = 0.0  # of these products
    final_softcap: float = 0.0  # of logits
    clamp: float = 0.0  # limit of queries, keys and values
    alibi: float = 0.0  # of the slopes of heads
    alibi_scale: float = 1.0  # of the slopes
    growth: tuple[float, int] | None = None  # of queries; see `Decoder.rope`
    local_base: float = 0.0  # of rotation in layers with a window, without scaling
    rotates: tuple[bool, ...] = ()  # which layers rotate; empty for all
    parallel: bool | None = None  # in place of the block's
    post_norm: bool = False  # norms of the sums of both parts, in place of those before them
    experts: Experts | None = None  # in place of one feed-forward part
    mixer: Mixer | None = None  # beside attention, or in layers that do not attend
    attends: tuple[bool, ...] = ()  # which layers attend only; empty if all attend and mix
    xielus: tuple[XIELU, ...] = ()  # activations of layers, in place of the block's
    spare: tuple[str, ...] = ()  # beginnings of names of tensors that are not needed


def read_config(
    keys: Keys, block: Block, *, period: int = 0, others: Mapping[str, object] | None = None,
    kv_heads: int = 0, **own: Any,
) -> Config:  # fmt: skip
    """Hyperparameters from metadata; `own` are fields that the architecture has read.

    For `kv_heads` see :func:`_decoder.sizes`.
    """
    rms = "_rms" if block.norm.endswith("rms") else ""
    c = _decoder.rotary(
        keys, period=period, epsilon=f"attention.layer_norm{rms}_epsilon", kv_heads=kv_heads,
        whole=block.whole_pairs,
    )  # fmt: skip
    config = Config(**vars(c), **own)
    keys.refuse_others(config.head_dim, others)
    return config


def build(
    block: Block, file: ModelFile, config: Config, *, context: int, batch: int, cache: str
) -> Program:
    """Capture the model; see :class:`Decoder`."""
    with capture(file.path.name) as program:
        model = _Model(block, file, config, program, context, batch, cache)
        x = model.start()
        for layer in range(config.layers):
            x = model.layer(x, layer)
        x = model.last(x)
        if not config.post_norm:
            x = model.norm_of(x, "output_norm")
        if block.dense_head:
            x = activated(model.linear(x, "cls", config.dim, bias=None), block.activation)
            x = model.norm_of(x, "cls.norm")
        if block.projected and "output_proj.weight" in file.tensors:
            x = model.linear(x, "output_proj", file.tensors["output_proj.weight"].row_count)
        x = model.scaled(x, config.output_scale)
        model.head(x, config.final_softcap)
    return program


class _Model(Decoder):
    """A decoder whose layers follow a `Block`."""

    def __init__(
        self, block: Block, file: ModelFile, config: Config, program: Program, context: int,
        batch: int, cache: str,
    ) -> None:  # fmt: skip
        super().__init__(file, config, program, context, batch, cache)
        self.block, self.c = block, config
        self._everywhere, self._query, self._local = self._ropes()
        self._slopes = None
        if config.alibi:
            table = slopes(config.heads, config.alibi)
            self._slopes = program.constant("slopes", table * np.float32(config.alibi_scale))

    def _ropes(self) -> tuple[Rope | None, Rope | None, Rope | None]:
        """Tables for layers that see everything, for queries there, and for those with a window."""
        c, pairs = self.c, self.block.interleaved
        if c.alibi or self.block.positions is not None:
            return None, None, None
        factors = "rope_freqs.weight" if "rope_freqs.weight" in self.file.tensors else ""
        everywhere = self.rope(c, interleaved=pairs, factors=factors)
        query = local = None
        if c.growth:
            query = self.rope(c, interleaved=pairs, growth=c.growth, name="query.")
        if c.local_base:
            local = self.rope(c, interleaved=pairs, base=c.local_base, factor=1, name="local.")
        return everywhere, query, local

    def start(self) -> Buffer:
        """What the first layer reads."""
        c, projection = self.c, None
        if self.block.projected:
            projection = self.file.tensors.get("token_embd_proj.weight")
        x = self.scaled(self.embed(projection.columns if projection else 0), c.embedding_scale)
        if projection:
            x = self.linear(x, "token_embd_proj", c.dim)
        if self.block.positions is not None:
            first = self.block.positions
            table = self.tensor("position_embd.weight", first + c.context, c.dim)
            part = table.part(first, first + c.context) if first else table
            ids = self.program.input("ids", "i32", (self.n,))
            places = ops.range_from(ids, start=self.position)
            x = ops.add(x, ops.gather(self.program.weight(part), places))
        if self.block.first or "token_embd_norm.weight" in self.file.tensors:
            x = self.norm_of(x, "token_embd_norm")
        return x

    def layer(self, x: Buffer, number: int) -> Buffer:
        """A layer's output."""
        block, c, name = self.block, self.c, f"blk.{number}."
        before = block.before and not c.post_norm
        normed = before and not (block.bare and number == 0)
        h = self.norm_of(x, name + block.attn_norm) if normed else x
        attended = self._mixed(h, name, number)
        if block.after:
            attended = self.norm_of(attended, name + "post_attention_norm")
        attended = self.scaled(attended, c.residual_scale)
        if block.parallel if c.parallel is None else c.parallel:
            if self.has(f"{name}{block.ffn_norm}.weight"):
                h = self.norm_of(x, name + block.ffn_norm)
            x = ops.add(x, attended)
        else:
            x = ops.add(x, attended)
            if c.post_norm:
                x = self.norm_of(x, name + block.attn_norm)
            h = self.norm_of(x, name + block.ffn_norm) if before else x
        y = self._fed_forward(h, name, number)
        if block.after:
            y = self.norm_of(y, name + "post_ffw_norm")
        sums: Buffer = ops.add(x, self.scaled(y, c.residual_scale))
        return self.norm_of(sums, name + block.ffn_norm) if c.post_norm else sums

    def last(self, x: Buffer) -> Buffer:
        """The rows whose logits are asked for."""
        y: Buffer = ops.last_rows(x, rows=self.logit_rows)
        return y

    def norm_of(self, x: Buffer, name: str) -> Buffer:
        """The block's norm of rows."""
        if self.block.norm.endswith("rms"):
            return self.norm(x, name)
        width = maximum(x.shape[1])
        if self.block.norm == "plain":
            gain = self.program.constant("ones", np.ones(width, np.float32))
        else:
            gain = self.weight(f"{name}.weight", width)
        if self.has(f"{name}.bias"):
            bias = self.weight(f"{name}.bias", width)
        else:
            bias = self.program.constant("zeros", np.zeros(width, np.float32))
        y: Buffer = ops.layer_norm(x, gain, bias, epsilon=self.c.epsilon)
        return y

    def norm(self, x: Buffer, name: str, heads: int = 0) -> Buffer:
        """RMSNorm of rows or heads, which may have no gains."""
        if self.block.norm != "plain_rms":
            return super().norm(x, name, heads)
        ones = np.ones(self.c.head_dim if heads else maximum(x.shape[1]), np.float32)
        gain = self.program.constant("ones", ones)
        y: Buffer = ops.rms_norm(x, gain, epsilon=self.c.epsilon, heads=heads or 1)
        return y

    def _mixed(self, x: Buffer, name: str, number: int) -> Buffer:
        """The result of attention, of the layer's mixer, or the sum of both."""
        c = self.c
        if c.mixer is None or (c.attends and c.attends[number]):
            return self._attended(x, name, number)
        mixed = c.mixer.mixed(self, x, name)
        if c.attends:
            return mixed
        sums: Buffer = ops.add(self._attended(x, name, number), mixed)
        return sums

    def _projected(self, x: Buffer, name: str) -> list[Buffer]:
        """Queries, keys, values and, if there are any, gates of heads."""
        c = self.c
        if not self.block.gated_heads:
            return list(self.projected(x, name))
        rows = np.arange(2 * c.width).reshape(c.heads, 2, -1)
        q, gate = self.picked(x, name + "attn_q", [rows[:, 0], rows[:, 1]])
        return [q, *(self.linear(x, f"{name}attn_{n}", c.kv_width) for n in "kv"), gate]

    def _attended(self, x: Buffer, name: str, number: int) -> Buffer:
        c, window = self.c, self.c.windows[number]
        q, k, v, *gate = self._projected(x, name)
        if c.clamp:
            q, k, v = (
                ops.unary(y, function="clip", alpha=-c.clamp, beta=c.clamp) for y in (q, k, v)
            )
        rope = self._local if window and self._local else self._everywhere
        if c.rotates and not c.rotates[number]:
            rope = None
        query = self._query if rope is self._everywhere else None
        if self.block.head_norms == "rotated":
            q, k, rope = self.rotate(q, rope), self.rotate(k, rope), None
        q, k = self._normed(q, name + "attn_q_norm"), self._normed(k, name + "attn_k_norm")
        sinks = None
        if self.has(f"{name}attn_sinks.weight"):
            sinks = self.weight(f"{name}attn_sinks.weight", c.heads)
        mixed = self.attend(
            name, q, k, v, rope=rope, query_rope=query, window=window, scale=c.scale,
            softcap=c.softcap, slopes=self._slopes, sinks=sinks,
        )  # fmt: skip
        if gate:
            mixed = ops.mul(mixed, ops.unary(gate[0], function="sigmoid"))
        if self.block.head_gates:
            mixed = self._gated(mixed, x, name + "attn_gate")
        if self.block.sub_norms:
            mixed = self.norm(mixed, name + "attn_sub_norm")
        return self.linear(mixed, name + "attn_output", c.dim, bias=None)

    def _gated(self, x: Buffer, h: Buffer, name: str) -> Buffer:
        """Results of heads [n, heads * head_dim] times the sigmoids of gates, which read h."""
        heads, width = self.c.heads, self.c.head_dim
        count = self.file.tensors[f"{name}.weight"].row_count
        gates = ops.unary(
            self.linear(h, name, heads if count == heads else heads * width), function="sigmoid"
        )
        if count != heads:
            y: Buffer = ops.mul(x, gates)
            return y
        rows = self.program.computed_size(
            "heads*n", heads * self.n.maximum, lambda sizes: heads * sizes["n"]
        )
        places = ops.range_from(x.part(0, (rows,), "i32"), start=0).view((rows, 1))
        y = ops.sum_experts(x.view((rows, width)), gates.view((rows, 1)), places, d=width)
        return y.view((self.n, heads * width))

    def _normed(self, x: Buffer, name: str) -> Buffer:
        if not self.block.head_norms:
            return x
        if self.block.head_norms == "whole":
            return self.norm(x, name)
        return self.norm(x, name, heads=maximum(x.shape[1]) // self.c.head_dim)

    def _fed_forward(self, x: Buffer, name: str, number: int) -> Buffer:
        experts, kind = self.c.experts, self.block.activation
        if self.c.xielus:
            up = self.linear(x, name + "ffn_up", self.c.hidden, bias=None)
            y = self.c.xielus[number].of(self, up)
            return self.linear(y, name + "ffn_down", self.c.dim, bias=None)
        sub_norm = "ffn_sub_norm" * self.block.sub_norms
        through = partial(
            self.fed_forward, x, name, kind, gated=self.block.gated, sub_norm=sub_norm
        )
        if experts is None or not experts.in_layer(number):
            return through()
        y = _experts.mixture(self, x, name, experts, kind)
        if not experts.shared:
            return y
        shared = through(hidden=experts.shared, suffix="_shexp")
        if self.has(f"{name}ffn_gate_inp_shexp.weight"):
            shared = _experts.gated(self, x, shared, f"{name}ffn_gate_inp_shexp.weight")
        sums: Buffer = ops.add(y, shared)
        return sums


def slopes(heads: int, most: float) -> np.ndarray[Any, np.dtype[np.float32]]:
    """The slope of each head: 2^(-most i / p) for p heads, p a power of two; others in between.

    Source: Press et al. 2022, Train Short, Test Long.
    """
    power = 1 << (heads.bit_length() - 1)
    values = [2 ** (-most * (i + 1) / power) for i in range(power)]
    values += [2 ** (-most * (2 * i + 1) / (2 * power)) for i in range(heads - power)]
    return np.array(values, np.float32)
