"""Phi 3 and 4: Llama with queries, keys and values in one matrix, gate and up in another.

Models with a long context divide the frequencies of their pairs by ``rope_factors_short.weight`` or
``rope_factors_long.weight``, and multiply cos and sin by a factor (LongRoPE; Ding et al. 2024). As
in llama.cpp, the context that a model is loaded with decides: beyond the original context it is the
long factors, for every text, since a text's keys are rotated once and must be rotated the same way.
transformers decides by the length of each text so far, and does not rotate the keys in its cache
again. Its texts are the same as ours with a context of at most the original one, which is the
default if that is 4096 or more.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from halfbyte.core import ops
from halfbyte.core.buffer import Buffer
from halfbyte.core.program import Program, capture
from halfbyte.errors import FormatError
from halfbyte.formats.model_file import ModelFile
from halfbyte.text.architectures import CHANNELS, _decoder
from halfbyte.text.architectures._decoder import Decoder, RotaryConfig
from halfbyte.text.architectures._keys import Keys
from halfbyte.text.architectures.llama import NAMES

if TYPE_CHECKING:
    from halfbyte.formats.huggingface.names import Translation

TABLES = frozenset({"rope_factors_long.weight", "rope_factors_short.weight"})
EQUALIZED = CHANNELS
MODEL_TYPES = ("phi3",)


def translate(config: Translation) -> None:
    """Translate a config.json into GGUF's terms."""
    keys, values = config.keys, config.metadata
    keys.expect("hidden_act", "silu")
    config.decoder("phi3")
    rope = keys.rope()
    part = rope.number("partial_rotary_factor", keys.number("partial_rotary_factor", 1.0))
    if part > 1:
        raise FormatError(f"{keys.where}: key 'partial_rotary_factor': expected at most 1")
    values["rope.dimension_count"] = np.uint32(int(config.size("rope.dimension_count") * part))
    original = rope.integer(
        "original_max_position_embeddings", keys.integer("original_max_position_embeddings", 4096)
    )
    values["rope.scaling.original_context_length"] = np.uint32(original)
    if rope.text("rope_type", rope.text("type", "default")) in ("longrope", "su"):
        stretch = config.size("context_length") / original
        factor = (
            math.sqrt(1 + math.log(stretch) / math.log(original)) if stretch > 1 < original else 1.0
        )
        factor = rope.number("attention_factor", factor)
        values["rope.scaling.attn_factor"] = np.float32(factor)
        for name in ("long", "short"):
            factors = rope.numbers(f"{name}_factor", config.size("rope.dimension_count") // 2)
            config.tensors[f"rope_factors_{name}.weight"] = factors
        rope = rope.only("rope_theta")
    config.rope(rope)
    config.windows(config.local_layers(lambda layer: True))
    config.names = {**NAMES, "self_attn.qkv_proj": "attn_qkv", "mlp.gate_up_proj": "ffn_up"}
    dim, hidden = config.size("embedding_length"), config.size("feed_forward_length")
    config.shapes["ffn_up"] = (2 * hidden, dim)  # gate and up
    config.tied = keys.boolean("tie_word_embeddings", False)


@dataclass(frozen=True)
class Config(RotaryConfig):
    """Hyperparameters with those of LongRoPE."""

    original_context: int = 0  # most tokens for the short factors
    gain: float = 1.0  # of cos and sin


def read_config(file: ModelFile) -> Config:
    """Hyperparameters from metadata, under ``phi3.*``."""
    keys = Keys(file, "phi3")
    c = _decoder.rotary(keys, scalings=("longrope",))
    original = keys.size("rope.scaling.original_context_length", 1 << 24, c.context)
    gain = keys.number("rope.scaling.attn_factor", 1.0)
    config = Config(**vars(c), original_context=original, gain=gain)
    keys.refuse_others(config.head_dim)
    return config


def build(file: ModelFile, config: Config, *, context: int, batch: int, cache: str) -> Program:
    """Capture the model; see :class:`Decoder`."""
    c = config
    with capture(file.path.name) as program:
        model = Decoder(file, c, program, context, batch, cache)
        reach = "long" if context > c.original_context else "short"
        factors = f"rope_factors_{reach}.weight" if TABLES & file.tensors.keys() else ""
        if factors and reach == "long":
            program.notes.append(
                f"LongRoPE: a context of {context} tokens, beyond the original "
                f"{c.original_context}, takes the long factors for every text, short ones too; "
                f"a context of {c.original_context} takes the short factors"
            )
        rope = model.rope(c, interleaved=False, factors=factors, gain=c.gain)
        x = model.embed()
        for layer in range(c.layers):
            block = f"blk.{layer}."
            h = model.norm(x, block + "attn_norm")
            q, k, v = model.fused(h, block + "attn_qkv", (c.width, c.kv_width, c.kv_width))
            mixed = model.attend(block, q, k, v, rope=rope, window=c.windows[layer])
            x = ops.add(x, model.linear(mixed, block + "attn_output", c.dim))
            x = ops.add(x, _swiglu(model, model.norm(x, block + "ffn_norm"), block))
        x = ops.last_rows(x, rows=model.logit_rows)
        model.head(model.norm(x, "output_norm"))
    return program


def _swiglu(model: Decoder, x: Buffer, block: str) -> Buffer:
    """(silu(gate) * up) through `down`; ``ffn_up`` holds gate and up."""
    hidden = model.config.hidden
    gate, up = model.fused(x, block + "ffn_up", (hidden, hidden))
    return model.linear(ops.mul(ops.silu(gate), up), block + "ffn_down", model.config.dim)
