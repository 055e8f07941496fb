"""MiniCPM 3: latent attention, and Llama's feed-forward parts; results and logits are scaled."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from halfbyte.errors import UnsupportedError
from halfbyte.formats.model_file import ModelFile
from halfbyte.text.architectures import _block, _latent
from halfbyte.text.architectures._block import Block, Config
from halfbyte.text.architectures._keys import Keys
from halfbyte.text.architectures.llama import NAMES

if TYPE_CHECKING:
    from halfbyte.formats.huggingface.names import Translation

TABLES = frozenset({"rope_factors_long.weight", "rope_factors_short.weight"})
EQUALIZED = _latent.EQUALIZED
MODEL_TYPES = ("minicpm3",)
BLOCK = Block()
build = partial(_block.build, BLOCK)
_EMBEDDING, _DEPTH, _BASE = 12.0, 1.4, 256  # for which GGUF has no keys


def translate(config: Translation) -> None:
    """Translate a config.json into GGUF's terms."""
    keys = config.keys
    keys.expect("scale_emb", _EMBEDDING)
    keys.expect("scale_depth", _DEPTH)
    keys.expect("dim_model_base", _BASE)
    heads = keys.integer("num_attention_heads")
    config.keys = keys = keys.otherwise(
        v_head_dim=max(keys.integer("hidden_size") // heads, 1), kv_lora_rank=256,
        qk_nope_head_dim=64, qk_rope_head_dim=32,
    )  # fmt: skip
    _latent.translate(config, "minicpm3", 1e-5)
    config.names = NAMES | _latent.NAMES
    config.tied = keys.boolean("tie_word_embeddings", True)
    _translate_rope(config)


def _translate_rope(config: Translation) -> None:
    """Set LongRoPE's factors; the long ones begin beyond the model's own context."""
    rope, context = config.keys.rope(), config.size("context_length")
    if rope.text("rope_type", rope.text("type", "default")) != "longrope":
        config.rope()
        return
    original = rope.integer("original_max_position_embeddings", context)
    if original < context:
        raise UnsupportedError(
            f"{rope.where}: key 'original_max_position_embeddings': expected {context} or more, "
            f"found {original}"
        )
    for name in ("long", "short"):
        factors = rope.numbers(f"{name}_factor", config.size("rope.dimension_count") // 2)
        config.tensors[f"rope_factors_{name}.weight"] = factors
    config.rope(rope.only("rope_theta"))


def read_config(file: ModelFile) -> Config:
    """Hyperparameters from metadata, under ``minicpm3.*``."""
    keys = Keys(file, "minicpm3")
    layers = keys.size("block_count", 1 << 10)
    short = "rope_factors_short.weight"
    return _latent.read_config(
        keys, BLOCK, interleaved=False, factors=short if short in file.tensors else "",
        embedding_scale=_EMBEDDING, residual_scale=_DEPTH * layers**-0.5,
        output_scale=_BASE / keys.size("embedding_length", 1 << 20),
    )  # fmt: skip
