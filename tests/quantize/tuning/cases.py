"""Operators on small operands, whose gradients the tests and `make judge` compare."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from halfbyte.core import ops
from halfbyte.core.backends import open_program
from halfbyte.core.buffer import Buffer, Kind, Size
from halfbyte.core.passes import plan_memory
from halfbyte.core.program import Program, capture
from halfbyte.quantize.tuning.gradients import divergence
from halfbyte.quantize.tuning.gradients.elementwise import SLOPES
from halfbyte.quantize.tuning.gradients.linear import product
from halfbyte.quantize.tuning.reverse import reverse
from halfbyte.weights import F32, Q4_0, Tensor

Array = npt.NDArray[np.float32]
N, HEADS, KV, WIDTH, CONTEXT, BEFORE = 5, 4, 2, 8, 16, 3
RADIANS = np.arange(CONTEXT)[:, None] * np.array([1, 0.3, 0.1, 0.03])


def normal(*shape: int, seed: int) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


@dataclass(frozen=True)
class Case:
    """An operator and its differentiable operands; matrices in `weights` are of the model's file.

    `cached` are rows that an earlier run has written to caches.
    """

    build: Callable[..., Buffer]
    operands: Mapping[str, Array]
    weights: tuple[str, ...] = ()
    cached: Mapping[str, Array] = field(default_factory=dict)
    position: int = 0

    def run(self, operands: Mapping[str, Array], seed: Array | None = None) -> dict[str, Array]:
        """The `result` and, with a `seed` for its gradient, the gradients of all operands."""
        with capture("case") as program:
            buffers = {name: self._buffer(program, name, x) for name, x in operands.items()}
            program.output("y", self.build(program, **buffers))
        made = reverse(program, buffers, keep=("y",)) if seed is not None else None
        ready = plan_memory(program if made is None else made.program)
        executable = open_program(ready, "numpy")
        for name, buffer in buffers.items():
            if buffer.kind is Kind.INPUT:
                executable.array(buffer)[...] = operands[name]
        for cache in (b for b in ready.buffers if b.kind is Kind.CACHE):
            executable.array(cache)[...] = self.cached[cache.name]
        if made is not None and seed is not None:
            executable.array(made.seeds["y"])[...] = seed
        sizes = {"n": N, "position": self.position}
        executable.run({name: sizes[name] for name in ready.sizes})
        result = {"result": executable.array(ready.outputs["y"]).copy()}
        if made is not None:
            result |= {n: executable.array(b).copy() for n, b in made.gradients.items()}
        return result

    def _buffer(self, program: Program, name: str, x: Array) -> Buffer:
        if name in self.weights:
            return program.weight(Tensor(name, F32, x.shape, x.view(np.uint8).reshape(-1)))
        return program.input(name, "f32", x.shape)


def _one(operator: Any, operands: Mapping[str, Array], **attributes: Any) -> Case:
    """An operator whose operands are all inputs."""
    return Case(lambda program, **b: operator(*b.values(), **attributes), operands)


def _attend(window: int, softcap: float, slopes: bool, sinks: bool) -> Callable[..., Buffer]:
    def build(program: Program, q: Buffer, k: Buffer, v: Buffer) -> Buffer:
        at = program.size("position", CONTEXT)
        keys = program.cache("k", "f32", (KV, CONTEXT // 16, WIDTH, 16))
        values = program.cache("v", "f32", (KV, CONTEXT, WIDTH))
        ops.cache_write_keys(k, keys, position=at)
        ops.cache_write(v, values, position=at)
        rows = [
            program.constant(name, normal(HEADS, seed=seed)) if given else None
            for name, seed, given in (("slopes", 8, slopes), ("sinks", 9, sinks))
        ]
        y: Buffer = ops.group_query_attention(
            q, keys, values, *rows, position=at, scale=0.4, window=window, softcap=softcap
        )
        return y

    return build


def _attention(*options: Any, position: int = BEFORE) -> Case:
    operands = {"q": normal(N, HEADS * WIDTH, seed=1)} | {
        name: normal(N, KV * WIDTH, seed=seed) for name, seed in (("k", 2), ("v", 3))
    }
    cached = {"k": normal(KV, 1, WIDTH, 16, seed=4), "v": normal(KV, CONTEXT, WIDTH, seed=5)}
    return Case(_attend(*options), operands, cached=cached, position=position)


def _rotate(interleaved: bool) -> Case:
    def build(program: Program, x: Buffer) -> Buffer:
        tables = [
            program.constant(f.__name__, f(RADIANS[:, :3]).astype(np.float32))
            for f in (np.cos, np.sin)
        ]
        at: Size = program.size("position", CONTEXT)
        y: Buffer = ops.rotary_embedding(
            x, *tables, head_dim=WIDTH, position=at, interleaved=interleaved
        )
        return y

    return Case(build, {"x": normal(N, 2 * WIDTH, seed=1)}, position=BEFORE)


def _gathered(program: Program, w: Buffer) -> Buffer:
    y: Buffer = ops.gather(w, program.constant("ids", np.array([3, 1, 3, -1, 9], np.int32)))
    return y


def _quantized(operator: Any) -> Case:
    """A product with a matrix of the model's file."""
    data = Q4_0.encode(normal(7, 32, seed=2))

    def build(program: Program, x: Buffer) -> Buffer:
        y: Buffer = operator(x, program.weight(Tensor("w", Q4_0, (7, 32), data.reshape(-1))))
        return y

    return Case(build, {"x": normal(N, 32, seed=1)})


