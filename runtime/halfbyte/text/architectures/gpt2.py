"""GPT-2: learned positions, LayerNorm, GELU, biases everywhere, queries to values in one matrix."""

from __future__ import annotations

from halfbyte.core import ops
from halfbyte.core.program import Buffer, Program, capture
from halfbyte.formats.model_file import ModelFile
from halfbyte.text.architectures import _decoder
from halfbyte.text.architectures._decoder import Config, Decoder
from halfbyte.text.architectures._keys import Keys

TABLES: frozenset[str] = frozenset()


def read_config(file: ModelFile) -> Config:
    """Hyperparameters from metadata, under ``gpt2.*``."""
    keys = Keys(file, "gpt2")
    config = _decoder.sizes(keys, "attention.layer_norm_epsilon")
    keys.refuse_others(config.head_dim)
    return config


def build(file: ModelFile, config: Config, *, context: int, batch: int, cache: str) -> Program:
    """Capture the model; see :class:`Decoder`."""
    c = config
    with capture(file.path.name) as program:
        model = Decoder(file, c, program, context, batch, cache)
        x = ops.add(model.embed(), _positions(model))
        for layer in range(c.layers):
            block = f"blk.{layer}."
            h = _norm(model, x, block + "attn_norm")
            parts = (c.width, c.kv_width, c.kv_width)
            q, k, v = model.fused(h, block + "attn_qkv", parts, bias=True)
            mixed = model.attend(block, q, k, v, rope=None)
            x = ops.add(x, model.linear(mixed, block + "attn_output", c.dim, bias=True))
            h = _norm(model, x, block + "ffn_norm")
            h = ops.gelu(model.linear(h, block + "ffn_up", c.hidden, bias=True), approximate="tanh")
            x = ops.add(x, model.linear(h, block + "ffn_down", c.dim, bias=True))
        model.head(_norm(model, ops.take_last(x, rows=model.asked), "output_norm"))
    return program


def _positions(model: Decoder) -> Buffer:
    """Embeddings of the tokens' positions, [n, dim]."""
    positions, c = "position_embd.weight", model.config
    ids = ops.range_from(model.program.input("ids", "i32", (model.n,)), start=model.position)
    x: Buffer = ops.gather(model.weight(positions, c.context, c.dim), ids)
    return x


def _norm(model: Decoder, x: Buffer, name: str) -> Buffer:
    """LayerNorm of rows."""
    gain, bias = (model.weight(f"{name}.{part}", model.config.dim) for part in ("weight", "bias"))
    y: Buffer = ops.layer_norm(x, gain, bias, epsilon=model.config.epsilon)
    return y
