"""Products with matrices, embeddings, and chosen rows."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from halfbyte.core import ops
from halfbyte.core.buffer import Buffer
from halfbyte.core.instruction import Instruction
from halfbyte.quantize.tuning.gradients.rules import definition, rule
from halfbyte.weights import F32 as FLOAT
from halfbyte.weights import Tensor

F32 = npt.NDArray[np.float32]
I32 = npt.NDArray[np.int32]

_DECODED = 1 << 20  # weights that are decoded at once: a head in floats may exceed the whole model


def _decoded(w: Tensor) -> Iterator[tuple[slice, F32]]:
    """Some rows of a matrix at a time, in floats."""
    rows = w.row_count if w.format is FLOAT else max(1, _DECODED // w.columns)
    for first in range(0, w.row_count, rows):
        part = slice(first, first + rows)
        yield part, w.format.decode(np.asarray(w.take(first, rows)))


@definition("x:f32[n,k] w:*[m,k] r?:f32[n,m] -> y:f32[n,m]")
def product(x: F32, w: Tensor, r: F32 | None = None) -> F32:
    """:func:`halfbyte.core.ops.matmul` by BLAS, which is faster for the many rows of a window."""
    y: F32 = np.empty((len(x), w.row_count), np.float32)
    for part, values in _decoded(w):
        np.matmul(x, values.T, out=y[:, part])
    return y if r is None else r + y


@definition("dy:f32[n,m] w:*[m,k] -> dx:f32[n,k]")
def product_dx(dy: F32, w: Tensor) -> F32:
    """Of y = x w^T: dx = dy w, with w in any format."""
    dx: F32 = np.zeros((len(dy), w.columns), np.float32)
    for part, values in _decoded(w):
        dx += dy[:, part] @ values
    return dx


@definition("dy:f32[n,m] x:f32[n,k] -> dw:f32[m,k]")
def product_dw(dy: F32, x: F32) -> F32:
    """Of y = x w^T: dw = dy^T x."""
    return dy.T @ x


@rule(ops.matmul)
@rule(product)
def _product(i: Instruction, dy: Buffer, wanted: Collection[str]) -> dict[str, Buffer]:
    gradients = {"r": dy}
    if "x" in wanted:
        gradients["x"] = product_dx(dy, i.operands["w"])
    if "w" in wanted:
        gradients["w"] = product_dw(dy, i.operands["x"])
    return gradients


@definition("dy:f32[n,d] ids:i32[n] -> dw:f32[v,d]")
def gather_dw(dy: F32, ids: I32, *, v: int) -> F32:
    """Of y = w[ids]: row j of dw is the sum of the rows of dy whose id is j."""
    dw = np.zeros((v, dy.shape[1]), np.float32)
    inside = (ids >= 0) & (ids < v)
    np.add.at(dw, ids[inside], dy[inside])
    return dw


@rule(ops.gather)
def _gather(i: Instruction, dy: Buffer, wanted: Collection[str]) -> dict[str, Buffer]:
    return {"w": gather_dw(dy, i.operands["ids"], v=i.operands["w"].shape[0])}


@definition("dy:f32[rows,d] -> dx:f32[n,d]")
def last_rows_dx(dy: F32, *, n: int) -> F32:
    """Of the last rows of x: zeros, then dy."""
    dx: Any = np.zeros((n, dy.shape[1]), np.float32)
    dx[n - len(dy) :] = dy
    return dx  # type: ignore[no-any-return]


@rule(ops.last_rows)
def _last_rows(i: Instruction, dy: Buffer, wanted: Collection[str]) -> dict[str, Buffer]:
    return {"x": last_rows_dx(dy, n=i.operands["x"].shape[0])}
