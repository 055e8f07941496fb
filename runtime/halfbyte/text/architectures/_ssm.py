"""State spaces: layers of Mamba-2, and what they share with Mamba's.

Tensors have llama.cpp's names. ``ssm_in`` makes a gate, the channels, what these write to their
states and read from them, and steps; ``ssm_a`` are the rates of decay, ``ssm_d`` the part of its
input that a channel adds. Source: Gu and Dao 2023, Mamba; Dao and Gu 2024, Mamba-2.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np
import numpy.typing as npt

from halfbyte.core import ops
from halfbyte.core.buffer import Buffer
from halfbyte.errors import FormatError, UnsupportedError
from halfbyte.formats.transforms import COLUMN, DECAYS_COLUMN, KERNELS, in_rows
from halfbyte.text.architectures import _decoder
from halfbyte.text.architectures._decoder import Decoder
from halfbyte.text.architectures._keys import Keys

if TYPE_CHECKING:
    from halfbyte.formats.huggingface.names import Translation

BLOCK = 16  # channels that a kernel takes at once
MAX_CHANNELS, MAX_HEADS, MAX_STATES, MAX_TAPS = 1 << 20, 1 << 16, 1 << 12, 64
_INFINITE = (math.inf, {"__float__": "Infinity"})
_NAMES = {
    "in_proj": "ssm_in",
    "conv1d": "ssm_conv1d",
    "x_proj": "ssm_x",
    "dt_proj": "ssm_dt",
    "dt_bias": "ssm_dt.bias.",
    "A_log": "ssm_a.",
    "D": "ssm_d.",
    "norm": "ssm_norm",
    "out_proj": "ssm_out",
}


class Mixer(Protocol):
    """What mixes tokens in place of attention, or beside it."""

    def mixed(self, model: Decoder, x: Buffer, block: str, /) -> Buffer:
        """A layer's result for x [n, dim]; `block` begins the names of its tensors."""


