"""Granite with a window in most layers, a sink for each head, and rotation in some layers.

There may be experts in place of feed-forward parts.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from halfbyte.errors import UnsupportedError
from halfbyte.formats.model_file import ModelFile
from halfbyte.text.architectures import CHANNELS, _block, _experts, granite, granitemoe
from halfbyte.text.architectures._block import Config
from halfbyte.text.architectures._keys import Keys

if TYPE_CHECKING:
    from halfbyte.formats.huggingface.names import Translation

TABLES = _block.TABLES
EQUALIZED = CHANNELS
MODEL_TYPES = ("granite_swa", "granitemoe_swa")
BLOCK = granite.BLOCK
build = partial(_block.build, BLOCK)
_ROTATES = "attention.rope_pattern"  # 1 for each layer that rotates, otherwise 0


def translate(config: Translation) -> None:
    """Translate a config.json into GGUF's terms."""
    keys = config.keys = config.keys.otherwise(rms_norm_eps=1e-5, tie_word_embeddings=True)
    bases = keys.list("layer_rope_theta")
    layers = keys.integer("num_hidden_layers", maximum=1 << 10)
    rotating = {base for base in bases if base}
    if bases and (len(bases) != layers or len(rotating) > 1):
        raise UnsupportedError(
            f"{keys.where}: key 'layer_rope_theta': expected {layers} of one number and 0"
        )
    if rotating:
        rope = keys.get("rope_parameters") or {}
        config.keys = keys.replaced(rope_parameters={**rope, "rope_theta": rotating.pop()})
    granite.translate(config, "granite-swa")
    config.windows(config.local_layers(lambda layer: layer % 4 != 0))
    rotates = [int(bool(base)) for base in bases] or [1] * layers
    config.metadata[_ROTATES] = np.array(rotates, np.uint32)
    if config.kind == "granitemoe_swa":
        granitemoe.translate_experts(config)
    config.names = {**config.names, "self_attn.sinks": "attn_sinks"}
    config.shapes["attn_sinks"] = (config.size("attention.head_count"),)


def read_config(file: ModelFile) -> Config:
    """Hyperparameters from metadata, under ``granite-swa.*``."""
    keys = Keys(file, "granite-swa")
    rotates: tuple[bool, ...] = ()
    if keys.has(_ROTATES):
        rotates, _ = keys.of_some(_ROTATES, keys.size("block_count", 1 << 10), 1)
    return _block.read_config(
        keys, BLOCK, rotates=rotates, experts=_experts.read(keys, optional=True),
        **granite.read_scales(keys),
    )  # fmt: skip
