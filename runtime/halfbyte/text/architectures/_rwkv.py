"""RWKV 7: layers whose state is replaced in part by every token, at rates that it chooses itself.

The state of a head holds a value for each of its keys. All parts of a layer read each token mixed
with the one before it. Tensors have llama.cpp's names. Source: Peng et al. 2025, RWKV-7 "Goose"
with Expressive Dynamic State Evolution.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from halfbyte.core import ops
from halfbyte.core.buffer import Buffer
from halfbyte.core.program import Program
from halfbyte.formats.model_file import ModelFile
from halfbyte.text.architectures import _decoder
from halfbyte.text.architectures._decoder import Decoder
from halfbyte.text.architectures._keys import Keys
from halfbyte.text.architectures._ssm import BLOCK

_LEAST = 1e-24  # added to the sum of squares that removed keys are divided by
EPSILON = 64e-5  # of the norm of heads
RANKS = {
    "w": "attention.decay_lora_rank",
    "a": "attention.iclr_lora_rank",
    "v": "attention.value_residual_mix_lora_rank",
    "g": "attention.gate_lora_rank",
}
_MAX_RANK, _MAX_HEAD = 1 << 16, 1 << 12


@dataclass(frozen=True)
class Config(_decoder.Config):
    """Hyperparameters, under GGUF's ``<architecture>.*`` keys.

    Attributes
    ----------
    size : int
        Channels of a head (``wkv.head_size``).
    ranks : dict of str to int
        Of the matrices that decays (w), learning rates (a), shares of the first layer's values (v)
        and gates (g) are made with; that of gates is 0 if there are none.
    spare : tuple of str
        Beginnings of names of tensors that are not needed: the first layer's values are its own.
    """

    size: int
    ranks: dict[str, int]
    spare: tuple[str, ...] = ("blk.0.time_mix_v0.", "blk.0.time_mix_v1.", "blk.0.time_mix_v2.")


def read(keys: Keys, epsilon: str, shifts: int) -> Config:
    """Hyperparameters from metadata; in a layer, `shifts` parts mix a token with the one before."""
    dim = keys.size("embedding_length", 1 << 20)
    size = keys.size("wkv.head_size", _MAX_HEAD)
    if size % BLOCK or dim % size:
        raise keys.error(
            "wkv.head_size", f"expected a multiple of {BLOCK} that divides {dim}, found {size}"
        )
    keys.size("token_shift_count", shifts, shifts, low=shifts)
    keys.size("attention.head_count", 0, 0, low=0)
    keys.size("attention.head_count_kv", 0, 0, low=0)
    config = Config(
        layers=keys.size("block_count", 1 << 10),
        dim=dim,
        hidden=keys.size("feed_forward_length", 1 << 22),
        heads=0,
        kv_heads=0,
        head_dim=0,
        context=keys.size("context_length", 1 << 24),
        vocabulary=_decoder.vocabulary(keys),
        epsilon=keys.number(epsilon),
        size=size,
        ranks={
            part: keys.size(key, _MAX_RANK, 0 if part == "g" else None, low=part != "g")
            for part, key in RANKS.items()
        },
    )
    keys.refuse_others(0)
    return config


class Layers(Decoder):
    """A model under capture, whose first layer's values the others take in part."""

    def __init__(
        self, file: ModelFile, config: Config, program: Program, context: int, batch: int,
        cache: str,
    ) -> None:  # fmt: skip
        super().__init__(file, config, program, context, batch, cache)
        self.c = config
        self._first: Buffer | None = None
        heads = config.dim // config.size
        self._rows = program.computed_size(
            "heads*n", heads * self.n.maximum, lambda sizes: heads * sizes["n"]
        )

    def layer_norm(self, x: Buffer, name: str) -> Buffer:
        """LayerNorm of rows."""
        gain, bias = (self.weight(f"{name}.{part}", self.c.dim) for part in ("weight", "bias"))
        y: Buffer = ops.layer_norm(x, gain, bias, epsilon=self.c.epsilon)
        return y

    def shifted(self, x: Buffer, name: str, parts: str, *shape: int) -> list[Buffer]:
        """(1 - share) x + share x of the token before, for the shares of each part."""
        shares = self.tensor(f"{name}.weight", *shape).decode().reshape(len(parts), -1)
        mixed = []
        for part, share in zip(parts, shares, strict=True):
            state = self.program.state(f"{name}[{part}]", "f32", (1, self.c.dim))
            taps = self.program.constant(f"{name}.weight", np.stack([share, 1 - share]))
            mixed.append(ops.causal_conv(x, taps, None, state, position=self.position)[0])
        return mixed

    def time_mix(self, x: Buffer, block: str) -> Buffer:
        """What the state of a layer gives for x [n, dim]."""
        c, name = self.c, block + "time_mix_"
        parts = "rwkvag" if c.ranks["g"] else "rwkva"
        shifted = self.shifted(x, name + "lerp_fused", parts, len(parts), 1, 1, c.dim)
        mixed = dict(zip(parts, shifted, strict=True))
        query, key, value = (
            self.linear(mixed[part], name + matrix, c.dim)
            for part, matrix in (("r", "receptance"), ("k", "key"), ("v", "value"))
        )
        decay = ops.unary(self._low_rank(mixed, name, "w", "tanh"), function="sigmoid")
        decay = ops.unary(self.scaled(decay, -np.exp(-0.5)), function="exp")
        rate = ops.unary(self._low_rank(mixed, name, "a"), function="sigmoid")
        value = self._with_first(value, mixed, name)
        removal = ops.mul(key, self._row(name + "k_k"))
        unit = self.program.constant("unit", np.full(c.size, c.size**-0.5, np.float32))
        removal = ops.rms_norm(removal, unit, epsilon=_LEAST / c.size, heads=c.dim // c.size)
        share = ops.mul(rate, self._row(name + "k_a"))
        share = ops.add(share, self._row(name + "k_a", lambda values: 1 - values))
        y, own, _ = ops.generalized_delta_rule(
            value, decay, ops.mul(key, share), query, removal, ops.mul(removal, rate),
            ops.mul(query, self._row(name + "r_k")),
            self.program.state(block + "wkv", "f32", (c.dim // BLOCK, c.size, BLOCK)),
            position=self.position,
        )  # fmt: skip
        y = ops.add(self._normed(y, name + "ln"), own)
        if "g" in mixed:
            gate = ops.unary(self.linear(mixed["g"], name + "g1", c.ranks["g"]), function="sigmoid")
            y = ops.mul(y, self.linear(gate, name + "g2", c.dim))
        return self.linear(y, name + "output", c.dim)

    def _low_rank(
        self, mixed: dict[str, Buffer], name: str, part: str, function: str = ""
    ) -> Buffer:
        """w2 f(w1 x) + w0 of a part."""
        x = self.linear(mixed[part], f"{name}{part}1", self.c.ranks[part])
        x = ops.unary(x, function=function) if function else x
        y: Buffer = ops.add(
            self.linear(x, f"{name}{part}2", self.c.dim), self._row(f"{name}{part}0")
        )
        return y

    def _row(
        self, name: str,
        change: Callable[[npt.NDArray[np.float32]], npt.NDArray[np.float32]] | None = None,
    ) -> Buffer:  # fmt: skip
        """A vector that is applied to all rows, perhaps changed."""
        values = self.tensor(f"{name}.weight", self.c.dim).decode()
        return self.row(f"{name}.weight", change(values) if change else values)

    def _with_first(self, value: Buffer, mixed: dict[str, Buffer], name: str) -> Buffer:
        """Values, in part those of the first layer."""
        if self._first is None:
            self._first = value
            return value
        share = ops.unary(self._low_rank(mixed, name, "v"), function="sigmoid")
        change = ops.add(self._first, ops.unary(value, function="neg"))
        y: Buffer = ops.add(value, ops.mul(change, share))
        return y

    def _normed(self, y: Buffer, name: str) -> Buffer:
        """LayerNorm of each head, if there is one."""
        if not self.has(f"{name}.weight"):
            return y
        c = self.c
        ones, zeros = (
            self.program.constant(text, np.full(c.size, value, np.float32))
            for text, value in (("ones", 1), ("zeros", 0))
        )
        rows = ops.layer_norm(y.view((self._rows, c.size)), ones, zeros, epsilon=EPSILON)
        y = ops.mul(rows.view((self.n, c.dim)), self._row(name))
        bias = self.tensor(f"{name}.bias", c.dim).decode()
        shifted: Buffer = ops.add(y, self.row(f"{name}.bias", bias))
        return shifted
