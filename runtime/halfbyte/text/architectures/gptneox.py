"""GPT-NeoX and Pythia: LayerNorm, GELU, biases, a part of a head rotated; parts may be parallel."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from halfbyte.formats.model_file import ModelFile
from halfbyte.text.architectures import _block
from halfbyte.text.architectures._block import Block, Config
from halfbyte.text.architectures._keys import Keys

if TYPE_CHECKING:
    from halfbyte.formats.huggingface.names import Translation

TABLES = _block.TABLES
EQUALIZED: dict[str, tuple[str, ...]] = {}  # biases forbid it
MODEL_TYPES = ("gpt_neox",)
BLOCK = Block(norm="layer", gated=False, activation="gelu")
build = partial(_block.build, BLOCK)


def translate(config: Translation) -> None:
    """Translate a config.json into GGUF's terms."""
    keys = config.keys
    keys.expect("hidden_act", "gelu")
    config.keys = keys.renamed(partial_rotary_factor="rotary_pct", rope_theta="rotary_emb_base")
    config.decoder("gptneox", epsilon="layer_norm_eps", default_epsilon=1e-5)
    config.partial_rotation(0.25)
    config.rope()
    config.metadata["use_parallel_residual"] = keys.boolean("use_parallel_residual", True)
    heads = config.size("attention.head_count")
    config.regroup("attn_qkv", (heads, 3, config.size("attention.key_length")))
    config.names = {
        "embed_in": "token_embd",
        "final_layer_norm": "output_norm",
        "embed_out": "output",
        "lm_head": "output",  # as recent versions of transformers name it
        "input_layernorm": "attn_norm",
        "post_attention_layernorm": "ffn_norm",
        "attention.query_key_value": "attn_qkv",
        "attention.dense": "attn_output",
        "mlp.dense_h_to_4h": "ffn_up",
        "mlp.dense_4h_to_h": "ffn_down",
    }
    config.tied = keys.boolean("tie_word_embeddings", False)


def read_config(file: ModelFile) -> Config:
    """Hyperparameters from metadata, under ``gptneox.*``."""
    keys = Keys(file, "gptneox")
    return _block.read_config(keys, BLOCK, parallel=keys.boolean("use_parallel_residual", True))
