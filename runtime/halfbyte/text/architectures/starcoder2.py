"""StarCoder 2: LayerNorm, biases everywhere, GELU without gate, a sliding window."""

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
MODEL_TYPES = ("starcoder2",)
BLOCK = Block(norm="layer", gated=False, activation="gelu_tanh")
build = partial(_block.build, BLOCK)


def translate(config: Translation) -> None:
    """Translate a config.json into GGUF's terms."""
    keys = config.keys
    keys.expect("hidden_act", "gelu_pytorch_tanh")
    config.decoder("starcoder2", epsilon="norm_epsilon", default_epsilon=1e-5)
    config.rope()
    config.windows(config.local_layers(lambda layer: True))
    config.names = NAMES | {"mlp.c_fc": "ffn_up", "mlp.c_proj": "ffn_down"}
    config.tied = keys.boolean("tie_word_embeddings", True)


def read_config(file: ModelFile) -> Config:
    """Hyperparameters from metadata, under ``starcoder2.*``."""
    return _block.read_config(Keys(file, "starcoder2"), BLOCK)
