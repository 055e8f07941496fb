"""Encoders: models that read whole texts at once and give a vector for each token.

Tokens of several texts follow each other in the rows of a batch, without padding; attention
stays within a text, so that a text's vectors do not depend on those beside it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from halfbyte.core import ops
from halfbyte.core.buffer import Buffer
from halfbyte.core.program import Program, capture
from halfbyte.formats.model_file import ModelFile
from halfbyte.text.architectures import _decoder
from halfbyte.text.architectures._decoder import Parts
from halfbyte.text.architectures._keys import Keys

TABLES = frozenset({"cls.weight", "cls.bias", "cls.output.weight", "cls.output.bias"})
HEADS = ("Model", "ForMaskedLM", "ForPreTraining", "ForSequenceClassification")  # in config.json
_TYPES = 16  # of tokens: the largest number of a file
# What describes encoders, beside `_keys`' others
OTHERS: Mapping[str, object] = {"attention.causal": False, "rope.freq_base": 10000.0}


@dataclass(frozen=True)
class Block:
    """A layer of an encoder. By default it is BERT's.

    Attributes
    ----------
    activation : str
        "gelu" (by erf), "gelu_tanh" or "relu".
    """

    activation: str = "gelu"


def read_config(keys: Keys) -> _decoder.Config:
    """Hyperparameters from metadata."""
    config = _decoder.sizes(keys, "attention.layer_norm_epsilon")
    keys.size("pooling_type", 4, 0, low=0)  # read by `halfbyte.text.pooling`
    keys.refuse_others(config.head_dim, OTHERS)
    return config


class Encoder(Parts):
    """A model under capture; its sizes are `n` tokens and `b` blocks of queries.

    Inputs are `ids`, `places` (of tokens in their texts) and `types`, [n], and `blocks` [b, 3]; see
    :func:`halfbyte.core.ops.attention_texts`. The output is `hidden`, [n, dim].
    """

    def __init__(
        self, file: ModelFile, config: _decoder.Config, program: Program, context: int
    ) -> None:
        super().__init__(file, config, program, context)
        blocks = program.size("b", context)  # at worst each token is a text
        self.blocks = program.input("blocks", "i32", (blocks, 3))

    def rows_of(self, name: str) -> Buffer:
        """An input with a number for each token."""
        return self.program.input(name, "i32", (self.n,))

    def start(self) -> Buffer:
        """Embeddings of tokens, places and types, normed."""
        c, file = self.config, self.file
        x = self.embed()
        if "position_embd.weight" in file.tensors:
            table = self.weight("position_embd.weight", c.context, c.dim)
            x = ops.add(x, ops.gather(table, self.rows_of("places")))
        types = file.tensors.get("token_types.weight")
        if types is not None:
            count = min(types.shape[0], _TYPES)
            table = self.weight("token_types.weight", count, c.dim)
            x = ops.add(x, ops.gather(table, self.rows_of("types")))
        return self.layer_norm(x, "token_embd_norm")

    def layer_norm(self, x: Buffer, name: str) -> Buffer:
        """LayerNorm of rows."""
        c = self.config
        gain, bias = (self.weight(f"{name}.{part}", c.dim) for part in ("weight", "bias"))
        y: Buffer = ops.layer_norm(x, gain, bias, epsilon=c.epsilon)
        return y

    def attended(self, x: Buffer, block: str) -> Buffer:
        """Attention within texts, through its output matrix."""
        c = self.config
        if self.has(f"{block}attn_qkv.weight"):
            parts = (c.width, c.kv_width, c.kv_width)
            q, k, v = self.fused(x, block + "attn_qkv", parts, bias=None)
        else:
            q, k, v = self.queries_keys_values(x, block, bias=None)
        mixed = ops.attention_texts(
            q, k, v, self.blocks, heads=c.heads, kv_heads=c.kv_heads, d=c.head_dim,
            scale=c.head_dim**-0.5,
        )  # fmt: skip
        return self.linear(mixed, block + "attn_output", c.dim, bias=None)

    def fed_forward(self, x: Buffer, block: str, activation: str) -> Buffer:
        """Two matrices with an activation between."""
        y = self.linear(x, block + "ffn_up", self.config.hidden, bias=None)
        if activation == "relu":
            y = ops.unary(y, function="relu")
        else:
            y = ops.gelu(y, approximate="tanh" if activation == "gelu_tanh" else "none")
        return self.linear(y, block + "ffn_down", self.config.dim, bias=None)


def build(
    block: Block, file: ModelFile, config: _decoder.Config, *, context: int, batch: int, cache: str
) -> Program:
    """Capture an encoder; there is no cache, and a text is always read at once."""
    del batch, cache
    with capture(file.path.name) as program:
        model = Encoder(file, config, program, context)
        x = model.start()
        for layer in range(config.layers):
            name = f"blk.{layer}."
            x = model.layer_norm(ops.add(x, model.attended(x, name)), name + "attn_output_norm")
            y = model.fed_forward(x, name, block.activation)
            x = model.layer_norm(ops.add(x, y), name + "layer_output_norm")
        program.output("hidden", x)
    return program
