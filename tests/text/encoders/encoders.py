"""Tiny encoders: folders as `transformers` and sentence-transformers save them.

Goldens (`goldens.json`, written by `make judge`) hold the names and shapes of a model's tensors in
`transformers`, and its vectors, or scores, of `TEXTS`.
"""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import numpy as np
from tests.formats.folders import write_json, write_safetensors
from tests.text.architectures import models
from tests.text.architectures.models import F32Array

GOLDENS = Path(__file__).with_name("goldens.json")
CONTEXT = 40
WORDS = [f"w{i}" for i in range(59)]
TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]
TEXTS = ["w7", "w1 w2 w3 w4 w5", " ".join(WORDS[:38]), "w9 w8"]
QUERY = "w3 w11"

_SIZES = {
    "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2,
    "vocab_size": len(TOKENS), "max_position_embeddings": CONTEXT, "pad_token_id": 0,
}  # fmt: skip
_ROBERTA = {
    "type_vocab_size": 1, "pad_token_id": 1, "max_position_embeddings": CONTEXT + 2,
    "layer_norm_eps": 1e-5,
}  # fmt: skip
_RANK = {"id2label": {"0": "LABEL_0"}, "label2id": {"LABEL_0": 0}}

CONFIGS: dict[str, dict[str, Any]] = {
    "bert": {"model_type": "bert", "architectures": ["BertModel"]},
    "roberta": {"model_type": "roberta", "architectures": ["RobertaForMaskedLM"], **_ROBERTA},
    "xlm-roberta": {"model_type": "xlm-roberta", "architectures": ["XLMRobertaModel"], **_ROBERTA},
    "camembert": {"model_type": "camembert", "architectures": ["CamembertModel"], **_ROBERTA},
    "distilbert": {
        "model_type": "distilbert", "architectures": ["DistilBertModel"], "dim": 32, "n_layers": 2,
        "n_heads": 2, "hidden_dim": 64,
    },
    "bert-rank": {
        "model_type": "bert", "architectures": ["BertForSequenceClassification"], **_RANK
    },
    "roberta-rank": {
        "model_type": "roberta", "architectures": ["RobertaForSequenceClassification"],
        **_ROBERTA, **_RANK,
    },
}  # fmt: skip
RANKS = [name for name in CONFIGS if name.endswith("-rank")]
OTHERS = [name for name in CONFIGS if name not in RANKS]


def config(name: str) -> dict[str, Any]:
    """The config.json of a model."""
    return {**_SIZES, **CONFIGS[name]}


def ids(text: str) -> list[int]:
    """Tokens of a text, with those around it."""
    return [2, *(TOKENS.index(word) for word in text.split()), 3]


def doubles(name: str) -> bool:
    """Whether two tokens separate the texts of a pair."""
    return "roberta" in name or name.startswith(("camembert", "mpnet"))


def pair(name: str, text: str) -> tuple[list[int], list[int]]:
    """Tokens of the query and a text, and their types."""
    first, second = ids(QUERY) + [3] * doubles(name), ids(text)[1:]
    second = [*second[: CONTEXT - len(first) - 1], 3] if len(first + second) > CONTEXT else second
    return [*first, *second], [0] * len(first) + [1] * len(second)


def tensors(name: str) -> dict[str, F32Array]:
    """A model's weights, by a formula."""
    shapes = json.loads(GOLDENS.read_text("utf-8"))[name]["tensors"]
    return {n: models.values(f"{name}/{n}", tuple(shape)) for n, shape in shapes.items()}


def expected(name: str) -> F32Array:
    """Vectors [texts, 32] or scores [texts] by `transformers`."""
    golden = json.loads(GOLDENS.read_text("utf-8"))[name]
    values = np.frombuffer(base64.b64decode(golden["values"]), np.float32)
    return values if name in RANKS else values.reshape(len(TEXTS), -1)


def write(folder: Path, name: str, pooling: str = "mean", *, normalize: bool = False) -> Path:
    """A model's folder; with "" for `pooling` as `transformers` saves it."""
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / "config.json", config(name))
    write_json(folder / "tokenizer.json", _tokenizer(twice=doubles(name)))
    if pooling and name not in RANKS:
        kinds = {"": "Transformer", "1_Pooling": "Pooling"} | (
            {"2_Normalize": "Normalize"} if normalize else {}
        )
        write_json(
            folder / "modules.json",
            [
                {"idx": i, "name": str(i), "path": p, "type": f"sentence_transformers.models.{k}"}
                for i, (p, k) in enumerate(kinds.items())
            ],
        )
        (folder / "1_Pooling").mkdir(exist_ok=True)
        modes = ("cls_token", "mean_tokens", "max_tokens", "lasttoken")
        chosen = {f"pooling_mode_{m}": m.startswith(pooling) for m in modes}
        write_json(folder / "1_Pooling/config.json", {"word_embedding_dimension": 32, **chosen})
    write_safetensors(folder / "model.safetensors", tensors(name))
    return folder


def _tokenizer(*, twice: bool) -> dict[str, Any]:
    return {
        "added_tokens": [],
        "normalizer": {"type": "BertNormalizer", "lowercase": True},
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": {
            "type": "RobertaProcessing" if twice else "BertProcessing",
            "cls": ["[CLS]", 2], "sep": ["[SEP]", 3],
        },
        "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True},
        "model": {
            "type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",
            "max_input_chars_per_word": 100, "vocab": {t: i for i, t in enumerate(TOKENS)},
        },
    }  # fmt: skip
