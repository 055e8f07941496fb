"""EmbeddingGemma: Gemma 3 as an encoder, with keys after the query.

Vectors pass through two matrices after pooling (``dense_2`` and ``dense_3``).
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from halfbyte.formats.model_file import ModelFile
from halfbyte.text.architectures import CHANNELS, _encoder, gemma3
from halfbyte.text.architectures._encoder import Block, Config
from halfbyte.text.architectures._keys import Keys

if TYPE_CHECKING:
    from halfbyte.formats.huggingface.names import Translation

TABLES = _encoder.TABLES
EQUALIZED = CHANNELS
HEADS = ("Model",)
MODEL_TYPES: tuple[str, ...] = ()  # see `gemma3.variant`
BLOCK = Block(
    norm="rms", before=True, after=True, head_norms=True, activation="gelu_tanh", gated=True,
    rotary=True,
)  # fmt: skip
build = partial(_encoder.build, BLOCK)


def translate(config: Translation) -> None:
    """Translate a config.json into GGUF's terms."""
    gemma3.translate_as(config, "gemma-embedding")
    config.metadata["attention.causal"] = False
    config.tied = True


def read_config(file: ModelFile) -> Config:
    """Hyperparameters from metadata, under ``gemma-embedding.*``."""
    keys = Keys(file, "gemma-embedding")
    layers = keys.size("block_count", 1 << 10)
    return _encoder.read_config(
        keys, BLOCK, windows=keys.windows(layers, gemma3.PERIOD),
        embedding_scale=keys.size("embedding_length", 1 << 20) ** 0.5,
        local_base=keys.number("rope.freq_base_swa", 10000.0),
        scale=keys.optional("attention.scale"),
    )  # fmt: skip
