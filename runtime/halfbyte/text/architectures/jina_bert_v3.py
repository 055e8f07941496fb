"""Jina Embeddings 3: BERT with rotary positions. Its adapters for tasks are files of their own."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from halfbyte.formats.model_file import ModelFile
from halfbyte.text.architectures import _encoder
from halfbyte.text.architectures._encoder import Block, Config
from halfbyte.text.architectures._keys import Keys
from halfbyte.text.architectures.bert import ROBERTA_NAMES
from halfbyte.text.architectures.nomic_bert import NAMES

if TYPE_CHECKING:
    from halfbyte.formats.huggingface.names import Translation

TABLES = _encoder.TABLES
EQUALIZED: dict[str, tuple[str, ...]] = {}  # biases forbid it
HEADS = _encoder.HEADS
MODEL_TYPES = ("jina_embeddings_v3",)
BLOCK = Block(rotary=True)
build = partial(_encoder.build, BLOCK)


def translate(config: Translation) -> None:
    """Translate a config.json into GGUF's terms."""
    config.keys = config.keys.otherwise(rope_theta=20000.0, layer_norm_eps=1e-5, type_vocab_size=1)
    config.keys.expect("hidden_act", "gelu")
    config.names = {**NAMES, **ROBERTA_NAMES, "mlp.fc1": "ffn_up", "mlp.fc2": "ffn_down"}
    config.encoder("jina-bert-v3")
    config.rotates_heads()
    _encoder.without_task(config, config.classifies())


def read_config(file: ModelFile) -> Config:
    """Hyperparameters from metadata, under ``jina-bert-v3.*``."""
    return _encoder.read_config(Keys(file, "jina-bert-v3"), BLOCK)
