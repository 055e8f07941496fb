"""Mistral: Llama with a sliding window in each layer.

llama.cpp's converter and `translate` name such a model ``llama``; files may also name it
``mistral``. Both are built the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from halfbyte.formats.model_file import ModelFile
from halfbyte.text.architectures import llama, mistral3
from halfbyte.text.architectures._block import Config

if TYPE_CHECKING:
    from halfbyte.formats.huggingface.names import Translation

TABLES = llama.TABLES
EQUALIZED = llama.EQUALIZED
MODEL_TYPES = ("mistral", "ministral", "mistral3")
build = llama.build


def read_config(file: ModelFile) -> Config:
    """Hyperparameters from metadata, under ``mistral.*``."""
    return llama.read_config(file, "mistral")


def translate(config: Translation) -> None:
    """Translate a config.json into GGUF's terms."""
    if config.kind == "mistral3":  # with a vision model
        config.keys = config.keys.inner("text_config")
    if config.keys.get("model_type") == "ministral3":
        mistral3.translate(config)
    else:
        llama.translate(config)
        config.windows(config.local_layers(lambda layer: True))
