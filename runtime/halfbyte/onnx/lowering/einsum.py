"""The rule of Einsum with two operands: a product of stacks of matrices."""

from __future__ import annotations

import math

from halfbyte.onnx.capture import Capture
from halfbyte.onnx.lowering.linear import matmul
from halfbyte.onnx.lowering.registry import lower
from halfbyte.onnx.values import Array, Value, key_of


@lower("Einsum")
def einsum(c: Capture, *operands: Value | Array, equation: str) -> Value | None:
    """Products of float32 over the axes that both have and the result does not."""
    left, arrow, wanted = equation.replace(" ", "").partition("->")
    terms = left.split(",")
    if not arrow or len(terms) != 2 or len(operands) != 2 or "." in equation:
        return None
    if any(len(set(t)) != len(t) for t in (*terms, wanted)):
        return None
    if any(key_of(v) != "f32" or len(v.shape) != len(t)
           for v, t in zip(operands, terms, strict=True)):  # fmt: skip
        return None
    x, y = (v if isinstance(v, Value) else c.value(c.constant(v)) for v in operands)
    first, second = terms
    both = [i for i in first if i in second]
    stack, over = [i for i in both if i in wanted], [i for i in both if i not in wanted]
    rows, columns = ([i for i in t if i not in both] for t in terms)
    if {*stack, *rows, *columns} != set(wanted):
        return None
    sizes = dict(zip(first + second, x.shape + y.shape, strict=True))
    if any(sizes[i] != x.shape[first.index(i)] for i in both):
        return None

    def grouped(v: Value, term: str, *parts: list[str]) -> Value:
        order = [term.index(i) for part in (stack, *parts) for i in part]
        shape = [math.prod(sizes[i] for i in part) for part in parts]
        return c.reshaped(c.transposed(v, order), [*(sizes[i] for i in stack), *shape])

    product = matmul(c, grouped(x, first, rows, over), grouped(y, second, over, columns))
    if product is None:
        return None
    have = [*stack, *rows, *columns]
    whole = c.reshaped(product, [sizes[i] for i in have])
    return c.transposed(whole, [have.index(i) for i in wanted])
