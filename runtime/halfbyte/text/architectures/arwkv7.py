"""ARWKV 7: Llama with layers of RWKV 7 in place of attention, in files of llama.cpp."""

from __future__ import annotations

from typing import TYPE_CHECKING

from halfbyte.core import ops
from halfbyte.core.program import Program, capture
from halfbyte.errors import UnsupportedError
from halfbyte.formats.model_file import ModelFile
from halfbyte.text.architectures import CHANNELS
from halfbyte.text.architectures._keys import Keys
from halfbyte.text.architectures._rwkv import Config, Layers, read

if TYPE_CHECKING:
    from halfbyte.formats.huggingface.names import Translation

TABLES: frozenset[str] = frozenset()
EQUALIZED = {name: parts for name, parts in CHANNELS.items() if name != "attn_norm"}
MODEL_TYPES: tuple[str, ...] = ()  # of GGUF files only


def translate(config: Translation) -> None:
    """Refuse a config.json."""
    raise UnsupportedError(
        f"{config.keys.where}: model_type {config.kind!r}: expected a GGUF file of such a model"
    )


def read_config(file: ModelFile) -> Config:
    """Hyperparameters from metadata, under ``arwkv7.*``."""
    return read(Keys(file, "arwkv7"), "attention.layer_norm_rms_epsilon", 1)


def build(file: ModelFile, config: Config, *, context: int, batch: int, cache: str) -> Program:
    """Capture the model; see :class:`_decoder.Decoder`."""
    with capture(file.path.name) as program:
        model = Layers(file, config, program, context, batch, cache)
        x = model.embed()
        for number in range(config.layers):
            block = f"blk.{number}."
            x = ops.add(x, model.time_mix(model.norm(x, block + "attn_norm"), block))
            h = model.norm(x, block + "ffn_norm")
            x = ops.add(x, model.fed_forward(h, block, "silu", gated=True))
        x = ops.last_rows(x, rows=model.logit_rows)
        model.head(model.norm(x, "output_norm"))
    return program
