"""Encoders of published sizes with random weights in Q8_0, as GGUF files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from halfbyte.formats.huggingface.names import naming
from halfbyte.formats.huggingface.shapes import Shapes
from halfbyte.quantize.gguf_writer import write_gguf
from halfbyte.text import architectures
from halfbyte.weights import F32, Q8_0, Tensor

_SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
_WORDS = 2044  # a small vocabulary: embeddings are looked up
WORDS = [f"w{i}" for i in range(_WORDS)]
CONTEXT = 512

_BASE = {
    "vocab_size": len(_SPECIAL) + _WORDS, "hidden_size": 768, "num_hidden_layers": 12,
    "num_attention_heads": 12, "intermediate_size": 3072, "max_position_embeddings": CONTEXT,
}  # fmt: skip
_MODERN = {
    **_BASE, "model_type": "modernbert", "num_hidden_layers": 22, "intermediate_size": 1152,
    "local_attention": 128, "global_attn_every_n_layers": 3, "global_rope_theta": 160000.0,
    "local_rope_theta": 10000.0,
}  # fmt: skip
_GEMMA = {
    **_BASE, "model_type": "gemma3_text", "num_hidden_layers": 24, "num_attention_heads": 3,
    "num_key_value_heads": 1, "head_dim": 256, "intermediate_size": 1152, "sliding_window": 512,
    "query_pre_attn_scalar": 256, "use_bidirectional_attention": True, "rope_theta": 1e6,
    "layer_types": [
        "full_attention" if i % 6 == 5 else "sliding_attention" for i in range(24)
    ],
}  # fmt: skip
CONFIGS: dict[str, dict[str, Any]] = {
    "MiniLM": {
        **_BASE, "model_type": "bert", "hidden_size": 384, "num_hidden_layers": 6,
        "intermediate_size": 1536,
    },
    "BERT base": {**_BASE, "model_type": "bert"},
    "MPNet base": {**_BASE, "model_type": "mpnet", "max_position_embeddings": CONTEXT + 2},
    "Jina 2 base": {
        **_BASE, "model_type": "bert", "position_embedding_type": "alibi",
        "feed_forward_type": "geglu",
    },
    "ModernBERT base": _MODERN,
    "EmbeddingGemma": _GEMMA,
}  # fmt: skip

# Parts of layers by GGUF's names; + is a bias, too
_BERT = (
    "attn_q+ attn_k+ attn_v+ attn_output+ attn_output_norm+ ffn_up+ ffn_down+ layer_output_norm+"
)
_PARTS = {
    "bert": (_BERT, "token_embd position_embd token_types token_embd_norm+"),
    "mpnet": (_BERT, "token_embd position_embd token_embd_norm+ attn_rel_b"),
    "jina-bert-v2": (_BERT.replace("ffn_up+", "ffn_up"), "token_embd token_types token_embd_norm+"),
    "modern-bert": (
        "attn_norm attn_qkv attn_output ffn_norm ffn_up ffn_down",
        "token_embd token_embd_norm output_norm",
    ),
    "gemma-embedding": (
        "attn_norm attn_q attn_k attn_v attn_q_norm attn_k_norm attn_output post_attention_norm "
        "ffn_norm ffn_gate ffn_up ffn_down post_ffw_norm",
        "token_embd output_norm",
    ),
}


def write(path: Path, name: str) -> Path:
    """One of `CONFIGS`, with pooling of the mean."""
    names = naming(CONFIGS[name], architectures.model_types())
    metadata = dict(names.metadata)
    architecture = str(metadata["general.architecture"])
    metadata[f"{architecture}.pooling_type"] = np.uint32(1)
    shapes = Shapes(metadata, names.shapes)
    parts, outer = (text.split() for text in _PARTS[architecture])
    wanted = outer + [f"blk.{i}.{part}" for i in range(shapes.layers) for part in parts]
    if architecture == "modern-bert":
        wanted.remove("blk.0.attn_norm")
    rng, tensors = np.random.default_rng(0), []
    for one in wanted:
        bare = one.rstrip("+")
        ends = (".weight", ".bias") if one.endswith("+") else (".weight",)
        tensors += [_tensor(bare + end, shapes[bare + end], rng) for end in ends]
    write_gguf(path, metadata | _vocabulary(), tensors)
    return path


def _tensor(name: str, shape: tuple[int, ...], rng: np.random.Generator) -> Tensor:
    if name.startswith("position_embd"):
        shape = (CONTEXT, shape[1])
    gain = "norm" in name and name.endswith("weight")
    values = np.full(shape, gain, np.float32)
    if len(shape) > 1:
        values = rng.standard_normal(shape, np.float32) * np.float32(shape[-1] ** -0.5)
    added = name.startswith(("token_types", "position_embd")) or "rel_b" in name
    kind = F32 if added or len(shape) == 1 else Q8_0
    return Tensor(name, kind, shape, kind.encode(values.reshape(-1, shape[-1])).reshape(-1))


def _vocabulary() -> dict[str, Any]:
    tokens = [*_SPECIAL, *(f"\u2581{word}" for word in WORDS)]
    ids = dict(zip(("padding", "unknown", "cls", "seperator"), range(4), strict=True))
    return {
        "tokenizer.ggml.model": "bert", "tokenizer.ggml.pre": "default",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": np.array([3] * 4 + [1] * _WORDS, np.int32),
        **{f"tokenizer.ggml.{name}_token_id": np.uint32(i) for name, i in ids.items()},
        "tokenizer.ggml.bos_token_id": np.uint32(2), "tokenizer.ggml.eos_token_id": np.uint32(3),
    }  # fmt: skip
