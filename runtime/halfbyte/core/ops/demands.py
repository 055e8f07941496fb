"""Preconditions of kernels beyond signatures, by the descriptions that errors give.

Each is a demand of :class:`halfbyte.core.ops.Operator`, on dimensions, attributes and constant
operands by name.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from halfbyte.core.ops.operator import Demand

LIMIT = 2**31 - 1  # kernels index images with 32 bits

Known = Mapping[str, Any]


def reach(at: int, *steps: tuple[int, int]) -> tuple[int, int]:
    """First and last element of a strided view; `steps` are (count, stride) of each dimension."""
    spans = [(count - 1) * stride for count, stride in steps]
    return at + sum(min(span, 0) for span in spans), at + sum(max(span, 0) for span in spans)


def inside(size: int, at: int, *steps: tuple[int, int]) -> bool:
    """Whether a strided view is within `size` elements, and not empty."""
    first, last = reach(at, *steps)
    return 0 <= first <= last < size and all(count > 0 for count, _ in steps)


def planned(d: Known, size: int, at: int, strides: Any, step: int) -> bool:
    """Whether a plan (see :mod:`halfbyte.core.ops.elementwise`) stays inside of its operand."""
    sizes = d["plan"][: len(strides)].tolist()
    steps = [*zip(sizes, strides.tolist(), strict=True), (d["d"], step)]
    return inside(size, at, *steps)


def zero_points(*zeros: str) -> dict[str, Demand]:
    """Demands on the zero points of eight-bit integers, and on limits if there are any."""
    names = (*zeros, "lo", "hi")
    return {
        f"{', '.join(names)} from -128 to 255": lambda d: all(
            -128 <= d[name] <= 255 for name in names if name in d
        )
    }


def windows(taps: str = "", maximum: int = LIMIT) -> dict[str, Demand]:
    """Demands on windows over images; `taps` is a dimension with one entry per pixel."""
    demands: dict[str, Demand] = {
        "kernel_h, kernel_w, stride_h, stride_w, dilation_h, dilation_w, p, q of 1 and more": (
            lambda d: all(size >= 1 for size in (
                d["kernel_h"], d["kernel_w"], d["stride_h"], d["stride_w"], d["dilation_h"],
                d["dilation_w"], d["p"], d["q"],
            ))
        ),
        "windows from top and left to p stride_h and q stride_w within 2^31": (
            lambda d: min(d["top"], d["left"]) >= 0
            and all(size <= LIMIT for size in (
                d["top"] + d["h"], d["left"] + d["v"],
                d["p"] * d["stride_h"] + d["kernel_h"] * d["dilation_h"],
                d["q"] * d["stride_w"] + d["kernel_w"] * d["dilation_w"],
            ))
        ),
    }  # fmt: skip
    if taps:
        demands[f"{taps} = kernel_h kernel_w, at most {maximum}"] = lambda d: (
            d["kernel_h"] * d["kernel_w"] == d[taps] <= maximum
        )
    return demands
