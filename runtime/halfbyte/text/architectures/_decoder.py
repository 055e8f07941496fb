"""The parts that decoders share: sizes from metadata, and the operators of a layer."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from halfbyte.core import ops
from halfbyte.core.buffer import Buffer, maximum
from halfbyte.core.program import Program
from halfbyte.errors import FormatError, UnsupportedError
from halfbyte.formats import metadata
from halfbyte.formats.derived import reordered
from halfbyte.formats.model_file import ModelFile
from halfbyte.text.architectures._keys import Keys
from halfbyte.text.architectures._rotary import Rope, Yarn, read_yarn, rotary_table
from halfbyte.weights import Tensor

ATTENTION = ("attn_q", "attn_k", "attn_v", "attn_output")  # matrices that other layers lack
_LAYER = re.compile(r"^blk\.\d+\.")
_LIMIT = 7.0  # of gates and values, where they are limited
LOGIT_ROWS = 16  # of one run: a row is as wide as the vocabulary


@dataclass(frozen=True)
class Config:
    """Hyperparameters, under GGUF's ``<architecture>.*`` keys."""

    layers: int
    dim: int  # embedding_length
    hidden: int  # feed_forward_length
    heads: int
    kv_heads: int
    head_dim: int
    context: int
    vocabulary: int
    epsilon: float

    @property
    def width(self) -> int:
        """Elements of all queries of a token."""
        return self.heads * self.head_dim

    @property
    def kv_width(self) -> int:
        """Elements of all keys, or values, of a token."""
        return self.kv_heads * self.head_dim


@dataclass(frozen=True)
class RotaryConfig(Config):
    """Hyperparameters with rotary positions, and a sliding window in some layers."""

    rotated: int  # rope.dimension_count: elements of a head that are rotated
    rope_base: float
    rope_factor: float  # divides positions
    windows: tuple[int, ...]  # positions that each layer sees, 0 for all
    yarn: Yarn | None = None  # how `rope_factor` is spread over frequencies; None for evenly


