"""Nomic Embed 2: Nomic Embed with biases and GELU, and experts in every second layer or so.

A layer of experts adds one bias to the sum of their results, which llama.cpp leaves out.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from halfbyte.formats.model_file import ModelFile
from halfbyte.formats.transforms import split_rows
from halfbyte.text.architectures import _encoder, _experts, nomic_bert
from halfbyte.text.architectures._encoder import EXPERTS_BIAS, Block, Config
from halfbyte.text.architectures._keys import Keys

if TYPE_CHECKING:
    from halfbyte.formats.huggingface.names import Translation

TABLES = _encoder.TABLES
EQUALIZED: dict[str, tuple[str, ...]] = {}  # GELU forbids it
HEADS = _encoder.HEADS
MODEL_TYPES: tuple[str, ...] = ()  # see `nomic_bert.variant`
BLOCK = Block(rotary=True)
build = partial(_encoder.build, BLOCK)

_NAMES = {
    "mlp.fc1": "ffn_up",
    "mlp.fc2": "ffn_down",
    "mlp.router.layer": "ffn_gate_inp",
    "mlp.experts.mlp.w1": "ffn_up_exps",
    "mlp.experts.mlp.w2": "ffn_down_exps",
    "mlp.experts": "ffn_exps",
}
_MAX_LAYERS = 1 << 10


def translate(config: Translation) -> None:
    """Translate a config.json into GGUF's terms."""
    keys = config.keys
    nomic_bert.translate_own(config, "gelu")
    for key in ("moe_normalize_expert_weights", "expert_choice_router"):
        keys.expect(key, False, None)
    keys.expect("num_shared_experts", 0, None)
    keys.expect("ffn_div", 1, None)
    config.names = {**nomic_bert.OWN_NAMES, **_NAMES}
    config.encoder("nomic-bert-moe")
    config.rotates_heads()
    _encoder.without_task(config, config.classifies())
    _experts.translate(config, count="num_experts", used="moe_top_k")
    every = keys.integer("moe_every_n_layers")
    config.metadata["moe_every_n_layers"] = np.uint32(every)
    count = config.size("expert_count")
    config.transforms |= {
        "ffn_up_exps.weight": split_rows(count),
        "ffn_down_exps.weight": split_rows(count, transposed=True),
    }
    layers = min(config.size("block_count"), _MAX_LAYERS)
    config.uneven = tuple(f"blk.{layer}.ffn_" for layer in range(layers))
    config.idle = (EXPERTS_BIAS,)


def read_config(file: ModelFile) -> Config:
    """Hyperparameters from metadata, under ``nomic-bert-moe.*``."""
    keys = Keys(file, "nomic-bert-moe")
    every = keys.size("moe_every_n_layers", _MAX_LAYERS, 0, low=0)
    experts = _experts.read(keys, normalize=False) if every else None
    return _encoder.read_config(keys, BLOCK, experts=experts, experts_every=every)
