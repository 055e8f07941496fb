"""Llama: RMSNorm, rotary positions, grouped-query attention, SwiGLU; tied or untied head.

Llama 3 divides its frequencies by ``rope_freqs.weight``. Biases and windows are optional. SmolLM,
TinyLlama and, in llama.cpp's files, Mistral are of this architecture.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from halfbyte.core import ops
from halfbyte.core.buffer import Buffer
from halfbyte.core.program import Program, capture
from halfbyte.formats.model_file import ModelFile
from halfbyte.text.architectures import CHANNELS, _decoder
from halfbyte.text.architectures._decoder import Decoder, RotaryConfig
from halfbyte.text.architectures._keys import Keys

if TYPE_CHECKING:
    from halfbyte.formats.huggingface.names import Translation

TABLES = frozenset({"rope_freqs.weight"})
EQUALIZED = CHANNELS
MODEL_TYPES = ("llama", "helium")
NAMES = {
    "embed_tokens": "token_embd",
    "norm": "output_norm",
    "lm_head": "output",
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


def translate(config: Translation) -> None:
    """Translate a config.json into GGUF's terms."""
    config.keys.expect("hidden_act", "silu")
    config.keys.expect("partial_rotary_factor", 1.0, None)
    config.decoder("llama")
    config.rope()
    if config.kind != "helium":  # whose pairs are neighbours
        config.interleave("attn_q", heads="attention.head_count")
        config.interleave("attn_k", heads="attention.head_count_kv")
    config.names = NAMES
    config.tied = config.keys.boolean("tie_word_embeddings", False)


def read_config(file: ModelFile, architecture: str = "llama") -> RotaryConfig:
    """Hyperparameters from metadata, checked for ranges and consistency."""
    keys = Keys(file, architecture)
    config = _decoder.rotary(keys)
    keys.refuse_others(config.head_dim)
    return config


def build(
    file: ModelFile, config: RotaryConfig, *, context: int, batch: int, cache: str
) -> Program:
    """Capture the model; see :class:`Decoder`."""
    with capture(file.path.name) as program:
        model = Decoder(file, config, program, context, batch, cache)
        factors = next(iter(TABLES & file.tensors.keys()), "")
        rope = model.rope(config, interleaved=True, factors=factors)
        x = model.embed()
        for layer in range(config.layers):
            block = f"blk.{layer}."
            h = model.norm(x, block + "attn_norm")
            q, k, v = model.queries_keys_values(h, block, bias=None)
            mixed = model.attend(block, q, k, v, rope=rope, window=config.windows[layer])
            x = ops.add(x, model.linear(mixed, block + "attn_output", config.dim, bias=None))
            h = model.norm(x, block + "ffn_norm")
            x = ops.add(x, swiglu(model, h, block, bias=None))
        x = ops.last_rows(x, rows=model.logit_rows)
        model.head(model.norm(x, "output_norm"))
    return program


def swiglu(model: Decoder, x: Buffer, block: str, *, bias: bool | None = False) -> Buffer:
    """(silu(gate) * up) through `down`."""
    c = model.config
    gate = model.linear(x, block + "ffn_gate", c.hidden, bias=bias)
    up = model.linear(x, block + "ffn_up", c.hidden, bias=bias)
    return model.linear(ops.mul(ops.silu(gate), up), block + "ffn_down", c.dim, bias=bias)
