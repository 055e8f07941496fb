"""The models of `benches.budget_matrix`: published architectures with few layers, in many types."""

from __future__ import annotations

import itertools
import json
import string
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from benches.popular.configs import CONFIGS
from tools.make_model import vocabulary, write_blocks, write_tensor

from halfbyte.formats.model_file import MetadataValue
from halfbyte.quantize.gguf_writer import GGUFWriter, TensorInfo
from halfbyte.text.outline import read_outline
from halfbyte.weights import FORMATS

_LAYERS, _TOKENS = 6, 32_768
_MORE_LAYERS = {"Gemma 4 E2B": (10, 2), "Gemma 3n E2B": (10, 2)}  # and those that share a cache
_WHOLE = ("SmolLM2-135M", "Qwen2.5-0.5B", "Gemma 3 270M")  # with their whole vocabularies
_TYPES = (
    "Q4_0", "Q8_0", "Q4_K", "F16", "Q6_K", "IQ4_NL", "BF16", "Q5_K", "Q4_1", "Q2_K", "IQ4_XS",
    "Q3_K", "Q5_0", "TQ2_0", "Q5_1", "MXFP4", "F32",
)  # fmt: skip

# Architecture and type; the second round begins at another type than the first
MODELS = [
    *zip(CONFIGS, itertools.cycle(_TYPES), strict=False),
    *zip(CONFIGS, itertools.cycle(_TYPES[9:] + _TYPES[:9]), strict=False),
]


def _config(name: str) -> dict[str, Any]:
    """A config.json of few layers, and unless it is in `_WHOLE` of few tokens."""
    own = dict(CONFIGS[name])
    layers, sharing = _MORE_LAYERS.get(name, (_LAYERS, 0))
    own["num_hidden_layers"] = layers
    if "layer_types" in own:
        own["layer_types"] = own["layer_types"][:layers]
    if sharing:
        own["num_kv_shared_layers"] = sharing
    if name not in _WHOLE:
        for key in ("vocab_size", "vocab_size_per_layer_input"):
            if key in own:
                own[key] = _TOKENS
    return own


def _byte_level(size: int) -> dict[str, MetadataValue]:
    """A tokenizer of bytes and of merges of letters, each of a shorter string and a letter."""
    shown = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in shown]
    single = [chr(byte if byte in shown else 256 + others.index(byte)) for byte in range(256)]
    letters = string.ascii_lowercase
    longer = itertools.chain.from_iterable(
        itertools.product(letters, repeat=n) for n in range(2, 5)
    )
    strings = ["".join(parts) for parts in itertools.islice(longer, size - 257)]
    end = np.uint32(size - 1)
    return {
        "tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "gpt-2",
        "tokenizer.ggml.tokens": [*single, *strings, "<|end|>"],
        "tokenizer.ggml.token_type": np.array([1] * (size - 1) + [3], np.int32),
        "tokenizer.ggml.merges": [f"{s[:-1]} {s[-1]}" for s in strings],
        "tokenizer.ggml.bos_token_id": end, "tokenizer.ggml.eos_token_id": end,
    }  # fmt: skip


def _sentencepiece(size: int) -> dict[str, MetadataValue]:
    tokens, types = vocabulary(size)
    return {
        "tokenizer.ggml.model": "llama", "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.scores": -np.arange(size, dtype=np.float32),
        "tokenizer.ggml.token_type": types, "tokenizer.ggml.bos_token_id": np.uint32(1),
        "tokenizer.ggml.eos_token_id": np.uint32(2),
    }  # fmt: skip


def write(path: Path, name: str, kind: str) -> Path:
    """One of `MODELS` with random weights, as GGUF; rows that are not whole blocks are in F32."""
    config = _config(name)
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "config.json").write_text(json.dumps(config), encoding="utf-8")
        outline = read_outline(Path(folder))
    infos = [
        TensorInfo(t.name, FORMATS[kind] if _is_matrix(t.name, t.shape, kind) else FORMATS["F32"],
                   t.shape)
        for t in outline.tensors.values()
    ]  # fmt: skip
    size = config["vocab_size"]
    words = _sentencepiece(size) if "emma" in name or "Llama-1" in name else _byte_level(size)
    metadata = {k: v for k, v in outline.metadata.items() if not k.startswith("tokenizer.")}
    rng = np.random.Generator(np.random.SFC64(0))
    with GGUFWriter(path, {**metadata, **words}, infos) as writer:
        for info in infos:
            blocks = info.format.block > 1
            (write_blocks if blocks else write_tensor)(writer, info, rng)
    return path


def _is_matrix(name: str, shape: tuple[int, ...], kind: str) -> bool:
    """Whether a tensor is stored in the model's type."""
    return len(shape) > 1 and shape[-1] % max(FORMATS[kind].block, 32) == 0 and "ssm_a" not in name
