"""EuroBERT: Llama as an encoder, with keys after the query."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from halfbyte.formats.model_file import ModelFile
from halfbyte.text.architectures import CHANNELS, _encoder
from halfbyte.text.architectures._encoder import Block, Config
from halfbyte.text.architectures._keys import Keys
from halfbyte.text.architectures.llama import NAMES

if TYPE_CHECKING:
    from halfbyte.formats.huggingface.names import Translation

TABLES = _encoder.TABLES
EQUALIZED = CHANNELS
HEADS = ("Model", "ForMaskedLM")
MODEL_TYPES = ("eurobert",)
BLOCK = Block(norm="rms", before=True, activation="silu", gated=True, rotary=True)
build = partial(_encoder.build, BLOCK)


def translate(config: Translation) -> None:
    """Translate a config.json into GGUF's terms."""
    config.keys.expect("hidden_act", "silu")
    config.decoder("eurobert", default_epsilon=1e-5)
    config.rope()
    config.metadata["attention.causal"] = False
    config.names = NAMES
    config.tied = True  # a head is for its training only


def read_config(file: ModelFile) -> Config:
    """Hyperparameters from metadata, under ``eurobert.*``."""
    return _encoder.read_config(Keys(file, "eurobert"), BLOCK)
