"""Rules of integer products with scales and zero points from the run, and float results."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from halfbyte.core import ops
from halfbyte.core.buffer import Buffer
from halfbyte.core.ops.panels import PANEL, panels
from halfbyte.core.ops.recurrent_layer import Cell, by_outputs
from halfbyte.onnx.capture import Capture
from halfbyte.onnx.lowering.linear import vector
from halfbyte.onnx.lowering.recurrent import functions_of, others_of
from halfbyte.onnx.lowering.registry import MICROSOFT, lower
from halfbyte.onnx.lowering.sliding import floats
from halfbyte.onnx.reference.rnn import DIRECTIONS
from halfbyte.onnx.values import Array, Operand, Value, key_of, sizes_of


def _quantized(x: Buffer) -> tuple[Buffer, ...]:
    """A matrix in uint8, the sums of its rows, and the scale and zero point of all."""
    n, k = sizes_of(x)
    limits = ops.tensor_range(x.view((n * k,)), spans=-(-n * k // ops.RANGE))
    results: tuple[Buffer, ...] = ops.quantize_tensor(x, limits)
    return results


def _rows(x: Value) -> tuple[int, int]:
    k = x.shape[-1] if x.shape else 1
    return x.size // k, k


@lower("DynamicQuantizeLinear")
def dynamic_quantize_linear(c: Capture, x: Value) -> tuple[Value, ...] | None:
    """Quantization of float32."""
    if x.dtype != "f32" or not x.size:
        return None
    y, _, scale, zero = c.quantized(x, *_rows(x), _quantized)
    return c.value(y, x.shape), c.value(scale, ()), c.value(zero, ())


@lower("DynamicQuantizeMatMul", domain=MICROSOFT)
def dynamic_quantize_matmul(
    c: Capture, a: Value | Array, b: Operand, b_scale: Operand, b_zero: Operand = None,
    bias: Operand = None,
) -> Value | None:  # fmt: skip
    """Products with a constant matrix; activations with several readers are quantized once."""
    if not isinstance(a, Value) or a.dtype != "f32" or not a.size or len(a.shape) < 2:
        return None
    y, sums, scale, zero = c.quantized(a, *_rows(a), _quantized)
    return _product(c, a.shape, (y, scale, zero), sums, (b, b_scale, b_zero), bias)


@lower("MatMulIntegerToFloat", domain=MICROSOFT)
def matmul_integer_to_float(
    c: Capture, a: Value | Array, b: Operand, a_scale: Value | Array, b_scale: Operand,
    a_zero: Operand = None, b_zero: Operand = None, bias: Operand = None,
) -> Value | None:  # fmt: skip
    """Products of uint8 with one scale, and a constant matrix."""
    if not isinstance(a, Value) or a.dtype != "u8" or not a.size or len(a.shape) < 2:
        return None
    a_zero = np.zeros(1, np.uint8) if a_zero is None else a_zero
    scale, zero = _single(c, a_scale, "f32"), _single(c, a_zero, "u8")
    if scale is None or zero is None:
        return None
    x = c.matrix(a, *_rows(a)), scale, zero
    return _product(c, a.shape, x, _sums(c, *x), (b, b_scale, b_zero), bias)


def _single(c: Capture, operand: Value | Array, dtype: str) -> Buffer | None:
    """The buffer of a single number; None for other operands."""
    if key_of(operand) != dtype or math.prod(operand.shape) != 1:
        return None
    return c.plain(operand if isinstance(operand, Value) else operand.reshape(1)).view((1,))


def _sums(c: Capture, x: Buffer, scale: Buffer, zero: Buffer) -> Buffer | None:
    """The sums of the rows of a quantized matrix, if the program quantizes it."""
    for instruction in c.program.instructions:
        if instruction.operator is ops.quantize_tensor:
            y, sums, _, offset = instruction.outputs
            if (y, offset) == (x.root, zero.root) and y.shape == x.shape:
                return sums
    return None


def _product(
    c: Capture, shape: tuple[int, ...], x: tuple[Buffer, Buffer, Buffer], x_sums: Buffer | None,
    w: tuple[Operand, Operand, Operand], bias: Operand,
) -> Value | None:  # fmt: skip
    """x times a constant w [k, m], each with its scale and zero point, for w perhaps by column."""
    b, scale, zero = w
    if not isinstance(b, np.ndarray) or b.ndim != 2 or b.dtype not in (np.int8, np.uint8):
        return None
    k, m = b.shape
    if shape[-1] != k or not m or not _by_column(scale, np.dtype(np.float32), m):
        return None
    if zero is not None and not _by_column(zero, b.dtype, m):
        return None
    if bias is not None and (bias.shape != (m,) or key_of(bias) != "f32"):
        return None
    flip = 0 if b.dtype == np.int8 else 128
    zeros = _column(np.zeros(1) if zero is None else zero, np.int32, m) - np.int32(flip)
    if zeros.any() and x_sums is None:
        return None

    def signed() -> Array:
        return (b ^ np.uint8(flip)).view(np.int8) if flip else b

    packed = floats(c, b, "packed 1 True", lambda: ops.pack_quantized(signed().T[:, :, None, None]))
    sums = floats(c, b, "sums", lambda: signed().sum(axis=0, dtype=np.int32))
    integers, x_scale, x_zero = x
    offsets = (c.constant(zeros), x_sums) if zeros.any() else (None, None)
    y = ops.matmul_quantized(
        integers, packed, sums, c.constant(_column(scale, np.float32, m)), vector(c, bias, m),
        x_scale, x_zero, *offsets,
    )  # fmt: skip
    return c.value(y, (*shape[:-1], m))


@dataclass(frozen=True)
class _Gates:
    """Constant weights in int8 of an LSTM, [directions, inputs, gates * hidden]."""

    c: Capture
    w: Array
    scale: Array  # [directions], or by column too

    def by_direction(self) -> list[Array]:
        """The rows of each direction, in the order of the layer's outputs."""
        return [by_outputs(w.T, Cell.LSTM) for w in self.w]

    def packed(self) -> Buffer:
        """[directions, blocks, fours, 16, 4]."""

        def make() -> Array:
            return np.stack([ops.pack_quantized(w[:, :, None, None]) for w in self.by_direction()])

        return floats(self.c, self.w, "packed gates", make)

    def sums(self) -> Buffer:
        """Of each output's weights."""

        def make() -> Array:
            return np.stack([w.sum(axis=1, dtype=np.int32) for w in self.by_direction()])

        return floats(self.c, self.w, "sums of gates", make)

    def scales(self) -> Array:
        """Of each output."""
        columns = self.scale.reshape(len(self.scale), -1)
        every = np.broadcast_to(columns, (len(columns), self.w.shape[2]))
        return np.stack([by_outputs(each, Cell.LSTM) for each in every])


