"""BERT and its kin: encoders with learned positions and a LayerNorm after each part.

A head, for scores of pairs of texts, is a matrix with an activation (``cls``) and one for the
labels (``cls.output``). RoBERTa's positions begin after those of its padding; GGUF leaves these
rows out.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from halfbyte.formats.embedding import SCORING
from halfbyte.formats.model_file import ModelFile
from halfbyte.text.architectures import _encoder
from halfbyte.text.architectures._encoder import Block, Config
from halfbyte.text.architectures._keys import Keys

if TYPE_CHECKING:
    from halfbyte.formats.huggingface.config import Keys as ConfigKeys
    from halfbyte.formats.huggingface.names import Translation

TABLES = _encoder.TABLES
EQUALIZED: dict[str, tuple[str, ...]] = {}  # biases forbid it
HEADS = _encoder.HEADS
BLOCK = Block()
build = partial(_encoder.build, BLOCK)

EMBEDDINGS = {
    "word_embeddings": "token_embd",
    "position_embeddings": "position_embd",
    "token_type_embeddings": "token_types",
    "LayerNorm": "token_embd_norm",
}
BERT = {
    **EMBEDDINGS,
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
    **EMBEDDINGS,
    "attention.q_lin": "attn_q",
    "attention.k_lin": "attn_k",
    "attention.v_lin": "attn_v",
    "attention.out_lin": "attn_output",
    "sa_layer_norm": "attn_output_norm",
    "ffn.lin1": "ffn_up",
    "ffn.lin2": "ffn_down",
    "output_layer_norm": "layer_output_norm",
}
HEAD_NAMES = {"pooler.dense": "cls", "classifier": "cls.output"}
ROBERTA_NAMES = {"classifier.dense": "cls", "classifier.out_proj": "cls.output"}


def _bert(config: Translation) -> None:
    config.names = BERT | HEAD_NAMES


def _roberta(config: Translation) -> None:
    config.names = BERT | ROBERTA_NAMES
    config.keys.expect("pad_token_id", 1, None)
    config.skip_positions(2)


def _ernie(config: Translation) -> None:
    config.keys.expect("use_task_id", False, None)
    _bert(config)


def _electra(config: Translation) -> None:
    config.keys.otherwise(embedding_size=128).expect(
        "embedding_size", config.keys.integer("hidden_size")
    )  # others are projected to it
    config.names = BERT | ROBERTA_NAMES


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
    "data2vec-text": _roberta,
    "distilbert": _distilbert,
    "electra": _electra,
    "ernie": _ernie,
    "roberta": _roberta,
    "xlm-roberta": _roberta,
}
MODEL_TYPES = tuple(_KINDS)
_ACTIVATIONS = {"distilbert": "relu", "electra": "gelu"}  # of heads; others have tanh


def variant(keys: ConfigKeys) -> str:
    """The architecture of a config that is not BERT's: Jina's models have the same type."""
    return "jina_bert_v2" if keys.get("position_embedding_type") == "alibi" else ""


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
    if head and config.kind in _ACTIVATIONS:
        config.metadata[SCORING] = _ACTIVATIONS[config.kind]
    _encoder.without_task(config, head)


def read_config(file: ModelFile) -> Config:
    """Hyperparameters from metadata, under ``bert.*``."""
    return _encoder.read_config(Keys(file, "bert"), BLOCK)
