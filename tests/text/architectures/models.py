"""Tiny models of every architecture: a config.json each, weights from a formula.

Goldens (`goldens/<name>.json`, written by `make judge`) hold the names and shapes of such a model's
tensors in `transformers`, and its logits at some positions of a text.
"""

from __future__ import annotations

import base64
import json
import math
import re
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from tests.formats.files import VOCABULARY, tensor, tokenizer_metadata

from halfbyte.formats import MetadataValue
from halfbyte.formats.huggingface.names import naming
from halfbyte.quantize.gguf_writer import write_gguf
from halfbyte.text import architectures

F32Array = npt.NDArray[np.float32]

GOLDENS = Path(__file__).with_name("goldens")
CONTEXT = 48  # tokens of the text
COLUMNS = 64  # tokens whose logits are stored

_SIZES = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": VOCABULARY,
    "max_position_embeddings": CONTEXT,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}
_LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 16,
}
_LONG = {"long_factor": [1.5, 2.0, 4.0], "short_factor": [1.0, 1.25, 1.5], "rope_type": "longrope"}

CONFIGS: dict[str, dict[str, Any]] = {
    "llama": {"model_type": "llama"},
    "llama-tied-biases": {
        "model_type": "llama",
        "tie_word_embeddings": True,
        "attention_bias": True,
        "mlp_bias": True,
        "num_key_value_heads": 4,
    },
    "llama3": {"model_type": "llama", "rope_scaling": _LLAMA3, "head_dim": 16},
    "llama-linear": {"model_type": "llama", "rope_scaling": {"rope_type": "linear", "factor": 4.0}},
    "mistral": {"model_type": "mistral", "sliding_window": 7},
    "qwen2": {"model_type": "qwen2", "tie_word_embeddings": True},
    "qwen2-window": {
        "model_type": "qwen2",
        "use_sliding_window": True,
        "sliding_window": 9,
        "max_window_layers": 1,
    },
    "qwen3": {"model_type": "qwen3", "head_dim": 12},
    "gemma3": {
        "model_type": "gemma3_text",
        "num_hidden_layers": 7,
        "head_dim": 16,
        "query_pre_attn_scalar": 16,
        "sliding_window": 8,
        "rope_theta": 50000.0,
        "rope_local_base_freq": 1000.0,
        "rope_scaling": {"rope_type": "linear", "factor": 8.0},
    },
    "gemma3-pattern": {
        "model_type": "gemma3_text",
        "head_dim": 16,
        "query_pre_attn_scalar": 16,
        "sliding_window": 5,
        "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
    },
    "gemma3-scale": {
        "model_type": "gemma3_text",
        "num_hidden_layers": 2,
        "head_dim": 16,
        "query_pre_attn_scalar": 24,
        "sliding_window": 48,
    },
    "phi3": {"model_type": "phi3", "sliding_window": 11, "original_max_position_embeddings": 48},
    "phi3-long": {
        "model_type": "phi3",
        "num_key_value_heads": 4,
        "partial_rotary_factor": 0.75,
        "original_max_position_embeddings": 24,
        "rope_scaling": _LONG,
    },
    "phi3-short": {
        "model_type": "phi3",
        "num_key_value_heads": 4,
        "partial_rotary_factor": 0.75,
        "original_max_position_embeddings": 256,
        "rope_scaling": _LONG,
    },
    "gpt2": {
        "model_type": "gpt2",
        "n_embd": 32,
        "n_layer": 3,
        "n_head": 4,
        "n_inner": 80,
        "n_positions": CONTEXT,
        "activation_function": "gelu_new",
        "layer_norm_epsilon": 1e-5,
        "vocab_size": VOCABULARY,
        "bos_token_id": 1,
        "eos_token_id": 2,
    },
}


def config(name: str) -> dict[str, Any]:
    """The config.json of a model."""
    sizes = {} if name == "gpt2" else _SIZES
    return {**sizes, **CONFIGS[name]}


def ids(name: str) -> list[int]:
    """A text of the whole context, the beginning-of-text token first."""
    return [
        1,
        *(3 + zlib.crc32(f"{name} {i}".encode()) % (VOCABULARY - 3) for i in range(1, CONTEXT)),
    ]


def values(name: str, shape: tuple[int, ...]) -> F32Array:
    """A tensor's weights: uniform, of variance 1 / columns; vectors are 0.2 as large, gains near 1.

    PCG64's stream is the same in every version of NumPy.
    """
    raw = np.random.PCG64(zlib.crc32(name.encode())).random_raw(math.prod(shape))
    uniform = ((raw >> np.uint64(11)) * 2.0**-52 - 1).astype(np.float32).reshape(shape)
    if len(shape) > 1:
        return uniform * np.float32((3 / shape[-1]) ** 0.5)
    gain = name.endswith(".weight") and "gemma" not in name
    return uniform * np.float32(0.2) + np.float32(gain)


def write(
    path: Path,
    name: str,
    architecture: str | None = None,
    change: Callable[[dict[str, MetadataValue], dict[str, F32Array]], object] | None = None,
) -> Path:
    """The model as GGUF in F32.

    `architecture` renames it, `change` may change its metadata and tensors in any way.
    """
    names = naming(config(name), architectures.model_types())
    shapes = read_golden(name)[0]
    metadata, tensors = dict(names.metadata), dict(names.tensors)
    for source, shape in shapes.items():
        renamed = names.rename(source)
        if renamed:
            tensors[renamed[0]] = renamed[1].apply(values(f"{name}/{source}", tuple(shape)))
    if architecture:
        old = f"{metadata['general.architecture']}."
        metadata = {k.replace(old, f"{architecture}."): v for k, v in metadata.items()}
        metadata["general.architecture"] = architecture
    if change:
        change(metadata, tensors)
    write_gguf(
        path, {**metadata, **tokenizer_metadata()}, [tensor(n, v) for n, v in tensors.items()]
    )
    return path


def write_golden(name: str, shapes: dict[str, list[int]], logits: F32Array | None = None) -> None:
    """Store the results of `make judge`; without logits only the shapes, for :func:`write`."""
    rows = list(range(3, CONTEXT, 4)) if logits is not None else []
    kept = np.zeros(0, np.float32) if logits is None else logits[rows, :COLUMNS]
    GOLDENS.mkdir(exist_ok=True)
    encoded = base64.b64encode(np.ascontiguousarray(kept, np.float32)).decode()
    text = json.dumps({"tensors": shapes, "rows": rows, "logits": encoded}, indent=1)
    text = re.sub(r"\[[\s\d,]*\]", lambda match: re.sub(r"\s+", " ", match[0]), text)
    (GOLDENS / f"{name}.json").write_text(text + "\n", encoding="utf-8")


def read_golden(name: str) -> tuple[dict[str, list[int]], list[int], F32Array]:
    """Shapes of the model's tensors, rows of its text, and their logits [rows, COLUMNS]."""
    content = json.loads((GOLDENS / f"{name}.json").read_text(encoding="utf-8"))
    logits = np.frombuffer(base64.b64decode(content["logits"]), np.float32)
    return content["tensors"], content["rows"], logits.reshape(-1, COLUMNS)


def largest_difference(actual: F32Array, expected: F32Array) -> float:
    """Of two arrays of logits, relative to the largest expected one."""
    return float(np.abs(actual.astype(np.float64) - expected).max() / np.abs(expected).max())
