"""The fraction of a processor's limits that each kind of kernel reaches."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated

from halfbyte.core.ops.operator import OPERATORS, operator_of
from halfbyte.device import schema
from halfbyte.device.quantity import Multiple, Quantity
from halfbyte.device.schema import named, number
from halfbyte.weights import BY_DTYPE, FORMATS

HOST = "numpy"  # the kind of all work that NumPy does
ROWS = "_rows"  # suffix of a kind: weights in the order of the file

_MEASURED = Path(__file__).with_name("kernels.toml")
_ARM = Path(__file__).with_name("arm.toml")
INSTRUCTIONS = ("neon", "dotprod", "dotprod-wide", "i8mm")

_Fraction = Annotated[Quantity, number(1e-6, 100)]


@dataclass(frozen=True)
class Kernel:
    """Fractions of a processor's limits that a kind of kernel reaches.

    `prompt` (many tokens at once) and `token` (one token, all data in a cache) are fractions of the
    peak of `arithmetic`; `memory` is a fraction of the bandwidth, for weights and keys read from
    memory. Products and attention count operations; other kinds, which move more than they compute,
    count bytes of activations per operation of the peak.
    """

    arithmetic: Annotated[str, schema.choice("int8", "float32")]
    prompt: _Fraction
    token: _Fraction
    memory: _Fraction


@dataclass(frozen=True)
class Kernels:
    """A file of kernels, by kind."""

    kernels: Annotated[Mapping[str, Kernel], named(Kernel, 1, 256)]


@cache
def usual_kernels() -> Mapping[str, Kernel]:
    """Fractions measured on a server processor, with ranges for other processors; by kind."""
    return schema.read_file(Kernels, _MEASURED).kernels


@dataclass(frozen=True)
class Scale:
    """What products reach on Arm's cores.

    `prompt` and `token` are relative to the usual fractions of the peak; `memory` is the fraction
    of the bandwidth. Each is a factor, as much off for all kinds of weights.
    """

    prompt: _Fraction
    token: _Fraction
    memory: _Fraction


@dataclass(frozen=True)
class Scales:
    """A file of scales: of integer products by instructions, and of "float" ones by weights."""

    scales: Annotated[Mapping[str, Scale], named(Scale, 1, 8)]


@cache
def arm_kernels(instructions: str | None) -> Mapping[str, Kernel]:
    """Kinds that reach other fractions with Arm's `instructions`: products, by kind."""
    if instructions is None:
        return {}
    scales = schema.read_file(Scales, _ARM).scales
    result = {}
    for kind, kernel in usual_kernels().items():
        scale = scales.get(instructions if kernel.arithmetic == "int8" else _float(kind))
        if scale is not None:
            prompt = Multiple.of(scale.prompt, kernel.prompt.value)
            token = Multiple.of(scale.token, kernel.token.value)
            memory = kernel.memory if kind.endswith(ROWS) else Multiple.of(scale.memory)
            result[kind] = Kernel(kernel.arithmetic, prompt, token, memory)
    return result


def _float(kind: str) -> str:
    return "float" if kind.startswith(("matmul_f", "matmul_bf")) else ""


_PRODUCT, _OTHER = "matmul_f16", "rms_norm_quantize"


def kernel_of(kind: str, measured: Mapping[str, Kernel]) -> Kernel:
    """The fractions of a kind: measured on the device, else elsewhere, else for a similar kind."""
    known = {**usual_kernels(), **measured}
    plain = kind if kind in OPERATORS else kind.removesuffix(ROWS)
    like = _like(plain)
    if like not in known:
        like = _PRODUCT if kind.startswith("matmul_") else _OTHER
    names = (kind, like + ROWS if kind != plain else like, plain, like)
    return next(known[name] for name in names if name in known)


def _like(kind: str) -> str:
    """The similar kind that the operator and the weight format declare."""
    operator = operator_of(kind)
    if operator is None:
        return kind
    suffix = kind.removeprefix(operator.name)
    format_ = BY_DTYPE.get(suffix.removeprefix("_"))
    if format_ is not None and format_.like:
        suffix = f"_{FORMATS[format_.like].dtype}"
    return (operator.like or operator.name) + suffix
