"""Llama: RMSNorm, rotary positions, grouped-query attention, SwiGLU; tied or untied head.

Llama 3 divides its frequencies by ``rope_freqs.weight``. Biases, windows and experts are optional.
Llama 3.2 Vision (text) is Llama 3 without the layers that read images.
SmolLM, TinyLlama and, in llama.cpp's files, Mistral and Mixtral are of this architecture.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from halfbyte.formats.model_file import ModelFile
from halfbyte.formats.transforms import first_rows
from halfbyte.text.architectures import CHANNELS, _block, _experts
from halfbyte.text.architectures._block import Block, Config
from halfbyte.text.architectures._keys import Keys

if TYPE_CHECKING:
    from halfbyte.formats.huggingface.names import Translation

TABLES = _block.TABLES
EQUALIZED = CHANNELS
MODEL_TYPES = ("llama", "helium", "internlm3", "iquestcoder", "mixtral", "mllama_text_model")
BLOCK = Block(interleaved=True)
build = partial(_block.build, BLOCK)
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
_MIXTRAL = _experts.NAMES | {
    "block_sparse_moe.gate": "ffn_gate_inp",
    "block_sparse_moe.experts.w1": "ffn_gate_exps",
    "block_sparse_moe.experts.w2": "ffn_down_exps",
    "block_sparse_moe.experts.w3": "ffn_up_exps",
}

_IMAGE_TOKENS = 8  # of Llama 3.2 Vision, beyond its vocabulary


def translate(config: Translation) -> None:
    """Translate a config.json into GGUF's terms."""
    config.keys.expect("hidden_act", "silu")
    config.keys.expect("partial_rotary_factor", 1.0, None)
    if config.kind == "mllama_text_model":
        _leave_out_images(config)
    if config.kind == "iquestcoder":
        config.keys.expect("clip_qkv", None)
        config.keys.expect("use_sliding_window", False, None)
        config.keys = config.keys.otherwise(head_dim=128, rms_norm_eps=1e-5)
    config.decoder("llama")
    config.rope()
    if config.kind != "helium":  # whose pairs are neighbours
        config.interleave("attn_q", heads="attention.head_count")
        config.interleave("attn_k", heads="attention.head_count_kv")
    config.names = NAMES
    if config.kind == "mixtral":
        config.names = NAMES | _MIXTRAL
        config.windows(config.local_layers(lambda layer: True))
        _experts.translate(config, count="num_local_experts")
    config.tied = config.keys.boolean("tie_word_embeddings", False)


def _leave_out_images(config: Translation) -> None:
    """Leave out the layers that read images, which do nothing without one, and their tokens."""
    config.keep_original()  # which has the numbers of the layers that are left
    keys = config.keys.otherwise(cross_attention_layers=list(range(3, 40, 5)))
    layers = keys.integer("num_hidden_layers", maximum=1 << 10)
    reading = {layer for layer in keys.list("cross_attention_layers") if type(layer) is int}
    config.kept = tuple(layer for layer in range(layers) if layer not in reading)
    config.dropped = tuple(f"layers.{layer}." for layer in range(layers) if layer in reading)
    config.keys = keys.otherwise(rope_theta=500000.0).replaced(num_hidden_layers=len(config.kept))
    tokens = keys.integer("vocab_size")
    config.shapes["token_embd"] = (tokens + _IMAGE_TOKENS, keys.integer("hidden_size"))
    config.transforms["token_embd.weight"] = first_rows(tokens)


def read_config(file: ModelFile, architecture: str = "llama") -> Config:
    """Hyperparameters from metadata, checked for ranges and consistency."""
    keys = Keys(file, architecture)
    return _block.read_config(keys, BLOCK, experts=_experts.read(keys, optional=True))
