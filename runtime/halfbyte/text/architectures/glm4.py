"""GLM 4 (0414): GLM with norms before and after each part."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from halfbyte.formats.model_file import ModelFile
from halfbyte.text.architectures import CHANNELS, _block
from halfbyte.text.architectures._block import Block, Config
from halfbyte.text.architectures._keys import Keys
from halfbyte.text.architectures.chatglm import NAMES as NAMES_GLM
from halfbyte.text.architectures.chatglm import translate as translate_glm

if TYPE_CHECKING:
    from halfbyte.formats.huggingface.names import Translation

TABLES = _block.TABLES
EQUALIZED = CHANNELS
MODEL_TYPES = ("glm4",)
BLOCK = Block(after=True, interleaved=True)
build = partial(_block.build, BLOCK)


def translate(config: Translation) -> None:
    """Translate a config.json into GGUF's terms."""
    translate_glm(config, "glm4")
    config.names = NAMES_GLM | {
        "post_self_attn_layernorm": "post_attention_norm",
        "post_mlp_layernorm": "post_ffw_norm",
    }


def read_config(file: ModelFile) -> Config:
    """Hyperparameters from metadata, under ``glm4.*``."""
    return _block.read_config(Keys(file, "glm4"), BLOCK)
