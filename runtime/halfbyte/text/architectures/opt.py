"""OPT: GPT-2 with relu and matrices for queries, keys and values; positions begin at row 2.

In OPT-350M, embeddings are narrower than the layers, whose norms are those of sums (post-norm).
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
BLOCK = Block(norm="layer", gated=False, activation="relu", positions=2, projected=True)
build = partial(_block.build, BLOCK)


def translate(config: Translation) -> None:
    """Translate a config.json into GGUF's terms."""
    keys = config.keys
    keys.expect("activation_function", "relu")
    keys.expect("_remove_final_layer_norm", False)
    keys.expect("enable_bias", True)
    keys.expect("layer_norm_elementwise_affine", True)
    dim = keys.integer("hidden_size", maximum=1 << 20)
    width = keys.integer("word_embed_proj_dim", dim, maximum=1 << 20)
    post_norm = not keys.boolean("do_layer_norm_before", True)
    config.keys = keys.renamed(intermediate_size="ffn_dim").otherwise(layer_norm_eps=1e-5)
    config.decoder("opt", epsilon="layer_norm_eps")
    config.metadata["post_norm"] = post_norm
    config.shapes |= {
        "position_embd": (config.size("context_length") + 2, dim),
        "token_embd": (config.size("vocab_size"), width),
        "token_embd_proj": (dim, width),
        "output": (config.size("vocab_size"), width),
        "output_proj": (width, dim),
    }
    names = {
        "embed_tokens": "token_embd",
        "embed_positions": "position_embd",
        "lm_head": "output",
        "self_attn_layer_norm": "attn_norm",
        "self_attn.q_proj": "attn_q",
        "self_attn.k_proj": "attn_k",
        "self_attn.v_proj": "attn_v",
        "self_attn.out_proj": "attn_output",
        "fc1": "ffn_up",
        "fc2": "ffn_down",
    }
    if width != dim:
        config.keep_original()  # for adapters: metadata does not have the width
        names |= {"project_in": "token_embd_proj", "project_out": "output_proj"}
    if not post_norm:
        names |= {"final_layer_norm": "output_norm"}
    config.names = names
    config.layer_names = {"final_layer_norm": "ffn_norm"}
    config.tied = keys.boolean("tie_word_embeddings", True)


def read_config(file: ModelFile) -> Config:
    """Hyperparameters from metadata, under ``opt.*``."""
    keys = Keys(file, "opt")
    return _block.read_config(keys, BLOCK, post_norm=keys.boolean("post_norm", False))
