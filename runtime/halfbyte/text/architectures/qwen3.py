"""Qwen 3: RMSNorm of each head's query and key before rotation; no biases."""

from __future__ import annotations

from typing import TYPE_CHECKING

from halfbyte.core import ops
from halfbyte.core.program import Program, capture
from halfbyte.formats.model_file import ModelFile
from halfbyte.text.architectures import CHANNELS, _decoder, qwen2
from halfbyte.text.architectures._decoder import Decoder, RotaryConfig
from halfbyte.text.architectures._keys import Keys
from halfbyte.text.architectures.llama import NAMES, swiglu

if TYPE_CHECKING:
    from halfbyte.formats.huggingface.names import Translation

TABLES: frozenset[str] = frozenset()
EQUALIZED = CHANNELS
MODEL_TYPES = ("qwen3",)
HEAD_NORMS = {"self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm"}


def translate(config: Translation) -> None:
    """Translate a config.json into GGUF's terms."""
    qwen2.translate(config, "qwen3", head_dim=128)
    config.names = NAMES | HEAD_NORMS


def read_config(file: ModelFile) -> RotaryConfig:
    """Hyperparameters from metadata, under ``qwen3.*``."""
    keys = Keys(file, "qwen3")
    config = _decoder.rotary(keys)
    keys.refuse_others(config.head_dim)
    return config


def build(
    file: ModelFile, config: RotaryConfig, *, context: int, batch: int, cache: str
) -> Program:
    """Capture the model; see :class:`Decoder`."""
    with capture(file.path.name) as program:
        model = Decoder(file, config, program, context, batch, cache)
        rope = model.rope(config, interleaved=False)
        x = model.embed()
        for layer in range(config.layers):
            block = f"blk.{layer}."
            q, k, v = model.queries_keys_values(model.norm(x, block + "attn_norm"), block)
            q = model.norm(q, block + "attn_q_norm", heads=config.heads)
            k = model.norm(k, block + "attn_k_norm", heads=config.kv_heads)
            mixed = model.attend(block, q, k, v, rope=rope, window=config.windows[layer])
            x = ops.add(x, model.linear(mixed, block + "attn_output", config.dim))
            x = ops.add(x, swiglu(model, model.norm(x, block + "ffn_norm"), block))
        x = ops.last_rows(x, rows=model.logit_rows)
        model.head(model.norm(x, "output_norm"))
    return program
