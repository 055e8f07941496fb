"""Products of matrices and tensors. float16 is multiplied in float32 and rounded once."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from halfbyte.errors import UnsupportedError
from halfbyte.onnx.reference import _shapes
from halfbyte.onnx.reference.arrays import Array, check_elements, working
from halfbyte.onnx.reference.registry import define

Shape = tuple[int, ...]


@define("MatMul", product=True, infer=_shapes.product)
def matmul(A: Array, B: Array) -> Array:
    """Y = A B over the last two axes; 1-D inputs as numpy.matmul takes them. ONNX MatMul-13."""
    if A.ndim > 1 and B.ndim > 1:
        batch = np.broadcast_shapes(A.shape[:-2], B.shape[:-2])
        check_elements((*batch, A.shape[-2], B.shape[-1]), A.dtype.itemsize)
    return np.asarray(np.matmul(working(A), working(B))).astype(A.dtype, copy=False)


def _multiplied(
    a: Array, b: Array, *c: Array | None, transA: int = 0, transB: int = 0, **attributes: Any
) -> _shapes.Shape:
    """The shape of Gemm's result."""
    left, right = (a.T if transA else a), (b.T if transB else b)
    return _shapes.after_product(left.shape, right.shape)


@define("Gemm", product=True, infer=_shapes.Rule(_multiplied, _shapes.matrix.rank))
def gemm_by_attribute(
    A: Array,
    B: Array,
    C: Array,
    *,
    alpha: float = 1.0,
    beta: float = 1.0,
    broadcast: int = 0,
    transA: int = 0,
    transB: int = 0,
) -> Array:
    """The same; C is broadcast only if `broadcast` is set. ONNX Gemm-6."""
    return gemm(A, B, C, alpha=alpha, beta=beta, transA=transA, transB=transB)


@define("Gemm", since=7, product=True, infer=_shapes.Rule(_multiplied, _shapes.matrix.rank))
def gemm(
    A: Array,
    B: Array,
    C: Array | None = None,
    *,
    alpha: float = 1.0,
    beta: float = 1.0,
    transA: int = 0,
    transB: int = 0,
) -> Array:
    """Y [M, N] = `alpha` A' B' + `beta` C, C broadcast to [M, N]. ONNX Gemm-13."""
    if A.ndim != 2 or B.ndim != 2:
        raise ValueError("A and B must be matrices")
    left, right = (A.T if transA else A), (B.T if transB else B)
    check_elements((left.shape[0], right.shape[1]), A.dtype.itemsize)
    result = scaled(np.matmul(working(left), working(right)), alpha)
    if C is not None:
        result = result + np.broadcast_to(scaled(working(C), beta), result.shape)
    return result.astype(A.dtype, copy=False)


def scaled(array: Array, factor: float) -> Array:
    """The array times a factor, in its type."""
    if factor == 1:
        return array
    return np.asarray(array * np.asarray(factor, np.result_type(array.dtype, np.float32))).astype(
        array.dtype, copy=False
    )


MAX_TERMS = (
    32  # of an Einsum: the time of NumPy's search for an order grows with their fourth power
)


def _summed(*parts: Array, equation: str) -> _shapes.Shape:
    """The shape of Einsum's result."""
    return tuple(einsum_shape(equation.replace(" ", ""), [part.shape for part in parts]))


@define("Einsum", since=12, product=True, infer=_shapes.Rule(_summed))
def einsum(*parts: Array, equation: str) -> Array:
    """Y[out] = sum of parts[0][term 0] parts[1][term 1] ... over labels not in out. Einsum-28."""
    equation = equation.replace(" ", "")
    if len(parts) > MAX_TERMS:
        raise UnsupportedError(f"Einsum of {len(parts)} terms: expected at most {MAX_TERMS}")
    shape = einsum_shape(equation, [part.shape for part in parts])
    check_elements(shape, parts[0].dtype.itemsize)
    many = len(parts) > 1
    result = np.einsum(equation, *map(working, parts), optimize=many)
    return np.asarray(result).astype(parts[0].dtype, copy=False).reshape(shape)


def einsum_work(equation: str, shapes: Sequence[Shape]) -> int:
    """Upper bound of an Einsum's operations, as if all labels were looped over at once.

    Raises `ValueError` where labels and shapes differ.
    """
    sizes, between = _labels(equation.replace(" ", ""), shapes)
    return len(shapes) * math.prod(sizes.values()) * math.prod(between)


def einsum_shape(equation: str, shapes: Sequence[Shape]) -> list[int]:
    """The shape of an equation's result. Raises `ValueError` where labels and shapes differ."""
    left, arrow, right = equation.partition("->")
    sizes, between = _labels(equation, shapes)
    if not arrow:
        once = Counter(left.replace(".", "").replace(",", ""))
        right = "..." + "".join(sorted(label for label, n in once.items() if n == 1))
    before, dots, after = right.partition("...")
    if unknown := {*before, *after} - sizes.keys():
        raise ValueError(f"labels {sorted(unknown)} of the result {right!r} are in no term")
    return [
        *map(sizes.__getitem__, before),
        *(between if dots else ()),
        *map(sizes.__getitem__, after),
    ]


def _labels(equation: str, shapes: Sequence[Shape]) -> tuple[dict[str, int], Shape]:
    """The sizes of an equation's labels, and of the axes of its ellipsis."""
    terms = equation.partition("->")[0].split(",")
    if len(terms) != len(shapes):
        raise ValueError(f"equation {equation!r} of {len(terms)} terms, {len(shapes)} inputs")
    sizes: dict[str, int] = {}
    between: tuple[int, ...] = ()  # of the ellipsis
    for term, shape in zip(terms, shapes, strict=True):
        before, dots, after = term.partition("...")
        rest = len(shape) - len(before) - len(after)
        if rest < 0 or (rest and not dots):
            raise ValueError(f"term {term!r} for a shape {list(shape)}")
        named = zip(
            before + after, shape[: len(before)] + shape[len(shape) - len(after) :], strict=True
        )
        for label, size in named:
            if sizes.setdefault(label, size) != size:
                raise ValueError(f"label {label!r} is {sizes[label]} and {size}")
        between = np.broadcast_shapes(between, shape[len(before) : len(before) + rest])
    return sizes, between


@define("Det", since=11, product=True, infer=_shapes.Rule(lambda X: X.shape[:-2]))
def det(X: Array) -> Array:
    """Determinants of the square matrices on the last two axes. ONNX Det-22."""
    return np.asarray(np.linalg.det(working(X))).astype(X.dtype, copy=False)
