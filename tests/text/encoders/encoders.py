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
_MPNET = {"model_type": "mpnet", "pad_token_id": 1, "max_position_embeddings": CONTEXT + 2}
_MODERN = {
    "model_type": "modernbert", "num_hidden_layers": 5, "local_attention": 8,
    "global_attn_every_n_layers": 3, "global_rope_theta": 160000.0, "local_rope_theta": 10000.0,
    "bos_token_id": 2, "eos_token_id": 3, "cls_token_id": 2, "sep_token_id": 3,
}  # fmt: skip
_NOMIC = {  # as Nomic's own code has it
    "model_type": "nomic_bert", "architectures": ["NomicBertModel"], "n_embd": 32, "n_inner": 64,
    "n_layer": 2, "n_head": 2, "n_positions": 4 * CONTEXT, "max_trained_positions": CONTEXT,
    "vocab_size": len(TOKENS), "rotary_emb_base": 1000, "rotary_emb_fraction": 1.0,
    "rotary_emb_interleaved": False, "rotary_emb_scale_base": None, "rotary_scaling_factor": 2,
    "activation_function": "swiglu", "prenorm": False, "qkv_proj_bias": False,
    "mlp_fc1_bias": False, "mlp_fc2_bias": False, "causal": False, "layer_norm_epsilon": 1e-12,
    "type_vocab_size": 2, "use_rms_norm": False, "auto_map": {"AutoModel": "evil.Model"},
}  # fmt: skip
_GTE = {"model_type": "gte", "type_vocab_size": 2}

CONFIGS: dict[str, dict[str, Any]] = {
    "bert": {"model_type": "bert", "architectures": ["BertModel"]},
    "roberta": {"model_type": "roberta", "architectures": ["RobertaForMaskedLM"], **_ROBERTA},
    "xlm-roberta": {"model_type": "xlm-roberta", "architectures": ["XLMRobertaModel"], **_ROBERTA},
    "camembert": {"model_type": "camembert", "architectures": ["CamembertModel"], **_ROBERTA},
    "distilbert": {
        "model_type": "distilbert", "architectures": ["DistilBertModel"], "dim": 32, "n_layers": 2,
        "n_heads": 2, "hidden_dim": 64,
    },
    "data2vec-text": {
        "model_type": "data2vec-text", "architectures": ["Data2VecTextModel"], **_ROBERTA
    },
    "electra": {
        "model_type": "electra", "architectures": ["ElectraForPreTraining"], "embedding_size": 32
    },
    "ernie": {"model_type": "ernie", "architectures": ["ErnieModel"]},
    "eurobert": {
        "model_type": "eurobert", "architectures": ["EuroBertForMaskedLM"], "bos_token_id": 2,
        "num_key_value_heads": 1, "eos_token_id": 3, "mask_token_id": 4,
    },
    "gemma-embedding": {
        "model_type": "gemma3_text", "architectures": ["Gemma3TextModel"], "head_dim": 16,
        "use_bidirectional_attention": True, "num_key_value_heads": 1, "sliding_window": 8,
        "num_hidden_layers": 3, "query_pre_attn_scalar": 16,
        "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
    },
    "gte": {"architectures": ["GteModel"], **_GTE},
    "jina-bert-v2": {
        "model_type": "bert", "architectures": ["JinaBertForMaskedLM"], "feed_forward_type":
        "geglu", "position_embedding_type": "alibi", "auto_map": {"AutoModel": "evil.Model"},
    },
    "jina_embeddings_v3": {
        "model_type": "jina_embeddings_v3", "architectures": ["JinaEmbeddingsV3Model"]
    },
    "modernbert": {"architectures": ["ModernBertForMaskedLM"], **_MODERN},
    "modernbert-silu": {
        "architectures": ["ModernBertModel"], **_MODERN, "hidden_activation": "silu",
        "global_attn_every_n_layers": 2,
    },
    "mpnet": {"architectures": ["MPNetForMaskedLM"], **_MPNET},
    "nomic_bert": {"model_type": "nomic_bert", "architectures": ["NomicBertModel"]},
    "nomic-bert-moe": {
        **_NOMIC, "activation_function": "gelu", "qkv_proj_bias": True, "mlp_fc1_bias": True,
        "mlp_fc2_bias": True, "layer_norm_epsilon": 1e-5, "type_vocab_size": 1, "num_experts": 5,
        "moe_top_k": 2, "moe_every_n_layers": 2, "moe_normalize_expert_weights": False,
        "expert_choice_router": False, "num_shared_experts": 0, "n_layer": 4,
    },
    "bert-rank": {
        "model_type": "bert", "architectures": ["BertForSequenceClassification"], **_RANK
    },
    "roberta-rank": {
        "model_type": "roberta", "architectures": ["RobertaForSequenceClassification"],
        **_ROBERTA, **_RANK,
    },
    "mpnet-rank": {"architectures": ["MPNetForSequenceClassification"], **_MPNET, **_RANK},
    "gte-rank": {"architectures": ["GteForSequenceClassification"], **_GTE, **_RANK},
    "distilbert-rank": {
        "model_type": "distilbert", "architectures": ["DistilBertForSequenceClassification"],
        "dim": 32, "n_layers": 2, "n_heads": 2, "hidden_dim": 64, **_RANK,
    },
    "electra-rank": {
        "model_type": "electra", "architectures": ["ElectraForSequenceClassification"],
        "embedding_size": 32, **_RANK,
    },
    "modernbert-rank": {
        "architectures": ["ModernBertForSequenceClassification"], **_MODERN, **_RANK,
        "classifier_pooling": "mean",
    },
    "modernbert-cls-rank": {
        "architectures": ["ModernBertForSequenceClassification"], **_MODERN, **_RANK
    },
}  # fmt: skip
OWN_TYPES = ("bert-rank", "electra-rank", "gte-rank")  # whose second texts have a type of their own
RANKS = [name for name in CONFIGS if name.endswith("-rank")]
OTHERS = [name for name in CONFIGS if name not in RANKS]


