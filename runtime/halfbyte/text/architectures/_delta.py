"""Gated delta nets: attention with a state of a fixed size in place of keys and values.

The state of a head holds a value for each key; a token replaces a part (beta) of what it holds for
the token's key, after all of it has decayed. Source: Yang et al. 2024, Gated Delta Networks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from halfbyte.core import ops
from halfbyte.core.buffer import Buffer
from halfbyte.errors import FormatError
from halfbyte.formats.transforms import DECAYS, KERNELS, of_columns, then, tiled
from halfbyte.text.architectures import _ssm
from halfbyte.text.architectures._decoder import Decoder
from halfbyte.text.architectures._keys import Keys
from halfbyte.text.architectures._ssm import BLOCK, StateSpace

if TYPE_CHECKING:
    from halfbyte.formats.huggingface.names import Translation

_LEAST = 1e-6  # added to the sum of squares that keys and queries are divided by
NAMES = {
    "in_proj_qkvz": "ssm_in",  # a key head's queries, keys, values and gates, then the next's
    "in_proj_ba": "ssm_ba",  # likewise
    "in_proj_qkv": "attn_qkv",
    "in_proj_z": "attn_gate",
    "in_proj_b": "ssm_beta",
    "in_proj_a": "ssm_alpha",
    "dt_bias": "ssm_dt.bias.",
    "A_log": "ssm_a.",
    "conv1d": "ssm_conv1d",
    "norm": "ssm_norm",
    "out_proj": "ssm_out",
}


@dataclass(frozen=True)
class DeltaNet:
    """Hyperparameters: channels are those of values, and a channel has a state for each key.

    Groups are key heads, whose value heads are neighbours or `apart`: head i is of group i modulo
    their number.
    """

    space: StateSpace
    apart: bool

    def mixed(self, model: Decoder, x: Buffer, block: str) -> Buffer:
        """A layer's result for x [n, dim]."""
        s = self.space
        keys = 2 * s.groups * s.states  # queries and keys
        qk, new, gate = self._projected(model, x, block, keys)
        qk, new = (
            ops.silu(model.causal_conv(
                part, block, "ssm_conv1d", s.taps, first=first, whole=keys + s.channels
            ))
            for part, first in ((qk, 0), (new, keys))
        )  # fmt: skip
        unit = np.full(s.states, s.states**-0.5, np.float32)
        qk = ops.rms_norm(
            qk, model.program.constant("unit", unit), epsilon=_LEAST / s.states, heads=2 * s.groups
        )
        beta, alpha = self._gates(model, x, block)
        bias = model.tensor(block + "ssm_dt.bias", s.heads).decode()
        dt = ops.unary(ops.add(alpha, model.row(block + "ssm_dt.bias", bias)), function="softplus")
        rates = model.tensor(block + "ssm_a", s.heads).decode()
        rate = np.repeat(rates, s.channels // s.heads).reshape(-1, 1, BLOCK)
        y = ops.selective_scan(
            new, dt, model.program.constant(block + "ssm_a", rate), qk, None,
            ops.unary(beta, function="sigmoid"), _ssm.state_of(model, block, s),
            groups=s.groups, position=model.position, swapped=True, tiled=self.apart,
        )[0]  # fmt: skip
        # Of queries that were not divided by sqrt(states), which epsilon makes up for
        gain = model.weight(block + "ssm_norm.weight", s.channels // s.heads)
        y = ops.rms_norm(y, gain, epsilon=model.config.epsilon * s.states, heads=s.heads)
        return model.linear(ops.mul(y, ops.silu(gate)), block + "ssm_out", model.config.dim)

    def _projected(self, model: Decoder, x: Buffer, block: str, keys: int) -> list[Buffer]:
        """Queries and keys, values, gates."""
        s = self.space
        if not model.has(block + "ssm_in.weight"):
            qk, new = model.fused(x, block + "attn_qkv", (keys, s.channels))
            return [qk, new, model.linear(x, block + "attn_gate", s.channels)]
        each = s.channels // s.groups
        rows = np.arange(keys + 2 * s.channels).reshape(s.groups, -1)
        query, key, *others = np.split(rows, np.cumsum([s.states, s.states, each]), axis=1)
        return model.picked(x, block + "ssm_in", [np.stack([query, key]), *others])

    def _gates(self, model: Decoder, x: Buffer, block: str) -> list[Buffer]:
        """What beta and steps are made from."""
        s = self.space
        if not model.has(block + "ssm_ba.weight"):
            return [model.linear(x, f"{block}ssm_{n}", s.heads) for n in ("beta", "alpha")]
        rows = np.arange(2 * s.heads).reshape(s.groups, 2, -1)
        return model.picked(x, block + "ssm_ba", [rows[:, 0], rows[:, 1]])


def translate(config: Translation, *, apart: bool) -> None:
    """Set the sizes of layers.

    A key head's value heads are neighbours in folders; in GGUF they may be `apart`.
    """
    keys, dim = config.keys, config.size("embedding_length")
    groups = keys.integer("linear_num_key_heads", 16, maximum=_ssm.MAX_HEADS)
    heads = keys.integer("linear_num_value_heads", 32, maximum=_ssm.MAX_HEADS)
    states = keys.integer("linear_key_head_dim", 128, maximum=_ssm.MAX_STATES)
    width = keys.integer("linear_value_head_dim", 128, maximum=_ssm.MAX_STATES)
    channels, taps = heads * width, keys.integer("linear_conv_kernel_dim", 4)
    _ssm.translate_common(config, channels, states, taps)
    if wrong := _ssm.problem(channels, heads, groups):
        raise FormatError(f"{keys.where}: sizes of linear attention: {wrong}")
    config.metadata["ssm.time_step_rank"] = np.uint32(heads)
    config.metadata["ssm.group_count"] = np.uint32(groups)
    convolved = channels + 2 * groups * states
    config.shapes |= {
        "ssm_in": (convolved + channels, dim),
        "attn_qkv": (convolved, dim),
        "attn_gate": (channels, dim),
        "ssm_ba": (2 * heads, dim),
        **dict.fromkeys(("ssm_beta", "ssm_alpha"), (heads, dim)),
        **dict.fromkeys(("ssm_dt.bias", "ssm_a"), (heads,)),
        "ssm_conv1d": (convolved, 1, taps),
        "ssm_norm": (width,),
        "ssm_out": (dim, channels),
    }
    config.transforms |= {"ssm_conv1d.weight": KERNELS, "ssm_a": DECAYS}
    if apart and heads != groups:
        _tile(config, groups, heads // groups, width)


def _tile(config: Translation, groups: int, ratio: int, width: int) -> None:
    """Set transforms that bring value heads of a key head `groups` heads apart."""
    vectors, matrices = (groups, ratio, 1), tiled((groups, ratio, width))
    keys = 2 * groups * config.size("ssm.state_size")
    config.transforms |= {
        "attn_qkv.weight": tiled((groups, ratio, width), keys),
        "attn_gate.weight": matrices,
        "ssm_beta.weight": tiled(vectors),
        "ssm_alpha.weight": tiled(vectors),
        "ssm_dt.bias": tiled(vectors),
        "ssm_a": then(DECAYS, tiled(vectors)),
        "ssm_conv1d.weight": then(KERNELS, tiled((groups, ratio, width), keys)),
        "ssm_out.weight": of_columns(matrices),
    }


def read(keys: Keys, *, apart: bool) -> DeltaNet:
    """Hyperparameters from metadata."""
    return DeltaNet(_ssm.read(keys), apart)
