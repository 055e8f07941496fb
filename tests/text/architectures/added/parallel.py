"""A made-up architecture: no positions, attention and GELU side by side after one norm.

No other file knows it; `test_added` adds this folder to the package's own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from halfbyte.core import ops
from halfbyte.core.program import Program, capture
from halfbyte.formats.model_file import ModelFile
from halfbyte.text.architectures import _decoder
from halfbyte.text.architectures._decoder import Config, Decoder
from halfbyte.text.architectures._keys import Keys

if TYPE_CHECKING:
    from halfbyte.formats.huggingface.names import Translation

TABLES: frozenset[str] = frozenset()
EQUALIZED = {"attn_norm": ("attn_q", "attn_k", "attn_v", "ffn_up")}
MODEL_TYPES = ("parallel",)


def translate(config: Translation) -> None:
    """Translate a config.json into GGUF's terms."""
    config.decoder("parallel")
    config.metadata.pop("rope.dimension_count")
    config.shapes["ffn_gain"] = (config.size("feed_forward_length"),)
    config.transpose("attn_output")
    config.names = {
        "embed_tokens": "token_embd",
        "final_norm": "output_norm",
        "norm": "attn_norm",
        "attention.queries": "attn_q",
        "attention.keys": "attn_k",
        "attention.values": "attn_v",
        "attention.out": "attn_output",
        "mlp.wide": "ffn_up",
        "mlp.gain": "ffn_gain",
        "mlp.narrow": "ffn_down",
    }
    config.tied = True


def read_config(file: ModelFile) -> Config:
    """Hyperparameters from metadata, under ``parallel.*``."""
    keys = Keys(file, "parallel")
    config = _decoder.sizes(keys, "attention.layer_norm_rms_epsilon")
    keys.refuse_others(config.head_dim)
    return config


def build(file: ModelFile, config: Config, *, context: int, batch: int, cache: str) -> Program:
    """Capture the model; see :class:`Decoder`."""
    with capture(file.path.name) as program:
        model = Decoder(file, config, program, context, batch, cache)
        x = model.embed()
        for layer in range(config.layers):
            block = f"blk.{layer}."
            h = model.norm(x, block + "attn_norm")
            mixed = model.attend(block, *model.queries_keys_values(h, block), rope=None)
            attended = model.linear(mixed, block + "attn_output", config.dim)
            wide = ops.gelu(model.linear(h, block + "ffn_up", config.hidden), approximate="tanh")
            gain = model.tensor(block + "ffn_gain.weight", config.hidden).decode()
            wide = ops.mul(wide, model.row(block + "ffn_gain.weight", gain))
            x = ops.add(x, attended)
            x = ops.add(x, model.linear(wide, block + "ffn_down", config.dim))
        x = ops.last_rows(x, rows=model.logit_rows)
        model.head(model.norm(x, "output_norm"))
    return program
