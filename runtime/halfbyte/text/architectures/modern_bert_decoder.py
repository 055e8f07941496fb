"""ModernBERT as a language model (Ettin): a window in most layers, and a matrix before the head."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from halfbyte.formats.model_file import ModelFile
from halfbyte.text.architectures import _block, modern_bert
from halfbyte.text.architectures._block import Block, Config
from halfbyte.text.architectures._keys import Keys

if TYPE_CHECKING:
    from halfbyte.formats.huggingface.names import Translation

TABLES = _block.TABLES
EQUALIZED = {
    "attn_norm": ("attn_q", "attn_k", "attn_v"),
    "ffn_norm": ("ffn_up",),
    "output_norm": ("cls",),
    "cls.norm": ("output",),
}
MODEL_TYPES = ("modernbert-decoder",)
BLOCK = Block(norm="layer", first=True, activation="gelu", bare=True, dense_head=True)
build = partial(_block.build, BLOCK)
_NAMES = {
    "attn.q_proj": "attn_q",
    "attn.k_proj": "attn_k",
    "attn.v_proj": "attn_v",
    "lm_head.dense": "cls",
    "lm_head.norm": "cls.norm",
    "decoder": "output",
}


def translate(config: Translation) -> None:
    """Translate a config.json into GGUF's terms."""
    keys = config.keys.otherwise(norm_eps=1e-5, local_attention=128)
    for key in ("hidden_activation", "classifier_activation"):
        keys.expect(key, "gelu", None)
    for key in ("norm_bias", "attention_bias", "mlp_bias", "classifier_bias"):
        keys.expect(key, False, None)
    window = max(keys.integer("local_attention") // 2, 1)
    heads = keys.integer("num_attention_heads")
    config.keys = keys = keys.replaced(sliding_window=window, num_key_value_heads=heads)
    config.decoder("modern-bert-decoder", epsilon="norm_eps")
    modern_bert.translate_rope(config)
    period = keys.integer("global_attn_every_n_layers", 3)
    config.windows(config.local_layers(lambda layer: layer % period != 0))
    config.names = modern_bert.NAMES | _NAMES
    config.uneven = ("blk.0.attn_norm.",)
    dim, hidden = config.size("embedding_length"), config.size("feed_forward_length")
    config.shapes |= {"ffn_up": (2 * hidden, dim), "cls": (dim, dim)}
    config.tied = keys.boolean("tie_word_embeddings", True)
    if config.tied:
        config.dropped = ("decoder.weight",)


def read_config(file: ModelFile) -> Config:
    """Hyperparameters from metadata, under ``modern-bert-decoder.*``."""
    keys = Keys(file, "modern-bert-decoder")
    return _block.read_config(keys, BLOCK, local_base=keys.number("rope.freq_base_swa", 10000.0))
