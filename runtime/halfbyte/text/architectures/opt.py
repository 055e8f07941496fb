"""OPT: GPT-2 with relu and matrices for queries, keys and values; positions begin at row 2.

llama.cpp does not run this architecture.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from halfbyte.formats.model_file import ModelFile
from halfbyte.text.architectures import _block
from halfbyte.text.architectures._block import Block, Config
from halfbyte.text.architectures._keys import Keys

if TYPE_CHECKING:
    from halfbyte.formats.huggingface.names import Translation

TABLES = _block.TABLES
EQUALIZED: dict[str, tuple[str, ...]] = {}  # biases forbid it
MODEL_TYPES = ("opt",)
BLOCK = Block(norm="layer", gated=False, activation="relu", positions=2)
build = partial(_block.build, BLOCK)


def translate(config: Translation) -> None:
    """Translate a config.json into GGUF's terms."""
    keys = config.keys
    keys.expect("activation_function", "relu")
    keys.expect("do_layer_norm_before", True)
    keys.expect("_remove_final_layer_norm", False)
    keys.expect("enable_bias", True)
    keys.expect("layer_norm_elementwise_affine", True)
    dim = keys.integer("hidden_size", maximum=1 << 20)
    keys.expect("word_embed_proj_dim", dim, None)
    config.keys = keys.renamed(intermediate_size="ffn_dim").otherwise(layer_norm_eps=1e-5)
    config.decoder("opt", epsilon="layer_norm_eps")
    config.shapes["position_embd"] = (config.size("context_length") + 2, dim)
    config.names = {
        "embed_tokens": "token_embd",
        "embed_positions": "position_embd",
        "final_layer_norm": "output_norm",
        "lm_head": "output",
        "self_attn_layer_norm": "attn_norm",
        "self_attn.q_proj": "attn_q",
        "self_attn.k_proj": "attn_k",
        "self_attn.v_proj": "attn_v",
        "self_attn.out_proj": "attn_output",
        "fc1": "ffn_up",
        "fc2": "ffn_down",
    }
    config.layer_names = {"final_layer_norm": "ffn_norm"}
    config.tied = keys.boolean("tie_word_embeddings", True)


def read_config(file: ModelFile) -> Config:
    """Hyperparameters from metadata, under ``opt.*``."""
    return _block.read_config(Keys(file, "opt"), BLOCK)
