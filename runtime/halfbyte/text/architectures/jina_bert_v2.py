"""Jina Embeddings 2: BERT with ALiBi in place of positions, and GeGLU.

Its folders say that they are BERT's, with code of their own, which is not executed.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from halfbyte.formats.model_file import ModelFile
from halfbyte.text.architectures import _encoder
from halfbyte.text.architectures._encoder import Block, Config
from halfbyte.text.architectures._keys import Keys
from halfbyte.text.architectures.bert import BERT

if TYPE_CHECKING:
    from halfbyte.formats.huggingface.names import Translation

TABLES = _encoder.TABLES
EQUALIZED: dict[str, tuple[str, ...]] = {}  # gate and up may be one tensor
HEADS = _encoder.HEADS
MODEL_TYPES: tuple[str, ...] = ()  # see `bert.variant`
BLOCK = Block(gated=True)
build = partial(_encoder.build, BLOCK)
_ALIBI = 8.0


def translate(config: Translation) -> None:
    """Translate a config.json into GGUF's terms."""
    keys = config.keys
    keys.expect("feed_forward_type", "geglu")
    keys.expect("hidden_act", "gelu")
    config.names = {
        **{old: new for old, new in BERT.items() if not new.startswith("ffn")},
        "mlp.gated_layers": "ffn_up",
        "mlp.wo": "ffn_down",
        "mlp.layernorm": "layer_output_norm",
    }
    config.encoder("jina-bert-v2")
    if config.classifies():
        config.refuse_head("a score of pairs")
    config.shapes["ffn_up"] = (
        2 * config.size("feed_forward_length"), config.size("embedding_length")
    )  # fmt: skip
    _encoder.without_task(config, head=False)


def read_config(file: ModelFile) -> Config:
    """Hyperparameters from metadata, under ``jina-bert-v2.*``."""
    keys = Keys(file, "jina-bert-v2")
    alibi = keys.number("attention.max_alibi_bias", _ALIBI)
    return _encoder.read_config(keys, BLOCK, alibi=alibi)
