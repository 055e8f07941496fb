"""Cases of mixtures of experts."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
from tests.core.ops.case import EPS, TINY, Case, activations
from tests.core.ops.cases import BLOCKED, PACKED, WIDE, weight, whole

from halfbyte.core import ops
from halfbyte.weights import Tensor

# Rows, experts of each, all experts, columns and rows of a matrix, experts without rows. The last
# has more rows of an expert than a product on packed rows takes at once.
SHAPES = (
    (1, 2, 3, 32, 16, (0,)),
    (1, 3, 5, 64, 47, (1, 3)),
    (5, 2, 4, 96, 33, ()),
    (9, 3, 3, 64, 64, (0, 1)),
    (70, 3, 2, 64, 16, (0,)),
)


def stack(name: str, e: int, m: int, k: int) -> Tensor:
    """Random matrices of `e` experts."""
    each = [weight(name, m, k) for _ in range(e)]
    for number, tensor in enumerate(each):  # different ones: scales of other rows come first
        rolled = np.roll(tensor.rows, number, axis=0) if number + 1 < e else tensor.rows
        pack = getattr(tensor.format, "pack", None)
        data = pack(rolled) if pack else rolled.reshape(-1)
        each[number] = Tensor("w", tensor.format, (m, k), data)
    return Tensor("w", each[0].format, (e, m, k), np.concatenate([w.data for w in each]))


def ends(rows: int, e: int, empty: tuple[int, ...]) -> npt.NDArray[np.int32]:
    """Where the rows of each expert end; those of `empty` have none."""
    counts = np.array([0 if i in empty else 1 + i for i in range(e)])
    counts[-1] += rows - counts.sum() if counts.sum() <= rows else 0
    shares = np.cumsum(counts) * rows // counts.sum()
    return shares.astype(np.int32)


def _products() -> Iterator[Case]:
    for name in WIDE:
        for n, u, e, k, m, empty in SHAPES:
            k = whole(name, k)
            x, w = activations(n * u, k), stack(name, e, m, k)
            last = ends(n * u, e, empty)
            of = np.searchsorted(last, np.arange(n * u), side="right")
            matrices = np.abs(w.decode()).astype(np.float64)
            size = np.stack([np.abs(row) @ matrices[i].T for row, i in zip(x, of, strict=True)])
            bound = ((k + 2) * EPS * size + TINY).reshape(n, u * m)
            operands = {"x": x.reshape(n, u * k), "w": w, "ends": last}
            label = f"{name}-{n}x{u}-{e}x{k}x{m}"
            yield Case(label, ops.matmul_experts, operands, {"u": u}, bound, fused=True)


def _products_int8() -> Iterator[Case]:
    for name in BLOCKED + PACKED:
        for n, u, e, k, m, empty in SHAPES:
            k = whole(name, k)
            x = activations(n * u, k)
            x[-1] += 1
            quantized = ops.dynamic_quantize(x)
            xq, xd, xs = (v.reshape(n, -1) for v in quantized)
            operands = {"xq": xq, "xd": xd, "xs": xs, "w": stack(name, e, m, k)}
            operands["ends"] = ends(n * u, e, empty)
            label = f"{name}-{n}x{u}-{e}x{k}x{m}"
            yield Case(label, ops.matmul_experts_int8, operands, {"u": u})


def _routes() -> Iterator[Case]:
    for n, e, u in ((1, 1, 1), (1, 8, 2), (5, 64, 7), (33, 17, 17)):
        p = ops.softmax(activations(n, e))
        for normalize in (False, True):
            attributes = {"u": u, "normalize": normalize, "scale": 2.5}
            yield Case(f"{n}x{e}-{u}-{normalize}", ops.route_experts, {"p": p}, attributes)
        operands = {"p": p, "scores": p + activations(n + 1, e)[1:]}
        yield Case(f"{n}x{e}-{u}-scores", ops.route_experts, operands, attributes)
    scores = np.array(
        [[1, 3, 3, -np.inf, np.nan, 1], [np.nan] * 6, [np.inf, 2, np.inf, 0, -0.0, 0]]
    )
    p = np.arange(18, dtype=np.float32).reshape(3, 6) + 1
    for u in (4, 6):
        operands = {"p": p, "scores": scores.astype(np.float32)}
        attributes = {"u": u, "normalize": True, "scale": 1.0}
        yield Case(f"ties-{u}", ops.route_experts, operands, attributes)
    for e, groups, kept, best in ((8, 4, 2, 2), (8, 8, 3, 1), (64, 8, 4, 2), (6, 2, 2, 1)):
        attributes = {"u": 3, "normalize": True, "scale": 2.5, "groups": groups, "kept": kept}
        p = ops.softmax(activations(5, e))
        operands = {"p": p, "scores": p + activations(6, e)[1:]}
        each = attributes | {"best": best}
        yield Case(f"{e} in {groups}, {kept}, {best}", ops.route_experts, operands, each)
        operands = {"p": p, "scores": np.round(operands["scores"])}
        yield Case(f"ties of {e} in {groups}, {kept}", ops.route_experts, operands, each)
    for best in (1, 2):
        operands = {"p": np.ones((3, 6), np.float32), "scores": scores.astype(np.float32)}
        each = {"u": 2, "normalize": False, "scale": 1.0, "groups": 3, "kept": 1, "best": best}
        yield Case(f"groups with NaN, {best}", ops.route_experts, operands, each)
    zeros = {"p": np.zeros((2, 4), np.float32)}
    yield Case("zeros", ops.route_experts, zeros, {"u": 2, "normalize": True, "scale": 1.0})


def _rows() -> Iterator[Case]:
    for n, u, d in ((1, 2, 16), (3, 2, 33), (5, 4, 7)):
        x, random = activations(n, d), np.random.default_rng(d)
        rows = random.integers(-1, n + 1, (n, u), np.int32)
        yield Case(f"{n}x{u}-{d}", ops.expert_rows, {"x": x, "rows": rows})
        few = {"x": activations(2, d), "rows": rows}
        yield Case(f"{n}x{u}-{d} of 2", ops.expert_rows, few)
        z = activations(n * u, d).reshape(n, u * d)
        weights = activations(n + 1, u)[1:].copy()
        places = random.integers(-1, n * u + 1, (n, u), np.int32)
        operands = {"z": z, "weights": weights, "places": places}
        yield Case(f"{n}x{u}-{d}", ops.sum_experts, operands, {"d": d})


FAMILIES = (_products, _products_int8, _routes, _rows)
