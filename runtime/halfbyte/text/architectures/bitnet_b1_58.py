"""BitNet b1.58 with relu squared, as bitnet.cpp names it: see `bitnet`."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from halfbyte.formats.model_file import ModelFile
from halfbyte.text.architectures import _block, bitnet
from halfbyte.text.architectures._block import Config
from halfbyte.text.architectures._keys import Keys

if TYPE_CHECKING:
    from halfbyte.formats.huggingface.names import Translation

TABLES = _block.TABLES
EQUALIZED = bitnet.EQUALIZED
MODEL_TYPES: tuple[str, ...] = ()  # see `bitnet.variant`
BLOCK = replace(bitnet.BLOCK, activation="relu_squared")
build = partial(_block.build, BLOCK)


def translate(config: Translation) -> None:
    """Translate a config.json into GGUF's terms."""
    bitnet.translate(config, "bitnet-b1.58")


def read_config(file: ModelFile) -> Config:
    """Hyperparameters from metadata, under ``bitnet-b1.58.*``."""
    return _block.read_config(Keys(file, "bitnet-b1.58"), BLOCK)
