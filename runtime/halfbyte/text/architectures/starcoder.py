"""StarCoder and SantaCoder (`gpt_bigcode`): GPT-2 whose queries share one key and one value."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from halfbyte.formats.model_file import ModelFile
from halfbyte.text.architectures import _block
from halfbyte.text.architectures._block import Block, Config
from halfbyte.text.architectures._keys import Keys
from halfbyte.text.architectures.gpt2 import ATTENTION, NAMES

if TYPE_CHECKING:
    from halfbyte.formats.huggingface.names import Translation

TABLES = _block.TABLES
EQUALIZED: dict[str, tuple[str, ...]] = {}  # biases forbid it
MODEL_TYPES = ("gpt_bigcode",)
BLOCK = Block(norm="layer", gated=False, activation="gelu_tanh", positions=0)
build = partial(_block.build, BLOCK)


def translate(config: Translation) -> None:
    """Translate a config.json into GGUF's terms."""
    keys = config.keys
    keys.expect("activation_function", "gelu_pytorch_tanh", "gelu_new")
    keys.expect("scale_attn_weights", True)
    config.keys = keys.renamed(
        hidden_size="n_embd",
        num_hidden_layers="n_layer",
        num_attention_heads="n_head",
        max_position_embeddings="n_positions",
    )
    dim = config.keys.integer("hidden_size", maximum=1 << 20)
    heads = config.keys.integer("num_attention_heads", maximum=1 << 12)
    shared = keys.boolean("multi_query", True)
    config.keys = config.keys.otherwise(
        intermediate_size=4 * dim if keys.get("n_inner") is None else keys.get("n_inner"),
        num_key_value_heads=1 if shared else heads,
    )
    config.decoder("starcoder", epsilon="layer_norm_epsilon", default_epsilon=1e-5)
    config.metadata.pop("rope.dimension_count")
    if not shared:
        config.regroup("attn_qkv", (heads, 3, config.size("attention.key_length")))
    config.names = NAMES | ATTENTION
    config.tied = keys.boolean("tie_word_embeddings", True)


def read_config(file: ModelFile) -> Config:
    """Hyperparameters from metadata, under ``starcoder.*``."""
    return _block.read_config(Keys(file, "starcoder"), BLOCK)
