"""ModernBERT: rotary positions, GeGLU, norms before each part, windows in two of three layers.

The first layer has no norm before attention. Layers with a window rotate by a base of their own.
A head, for scores of pairs of texts, is a matrix with GELU (``cls``), a norm (``cls.norm``) and a
matrix for the labels (``cls.output``).
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from halfbyte.formats.embedding import SCORED, Pooling
from halfbyte.formats.model_file import ModelFile
from halfbyte.text.architectures import _encoder
from halfbyte.text.architectures._encoder import Block, Config
from halfbyte.text.architectures._keys import Keys

if TYPE_CHECKING:
    from halfbyte.formats.huggingface.names import Translation

TABLES = _encoder.TABLES
EQUALIZED = {"attn_norm": ("attn_qkv",), "ffn_norm": ("ffn_up",)}
HEADS = _encoder.HEADS
MODEL_TYPES = ("modernbert",)
BLOCK = Block(before=True, bare=True, gated=True, rotary=True)
build = partial(_encoder.build, BLOCK)
HEAD = ("gelu", Pooling.MEAN)  # its activation and pooling, if a file does not say
_POOLING = {"cls": Pooling.CLS, "mean": Pooling.MEAN}
_PERIOD = 3  # layers, the first without a window, if a file does not say
NAMES = {
    "tok_embeddings": "token_embd",
    "norm": "token_embd_norm",  # the prefix "embeddings." is removed
    "attn_norm": "attn_norm",
    "attn.Wqkv": "attn_qkv",
    "attn.Wo": "attn_output",
    "mlp_norm": "ffn_norm",
    "mlp.Wi": "ffn_up",
    "mlp.Wo": "ffn_down",
    "final_norm": "output_norm",
}

_HEAD = {"head.dense": "cls", "head.norm": "cls.norm", "classifier": "cls.output"}


def translate(config: Translation) -> None:
    """Translate a config.json into GGUF's terms."""
    keys = config.keys.otherwise(norm_eps=1e-5, local_attention=128)
    config.keys = keys.renamed(layer_norm_eps="norm_eps").otherwise(type_vocab_size=1)
    keys.expect("hidden_activation", "gelu", "silu", None)
    config.encoder("modern-bert")
    values = config.metadata
    if keys.get("hidden_activation") == "silu":
        values["hidden_activation"] = "silu"
    translate_rope(config)
    period = keys.integer("global_attn_every_n_layers", _PERIOD)
    layers = config.local_layers(lambda layer: layer % period != 0)
    values["attention.sliding_window"] = np.uint32(keys.integer("local_attention"))
    if layers != [layer % _PERIOD != 0 for layer in range(len(layers))]:
        values["attention.sliding_window_pattern"] = np.array(layers, np.bool_)
    config.names = NAMES
    config.uneven = ("blk.0.attn_norm.",)
    dim, hidden = config.size("embedding_length"), config.size("feed_forward_length")
    config.shapes["ffn_up"] = (2 * hidden, dim)
    config.dropped = ("head.", "decoder.")
    if config.classifies():
        keys.expect("classifier_activation", "gelu", None)
        pooling = _POOLING[keys.one_of("classifier_pooling", "cls", "mean")]
        values[SCORED] = np.uint32(pooling)
        config.names = NAMES | _HEAD
        config.dropped = ()


def translate_rope(config: Translation) -> None:
    """Bases of the layers without a window and of those with one."""
    keys, rope = config.keys, config.keys.rope()
    base, local = keys.number("global_rope_theta", 160_000.0), 10_000.0
    if "local_rope_theta" in keys.values:  # null: the same
        local = keys.number("local_rope_theta", base)
    if "full_attention" in rope.values or "sliding_attention" in rope.values:
        within = rope.inner("sliding_attention")
        within.expect("rope_type", "default", None)
        local, rope = within.number("rope_theta", local), rope.inner("full_attention")
    config.rotates_heads(rope.otherwise(rope_theta=base))
    config.metadata["rope.freq_base_swa"] = np.float32(local)


def read_config(file: ModelFile) -> Config:
    """Hyperparameters from metadata, under ``modern-bert.*``."""
    keys = Keys(file, "modern-bert")
    layers = keys.size("block_count", 1 << 10)
    return _encoder.read_config(
        keys, BLOCK, windows=keys.windows(layers, _PERIOD, first=True),
        local_base=keys.number("rope.freq_base_swa", 10000.0),
        activation=keys.one_of("hidden_activation", "gelu", "silu"),
    )  # fmt: skip
