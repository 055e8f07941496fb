"""Mistral: Llama with a sliding window in each layer.

llama.cpp's converter and `translate` name such a model ``llama``; files may also name it
``mistral``. Both are built the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from halfbyte.formats.model_file import ModelFile
from halfbyte.text.architectures import llama
from halfbyte.text.architectures._block import Config

if TYPE_CHECKING:
    from halfbyte.formats.huggingface.names import Translation

TABLES = llama.TABLES
EQUALIZED = llama.EQUALIZED
MODEL_TYPES = ("mistral", "ministral")
build = llama.build


def read_config(file: ModelFile) -> Config:
    """Hyperparameters from metadata, under ``mistral.*``."""
    return llama.read_config(file, "mistral")


def translate(config: Translation) -> None:
    """Translate a config.json into GGUF's terms."""
    llama.translate(config)
    config.windows(config.local_layers(lambda layer: True))
