"""StableLM: LayerNorm with biases, rotation of a part of a head; parts may be parallel."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from halfbyte.formats.model_file import ModelFile
from halfbyte.text.architectures import _block
from halfbyte.text.architectures._block import Block, Config
from halfbyte.text.architectures._keys import Keys
from halfbyte.text.architectures.llama import NAMES

if TYPE_CHECKING:
    from halfbyte.formats.huggingface.names import Translation

TABLES = _block.TABLES
EQUALIZED: dict[str, tuple[str, ...]] = {}  # biases forbid it
MODEL_TYPES = ("stablelm",)
BLOCK = Block(norm="layer")
build = partial(_block.build, BLOCK)


def translate(config: Translation) -> None:
    """Translate a config.json into GGUF's terms."""
    keys = config.keys
    keys.expect("hidden_act", "silu")
    keys.expect("qk_layernorm", False, None)
    config.decoder("stablelm", epsilon="layer_norm_eps", default_epsilon=1e-5)
    config.partial_rotation(0.25)
    config.rope()
    parallel = keys.boolean("use_parallel_residual", False)
    config.metadata["use_parallel_residual"] = parallel
    config.names = NAMES
    config.tied = keys.boolean("tie_word_embeddings", False)


def read_config(file: ModelFile) -> Config:
    """Hyperparameters from metadata, under ``stablelm.*``."""
    keys = Keys(file, "stablelm")
    return _block.read_config(keys, BLOCK, parallel=keys.boolean("use_parallel_residual", False))