def config(name: str) -> dict[str, Any]:
    """The config.json of a model."""
    own = CONFIGS[name]
    return own if "n_embd" in own else {**_SIZES, **own}


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


def write_dense(
    folder: Path, name: str, tensors: dict[str, F32Array], activation: str, rows: int = 0
) -> None:
    """Add a module after pooling, or replace it."""
    modules = json.loads((folder / "modules.json").read_text())
    entry = {"name": name, "path": name, "type": "sentence_transformers.models.Dense"}
    if entry not in modules:
        at = next((i for i, m in enumerate(modules) if "Normalize" in m["type"]), len(modules))
        modules.insert(at, entry)
        write_json(folder / "modules.json", modules)
    (folder / name).mkdir(exist_ok=True)
    rows = rows or len(tensors["linear.weight"])
    config = {"out_features": rows, "activation_function": f"torch.nn.modules.{activation}"}
    write_json(folder / name / "config.json", config)
    write_safetensors(folder / name / "model.safetensors", tensors)


def nomic_own() -> tuple[dict[str, Any], dict[str, F32Array]]:
    """The tiny Nomic model as its authors saved it: config.json and tensors."""
    config = _NOMIC | {"max_trained_positions": 36}
    own, new = tensors("nomic_bert"), {}
    names = {
        "embeddings.LayerNorm": "emb_ln", "self_attn.o_proj": "attn.out_proj",
        "post_attention_layernorm": "norm1", "mlp.up_proj": "mlp.fc11", "mlp.gate_proj": "mlp.fc12",
        "mlp.down_proj": "mlp.fc2", "post_mlp_layernorm": "norm2", "layers.": "encoder.layers.",
    }  # fmt: skip
    for layer in range(2):
        parts = [own.pop(f"layers.{layer}.self_attn.{n}_proj.weight") for n in "qkv"]
        new[f"encoder.layers.{layer}.attn.Wqkv.weight"] = np.concatenate(parts)
    for name, x in own.items():
        for old, other in names.items():
            name = name.replace(old, other)
        new[name] = x
    return config, new


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
