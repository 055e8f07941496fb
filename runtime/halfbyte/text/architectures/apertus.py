"""Apertus: Llama with norms of heads, and xIELU with numbers of its own in each layer."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from halfbyte.errors import FormatError
from halfbyte.formats.model_file import ModelFile
from halfbyte.text.architectures import CHANNELS, _block, qwen3
from halfbyte.text.architectures._block import Block, Config
from halfbyte.text.architectures._keys import Keys
from halfbyte.text.architectures._xielu import XIELU
from halfbyte.text.architectures.llama import NAMES

if TYPE_CHECKING:
    from halfbyte.formats.huggingface.names import Translation

TABLES = _block.TABLES
EQUALIZED = {norm: parts for norm, parts in CHANNELS.items() if norm != "ffn_up"}
MODEL_TYPES = ("apertus",)
KEYS = ("xielu.",)  # of metadata, without the architecture's name
BLOCK = Block(head_norms="heads", gated=False)
build = partial(_block.build, BLOCK)
_NUMBERS = ("alpha_p", "alpha_n", "beta", "eps")
_NAMES = {
    "attention_layernorm": "attn_norm",
    "feedforward_layernorm": "ffn_norm",
    **{f"mlp.act_fn.{name}": f"xielu.{name}." for name in _NUMBERS},
}
_MOST = 1e6


def translate(config: Translation) -> None:
    """Translate a config.json into GGUF's terms."""
    config.keys.expect("hidden_act", "xielu")
    config.keys.expect("attention_bias", False)
    config.decoder("apertus", default_epsilon=1e-5)
    config.rope()
    config.names = NAMES | qwen3.HEAD_NORMS | _NAMES
    config.numbers = tuple(f"xielu.{name}" for name in _NUMBERS)
    config.shapes |= dict.fromkeys(config.numbers, (1,))
    config.tied = config.keys.boolean("tie_word_embeddings", False)


def read_config(file: ModelFile) -> Config:
    """Hyperparameters from metadata, under ``apertus.*`` and ``xielu.*``."""
    keys = Keys(file, "apertus")
    layers = keys.size("block_count", 1 << 10)
    values = [_numbers(file, f"xielu.{name}", layers) for name in _NUMBERS]
    xielus = []
    for p, n, beta, eps in zip(*values, strict=True):
        p, n = float(np.logaddexp(0, p)), beta + float(np.logaddexp(0, n))
        xielus.append(XIELU(p, n, beta, eps))
    return _block.read_config(keys, BLOCK, xielus=tuple(xielus))


def _numbers(file: ModelFile, key: str, count: int) -> list[float]:
    """A number for each layer."""
    values: Any = file.metadata.get(key)
    floats = isinstance(values, np.ndarray) and values.dtype.kind == "f"
    if not floats or values.shape != (count,) or not np.all(np.abs(values) < _MOST):
        raise FormatError(
            f"{file.path}: metadata '{key}': expected {count} numbers below {_MOST:g}"
        )
    numbers: list[float] = values.astype(np.float64).tolist()
    return numbers
