"""Mamba 2: state spaces only. Channels of a head share their steps and rates of decay."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from halfbyte.core import ops
from halfbyte.core.program import Program, capture
from halfbyte.formats.model_file import ModelFile
from halfbyte.text.architectures import CHANNELS, _decoder, _ssm
from halfbyte.text.architectures._decoder import Decoder
from halfbyte.text.architectures._keys import Keys
from halfbyte.text.architectures._ssm import Mixer

if TYPE_CHECKING:
    from halfbyte.formats.huggingface.names import Translation

TABLES: frozenset[str] = frozenset()
EQUALIZED = {"attn_norm": ("ssm_in",), "output_norm": CHANNELS["output_norm"]}
MODEL_TYPES = ("mamba2",)


def translate(config: Translation) -> None:
    """Translate a config.json into GGUF's terms."""
    keys = config.keys
    _ssm.translate_alone(config, "mamba2")
    heads = keys.integer("num_heads", 128, maximum=_ssm.MAX_HEADS)
    _ssm.translate(
        config,
        channels=heads * keys.integer("head_dim", 64),
        heads=heads,
        groups=keys.integer("n_groups", 8),
        states=keys.integer("state_size", 128),
        taps=keys.integer("conv_kernel", 4),
    )
    config.tied = keys.boolean("tie_word_embeddings", False)


@dataclass(frozen=True)
class Config(_decoder.Config):
    """Sizes, with the mixer of each layer."""

    mixer: Mixer


def read_config(file: ModelFile) -> Config:
    """Hyperparameters from metadata, under ``mamba2.*``."""
    keys = Keys(file, "mamba2")
    config = Config(**vars(_ssm.sizes(keys)), mixer=_ssm.read(keys))
    keys.refuse_others(config.head_dim)
    return config


def build(file: ModelFile, config: Config, *, context: int, batch: int, cache: str) -> Program:
    """Capture the model; see :class:`Decoder`."""
    with capture(file.path.name) as program:
        model = Decoder(file, config, program, context, batch, cache)
        x = model.embed()
        for layer in range(config.layers):
            block = f"blk.{layer}."
            x = ops.add(x, config.mixer.mixed(model, model.norm(x, block + "attn_norm"), block))
        x = ops.last_rows(x, rows=model.logit_rows)
        model.head(model.norm(x, "output_norm"))
    return program
