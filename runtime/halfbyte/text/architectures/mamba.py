"""Mamba: state spaces only. Each channel has its own step, and each of its states a rate of decay.

Falcon Mamba normalizes steps and what channels write and read (``ssm.dt_b_c_rms``).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from halfbyte.core import ops
from halfbyte.core.buffer import Buffer
from halfbyte.formats.model_file import ModelFile
from halfbyte.formats.transforms import DECAYS, KERNELS
from halfbyte.text.architectures import _ssm, mamba2
from halfbyte.text.architectures._decoder import Decoder
from halfbyte.text.architectures._keys import Keys
from halfbyte.text.architectures._ssm import BLOCK, StateSpace
from halfbyte.text.architectures.mamba2 import Config

if TYPE_CHECKING:
    from halfbyte.formats.huggingface.names import Translation

TABLES: frozenset[str] = frozenset()
EQUALIZED = mamba2.EQUALIZED
MODEL_TYPES = ("mamba", "falcon_mamba")
build = mamba2.build
_EPSILON = "attention.layer_norm_rms_epsilon"
_MIXER_EPSILON = "ssm.rms_epsilon"  # which llama.cpp does not have


def translate(config: Translation) -> None:
    """Translate a config.json into GGUF's terms."""
    keys = config.keys
    _ssm.translate_alone(config, "mamba")
    translate_channels(
        config,
        channels=keys.integer("expand", 2) * config.size("embedding_length"),
        states=keys.integer("state_size", 16),
        taps=keys.integer("conv_kernel", 4),
        rank="time_step_rank",
    )
    config.metadata["ssm.dt_b_c_rms"] = config.kind == "falcon_mamba"
    epsilon = np.float32(keys.number("mixer_rms_eps", 1e-6))
    if config.kind == "falcon_mamba" and epsilon != config.metadata[_EPSILON]:
        config.metadata[_MIXER_EPSILON] = epsilon
    config.tied = keys.boolean("tie_word_embeddings", True)


def translate_channels(
    config: Translation, *, channels: int, states: int, taps: int, rank: str
) -> None:
    """Set the sizes of Mamba's layers; `rank` is the key of what steps are made from."""
    keys, dim = config.keys, config.size("embedding_length")
    _ssm.translate_common(config, channels, states, taps)
    steps = -(-dim // 16)
    if keys.get(rank) != "auto":
        steps = keys.integer(rank, steps, maximum=_ssm.MAX_HEADS)
    config.metadata["ssm.time_step_rank"] = np.uint32(steps)
    config.shapes |= {
        "ssm_in": (2 * channels, dim),
        "ssm_conv1d": (channels, 1, taps),
        "ssm_conv1d.bias": (channels,),
        "ssm_x": (steps + 2 * states, channels),
        "ssm_dt": (channels, steps),
        "ssm_a": (channels, states),
        "ssm_d": (channels,),
        "ssm_out": (dim, channels),
    }
    config.transforms |= {"ssm_conv1d.weight": KERNELS, "ssm_a": DECAYS}


@dataclass(frozen=True)
class Mixer:
    """A layer of Mamba.

    `rank` are the numbers that steps are made from; `epsilon` is that of their norm and that of
    what channels write and read, 0 if there are none. These norms may have gains.
    """

    space: StateSpace
    rank: int
    epsilon: float

    def mixed(self, model: Decoder, x: Buffer, block: str) -> Buffer:
        """A layer's result for x [n, dim]."""
        space, channels, states = self.space, self.space.channels, self.space.states
        new, gate = model.fused(x, block + "ssm_in", (channels, channels))
        new = ops.silu(model.causal_conv(new, block, "ssm_conv1d", space.taps))
        dt, bc = model.fused(new, block + "ssm_x", (self.rank, 2 * states))
        if self.epsilon:
            dt = self._normed(model, dt, self.rank, block + "ssm_dt_norm")
            bc = self._normed(model, bc, states, block + "ssm_b_norm", block + "ssm_c_norm")
        dt = model.linear(dt, block + "ssm_dt", channels, bias=True)
        y = ops.selective_scan(
            new, ops.unary(dt, function="softplus"), self._rates(model, block + "ssm_a"), bc,
            model.weight(block + "ssm_d", channels), None, _ssm.state_of(model, block, space),
            groups=1, position=model.position,
        )[0]  # fmt: skip
        y = ops.mul(ops.silu(gate), y)
        return model.linear(y, block + "ssm_out", model.config.dim)

    def _rates(self, model: Decoder, name: str) -> Buffer:
        """The rate of each state, in blocks of channels."""
        channels, states = self.space.channels, self.space.states
        rates, shape = model.tensor(name, channels, states), (channels // BLOCK, states, BLOCK)

        def in_blocks() -> npt.NDArray[np.float32]:
            blocks = rates.decode().reshape(-1, BLOCK, states).swapaxes(1, 2)
            return np.ascontiguousarray(blocks)

        return model.program.table(name, shape, in_blocks)

    def _normed(self, model: Decoder, x: Buffer, width: int, *names: str) -> Buffer:
        """RMSNorm of each part of a row, with the gains of these names if there are any."""
        ones = model.program.constant("ones", np.ones(width, np.float32))
        y: Buffer = ops.rms_norm(x, ones, epsilon=self.epsilon, heads=len(names))
        if not model.has(f"{names[0]}.weight"):
            return y
        for part, name in enumerate(names):
            gains = np.ones((len(names), width), np.float32)
            gains[part] = model.tensor(f"{name}.weight", width).decode()
            y = ops.mul(y, model.row(f"{name}.weight", gains))
        return y


def read_config(file: ModelFile) -> Config:
    """Hyperparameters from metadata, under ``mamba.*``."""
    keys = Keys(file, "mamba")
    sizes, norms = _ssm.sizes(keys), keys.boolean("ssm.dt_b_c_rms", False)
    epsilon = keys.number(_MIXER_EPSILON, sizes.epsilon) if norms else 0.0
    config = Config(**vars(sizes), mixer=read_mixer(keys, epsilon))
    keys.refuse_others(sizes.head_dim)
    return config


def read_mixer(keys: Keys, epsilon: float) -> Mixer:
    """Hyperparameters of Mamba's layers, whose norms have this epsilon, or 0 for none."""
    channels = keys.size("ssm.inner_size", _ssm.MAX_CHANNELS)
    rank = keys.size("ssm.time_step_rank", _ssm.MAX_HEADS)
    return Mixer(_ssm.read(keys, heads=channels), rank, epsilon)
