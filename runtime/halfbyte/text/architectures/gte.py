"""GTE (v1.5 and multilingual): BERT with rotary positions and GeGLU. llama.cpp has none."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from halfbyte.formats.model_file import ModelFile
from halfbyte.text.architectures import _encoder
from halfbyte.text.architectures._encoder import Block, Config
from halfbyte.text.architectures._keys import Keys
from halfbyte.text.architectures.nomic_bert import NAMES

if TYPE_CHECKING:
    from halfbyte.formats.huggingface.names import Translation

TABLES = _encoder.TABLES
EQUALIZED = {"ffn_up": ("ffn_down",)}
HEADS = _encoder.HEADS
MODEL_TYPES = ("gte",)
BLOCK = Block(gated=True, rotary=True)
build = partial(_encoder.build, BLOCK)


def translate(config: Translation) -> None:
    """Translate a config.json into GGUF's terms."""
    types = config.keys.get("type_vocab_size") or 1  # 0: there is no table
    config.keys = config.keys.otherwise(rope_theta=160_000.0).replaced(type_vocab_size=types)
    config.keys.expect("hidden_act", "gelu")
    config.names = NAMES
    config.encoder("gte")
    config.rotates_heads()
    _encoder.without_task(config, config.classifies())


def read_config(file: ModelFile) -> Config:
    """Hyperparameters from metadata, under ``gte.*``."""
    return _encoder.read_config(Keys(file, "gte"), BLOCK)