def _gates(c: Capture, w: Operand, scale: Operand, zero: Operand, d: int) -> _Gates | None:
    """The weights; None if they are not constants of these types and sizes, or not symmetric."""
    if not isinstance(w, np.ndarray) or w.ndim != 3 or len(w) != d or not w.size:
        return None
    if not isinstance(scale, np.ndarray) or not isinstance(zero, np.ndarray):
        return None
    shapes = (d,), (d, w.shape[2])
    if {w.dtype, zero.dtype} != {np.dtype(np.int8)} or scale.dtype != np.float32 or zero.any():
        return None
    return _Gates(c, w, scale) if {scale.shape, zero.shape} <= set(shapes) else None


def _ahead(x: Value, w: _Gates, bias: Array) -> Buffer:
    """Products of x [time, batch, inputs] with the weights of all gates and directions."""
    c = w.c
    integers, _, x_scale, x_zero = c.quantized(x, *_rows(x), _quantized)
    scale, packed = w.scales().reshape(-1), w.packed()
    directions, blocks, *block = sizes_of(packed)
    y: Buffer = ops.matmul_quantized(
        integers, packed.view((directions * blocks, *block)), w.sums().view((len(scale),)),
        c.constant(scale),
        c.constant(np.concatenate([by_outputs(b, Cell.LSTM) for b in bias])), x_scale, x_zero,
    )  # fmt: skip
    c.value(y)  # whose size is checked
    return y


@lower("DynamicQuantizeLSTM", domain=MICROSOFT)
def dynamic_quantize_lstm(
    c: Capture, x: Operand, w: Operand, r: Operand, b: Operand, lengths: Operand, h: Operand,
    cell: Operand, p: Operand, w_scale: Operand, w_zero: Operand, r_scale: Operand,
    r_zero: Operand, *, activations: Sequence[str] | None = None,
    activation_alpha: Sequence[float] | None = None,
    activation_beta: Sequence[float] | None = None, clip: float = 0.0, direction: str = "forward",
    hidden_size: int = 0, input_forget: int = 0,
) -> tuple[Value, ...] | None:  # fmt: skip
    """Gates i, o, f and c, in integers, of constant weights."""
    del hidden_size  # as R says
    directions = DIRECTIONS.get(direction, 0)
    ahead = _gates(c, w, w_scale, w_zero, directions)
    back = _gates(c, r, r_scale, r_zero, directions)
    default = "Sigmoid", "Tanh", "Tanh"
    functions = functions_of(default, direction, activations, activation_alpha, activation_beta)
    if not isinstance(x, Value) or x.dtype != "f32" or len(x.shape) != 3 or not x.size:
        return None
    if ahead is None or back is None or functions is None or input_forget or isinstance(b, Value):
        return None
    time, batch, size = map(int, x.shape)  # a program for these
    hidden = back.w.shape[1]
    if (ahead.w.shape[1:], back.w.shape[2]) != ((size, 4 * hidden), 4 * hidden):
        return None
    if hidden > ops.MAX_QUANTIZED or not math.isfinite(clip):
        return None
    bias = np.zeros((directions, 8 * hidden), np.float32) if b is None else b
    if bias.shape != (directions, 8 * hidden) or bias.dtype != np.float32:
        return None
    state = directions, batch, hidden
    others = others_of(c, state, time, (h, cell), p, lengths)
    if others is None:
        return None
    y, *lasts, _ = ops.recurrent_layer(
        _ahead(x, ahead, bias[:, : 4 * hidden] + bias[:, 4 * hidden :]),
        c.constant(np.zeros((directions, panels(hidden) * PANEL), np.float32)),
        c.constant(functions), None, back.packed(), back.sums(), c.constant(back.scales()), *others,
        n=batch, t=time, k=hidden, cell=int(Cell.LSTM), clip=clip if clip > 0 else math.inf,
        reverse=direction == "reverse",
    )  # fmt: skip
    return c.value(y.view((time, *state))), *(c.value(v.view(state)) for v in lasts)


def _by_column(operand: Operand, dtype: np.dtype[Any], m: int) -> bool:
    """Whether an operand is a constant with one number, or one for each of m columns."""
    constant = isinstance(operand, np.ndarray) and operand.dtype == dtype
    return constant and operand is not None and operand.shape in ((), (1,), (m,))


def _column(operand: Any, dtype: npt.DTypeLike, m: int) -> Array:
    return np.ascontiguousarray(np.broadcast_to(operand.reshape(-1), m), dtype)
