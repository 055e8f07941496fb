"""BitNet b1.58: Llama with weights of -1, 0 and 1, and norms before the last matrix of each part.

GGUF has two architectures: "bitnet" with silu, and "bitnet-b1.58" with relu squared.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from halfbyte.formats.model_file import ModelFile
from halfbyte.text.architectures import CHANNELS, _block
from halfbyte.text.architectures._block import Block, Config
from halfbyte.text.architectures._keys import Keys
from halfbyte.text.architectures.llama import NAMES

if TYPE_CHECKING:
    from halfbyte.formats.huggingface.config import Keys as ConfigKeys
    from halfbyte.formats.huggingface.names import Translation

TABLES = _block.TABLES
EQUALIZED = {
    **{norm: readers for norm, readers in CHANNELS.items() if norm != "ffn_up"},
    "attn_sub_norm": ("attn_output",),
    "ffn_sub_norm": ("ffn_down",),
}
MODEL_TYPES = ("bitnet",)
BLOCK = Block(sub_norms=True)
build = partial(_block.build, BLOCK)


def variant(keys: ConfigKeys) -> str:
    """The architecture of a config with relu squared, which is the usual one."""
    return "bitnet_b1_58" if keys.text("hidden_act", "relu2") == "relu2" else ""


def translate(config: Translation, architecture: str = "bitnet") -> None:
    """Translate a config.json into GGUF's terms."""
    keys = config.keys
    keys.expect("hidden_act", *(("silu",) if architecture == "bitnet" else ("relu2", None)))
    keys.expect("attention_bias", False, None)
    config.decoder(architecture, default_epsilon=1e-5)
    config.rope()
    config.names = {
        **NAMES, "self_attn.attn_sub_norm": "attn_sub_norm", "mlp.ffn_sub_norm": "ffn_sub_norm"
    }  # fmt: skip
    config.shapes["ffn_sub_norm"] = (config.size("feed_forward_length"),)
    config.shapes["attn_sub_norm"] = (
        config.size("attention.head_count") * config.size("attention.key_length"),
    )
    config.tied = keys.boolean("tie_word_embeddings", False)


def read_config(file: ModelFile) -> Config:
    """Hyperparameters from metadata, under ``bitnet.*``."""
    return _block.read_config(Keys(file, "bitnet"), BLOCK)
