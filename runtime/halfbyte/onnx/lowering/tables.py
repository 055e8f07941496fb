"""Rules of rows from constant tables: embeddings in float32 and in blocks."""

from __future__ import annotations

import numpy as np

from halfbyte.core import ops
from halfbyte.core.buffer import Buffer
from halfbyte.core.ops.operator import record_host
from halfbyte.errors import ProgramError
from halfbyte.onnx.capture import Capture
from halfbyte.onnx.lowering.blocks import BLOCK, block_weight
from halfbyte.onnx.lowering.registry import MICROSOFT, lower
from halfbyte.onnx.values import Array, Operand, Value
from halfbyte.weights import F32, Tensor


def embedded(c: Capture, table: Array, ids: Value) -> Value | None:
    """Rows of a constant float32 matrix, by their numbers."""
    if table.ndim != 2 or table.dtype != np.float32 or not ids.size or not table.size:
        return None
    if ids.dtype not in ("i32", "i64"):
        return None

    def make() -> Buffer:
        data = np.require(table, requirements=["C", "A"]).reshape(-1).view(np.uint8)
        return c.weight(Tensor(c.weights.name(table) or "table", F32, table.shape, data))

    return _rows(c, c.weights.get(table, "table", make), ids, refuse=True)


@lower("GatherBlockQuantized", domain=MICROSOFT)
def gather_block_quantized(
    c: Capture, data: Operand, ids: Operand, scales: Operand, zeros: Operand = None, *,
    bits: int = 4, block_size: int = 128, gather_axis: int = 0, quantize_axis: int = 1,
) -> Value | None:  # fmt: skip
    """Rows of a matrix in blocks of 4 or 8 bits."""
    if not isinstance(data, np.ndarray) or not isinstance(scales, np.ndarray):
        return None
    if not isinstance(ids, Value) or isinstance(zeros, Value) or data.ndim != 2:
        return None
    if data.dtype != np.uint8 or gather_axis or quantize_axis not in (1, -1) or not ids.size:
        return None
    if scales.dtype != np.float32 or ids.dtype not in ("i32", "i64"):
        return None
    if bits not in (4, 8) or block_size < 1:
        return None
    shape = data.shape[0], data.shape[1] * 8 // bits
    if scales.shape != (shape[0], -(-shape[1] // block_size)):
        return None
    if zeros is not None and (zeros.dtype != np.uint8 or zeros.shape != scales.shape):
        return None
    if shape[1] % BLOCK or (zeros is not None and bits == 4):
        return None
    w = block_weight(c, data, scales, zeros, shape, block_size, bits, packed=False)
    return None if w is None else _rows(c, w, ids, refuse=False)


def _rows(c: Capture, w: Buffer, ids: Value, *, refuse: bool) -> Value:
    """Rows by their numbers; negative ones count from the end.

    Numbers out of range raise an error if `refuse`; otherwise their rows are zeros.
    """
    count, columns = (int(d) for d in w.shape)  # type: ignore[arg-type]

    def meaning(numbers: Array) -> tuple[Array]:
        lowest, highest = numbers.min(), numbers.max()
        if refuse and not -count <= lowest <= highest < count:
            outside = lowest if lowest < -count else highest
            raise ProgramError(f"Gather: index {outside}: expected {-count} to {count - 1}")
        if lowest < 0 or highest >= count:
            places = np.where(numbers < 0, numbers + count, numbers)
            numbers = np.clip(places, -1, count)
        return (numbers.astype(np.int32),)

    (places,) = record_host("Cast", meaning, [c.matrix(ids, 1, ids.size)], [("i32", (1, ids.size))])
    return c.value(ops.gather(w, places.view((ids.size,))), (*ids.shape, columns))
