"""Encoders: models that read whole texts at once and give a vector for each token.

Tokens of several texts follow each other in the rows of a batch, without padding; attention
stays within a text, so that a text's vectors do not depend on those beside it.

An architecture declares a `Block`, reads its numbers into a `Config` and builds both with `build`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from halfbyte.core import ops
from halfbyte.core.buffer import Buffer, maximum
from halfbyte.core.program import Program, capture
from halfbyte.formats.embedding import ACTIVATIONS, DENSE_NUMBERS, SCORED, SCORING, Pooling
from halfbyte.formats.model_file import ModelFile
from halfbyte.text.architectures import _decoder, _experts
from halfbyte.text.architectures._block import slopes
from halfbyte.text.architectures._decoder import Parts, RotaryConfig
from halfbyte.text.architectures._distance import BUCKETS, biases
from halfbyte.text.architectures._experts import Experts
from halfbyte.text.architectures._keys import Keys
from halfbyte.text.architectures._rotary import Rope
from halfbyte.weights import F32Array, Tensor

if TYPE_CHECKING:
    from halfbyte.formats.huggingface.names import Translation

LEARNED = "attn_rel_b.weight"  # biases of distances
EXPERTS_BIAS = "ffn_exps.bias"  # of the sum of experts
_AFTER = ("cls", "cls.norm", "cls.output", *(f"dense_{n}" for n in DENSE_NUMBERS))
TABLES = frozenset({f"{name}.{kind}" for name in _AFTER for kind in ("weight", "bias")} | {LEARNED})
HEADS = ("Model", "ForMaskedLM", "ForPreTraining", "ForSequenceClassification")  # in config.json
_TYPES = 16  # of tokens: the largest number of a file
# What describes encoders, beside `_keys`' others
OTHERS: Mapping[str, object] = {"attention.causal": False, "rope.freq_base": 10000.0}
# Parts for the training task, beside those of the head
_TASK = ("cls.", "lm_head.", "vocab_", "pooler.", "discriminator_predictions.")


@dataclass(frozen=True)
class Block:
    """A layer of an encoder. By default it is BERT's.

    Attributes
    ----------
    norm : str
        "layer" for LayerNorm, with biases if the file has them, or "rms" for RMSNorm.
    before : bool
        Norms of what attention and feed-forward part read, and of the last layer's output. Without
        it, each part's sum with what it read is normed.
    bare : bool
        The first layer's attention may read what is not normed.
    after : bool
        Norms of the results of both parts, too.
    head_norms : bool
        RMSNorm of each head's query and key.
    activation, gated
        Of the feed-forward part; see :meth:`Parts.fed_forward`.
    rotary : bool
        Queries and keys are rotated by their positions.
    """

    norm: str = "layer"
    before: bool = False
    bare: bool = False
    after: bool = False
    head_norms: bool = False
    activation: str = "gelu"
    gated: bool = False
    rotary: bool = False


@dataclass(frozen=True)
class Config(RotaryConfig):
    """Hyperparameters, with those of options. A window shows half of it on each side."""

    embedding_scale: float = 1.0
    scale: float = 0.0  # of products of queries and keys; 0 for 1 / sqrt(head_dim)
    local_base: float = 0.0  # of rotation in layers with a window, without scaling
    alibi: float = 0.0  # of the slopes of heads
    activation: str = ""  # in place of the block's
    experts: Experts | None = None  # in place of one feed-forward part, in layers of which the
    experts_every: int = 0  # number leaves 1 when it is divided by this


def read_config(keys: Keys, block: Block, **own: Any) -> Config:
    """Hyperparameters from metadata; `own` are fields that the architecture has read."""
    epsilon = f"attention.layer_norm{'_rms' if block.norm == 'rms' else ''}_epsilon"
    if block.rotary:
        fields = vars(_decoder.rotary(keys, epsilon=epsilon))
    else:
        fields = vars(_decoder.sizes(keys, epsilon))
        fields |= {"rotated": 0, "rope_base": 1.0, "rope_factor": 1.0}
        fields["windows"] = (0,) * fields["layers"]
    keys.size("pooling_type", 4, 0, low=0)  # read by `halfbyte.formats.embedding`
    keys.size(SCORED, Pooling.CLS, Pooling.MEAN)  # read by `halfbyte.text.heads`, as the next one
    keys.one_of(SCORING, *ACTIVATIONS)
    config = Config(**{**fields, **own})
    keys.refuse_others(config.head_dim, OTHERS)
    return config


class Encoder(Parts):
    """A model under capture; its sizes are `n` tokens and `b` blocks of queries.

    Inputs are `ids`, `places` (of tokens in their texts) and `types`, [n], and `blocks` [b, 3]; see
    :func:`halfbyte.core.ops.attention_texts`. The output is `hidden`, [n, dim].
    """

    def __init__(
        self, block: Block, file: ModelFile, config: Config, program: Program, context: int
    ) -> None:
        super().__init__(file, config, program, context, context)
        self.block, self.c = block, config
        blocks = program.size("b", context)  # at worst each token is a text
        self.blocks = program.input("blocks", "i32", (blocks, 3))
        self._learned = None
        if LEARNED in file.tensors:
            self._learned = self.tensor(LEARNED, BUCKETS, config.heads)
        self._ropes: dict[bool, Rope] = {}  # by whether a layer has a window
        self._biases: dict[int, Buffer] = {}  # by windows

    def rows_of(self, name: str) -> Buffer:
        """An input with a number for each token."""
        return self.program.input(name, "i32", (self.n,))

    def start(self) -> Buffer:
        """Embeddings of tokens, places and types, normed."""
        c, file = self.c, self.file
        x = self.scaled(self.embed(), c.embedding_scale)
        if "position_embd.weight" in file.tensors:
            table = self.weight("position_embd.weight", c.context, c.dim)
            x = ops.add(x, ops.gather(table, self.rows_of("places")))
        types = file.tensors.get("token_types.weight")
        if types is not None:
            count = min(types.shape[0], _TYPES)
            table = self.weight("token_types.weight", count, c.dim)
            x = ops.add(x, ops.gather(table, self.rows_of("types")))
        if "token_embd_norm.weight" in file.tensors:
            x = self.norm_of(x, "token_embd_norm")
        return x

    def layer(self, x: Buffer, number: int) -> Buffer:
        """A layer's output."""
        block, name = self.block, f"blk.{number}."
        if not block.before:
            y = ops.add(x, self._attended(x, name, number))
            x = self.norm_of(y, name + "attn_output_norm")
            y = ops.add(x, self._fed_forward(x, name, number))
            return self.norm_of(y, name + "layer_output_norm")
        bare = block.bare and number == 0 and f"{name}attn_norm.weight" not in self.file.tensors
        y = self._attended(x if bare else self.norm_of(x, name + "attn_norm"), name, number)
        x = ops.add(x, self.norm_of(y, name + "post_attention_norm") if block.after else y)
        y = self._fed_forward(self.norm_of(x, name + "ffn_norm"), name, number)
        z: Buffer = ops.add(x, self.norm_of(y, name + "post_ffw_norm") if block.after else y)
        return z

    def norm_of(self, x: Buffer, name: str) -> Buffer:
        """The block's norm of rows."""
        c = self.c
        if self.block.norm == "rms":
            return self.norm(x, name)
        bias = self.program.constant("zeros", np.zeros(c.dim, np.float32))
        if f"{name}.bias" in self.file.tensors:
            bias = self.weight(f"{name}.bias", c.dim)
        y: Buffer = ops.layer_norm(x, self.weight(f"{name}.weight", c.dim), bias, epsilon=c.epsilon)
        return y

    def _attended(self, x: Buffer, name: str, number: int) -> Buffer:
        """Attention within texts, through its output matrix."""
        c, window = self.c, self.c.windows[number]
        q, k, v = self.projected(x, name)
        if self.block.head_norms:
            q = self.norm(q, name + "attn_q_norm", heads=c.heads)
            k = self.norm(k, name + "attn_k_norm", heads=c.kv_heads)
        bias = self._bias(window)
        span = 2 * self.positions - 1
        shared = bias is None or maximum(bias.shape[0]) == span
        mixed = ops.attention_texts(
            self._rotated(q, window), self._rotated(k, window), v, self.blocks, bias,
            heads=c.heads, kv_heads=c.kv_heads, d=c.head_dim, scale=c.scale or c.head_dim**-0.5,
            w=0 if bias is None else span, bias_head=0 if shared else span,
        )  # fmt: skip
        return self.linear(mixed, name + "attn_output", c.dim, bias=None)

    def _rotated(self, x: Buffer, window: int) -> Buffer:
        """Heads rotated by the places of their tokens."""
        c, local = self.c, bool(window and self.c.local_base)
        if not self.block.rotary:
            return x
        if local not in self._ropes:
            own = {"base": c.local_base, "factor": 1.0, "name": "local."} if local else {}
            tables: Rope = self.rope(c, interleaved=False, **own)  # type: ignore[arg-type]
            cos, sin = (ops.gather(t, self.rows_of("places")) for t in (tables.cos, tables.sin))
            self._ropes[local] = Rope(cos, sin, interleaved=False)
        rope = self._ropes[local]
        y: Buffer = ops.rotary_embedding(
            x, rope.cos, rope.sin, head_dim=c.head_dim, position=0, interleaved=False
        )
        return y

    def _bias(self, window: int) -> Buffer | None:
        """What is added to scores by distance, [heads span] or [span]; None where it is nothing."""
        c, context = self.c, self.positions
        window = window if window // 2 < context - 1 else 0
        if not (window or c.alibi or self._learned):
            return None
        if window not in self._biases:
            heads = c.heads if c.alibi or self._learned else 1
            make = partial(
                _biases, context, window, slopes(c.heads, c.alibi) if c.alibi else None,
                self._learned,
            )  # fmt: skip
            shape = (heads * (2 * context - 1),)
            self._biases[window] = self.program.table(f"biases.{window}", shape, make)
        return self._biases[window]

    def _fed_forward(self, x: Buffer, name: str, number: int) -> Buffer:
        c, gated = self.c, self.block.gated
        activation = c.activation or self.block.activation
        if c.experts is None or number % c.experts_every != 1:
            return self.fed_forward(x, name, activation, gated=gated)
        y = _experts.mixture(self, x, name, c.experts, activation, gated=gated)
        if self.has(name + EXPERTS_BIAS):
            bias = self.tensor(name + EXPERTS_BIAS, c.dim).decode()
            y = ops.add(y, self.row(name + EXPERTS_BIAS, bias))
        return y


def _biases(context: int, window: int, slopes: F32Array | None, learned: Tensor | None) -> F32Array:
    rows = biases(
        context, window=window, slopes=slopes, learned=None if learned is None else learned.decode()
    )
    return rows.reshape(-1)


def build(
    block: Block, file: ModelFile, config: Config, *, context: int, batch: int, cache: str
) -> Program:
    """Capture an encoder; there is no cache, and a text is always read at once."""
    del batch, cache
    with capture(file.path.name) as program:
        model = Encoder(block, file, config, program, context)
        x = model.start()
        for layer in range(config.layers):
            x = model.layer(x, layer)
        program.output("hidden", model.norm_of(x, "output_norm") if block.before else x)
    return program


def without_task(config: Translation, head: bool) -> None:
    """Drop what is for the training task; and the head, where the model scores no pairs."""
    config.dropped = tuple(part for part in _TASK if not (head and part == "pooler."))
    if not head:
        config.names = {k: v for k, v in config.names.items() if not v.startswith("cls")}
