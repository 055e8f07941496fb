"""EXAONE 4: norms of results and of heads; if some layers have a window, only they rotate."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from halfbyte.formats.model_file import ModelFile
from halfbyte.text.architectures import _block
from halfbyte.text.architectures._block import Block, Config
from halfbyte.text.architectures._keys import Keys
from halfbyte.text.architectures.llama import NAMES
from halfbyte.text.architectures.olmo2 import RESULT_NORMS
from halfbyte.text.architectures.qwen3 import HEAD_NORMS

if TYPE_CHECKING:
    from halfbyte.formats.huggingface.names import Translation

TABLES = _block.TABLES
EQUALIZED = _block.AFTER
MODEL_TYPES = ("exaone4",)
BLOCK = Block(before=False, after=True, head_norms="heads")
build = partial(_block.build, BLOCK)


def translate(config: Translation) -> None:
    """Translate a config.json into GGUF's terms."""
    keys = config.keys
    keys.expect("hidden_act", "silu")
    config.decoder("exaone4")
    config.rope()
    config.windows(config.local_layers(lambda layer: (layer + 1) % 4 != 0))
    config.names = NAMES | HEAD_NORMS | RESULT_NORMS
    config.tied = keys.boolean("tie_word_embeddings", False)


def read_config(file: ModelFile) -> Config:
    """Hyperparameters from metadata, under ``exaone4.*``."""
    keys = Keys(file, "exaone4")
    windows = keys.windows(keys.size("block_count", 1 << 10), 4)
    rotates = tuple(map(bool, windows)) if any(windows) else ()
    return _block.read_config(keys, BLOCK, period=4, rotates=rotates)
