"""The gain of each fusion: two instructions against the one that replaces them.

SmolLM2-135M's sizes, one token and a batch of 128, on one thread; both programs take turns.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest
from benches.case import Bench
from benches.figures import Series
from benches.turns import Contender
from benches.yardstick import clock_of

from halfbyte.core import ops
from halfbyte.core.backends import open_program
from halfbyte.core.buffer import Buffer
from halfbyte.core.passes import fuse, plan_memory, quantize_activations
from halfbyte.core.program import Program, capture
from halfbyte.weights import F16, Q4_0, Tensor, WeightFormat

DIM, HIDDEN, KEYS, HEAD, CONTEXT = 576, 1536, 192, 64, 256


@dataclass(frozen=True)
class Fusion:
    """A piece of a model that one fusion applies to."""

    makes: str  # the fused operator
    piece: Callable[[Program, Buffer], Buffer | None]
    width: int = DIM

    def build(self, batch: int) -> Program:
        """The program of this piece only, as captured."""
        with capture(self.makes) as program:
            n = program.size("n", batch)
            y = self.piece(program, program.input("x", "f32", (n, self.width)))
            if y is not None:
                program.output("y", y)
        return program


def _weight(program: Program, format_: type[WeightFormat], m: int, k: int) -> Buffer:
    values = np.random.default_rng(m).standard_normal((m, k), np.float32) / np.float32(k**0.5)
    return program.weight(Tensor(f"w{m}", format_, (m, k), format_.encode(values).reshape(-1)))


def _norm(program: Program, x: Buffer) -> Buffer:
    y = ops.rms_norm(x, program.constant("gain", np.ones(DIM, np.float32)), epsilon=1e-5)
    return ops.matmul(y, _weight(program, Q4_0, 32, DIM))  # type: ignore[no-any-return]


def _gate(program: Program, x: Buffer) -> Buffer:
    y = ops.mul(ops.silu(x), program.input("up", "f32", x.shape))
    return ops.matmul(y, _weight(program, Q4_0, 32, HIDDEN))  # type: ignore[no-any-return]


def _float_gate(program: Program, x: Buffer) -> Buffer:
    return ops.mul(ops.silu(x), program.input("up", "f32", x.shape))  # type: ignore[no-any-return]


def _rotary(program: Program, x: Buffer) -> None:
    position = program.size("position", CONTEXT)
    angle = np.arange(CONTEXT)[:, None] * 0.5 ** np.arange(HEAD // 2)
    cos, sin = (f(angle).astype(np.float32) for f in (np.cos, np.sin))
    rotated = ops.rotary_embedding(
        x, program.constant("cos", cos), program.constant("sin", sin),
        head_dim=HEAD, position=position, interleaved=True,
    )  # fmt: skip
    cache = program.cache("k", "f16", (KEYS // HEAD, CONTEXT // ops.KEY_BLOCK, HEAD, ops.KEY_BLOCK))
    ops.cache_write_keys(rotated, cache, position=position)


def _residual(format_: type[WeightFormat]) -> Callable[[Program, Buffer], Buffer]:
    def piece(program: Program, x: Buffer) -> Buffer:
        y: Buffer = ops.add(x, ops.matmul(x, _weight(program, format_, DIM, DIM)))
        return y

    return piece


FUSIONS = {
    "norm + quantize": Fusion("rms_norm_quantize", _norm),
    "gate x up + quantize": Fusion("swiglu_quantize", _gate, HIDDEN),
    "gate x up": Fusion("swiglu", _float_gate, HIDDEN),
    "rope + cache write": Fusion("rotary_cache_write_keys", _rotary, KEYS),
    "Q4_0 product + residual": Fusion("matmul_int8", _residual(Q4_0)),
    "F16 product + residual": Fusion("matmul", _residual(F16)),
}


@pytest.mark.parametrize("n", [1, 128])
@pytest.mark.parametrize("name", FUSIONS)
def bench_fusion(bench: Bench, name: str, n: int) -> None:
    program = quantize_activations(FUSIONS[name].build(n))
    registers, contenders = {"n": n, "position": 7}, []
    for engine, each in {"apart": program, "fused": fuse(program)}.items():
        run = open_program(plan_memory(each)).run
        series = Series(name, engine, f"{n} token{'s' * (n > 1)}")
        contenders.append(Contender(series, lambda run=run: run(registers), clock=clock_of(1)))
    bench.measure(contenders, "clock")
