"""MPNet: BERT with learned biases of distances, which all layers share, and RoBERTa's positions.

llama.cpp has no MPNet: the names are BERT's, and T5's for the biases.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from halfbyte.formats.model_file import ModelFile
from halfbyte.text.architectures import _encoder
from halfbyte.text.architectures._distance import BUCKETS
from halfbyte.text.architectures._encoder import Block, Config
from halfbyte.text.architectures._keys import Keys
from halfbyte.text.architectures.bert import BERT, ROBERTA_NAMES

if TYPE_CHECKING:
    from halfbyte.formats.huggingface.names import Translation

TABLES = _encoder.TABLES
EQUALIZED: dict[str, tuple[str, ...]] = {}  # biases forbid it
HEADS = _encoder.HEADS
MODEL_TYPES = ("mpnet",)
BLOCK = Block()
build = partial(_encoder.build, BLOCK)
_BUCKETS = "attention.relative_buckets_count"


def translate(config: Translation) -> None:
    """Translate a config.json into GGUF's terms."""
    config.keys = config.keys.otherwise(type_vocab_size=1)
    config.keys.expect("hidden_act", "gelu")
    config.keys.expect("relative_attention_num_buckets", BUCKETS)
    config.names = {
        **BERT,
        **ROBERTA_NAMES,
        "attention.attn.q": "attn_q",
        "attention.attn.k": "attn_k",
        "attention.attn.v": "attn_v",
        "attention.attn.o": "attn_output",
        "attention.LayerNorm": "attn_output_norm",
        "relative_attention_bias": "attn_rel_b",
    }
    config.skip_positions(2)
    config.encoder("mpnet")
    config.metadata[_BUCKETS] = np.uint32(BUCKETS)
    config.shapes["attn_rel_b"] = (BUCKETS, config.size("attention.head_count"))
    _encoder.without_task(config, config.classifies())


def read_config(file: ModelFile) -> Config:
    """Hyperparameters from metadata, under ``mpnet.*``."""
    keys = Keys(file, "mpnet")
    keys.size(_BUCKETS, BUCKETS, BUCKETS, low=BUCKETS)
    return _encoder.read_config(keys, BLOCK)
