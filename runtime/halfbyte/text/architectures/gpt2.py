"""GPT-2: learned positions, LayerNorm, GELU, biases; queries, keys and values in one matrix."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from halfbyte.core import ops
from halfbyte.core.buffer import Buffer
from halfbyte.core.program import Program, capture
from halfbyte.formats.model_file import ModelFile
from halfbyte.text.architectures import _decoder
from halfbyte.text.architectures._decoder import Config, Decoder
from halfbyte.text.architectures._keys import Keys

if TYPE_CHECKING:
    from halfbyte.formats.huggingface.names import Translation

TABLES: frozenset[str] = frozenset()
EQUALIZED: dict[str, tuple[str, ...]] = {}  # biases forbid it
MODEL_TYPES = ("gpt2",)
NAMES = {
    "wte": "token_embd",
    "wpe": "position_embd",
    "ln_f": "output_norm",
    "lm_head": "output",
    "ln_1": "attn_norm",
    "ln_2": "ffn_norm",
    "mlp.c_fc": "ffn_up",
    "mlp.c_proj": "ffn_down",
}
ATTENTION = {"attn.c_attn": "attn_qkv", "attn.c_proj": "attn_output"}


def translate(config: Translation) -> None:
    """Translate a config.json into GGUF's terms."""
    keys, config.architecture = config.keys, "gpt2"
    keys.expect("activation_function", "gelu_new", "gelu_pytorch_tanh")
    keys.expect("scale_attn_weights", True)
    keys.expect("scale_attn_by_inverse_layer_idx", False)
    keys.expect("add_cross_attention", False)
    dim = keys.integer("n_embd", maximum=1 << 20)
    hidden = keys.integer("n_inner", 4 * dim)
    config.metadata = {
        "vocab_size": np.uint32(keys.integer("vocab_size")),
        "context_length": np.uint32(keys.integer("n_positions")),
        "embedding_length": np.uint32(dim),
        "block_count": np.uint32(keys.integer("n_layer")),
        "feed_forward_length": np.uint32(hidden),
        "attention.head_count": np.uint32(keys.integer("n_head")),
        "attention.layer_norm_epsilon": np.float32(keys.number("layer_norm_epsilon", 1e-5)),
    }
    config.transpose("attn_qkv", "attn_output", "ffn_up", "ffn_down")
    config.names = NAMES | ATTENTION
    config.tied = keys.boolean("tie_word_embeddings", True)


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
        model.head(_norm(model, ops.last_rows(x, rows=model.logit_rows), "output_norm"))
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