def sizes(keys: Keys, epsilon: str, kv_heads: int = 0, hidden: int = 0) -> Config:
    """The sizes of a decoder, checked for ranges and consistency.

    `kv_heads` are those of layers with attention, if others have none; with `hidden`, those and the
    feed-forward parts' hidden elements are the caller's to check.
    """
    dim, heads = keys.size("embedding_length", 1 << 20), keys.size("attention.head_count", 1 << 12)
    kv_heads = kv_heads or keys.size("attention.head_count_kv", 1 << 12, heads)
    if heads % kv_heads or (not keys.has("attention.key_length") and dim % heads):
        raise keys.error(
            "attention.head_count",
            f"{heads} heads do not fit {kv_heads} key/value heads and width {dim}",
        )
    head_dim = keys.size("attention.key_length", 1 << 12, max(dim // heads, 1))
    usual = 1 if keys.has("expert_feed_forward_length") else None  # experts in all layers
    return Config(
        layers=keys.size("block_count", 1 << 10),
        dim=dim,
        hidden=hidden or keys.size("feed_forward_length", 1 << 22, usual),
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        context=keys.size("context_length", 1 << 24),
        vocabulary=vocabulary(keys),
        epsilon=keys.number(epsilon),
    )


def vocabulary(keys: Keys) -> int:
    """Tokens, by the rows of their embeddings."""
    embedding = keys.file.tensors.get("token_embd.weight")
    if embedding is None or len(embedding.shape) != 2:
        raise FormatError(f"{keys.file.path}: tensor 'token_embd.weight': expected a matrix")
    return embedding.shape[0]


def rotary(
    keys: Keys, *, scalings: tuple[str, ...] = (), period: int = 0,
    epsilon: str = "attention.layer_norm_rms_epsilon", kv_heads: int = 0, hidden: int = 0,
    whole: bool = True,
) -> RotaryConfig:  # fmt: skip
    """Sizes of a decoder with rotary positions.

    The caller handles the types of scaling in `scalings`; for `period` see :meth:`Keys.windows`,
    for `kv_heads` and `hidden` :func:`sizes`, for `whole` :class:`Yarn`.
    """
    c = sizes(keys, epsilon, kv_heads, hidden)
    rotated = keys.size("rope.dimension_count", c.head_dim, c.head_dim)
    if rotated % 2:
        raise keys.error("rope.dimension_count", f"expected an even number, found {rotated}")
    return RotaryConfig(
        **vars(c),
        rotated=rotated,
        rope_base=keys.number("rope.freq_base", 10000.0),
        rope_factor=keys.rope_factor("yarn", *scalings),
        yarn=read_yarn(keys, whole=whole),
        windows=keys.windows(c.layers, period),
    )


class Parts:
    """What the layers of a model under capture are made of.

    Parameters
    ----------
    rows : int
        Most tokens of one run (size `n`).
    positions : int
        Tokens of the longest text.
    """

    def __init__(
        self, file: ModelFile, config: Config, program: Program, rows: int, positions: int
    ) -> None:
        self.file, self.config, self.program = file, config, program
        self.positions = positions
        self.n = program.size("n", rows)
        self._parts = {_LAYER.sub("", name) for name in file.tensors}
        self._shared: dict[str, Any] = {}

    def once(self, name: str, make: Callable[[], Any]) -> Any:
        """What several layers use, made for the first of them."""
        if name not in self._shared:
            self._shared[name] = make()
        return self._shared[name]

    def tensor(self, name: str, *shape: int) -> Tensor:
        """A tensor of the file, which must have this shape; some files have no ``.weight``."""
        if name not in self.file.tensors and name.removesuffix(".weight") in self.file.tensors:
            name = name.removesuffix(".weight")
        return metadata.tensor(self.file, name, shape)

    def weight(self, name: str, *shape: int) -> Buffer:
        """The tensor as an operand."""
        return self.program.weight(self.tensor(name, *shape))

    def scaled(self, x: Buffer, factor: float) -> Buffer:
        """factor * x."""
        if factor == 1:
            return x
        row = self.row(f"{factor:g}", np.full(maximum(x.shape[1]), factor, np.float32))
        y: Buffer = ops.mul(x, row)
        return y

    def embed(self, width: int = 0) -> Buffer:
        """Embeddings of the tokens, [n, dim], or of another width."""
        c, ids = self.config, self.program.input("ids", "i32", (self.n,))
        table = self.weight("token_embd.weight", c.vocabulary, width or c.dim)
        x: Buffer = ops.gather(table, ids)
        return x

    def norm(self, x: Buffer, name: str, heads: int = 0) -> Buffer:
        """RMSNorm of rows, or of each of `heads` heads."""
        width = self.config.head_dim if heads else maximum(x.shape[1])
        gain = self.weight(f"{name}.weight", width)
        y: Buffer = ops.rms_norm(x, gain, epsilon=self.config.epsilon, heads=heads or 1)
        return y

    def row(self, name: str, values: npt.NDArray[np.float32]) -> Buffer:
        """A constant that is applied to all rows."""
        return self.program.constant(name, values.reshape(1, -1))

    def linear(self, x: Buffer, name: str, outputs: int, *, bias: bool | None = False) -> Buffer:
        """x w^T, with a bias (True), without (False), or with one if some layer has it (None)."""
        y: Buffer = ops.matmul(x, self.weight(f"{name}.weight", outputs, maximum(x.shape[1])))
        if bias or (bias is None and self.has(f"{name}.bias")):
            values = self.tensor(f"{name}.bias", outputs).decode()
            y = ops.add(y, self.row(f"{name}.bias", values))
        return y

    def has(self, name: str) -> bool:
        """Whether some layer has this tensor of a layer: then all of its kind must have it."""
        return _LAYER.sub("", name) in self._parts

    def fused(
        self, x: Buffer, name: str, outputs: Sequence[int], *, bias: bool | None = False
    ) -> list[Buffer]:
        """Products with matrices that are stacked in one tensor, as are their biases."""
        ends = np.cumsum(outputs).tolist()
        whole = self.tensor(f"{name}.weight", ends[-1], maximum(x.shape[1]))
        parts = [whole.part(first, end) for first, end in pairwise([0, *ends])]
        products = [ops.matmul(x, self.program.weight(part)) for part in parts]
        if bias or (bias is None and self.has(f"{name}.bias")):
            values = self.tensor(f"{name}.bias", sum(outputs)).decode()
            rows = np.split(values, ends[:-1])
            products = [
                ops.add(y, self.row(f"{name}.bias", row))
                for y, row in zip(products, rows, strict=True)
            ]
        return products

    def picked(self, x: Buffer, name: str, rows: Sequence[npt.NDArray[Any]]) -> list[Buffer]:
        """Products with some rows of a matrix each, in their order; together these are all rows."""
        shape = (sum(part.size for part in rows), maximum(x.shape[1]))
        whole = self.tensor(f"{name}.weight", *shape)
        parts = [
            reordered(whole, f"{whole.name}[part {number}]", part.reshape(-1), whole)
            for number, part in enumerate(rows)
        ]
        return [ops.matmul(x, self.program.weight(part)) for part in parts]

    def queries_keys_values(
        self, x: Buffer, block: str, *, bias: bool | None = False
    ) -> tuple[Buffer, Buffer, Buffer]:
        """Products with ``attn_q``, ``attn_k`` and ``attn_v``."""
        c = self.config
        outputs = {"q": c.width, "k": c.kv_width, "v": c.kv_width}
        q, k, v = (self.linear(x, f"{block}attn_{n}", m, bias=bias) for n, m in outputs.items())
        return q, k, v

    def projected(self, x: Buffer, block: str) -> tuple[Buffer, Buffer, Buffer]:
        """Queries, keys and values, from three matrices or one, with biases if there are any."""
        c = self.config
        if self.has(f"{block}attn_qkv.weight"):
            parts = (c.width, c.kv_width, c.kv_width)
            q, k, v = self.fused(x, block + "attn_qkv", parts, bias=None)
            return q, k, v
        return self.queries_keys_values(x, block, bias=None)

    def fed_forward(
        self, x: Buffer, block: str, activation: str, *, gated: bool, hidden: int = 0,
        suffix: str = "", sub_norm: str = "",
    ) -> Buffer:  # fmt: skip
        """act(up) through `down`; or act(gate) * up, from two matrices or one.

        Activations are "silu", "gelu" (by erf), "gelu_tanh", "relu" and "relu_squared"; names of
        tensors may have a suffix. What `down` reads is normed by `sub_norm`, if there is one.
        Source: Shazeer 2020, GLU Variants Improve Transformer.
        """
        hidden = hidden or self.config.hidden
        names = {part: f"{block}ffn_{part}{suffix}" for part in ("gate", "up", "down")}
        if not gated:
            y = activated(self.linear(x, names["up"], hidden, bias=None), activation)
        else:
            if suffix or self.has(f"{names['gate']}.weight"):
                gate, up = (self.linear(x, names[n], hidden, bias=None) for n in ("gate", "up"))
            else:
                gate, up = self.fused(x, names["up"], (hidden, hidden), bias=None)
            y = ops.mul(activated(gate, activation), up)
        if sub_norm:
            y = self.norm(y, block + sub_norm)
        return self.linear(y, names["down"], self.config.dim, bias=None)

    def rope(
        self,
        c: RotaryConfig,
        *,
        interleaved: bool,
        base: float = 0.0,
        factor: float = 0.0,
        factors: str = "",
        gain: float = 1.0,
        growth: tuple[float, int] | None = None,
        name: str = "",
    ) -> Rope:
        """Tables of rotary positions; by default with the model's base and scaling.

        `factors` names a tensor that divides the frequency of each pair.
        `gain` multiplies cos and sin, and `name` distinguishes tables. With `growth` (beta,
        period) they also grow, by 1 + beta log(1 + floor(position / period)).
        """
        shape = (self.positions, c.rotated // 2)
        divisors = self._factors(factors, shape[1])
        if c.yarn and not factor:
            factor, gain = 1.0, gain * c.yarn.gain
            divisors = c.yarn.divisors(base or c.rope_base, c.rope_factor, c.rotated)
        table = partial(
            rotary_table, shape=shape, base=base or c.rope_base, factor=factor or c.rope_factor,
            divisors=divisors, gain=gain, growth=growth,
        )  # fmt: skip
        cos, sin = (
            self.program.table(f"rope.{name}{f.__name__}", shape, partial(table, f))
            for f in (np.cos, np.sin)
        )
        return Rope(cos, sin, interleaved)

    def _factors(self, name: str, pairs: int) -> npt.NDArray[np.float64] | None:
        if not name:
            return None
        factors = self.tensor(name, pairs).decode().astype(np.float64)
        if not np.all(factors > 0):
            raise FormatError(f"{self.file.path}: tensor '{name}': expected positive numbers")
        return factors


class Decoder(Parts):
    """A model under capture: inputs `ids`, output `logits`, sizes `n`, `position`, `rows`.

    Parameters
    ----------
    context : int
        Tokens that the KV cache holds.
    batch : int
        Most tokens of one run (size `n`). The logits are of its last tokens (size `rows`).
    cache : str
        Type of the KV cache: "f16", "f32" or "q8_0".
    """

    def __init__(
        self,
        file: ModelFile,
        config: Config,
        program: Program,
        context: int,
        batch: int,
        cache: str,
    ) -> None:
        if cache == "q8_0" and (config.head_dim % 32 or config.head_dim > ops.MAX_Q8_0_HEAD):
            raise UnsupportedError(
                f"{file.path}: cache 'q8_0': head_dim {config.head_dim}: expected a multiple of "
                f"32, at most {ops.MAX_Q8_0_HEAD}"
            )
        super().__init__(file, config, program, batch, context)
        self.cache, self.position = cache, program.size("position", context)
        self.logit_rows = program.size("rows", min(LOGIT_ROWS, batch))

    def head(self, x: Buffer, softcap: float = 0.0) -> None:
        """Logits, by the output matrix or, if there is none, the embedding."""
        c = self.config
        name = "output.weight" if "output.weight" in self.file.tensors else "token_embd.weight"
        logits = ops.matmul(x, self.weight(name, c.vocabulary, maximum(x.shape[1])))
        if "output.bias" in self.file.tensors:
            bias = self.tensor("output.bias", c.vocabulary).decode()
            logits = ops.add(logits, self.row("output.bias", bias))
        if softcap:
            logits = ops.unary(logits, function="tanh", alpha=softcap)
        self.program.output("logits", logits)

    def attend(
        self, block: str, q: Buffer, k: Buffer, v: Buffer,
        *, rope: Rope | None, query_rope: Rope | None = None, window: int = 0, scale: float = 0.0,
        softcap: float = 0.0, slopes: Buffer | None = None, sinks: Buffer | None = None,
    ) -> Buffer:  # fmt: skip
        """Cache keys and values, and attend; the default scale is 1 / sqrt(head_dim).

        `query_rope` rotates queries, if it is not `rope`. For `softcap`, `slopes` and `sinks` see
        :func:`halfbyte.core.ops.group_query_attention`.
        """
        keys, values = self.cached(block, k, v, rope)
        mixed: Buffer = ops.group_query_attention(
            self.rotate(q, query_rope or rope), keys, values, slopes, sinks,
            position=self.position, scale=scale or self.config.head_dim**-0.5, window=window,
            softcap=softcap,
        )  # fmt: skip
        return mixed

    def cached(self, block: str, k: Buffer, v: Buffer, rope: Rope | None) -> tuple[Buffer, Buffer]:
        """A layer's cache of keys, which are rotated, and of values, with these tokens' own."""
        c, context = self.config, self.position.maximum
        key_blocks = (c.kv_heads, -(-context // ops.KEY_BLOCK), c.head_dim, ops.KEY_BLOCK)
        keys = self.program.cache(block + "k", self.cache, key_blocks)
        values = self.program.cache(block + "v", self.cache, (c.kv_heads, context, c.head_dim))
        ops.cache_write_keys(self.rotate(k, rope), keys, position=self.position)
        ops.cache_write(v, values, position=self.position)
        return keys, values

    def causal_conv(
        self, x: Buffer, block: str, part: str, taps: int, *, first: int = 0, whole: int = 0
    ) -> Buffer:
        """A convolution of each column over its last `taps` tokens, by the matrix ``part``.

        There is a bias if some layer has one. Of a matrix for `whole` columns, those from `first`
        on are used.
        """
        columns, name = maximum(x.shape[1]), f"{block}{part}.weight"
        kernel, rows = self.tensor(name, whole or columns, taps), slice(first, first + columns)
        w = self.program.table(
            name, (taps, columns), lambda: np.ascontiguousarray(kernel.decode()[rows].T)
        )
        bias, name = None, f"{block}{part}.bias"
        if self.has(name):
            values = self.tensor(name, whole or columns).decode()
            bias = self.program.constant(name, values[rows])
        where = f"[{first}]" if first else ""
        state = self.program.state(f"{block}{part}{where}", "f32", (taps - 1, columns))
        y: Buffer = ops.causal_conv(x, w, bias, state, position=self.position)[0]
        return y

    def rotate(self, x: Buffer, rope: Rope | None) -> Buffer:
        """Heads rotated by their positions, if there is a table."""
        if rope is None:
            return x
        y: Buffer = ops.rotary_embedding(
            x, rope.cos, rope.sin, head_dim=self.config.head_dim,
            position=self.position, interleaved=rope.interleaved,
        )  # fmt: skip
        return y


def glued(model: Parts, gate: Buffer, up: Buffer, kind: str) -> Buffer:
    """act(gate) * up; or "limited", as in gpt-oss: silu with a slope of 1.702, and up + 1."""
    if kind != "limited":
        product: Buffer = ops.mul(activated(gate, kind), up)
        return product
    most = float(np.finfo(np.float32).max)
    gate = ops.unary(gate, function="clip", alpha=-most, beta=_LIMIT)
    up = ops.unary(up, function="clip", alpha=-_LIMIT, beta=_LIMIT)
    ones = model.row("1", np.ones(maximum(up.shape[1]), np.float32))
    share = ops.unary(model.scaled(gate, 1.702), function="sigmoid")
    y: Buffer = ops.mul(ops.mul(gate, share), ops.add(up, ones))
    return y


def activated(x: Buffer, kind: str) -> Buffer:
    """An activation by its name; see :meth:`Parts.fed_forward`."""
    if kind == "silu":
        y: Buffer = ops.silu(x)
    elif kind.startswith("gelu"):
        y = ops.gelu(x, approximate="tanh" if kind == "gelu_tanh" else "none")
    else:
        y = ops.unary(x, function="relu")
        y = ops.mul(x, y) if kind == "relu_squared" else y
    return y
