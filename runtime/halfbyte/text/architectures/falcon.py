"""Falcon: parallel parts, LayerNorm, GELU; queries, keys and values in one matrix.

Parts read one norm or, in larger models, one each: then that of attention is ``attn_norm_2``.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from halfbyte.core.program import Program
from halfbyte.errors import FormatError
from halfbyte.formats.model_file import ModelFile
from halfbyte.text.architectures import _block
from halfbyte.text.architectures._block import Block, Config
from halfbyte.text.architectures._keys import Keys

if TYPE_CHECKING:
    from halfbyte.formats.huggingface.config import Keys as ConfigKeys
    from halfbyte.formats.huggingface.names import Translation

TABLES = _block.TABLES
EQUALIZED: dict[str, tuple[str, ...]] = {}  # biases forbid it
MODEL_TYPES = ("falcon",)
BLOCK = Block(norm="layer", parallel=True, gated=False, activation="gelu")


def variant(keys: ConfigKeys) -> str:
    """That of models without rotation, which have other parts, too."""
    return "falcon_rw" if keys.boolean("alibi", False) else ""


def translate(config: Translation, architecture: str = "falcon") -> None:
    """Translate a config.json into GGUF's terms."""
    keys = config.keys
    keys.expect("parallel_attn", architecture == "falcon")
    keys.expect("activation", "gelu")
    config.keys = keys.renamed(
        num_attention_heads="n_head", num_hidden_layers="n_layer", hidden_size="n_embed"
    )
    dim = config.keys.integer("hidden_size", maximum=1 << 20)
    heads = config.keys.integer("num_attention_heads", maximum=1 << 12)
    grouped = keys.boolean("new_decoder_architecture", False)
    kv_heads = 1 if keys.boolean("multi_query", True) else heads
    if grouped:
        kv_heads = keys.integer("num_kv_heads", keys.integer("n_head_kv", heads))
    config.keys = config.keys.otherwise(
        intermediate_size=keys.integer("ffn_hidden_size", 4 * dim),
        num_key_value_heads=kv_heads,
        max_position_embeddings=2048,
    )
    config.decoder(architecture, epsilon="layer_norm_epsilon", default_epsilon=1e-5)
    config.metadata["attention.head_count_kv"] = np.uint32(kv_heads)
    config.rope()
    if heads % kv_heads:
        raise FormatError(f"{keys.where}: {heads} heads do not fit {kv_heads} key/value heads")
    if kv_heads > 1:
        head = config.size("attention.key_length")
        config.split_groups("attn_qkv", kv_heads, heads // kv_heads, head)
    config.names = {
        "word_embeddings": "token_embd",
        "ln_f": "output_norm",
        "lm_head": "output",
        "input_layernorm": "attn_norm",
        "ln_attn": "attn_norm_2",
        "ln_mlp": "attn_norm",
        "post_attention_layernorm": "ffn_norm",
        "self_attention.query_key_value": "attn_qkv",
        "self_attention.dense": "attn_output",
        "mlp.dense_h_to_4h": "ffn_up",
        "mlp.dense_4h_to_h": "ffn_down",
    }
    config.tied = keys.boolean("tie_word_embeddings", True)


def read_config(file: ModelFile) -> Config:
    """Hyperparameters from metadata, under ``falcon.*``."""
    return _block.read_config(Keys(file, "falcon"), BLOCK)


def build(file: ModelFile, config: Config, *, context: int, batch: int, cache: str) -> Program:
    """Capture the model; see :class:`_decoder.Decoder`."""
    block = BLOCK
    if "blk.0.attn_norm_2.weight" in file.tensors:
        block = replace(BLOCK, attn_norm="attn_norm_2", ffn_norm="attn_norm")
    return _block.build(block, file, config, context=context, batch=batch, cache=cache)
