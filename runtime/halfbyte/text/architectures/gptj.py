"""GPT-J and CodeGen: parallel parts that read one LayerNorm, GELU, a part of a head rotated.

CodeGen has queries, keys and values in one matrix. llama.cpp does not run this architecture.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from halfbyte.formats.model_file import ModelFile
from halfbyte.text.architectures import _block
from halfbyte.text.architectures._block import Block, Config
from halfbyte.text.architectures._keys import Keys

if TYPE_CHECKING:
    from halfbyte.formats.huggingface.names import Translation

TABLES = _block.TABLES
EQUALIZED: dict[str, tuple[str, ...]] = {}  # biases forbid it
MODEL_TYPES = ("gptj", "codegen")
BLOCK = Block(norm="layer", parallel=True, gated=False, interleaved=True, activation="gelu_tanh")
build = partial(_block.build, BLOCK)
OLD_NAMES = {
    "hidden_size": "n_embd",
    "num_attention_heads": "n_head",
    "num_hidden_layers": "n_layer",
    "max_position_embeddings": "n_positions",
}


def translate(config: Translation) -> None:
    """Translate a config.json into GGUF's terms."""
    keys = config.keys
    keys.expect("activation_function", "gelu_new", "gelu_pytorch_tanh")
    config.keys = keys.renamed(**OLD_NAMES)
    dim = config.keys.integer("hidden_size", maximum=1 << 20)
    config.keys = config.keys.otherwise(
        intermediate_size=4 * dim if keys.get("n_inner") is None else keys.get("n_inner"),
        layer_norm_epsilon=1e-5,
    )
    config.decoder("gptj", epsilon="layer_norm_epsilon")
    head = config.size("attention.key_length")
    config.metadata["rope.dimension_count"] = np.uint32(
        keys.integer("rotary_dim", 64, maximum=head)
    )
    config.rope()
    if config.kind == "codegen":  # four groups of queries, values and keys
        config.regroup("attn_qkv", (4, 3, dim // 4), order=(0, 2, 1))
    config.names = {
        "wte": "token_embd",
        "ln_f": "output_norm",
        "lm_head": "output",
        "ln_1": "attn_norm",
        "attn.q_proj": "attn_q",
        "attn.k_proj": "attn_k",
        "attn.v_proj": "attn_v",
        "attn.qkv_proj": "attn_qkv",
        "attn.out_proj": "attn_output",
        "mlp.fc_in": "ffn_up",
        "mlp.fc_out": "ffn_down",
    }
    config.tied = keys.boolean("tie_word_embeddings", False)


def read_config(file: ModelFile) -> Config:
    """Hyperparameters from metadata, under ``gptj.*``."""
    return _block.read_config(Keys(file, "gptj"), BLOCK)