@dataclass(frozen=True)
class StateSpace:
    """Hyperparameters of Mamba-2's layers, under GGUF's ``<architecture>.ssm.*`` keys.

    Attributes
    ----------
    taps : int
        Tokens of the convolution (``conv_kernel``).
    channels, states : int
        Channels of a layer (``inner_size``), and the states of each (``state_size``).
    heads : int
        Parts of the channels that share their steps (``time_step_rank``).
    groups : int
        Parts of the channels that write to and read from states alike (``group_count``).
    """

    taps: int
    channels: int
    states: int
    heads: int
    groups: int

    def mixed(self, model: Decoder, x: Buffer, block: str) -> Buffer:
        """A layer's result for x [n, dim]."""
        channels, shared = self.channels, 2 * self.groups * self.states
        gate, new, bc, dt = model.fused(
            x, block + "ssm_in", (channels, channels, shared, self.heads)
        )
        new, bc = (
            ops.silu(model.causal_conv(
                part, block, "ssm_conv1d", self.taps, first=first, whole=channels + shared
            ))
            for part, first in ((new, 0), (bc, channels))
        )  # fmt: skip
        bias = model.tensor(block + "ssm_dt.bias", self.heads).decode()
        dt = ops.unary(ops.add(dt, model.row(block + "ssm_dt.bias", bias)), function="softplus")
        rate = self._each(model, block + "ssm_a").reshape(-1, 1, BLOCK)
        y = ops.selective_scan(
            new, dt, model.program.constant(block + "ssm_a", rate), bc,
            model.program.constant(block + "ssm_d", self._each(model, block + "ssm_d")), None,
            state_of(model, block, self), groups=self.groups, position=model.position,
        )[0]  # fmt: skip
        y = ops.mul(ops.silu(gate), y)
        if model.has(block + "ssm_norm.weight"):
            y = self._normed(model, y, block + "ssm_norm.weight")
        return model.linear(y, block + "ssm_out", model.config.dim)

    def _each(self, model: Decoder, name: str) -> npt.NDArray[np.float32]:
        """A tensor's numbers of each head, for each channel."""
        values = model.tensor(name, self.heads, 1).decode()
        return np.repeat(values.reshape(-1), self.channels // self.heads)

    def _normed(self, model: Decoder, y: Buffer, name: str) -> Buffer:
        """RMSNorm of each group, whose gains differ."""
        width = self.channels // self.groups
        ones = model.program.constant("ones", np.ones(width, np.float32))
        gains = model.tensor(name, self.groups, width).decode()
        y = ops.rms_norm(y, ones, epsilon=model.config.epsilon, heads=self.groups)
        scaled: Buffer = ops.mul(y, model.row(name, gains))
        return scaled


def state_of(model: Decoder, block: str, space: StateSpace) -> Buffer:
    """The states of a layer, which last between runs."""
    shape = (space.channels // BLOCK, space.states, BLOCK)
    return model.program.state(block + "ssm", "f32", shape)


def read(keys: Keys, *, heads: int = 0) -> StateSpace:
    """Hyperparameters from metadata.

    With `heads`, ``time_step_rank`` is the caller's, and there is one group.
    """
    channels = keys.size("ssm.inner_size", MAX_CHANNELS)
    space = StateSpace(
        taps=keys.size("ssm.conv_kernel", MAX_TAPS, low=2),
        channels=channels,
        states=keys.size("ssm.state_size", MAX_STATES),
        heads=heads or keys.size("ssm.time_step_rank", MAX_HEADS),
        groups=1 if heads else keys.size("ssm.group_count", MAX_HEADS),
    )
    if wrong := problem(channels, space.heads, space.groups):
        raise keys.error("ssm.inner_size", wrong)
    return space


def problem(channels: int, heads: int, groups: int) -> str:
    """What is wrong with numbers of channels, or nothing."""
    parts = {"head": heads if heads != channels else 1, "group": groups}
    for part, count in parts.items():
        if channels % (BLOCK * count):
            return (
                f"expected a multiple of {BLOCK} channels in each {part}, found {channels} in "
                f"{count}"
            )
    return f"{heads} heads do not fit {groups} groups" if heads % groups else ""


def sizes(keys: Keys) -> _decoder.Config:
    """The sizes of a model that has no attention and no feed-forward parts."""
    for key in ("attention.head_count", "feed_forward_length"):
        keys.size(key, 0, 0, low=0)
    return _decoder.Config(
        layers=keys.size("block_count", 1 << 10),
        dim=keys.size("embedding_length", 1 << 20),
        hidden=0,
        heads=0,
        kv_heads=0,
        head_dim=0,
        context=keys.size("context_length", 1 << 24),
        vocabulary=_decoder.vocabulary(keys),
        epsilon=keys.number("attention.layer_norm_rms_epsilon"),
    )


def names(part: str) -> dict[str, str]:
    """GGUF's names of a part of a layer in folders, such as ``mixer``."""
    return {f"{part}.{name}": new for name, new in _NAMES.items()}


def translate(
    config: Translation, *, channels: int, heads: int, groups: int, states: int, taps: int
) -> None:
    """Set the sizes of Mamba-2's layers."""
    keys = config.keys
    translate_common(config, channels, states, taps)
    if wrong := problem(channels, heads, groups):
        raise FormatError(f"{keys.where}: sizes of state spaces: {wrong}")
    limit = keys.list("time_step_limit")
    if limit and (len(limit) != 2 or limit[0] != 0 or limit[1] not in _INFINITE):
        raise UnsupportedError(f"{keys.where}: key 'time_step_limit': expected [0, inf]")
    config.metadata["ssm.time_step_rank"] = np.uint32(heads)
    config.metadata["ssm.group_count"] = np.uint32(groups)
    convolved, dim = channels + 2 * groups * states, config.size("embedding_length")
    config.shapes |= {
        "ssm_in": (channels + convolved + heads, dim),
        "ssm_conv1d": (convolved, 1, taps),
        "ssm_conv1d.bias": (convolved,),
        **dict.fromkeys(("ssm_dt.bias", "ssm_a", "ssm_d"), (heads,)),
        "ssm_norm": (channels,),
        "ssm_out": (dim, channels),
    }
    config.transforms |= {
        "ssm_conv1d.weight": KERNELS, "ssm_a": DECAYS_COLUMN, "ssm_d": COLUMN,
        "ssm_norm.weight": in_rows(groups),
    }  # fmt: skip


def translate_common(config: Translation, channels: int, states: int, taps: int) -> None:
    """Set the sizes that Mamba's layers have, too."""
    for name, value, most in (
        ("channels", channels, MAX_CHANNELS), ("states", states, MAX_STATES),
        ("taps", taps, MAX_TAPS),
    ):  # fmt: skip
        if value > most:
            raise FormatError(f"{config.keys.where}: {value} {name}: expected at most {most}")
    config.metadata |= {
        "ssm.conv_kernel": np.uint32(taps),
        "ssm.inner_size": np.uint32(channels),
        "ssm.state_size": np.uint32(states),
    }


def translate_alone(config: Translation, architecture: str) -> None:
    """Set the sizes of a model that has no attention and no feed-forward parts."""
    keys, config.architecture = config.keys, architecture
    for key, wanted in {"hidden_act": "silu", "use_bias": False, "rms_norm": True}.items():
        keys.expect(key, wanted)
    config.metadata |= {
        "vocab_size": np.uint32(keys.integer("vocab_size")),
        "context_length": np.uint32(1 << 20),  # as in llama.cpp's files: there is no limit
        "embedding_length": np.uint32(keys.integer("hidden_size", maximum=MAX_CHANNELS)),
        "block_count": np.uint32(keys.integer("num_hidden_layers")),
        "feed_forward_length": np.uint32(0),
        "attention.head_count": np.uint32(0),
        "attention.layer_norm_rms_epsilon": np.float32(keys.number("layer_norm_epsilon", 1e-5)),
    }
    config.names = {
        "embeddings": "token_embd",
        "norm_f": "output_norm",
        "lm_head": "output",
        "norm": "attn_norm",
        **names("mixer"),
    }
