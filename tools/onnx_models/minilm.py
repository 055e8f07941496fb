"""all-MiniLM-L6-v2 (sentence-transformers) with its trained weights, from `tools/get_minilm.py`.

An encoder of 6 layers, width 384; a sentence's embedding is the mean of its tokens' last hidden
states, scaled to unit length.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import tokenizers
from tools.get_minilm import get_minilm
from tools.onnx_models import bert
from tools.onnx_models.weights import F32Array, Stored

from halfbyte.formats.checkpoints.shards import read_weights
from halfbyte.formats.mapped import map_file

CONFIG = bert.BertConfig(6, 384, 12, 1536, pooled=True)


def tensors(path: Path) -> Mapping[str, F32Array]:
    """The checkpoint's tensors by name, mapped from the file."""
    tensors = read_weights(path, map_file(path)).tensors
    return {n: t.format.decode(t.data).reshape(t.shape) for n, t in tensors.items()}


def build(config: bert.BertConfig = CONFIG, folder: Path | None = None) -> onnx.ModelProto:
    """The model, its weights from a folder (default: the cache, filled on first use)."""
    weights = Stored(tensors((folder or get_minilm()) / "model.safetensors"))
    return bert.build(config, weights, "all-MiniLM-L6-v2")


def hidden_states() -> onnx.ModelProto:
    """The same without pooling: its output is `last_hidden_state`."""
    return build(dataclasses.replace(CONFIG, pooled=False))


def tokens(texts: Sequence[str], folder: Path | None = None) -> dict[str, npt.NDArray[Any]]:
    """The model's inputs for texts, a row each, padded to the longest."""
    path = (folder or get_minilm()) / "tokenizer.json"
    tokenizer = tokenizers.Tokenizer.from_file(str(path))
    tokenizer.enable_padding()
    encoded = tokenizer.encode_batch(list(texts))
    parts = {"input_ids": "ids", "attention_mask": "attention_mask", "token_type_ids": "type_ids"}
    return {n: np.array([getattr(e, part) for e in encoded], np.int64) for n, part in parts.items()}
