"""BERT and its kin: encoders with learned positions and a LayerNorm after each part.

A head, for scores of pairs of texts, is a matrix with tanh (``cls``) and one for the labels
(``cls.output``). RoBERTa's positions begin after those of its padding; GGUF leaves these rows out.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from halfbyte.formats.model_file import ModelFile
from halfbyte.text.architectures import _encoder
from halfbyte.text.architectures._decoder import Config
from halfbyte.text.architectures._encoder import Block
from halfbyte.text.architectures._keys import Keys

if TYPE_CHECKING:
    from halfbyte.formats.huggingface.names import Translation

TABLES = _encoder.TABLES
EQUALIZED: dict[str, tuple[str, ...]] = {}  # biases forbid it
HEADS = _encoder.HEADS
build = partial(_encoder.build, Block())

_EMBEDDINGS = {
    "word_embeddings": "token_embd",
    "position_embeddings": "position_embd",
    "token_type_embeddings": "token_types",
    "LayerNorm": "token_embd_norm",
}
_BERT = {
    **_EMBEDDINGS,
    "attention.self.query": "attn_q",
    "attention.self.key": "attn_k",
    "attention.self.value": "attn_v",
    "attention.output.dense": "attn_output",
    "attention.output.LayerNorm": "attn_output_norm",
    "intermediate.dense": "ffn_up",
    "output.dense": "ffn_down",
    "output.LayerNorm": "layer_output_norm",
}
_DISTILBERT = {
    **_EMBEDDINGS,
    "attention.q_lin": "attn_q",
    "attention.k_lin": "attn_k",
    "attention.v_lin": "attn_v",
    "attention.out_lin": "attn_output",
    "sa_layer_norm": "attn_output_norm",
    "ffn.lin1": "ffn_up",
    "ffn.lin2": "ffn_down",
    "output_layer_norm": "layer_output_norm",
}
# Parts for the training task, beside those of the head
_TASK = ("cls.", "lm_head.", "vocab_", "pooler.")


def _bert(config: Translation) -> None:
    config.names = _BERT | {"pooler.dense": "cls", "classifier": "cls.output"}


def _roberta(config: Translation) -> None:
    config.names = _BERT | {"classifier.dense": "cls", "classifier.out_proj": "cls.output"}
    config.keys.expect("pad_token_id", 1, None)
    config.skip_positions(2)


def _distilbert(config: Translation) -> None:
    config.names = _DISTILBERT | {"pre_classifier": "cls", "classifier": "cls.output"}
    config.keys = config.keys.renamed(
        hidden_size="dim", intermediate_size="hidden_dim", num_hidden_layers="n_layers",
        num_attention_heads="n_heads", hidden_act="activation",
    ).otherwise(layer_norm_eps=1e-12, type_vocab_size=1)  # fmt: skip


# What differs from one to the other
_KINDS: dict[str, Callable[[Translation], None]] = {
    "bert": _bert,
    "camembert": _roberta,
    "distilbert": _distilbert,
    "roberta": _roberta,
    "xlm-roberta": _roberta,
}
MODEL_TYPES = tuple(_KINDS)


def translate(config: Translation) -> None:
    """Translate a config.json into GGUF's terms."""
    _KINDS[config.kind](config)
    keys = config.keys
    keys.expect("hidden_act", "gelu")
    keys.expect("position_embedding_type", "absolute", None)
    keys.expect("is_decoder", False)
    keys.expect("add_cross_attention", False)
    keys.expect("sinusoidal_pos_embds", False, True)  # their values are weights, too
    config.encoder("bert")
    head = config.classifies()
    if head and config.kind == "distilbert":
        config.refuse_head("relu before its last matrix")
    config.dropped = tuple(part for part in _TASK if not (head and part == "pooler."))
    if not head:
        config.names = {k: v for k, v in config.names.items() if not v.startswith("cls")}


def read_config(file: ModelFile) -> Config:
    """Hyperparameters from metadata, under ``bert.*``."""
    return _encoder.read_config(Keys(file, "bert"))
