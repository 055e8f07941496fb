"""Mistral: Llama whose layers see a window of positions.

llama.cpp's converter calls such a model ``llama``, which is built the same; this is for files that
say what it is.
"""

from __future__ import annotations

from halfbyte.formats.model_file import ModelFile
from halfbyte.text.architectures import llama
from halfbyte.text.architectures._decoder import RotaryConfig

TABLES = llama.TABLES
build = llama.build


def read_config(file: ModelFile) -> RotaryConfig:
    """Hyperparameters from metadata, under ``mistral.*``."""
    return llama.read_config(file, "mistral")
