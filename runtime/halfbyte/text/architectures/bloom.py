"""BLOOM: ALiBi in place of positions, LayerNorm also of embeddings, GELU, biases."""

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
MODEL_TYPES = ("bloom",)
BLOCK = Block(norm="layer", gated=False, activation="gelu_tanh")
build = partial(_block.build, BLOCK)


def translate(config: Translation) -> None:
    """Translate a config.json into GGUF's terms."""
    keys = config.keys
    keys.expect("apply_residual_connection_post_layernorm", False)
    config.keys = keys.renamed(
        hidden_size="n_embed", num_hidden_layers="n_layer", num_attention_heads="n_head"
    )
    dim = config.keys.integer("hidden_size", maximum=1 << 20)
    config.keys = config.keys.otherwise(
        intermediate_size=4 * dim,
        max_position_embeddings=keys.integer("seq_length", 2048),
    )
    config.decoder("bloom", epsilon="layer_norm_epsilon", default_epsilon=1e-5)
    config.metadata.pop("rope.dimension_count")
    heads = config.size("attention.head_count")
    config.regroup("attn_qkv", (heads, 3, config.size("attention.key_length")))
    config.names = {
        "word_embeddings": "token_embd",
        "word_embeddings_layernorm": "token_embd_norm",
        "ln_f": "output_norm",
        "lm_head": "output",
        "input_layernorm": "attn_norm",
        "post_attention_layernorm": "ffn_norm",
        "self_attention.query_key_value": "attn_qkv",
        "self_attention.dense": "attn_output",
        "mlp.dense_h_to_4h": "ffn_up",
        "mlp.dense_4h_to_h": "ffn_down",
    }
    config.tied = keys.boolean("tie_word_embeddings", True)


def read_config(file: ModelFile) -> Config:
    """Hyperparameters from metadata, under ``bloom.*``."""
    keys = Keys(file, "bloom")
    return _block.read_config(keys, BLOCK, alibi=8.0)