def _tied(program: Program, w: Buffer) -> Buffer:
    """A matrix with two readers, whose gradients add up; and a square, x times x."""
    x = ops.gather(w, program.constant("ids", np.array([3, 1, 3], np.int32)))
    y: Buffer = ops.matmul(ops.mul(x, x), w)
    return y


X, Z, ROW = normal(N, 12, seed=1), normal(N, 12, seed=2), normal(1, 12, seed=3)
FACTORS = {"x": X, "w": normal(7, 12, seed=4), "r": normal(N, 7, seed=5)}
APART = 0.5 * np.rint(2 * X) + np.float32(0.2)  # from the corners of functions
NEAR = {"sqrt": np.abs(X) + 1, "reciprocal": np.abs(X) + 1}
CASES: dict[str, Case] = {
    "matmul": Case(lambda program, **b: ops.matmul(*b.values()), FACTORS, ("w",)),
    "matmul-q4_0": _quantized(ops.matmul),
    "product": Case(lambda program, **b: product(*b.values()), FACTORS, ("w",)),
    "product-q4_0": _quantized(product),
    "gather": Case(_gathered, {"w": normal(6, 12, seed=4)}, ("w",)),
    "tied": Case(_tied, {"w": normal(6, 12, seed=4)}, ("w",)),
    "last_rows": _one(ops.last_rows, {"x": X}, rows=2),
    "add": _one(ops.add, {"x": X, "y": Z}),
    "add-row": _one(ops.add, {"x": X, "y": ROW}),
    "mul": _one(ops.mul, {"x": X, "y": Z}),
    "mul-row": _one(ops.mul, {"x": X, "y": ROW}),
    "silu": _one(ops.silu, {"x": 3 * X}),
    "gelu-none": _one(ops.gelu, {"x": X}, approximate="none"),
    "gelu-tanh": _one(ops.gelu, {"x": X}, approximate="tanh"),
    "softmax": _one(ops.softmax, {"x": X}),
    "divergence": Case(
        lambda program, x: divergence(x, program.constant("target", 2 * Z)), {"x": X}
    ),
    "rms_norm": _one(ops.rms_norm, {"x": X, "weight": normal(12, seed=4)}, epsilon=0.1),
    "rms_norm-heads": _one(
        ops.rms_norm, {"x": X, "weight": normal(4, seed=4)}, epsilon=0.1, heads=3
    ),
    "layer_norm": _one(
        ops.layer_norm, {"x": X, "weight": normal(12, seed=4), "bias": normal(12, seed=5)},
        epsilon=0.1,
    ),
    "rotary": _rotate(False),
    "rotary-interleaved": _rotate(True),
    "attention": _attention(0, 0.0, False, False, position=0),
    "attention-later": _attention(0, 0.0, False, False),
    "attention-window": _attention(2, 0.0, False, False),
    "attention-softcap": _attention(0, 0.7, False, False),
    "attention-slopes": _attention(0, 0.0, True, False),
    "attention-sinks": _attention(3, 0.9, True, True),
} | {
    f"unary-{function}": _one(
        ops.unary, {"x": NEAR.get(function, APART)}, function=function, alpha=0.3, beta=1.6
    )
    for function in SLOPES
}  # fmt: skip
