"""Command R7B (`cohere2`): Command R with a window in three of four layers; only they rotate."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from halfbyte.formats.model_file import ModelFile
from halfbyte.text.architectures import _block, command_r
from halfbyte.text.architectures._block import Block, Config
from halfbyte.text.architectures._keys import Keys

if TYPE_CHECKING:
    from halfbyte.formats.huggingface.names import Translation

TABLES = _block.TABLES
EQUALIZED = _block.PARALLEL
MODEL_TYPES = ("cohere2",)
BLOCK = Block(norm="layer", parallel=True, interleaved=True)
build = partial(_block.build, BLOCK)
_PERIOD = 4  # layers, the last without a window, if a file does not say


def translate(config: Translation) -> None:
    """Translate a config.json into GGUF's terms."""
    command_r.translate(config, "cohere2")
    config.windows(config.local_layers(lambda layer: (layer + 1) % _PERIOD != 0))


def read_config(file: ModelFile) -> Config:
    """Hyperparameters from metadata, under ``cohere2.*``."""
    keys = Keys(file, "cohere2")
    windows = keys.windows(keys.size("block_count", 1 << 10), _PERIOD)
    return _block.read_config(
        keys, BLOCK, period=_PERIOD, rotates=tuple(map(bool, windows)),
        output_scale=keys.number("logit_scale", 1.0),
    )  # fmt: skip
