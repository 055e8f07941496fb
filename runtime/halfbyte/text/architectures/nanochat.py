"""nanochat: Llama without gains of norms, with squared ReLU; heads are normed after rotation.

Pairs rotate backwards, as pairs in the other order rotate forwards: halves of heads are swapped.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from halfbyte.formats.model_file import ModelFile
from halfbyte.formats.transforms import swapped
from halfbyte.text.architectures import _block
from halfbyte.text.architectures._block import Block, Config
from halfbyte.text.architectures._keys import Keys
from halfbyte.text.architectures.llama import NAMES

if TYPE_CHECKING:
    from halfbyte.formats.huggingface.names import Translation

TABLES = _block.TABLES
EQUALIZED: Mapping[str, tuple[str, ...]] = {}
MODEL_TYPES = ("nanochat",)
BLOCK = Block(
    norm="plain_rms", first=True, head_norms="rotated", activation="relu_squared", gated=False
)
build = partial(_block.build, BLOCK)


def translate(config: Translation) -> None:
    """Translate a config.json into GGUF's terms."""
    keys = config.keys
    keys.expect("hidden_act", "relu2")
    config.decoder("nanochat")
    config.rope()
    if keys.get("final_logit_softcapping") is not None:
        softcap = keys.number("final_logit_softcapping")
        config.metadata["final_logit_softcapping"] = np.float32(softcap)
    for part, heads in (("attn_q", "head_count"), ("attn_k", "head_count_kv")):
        transform = swapped(config.size(f"attention.{heads}"))
        config.transforms |= {f"{part}.weight": transform, f"{part}.bias": transform}
    names = {k: v for k, v in NAMES.items() if "norm" not in v and "ffn" not in v}
    config.names = {**names, "mlp.fc1": "ffn_up", "mlp.fc2": "ffn_down"}
    config.tied = keys.boolean("tie_word_embeddings", False)


def read_config(file: ModelFile) -> Config:
    """Hyperparameters from metadata, under ``nanochat.*``."""
    keys = Keys(file, "nanochat")
    softcap = keys.optional("final_logit_softcapping")
    return _block.read_config(keys, BLOCK, final_softcap=softcap)
