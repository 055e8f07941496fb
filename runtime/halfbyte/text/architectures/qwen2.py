"""Qwen 2 and 2.5: Llama with biases of queries, keys and values; pairs are half a head apart."""

from __future__ import annotations

from typing import TYPE_CHECKING

from halfbyte.core import ops
from halfbyte.core.program import Program, capture
from halfbyte.formats.model_file import ModelFile
from halfbyte.text.architectures import CHANNELS, _decoder
from halfbyte.text.architectures._decoder import Decoder, RotaryConfig
from halfbyte.text.architectures._keys import Keys
from halfbyte.text.architectures.llama import NAMES, swiglu

if TYPE_CHECKING:
    from halfbyte.formats.huggingface.names import Translation

TABLES: frozenset[str] = frozenset()
EQUALIZED = CHANNELS
MODEL_TYPES = ("qwen2",)


def translate(
    config: Translation, architecture: str = "qwen2", head_dim: int | None = None
) -> None:
    """Translate a config.json into GGUF's terms."""
    keys = config.keys
    keys.expect("hidden_act", "silu")
    config.decoder(architecture, head_dim)
    config.rope()
    if keys.boolean("use_sliding_window", False):
        first = keys.integer("max_window_layers", 28)
        config.windows(config.local_layers(lambda layer: layer >= first))
    config.names = NAMES
    config.tied = keys.boolean("tie_word_embeddings", False)


def read_config(file: ModelFile) -> RotaryConfig:
    """Hyperparameters from metadata, under ``qwen2.*``."""
    keys = Keys(file, "qwen2")
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
            h = model.norm(x, block + "attn_norm")
            q, k, v = model.queries_keys_values(h, block, bias=True)
            mixed = model.attend(block, q, k, v, rope=rope, window=config.windows[layer])
            x = ops.add(x, model.linear(mixed, block + "attn_output", config.dim))
            x = ops.add(x, swiglu(model, model.norm(x, block + "ffn_norm"), block))
        x = ops.last_rows(x, rows=model.logit_rows)
        model.head(model.norm(x, "output_norm"))
    return program
