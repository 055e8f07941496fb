"""Mistral: Llama with a sliding window in each layer. Code World Model has it in three of four.

llama.cpp's converter and `translate` name such a model ``llama``; files may also name it
``mistral``. Both are built the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from halfbyte.formats.model_file import ModelFile
from halfbyte.text.architectures import llama
from halfbyte.text.architectures._block import Config

if TYPE_CHECKING:
    from halfbyte.formats.huggingface.config import Keys
    from halfbyte.formats.huggingface.names import Translation

TABLES = llama.TABLES
EQUALIZED = llama.EQUALIZED
MODEL_TYPES = ("mistral", "ministral", "cwm")
build = llama.build
_ROPE_OF_CWM = {
    "rope_type": "llama3",
    "rope_theta": 1e6,
    "factor": 16.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}


def read_config(file: ModelFile) -> Config:
    """Hyperparameters from metadata, under ``mistral.*``."""
    return llama.read_config(file, "mistral")


def translate(config: Translation) -> None:
    """Translate a config.json into GGUF's terms."""
    if config.kind == "cwm":
        config.keys = _cwm(config.keys)
    llama.translate(config)
    every = 4 if config.kind == "cwm" else 0  # one of which sees the whole text
    config.windows(config.local_layers(lambda layer: not every or layer % every > 0))


def _cwm(keys: Keys) -> Keys:
    """With the defaults of Code World Model."""
    keys = keys.otherwise(head_dim=128, rms_norm_eps=1e-5, sliding_window=8192, rope_theta=1e6)
    return keys if keys.rope().values else keys.replaced(rope_parameters=_ROPE_OF_CWM)
