"""Gemma 2: norms before and after each part, a window in every second layer, soft caps.

Caps limit the products of queries and keys, and the logits. The gains of norms in GGUF include the
1 that the original adds.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from halfbyte.formats.model_file import ModelFile
from halfbyte.text.architectures import CHANNELS, _block
from halfbyte.text.architectures._block import Block, Config
from halfbyte.text.architectures._keys import Keys
from halfbyte.text.architectures.llama import NAMES

if TYPE_CHECKING:
    from halfbyte.formats.huggingface.names import Translation

TABLES = _block.TABLES
EQUALIZED = CHANNELS
MODEL_TYPES = ("gemma2",)
BLOCK = Block(after=True, activation="gelu_tanh")
build = partial(_block.build, BLOCK)
_LAYERS_27B = 46  # only this size scales by dim / heads, which llama.cpp's files do not say


def translate(config: Translation, architecture: str = "gemma2") -> None:
    """Translate a config.json into GGUF's terms."""
    keys = config.keys
    keys.expect("hidden_activation", "gelu_pytorch_tanh", None)
    keys.expect("use_bidirectional_attention", False, None)
    config.decoder(architecture, 256)
    config.rope()
    layers = config.local_layers(lambda layer: layer % 2 == 0)
    config.windows(layers)
    if layers == [layer % 2 == 0 for layer in range(len(layers))]:
        config.metadata.pop("attention.sliding_window_pattern", None)  # llama.cpp's default
    for key, source in {
        "attn_logit_softcapping": "attn_logit_softcapping",
        "final_logit_softcapping": "final_logit_softcapping",
    }.items():
        if keys.get(source) is not None:
            config.metadata[key] = np.float32(keys.number(source))
    scalar = keys.number("query_pre_attn_scalar", 256.0)
    if scalar != config.metadata["attention.key_length"]:
        config.metadata["attention.scale"] = np.float32(scalar**-0.5)
    config.add_one("attn_norm", "post_attention_norm", "ffn_norm", "post_ffw_norm", "output_norm")
    config.names = {
        **NAMES,
        "post_attention_layernorm": "post_attention_norm",
        "pre_feedforward_layernorm": "ffn_norm",
        "post_feedforward_layernorm": "post_ffw_norm",
    }
    config.tied = keys.boolean("tie_word_embeddings", True)


def read_config(file: ModelFile, architecture: str = "gemma2") -> Config:
    """Hyperparameters from metadata, under ``gemma2.*``."""
    keys = Keys(file, architecture)
    dim, heads = keys.size("embedding_length", 1 << 20), keys.size("attention.head_count", 1 << 12)
    wide = (dim / heads) ** -0.5 if keys.size("block_count", 1 << 10) == _LAYERS_27B else 0.0
    return _block.read_config(
        keys, BLOCK, period=2, embedding_scale=dim**0.5,
        softcap=keys.optional("attn_logit_softcapping"),
        final_softcap=keys.optional("final_logit_softcapping"),
        scale=keys.optional("attention.scale", wide),
    )  # fmt: skip
