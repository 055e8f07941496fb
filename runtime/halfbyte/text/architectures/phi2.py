"""Phi 1 and 2 (`phi`): parallel parts that read one LayerNorm, biases, partial rotation."""

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
MODEL_TYPES = ("phi",)
BLOCK = Block(norm="layer", parallel=True, gated=False, activation="gelu_tanh")
build = partial(_block.build, BLOCK)


def translate(config: Translation) -> None:
    """Translate a config.json into GGUF's terms."""
    keys = config.keys
    keys.expect("hidden_act", "gelu_new")
    keys.expect("qk_layernorm", False, None)
    config.decoder("phi2", epsilon="layer_norm_eps", default_epsilon=1e-5)
    config.partial_rotation(0.5)
    config.rope()
    config.names = NAMES | {
        "self_attn.dense": "attn_output",
        "mlp.fc1": "ffn_up",
        "mlp.fc2": "ffn_down",
        "final_layernorm": "output_norm",
    }
    config.tied = keys.boolean("tie_word_embeddings", False)


def read_config(file: ModelFile) -> Config:
    """Hyperparameters from metadata, under ``phi2.*``."""
    return _block.read_config(Keys(file, "phi2"), BLOCK)
