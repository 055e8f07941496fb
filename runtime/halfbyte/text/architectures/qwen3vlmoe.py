"""Qwen 3 VL with experts (text): Qwen 3 MoE with the positions of Qwen 3 VL.

Published folders have transposed matrices of experts; `transformers` saves them as GGUF has them.
Their shapes show which it is, so square ones are refused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from halfbyte.errors import UnsupportedError
from halfbyte.formats.model_file import ModelFile
from halfbyte.formats.transforms import EITHER_EXPERTS
from halfbyte.text.architectures import _block, _experts, qwen2moe, qwen3, qwen3moe, qwen3vl
from halfbyte.text.architectures._block import Config
from halfbyte.text.architectures._keys import Keys
from halfbyte.text.architectures.qwen2vl import IMAGES

if TYPE_CHECKING:
    from halfbyte.formats.huggingface.names import Translation

TABLES = qwen3moe.TABLES
EQUALIZED = qwen3moe.EQUALIZED
MODEL_TYPES = ("qwen3_vl_moe_text",)
build = qwen3moe.build


def translate(config: Translation) -> None:
    """Translate a config.json into GGUF's terms."""
    config.keys = config.keys.otherwise(norm_topk_prob=True)
    qwen3vl.translate(config, "qwen3vlmoe")
    qwen2moe.translate_experts(config, normalize=True)
    dim, hidden = config.size("embedding_length"), config.size("expert_feed_forward_length")
    if dim in (hidden, 2 * hidden):
        raise UnsupportedError(
            f"{config.keys.where}: key 'moe_intermediate_size': expected neither {dim} nor half of "
            f"it, the 'hidden_size', found {hidden}: of square matrices of experts, nothing says "
            "which are transposed"
        )
    for part in ("gate_up", "down"):
        config.transforms[f"ffn_{part}_exps.weight"] = EITHER_EXPERTS
    config.names = {**config.names, **_experts.NAMES}


def read_config(file: ModelFile) -> Config:
    """Hyperparameters from metadata, under ``qwen3vlmoe.*``."""
    keys = Keys(file, "qwen3vlmoe")
    return _block.read_config(keys, qwen3.BLOCK, others=IMAGES, experts=_experts.read(keys))
