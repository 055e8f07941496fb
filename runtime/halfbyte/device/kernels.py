"""How near to a processor's limits each kind of kernel comes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated

from halfbyte.device import reading
from halfbyte.device.quantity import Quantity
from halfbyte.device.reading import named, number
from halfbyte.weights import FORMATS

HOST = "numpy"  # the kind of all that NumPy does
POINTS = "_1x1"  # at the end of a kind: convolutions with windows of one pixel
ROWS = "_rows"  # at the end of a kind: weights in the order of the file

_MEASURED = Path(__file__).with_name("kernels.toml")

_Fraction = Annotated[Quantity, number(1e-6, 100)]


@dataclass(frozen=True)
class Kernel:
    """Fractions of a processor's limits that a kind of kernel reaches.

    `prompt` (many tokens at once) and `token` (one, with all that it reads in a cache) are of the
    peak of `arithmetic`; `memory` is of the bandwidth, where weights and keys are read from memory.
    Products and attention count operations; other kinds, which move more than they compute, count
    bytes of activations for each operation of the peak.
    """

    arithmetic: Annotated[str, reading.choice("int8", "float32")]
    prompt: _Fraction
    token: _Fraction
    memory: _Fraction


@dataclass(frozen=True)
class Kernels:
    """A file of them, by kind."""

    kernels: Annotated[Mapping[str, Kernel], named(Kernel, 1, 256)]


@cache
def usual_kernels() -> Mapping[str, Kernel]:
    """Those measured on a processor of servers, with ranges for others; by kind."""
    return reading.read_file(Kernels, _MEASURED).kernels


# A kind that was not measured is like one that was; of formats of weights see `WeightFormat.like`.
_LIKE = {
    "attention_f32": "attention_f16", "matmul_rotated": "matmul_int8",
    "gelu_hadamard_quantize": "gelu_quantize", "hadamard_quantize": "dynamic_quantize",
    "layer_norm_hadamard_quantize": "layer_norm_quantize",
    "swiglu": "swiglu_quantize", "silu": "swiglu_quantize", "add": "binary", "mul": "binary",
}  # fmt: skip
_OTHER = "rms_norm_quantize"


def kernel_of(kind: str, measured: Mapping[str, Kernel]) -> Kernel:
    """What is known of a kind: measured on the device, else elsewhere, else of one like it."""
    known = {**usual_kernels(), **measured}
    plain = kind.removesuffix(ROWS)
    like = _LIKE.get(plain) or _product_like(plain)
    if like not in known:
        like = "matmul_f16" if kind.startswith("matmul_") else _OTHER
    names = (kind, like + ROWS if kind != plain else like, plain, like, _OTHER)
    return next(known[name] for name in names if name in known)


def _product_like(kind: str) -> str:
    """The kind that products with weights are like: with a format that decodes as many bits."""
    for name, format_ in FORMATS.items():
        if kind.endswith(f"_{format_.dtype}"):
            product = kind.removesuffix(f"_{format_.dtype}")
            measured = FORMATS[format_.like or name]
            return f"{_LIKE.get(product, product)}_{measured.dtype}"
    return ""
