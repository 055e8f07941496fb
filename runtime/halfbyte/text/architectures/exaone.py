"""EXAONE 3 and 3.5: Llama whose pairs are half a head apart, with names of its own."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from halfbyte.formats.model_file import ModelFile
from halfbyte.text.architectures import CHANNELS, _block
from halfbyte.text.architectures._block import Block, Config
from halfbyte.text.architectures._keys import Keys
from halfbyte.text.architectures.llama import NAMES

if TYPE_CHECKING:
    from halfbyte.formats.huggingface.names import Translation

TABLES = _block.TABLES
EQUALIZED = CHANNELS
MODEL_TYPES = ("exaone",)
BLOCK = Block()
build = partial(_block.build, BLOCK)
_NAMES = {  # of folders with code of their own
    "wte": "token_embd",
    "ln_f": "output_norm",
    "ln_1": "attn_norm",
    **{f"attn.attention.{n}_proj": f"attn_{n}" for n in "qkv"},
    "attn.attention.out_proj": "attn_output",
    "ln_2": "ffn_norm",
    "mlp.c_fc_0": "ffn_gate",
    "mlp.c_fc_1": "ffn_up",
    "mlp.c_proj": "ffn_down",
}


def translate(config: Translation) -> None:
    """Translate a config.json into GGUF's terms."""
    keys = config.keys = config.keys.renamed(
        num_hidden_layers="num_layers", rms_norm_eps="layer_norm_epsilon",
        hidden_act="activation_function",
    ).otherwise(rope_theta=500000.0)  # fmt: skip
    keys.expect("hidden_act", "silu")
    config.decoder("exaone", default_epsilon=1e-5)
    config.rope()
    config.names = NAMES | _NAMES
    config.tied = keys.boolean("tie_word_embeddings", False)


def read_config(file: ModelFile) -> Config:
    """Hyperparameters from metadata, under ``exaone.*``."""
    return _block.read_config(Keys(file, "exaone"), BLOCK)
