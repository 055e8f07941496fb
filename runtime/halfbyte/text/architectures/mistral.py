"""Mistral: Llama whose layers see a window of positions.

llama.cpp's converter calls such a model ``llama``, which is built the same, and so does
`translate`; the rest is for files that say what it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from halfbyte.formats.model_file import ModelFile
from halfbyte.text.architectures import llama
from halfbyte.text.architectures._decoder import RotaryConfig

if TYPE_CHECKING:
    from halfbyte.formats.huggingface.names import Translation

TABLES = llama.TABLES
EQUALIZED = llama.EQUALIZED
MODEL_TYPES = ("mistral",)
build = llama.build


def read_config(file: ModelFile) -> RotaryConfig:
    """Hyperparameters from metadata, under ``mistral.*``."""
    return llama.read_config(file, "mistral")


def translate(config: Translation) -> None:
    """What a config.json says, in GGUF's words."""
    llama.translate(config)
    config.windows(config.local_layers(lambda layer: True))
