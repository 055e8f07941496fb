"""Values that are rounded to 16-bit integers and back stay floats: QuantizeDequantize.

Kernels have integers of 8 bits only, and floats hold those of 16 bits exactly.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from halfbyte.onnx.files.dtypes import DTYPES
from halfbyte.onnx.files.model import Node
from halfbyte.onnx.fusion.rewriter import MICROSOFT, OWN, Rewriter, make_node

FLOAT = 1  # ONNX's number of float32
_WIDE = (np.dtype(np.uint16), np.dtype(np.int16))
_KNOWN = {"axis", "saturate", "output_dtype", "precision"}  # an axis does not matter to one scale


class _Quantization(NamedTuple):
    """The numbers of a QuantizeLinear or DequantizeLinear with one scale."""

    scale: float
    zero: int


def fuse_wide_integers(r: Rewriter) -> None:
    """QuantizeLinear to 16 bits, whose result only DequantizeLinear reads."""
    for domain in ("", MICROSOFT):
        for node in r.nodes("DequantizeLinear", domain=domain):
            fused = _fused(r, node)
            if fused is not None:
                r.replace(node, fused)


def _fused(r: Rewriter, node: Node) -> Node | None:
    quantize = r.producer(node.inputs[0], "QuantizeLinear", domain=node.domain)
    if quantize is None or r.is_output(node.inputs[0]):
        return None
    if any(user.op_type != node.op_type for user in r.consumers(node.inputs[0])):
        return None
    numbers = _numbers(r, quantize)
    if numbers is None or numbers != _numbers(r, node):
        return None
    dtype = _dtype(r, quantize)
    if dtype not in _WIDE or not {node.attributes.get("output_dtype", 0)} <= {0, FLOAT}:
        return None
    limits = np.iinfo(dtype)
    return make_node(
        "QuantizeDequantize", quantize.inputs[:2], node.outputs, domain=OWN, version=1,
        name=node.name, low=int(limits.min) - numbers.zero, high=int(limits.max) - numbers.zero,
    )  # fmt: skip


def _numbers(r: Rewriter, node: Node) -> _Quantization | None:
    """The scale and zero point, if they are constants; None also for blocks."""
    if not node.attributes.keys() <= _KNOWN or node.attributes.get("precision", 0) not in (
        0,
        FLOAT,
    ):
        return None
    scale, zero = r.constant(node.inputs[1]), 0.0
    if scale is None or scale.dtype != np.float32 or scale.size != 1 or scale.ndim > 1:
        return None
    if len(node.inputs) > 2 and node.inputs[2]:
        number = r.number(node.inputs[2])
        if number is None:
            return None
        zero = number
    return _Quantization(scale.item(), int(zero)) if 0 < scale.item() < np.inf else None


def _dtype(r: Rewriter, quantize: Node) -> np.dtype[Any] | None:
    """The type of the integers; None if it is not known."""
    zero = r.constant(quantize.inputs[2]) if len(quantize.inputs) > 2 else None
    return DTYPES.get(quantize.attributes.get("output_dtype", 0)) if zero is None else zero.dtype
