"""A valid graph for every operator with a lowering rule, and for every fused pattern.

`differential` changes their sizes, ranks, types, attributes and values, one at a time.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import helper, numpy_helper

Array = npt.NDArray[Any]
MICROSOFT, OWN = "com.microsoft", "ai.halfbyte"


@dataclass(frozen=True)
class Step:
    """One node; missing inputs are ""."""

    operator: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Any] = field(default_factory=dict)
    domain: str = ""

    def node(self) -> onnx.NodeProto:
        """The node as a message of ONNX."""
        node = helper.make_node(self.operator, self.inputs, self.outputs, domain=self.domain)
        for name, value in self.attributes.items():
            kind = None
            if value == []:
                floats = name == "activation_params"
                kind = onnx.AttributeProto.FLOATS if floats else onnx.AttributeProto.INTS
            node.attribute.append(helper.make_attribute(name, value, attr_type=kind))
        return node


@dataclass(frozen=True)
class Case:
    """A small graph and its numbers.

    Attributes
    ----------
    arrays : mapping
        The operands that no step computes; `constants` are initializers, the others are inputs.
    rounding : float
        The error of rounding, relative to the largest operand: of 8-bit activations, F16 minima.
    """

    label: str
    steps: tuple[Step, ...]
    arrays: Mapping[str, Array]
    constants: frozenset[str]
    opset: int = 17
    rounding: float = 0.0

    @property
    def feeds(self) -> dict[str, Array]:
        """The inputs of the graph."""
        used = {name for step in self.steps for name in step.inputs}
        return {n: v for n, v in self.arrays.items() if n not in self.constants and n in used}

    @property
    def outputs(self) -> list[str]:
        """All results that no step reads."""
        read = {name for step in self.steps for name in step.inputs}
        return [n for step in self.steps for n in step.outputs if n and n not in read]

    def proto(self) -> onnx.ModelProto:
        """The model; inputs are declared with ranks, outputs without a type."""
        nodes = [step.node() for step in self.steps]
        inputs = [
            helper.make_tensor_value_info(
                name,
                helper.np_dtype_to_tensor_dtype(v.dtype),
                [f"{name}{i}" for i in range(v.ndim)],
            )
            for name, v in self.feeds.items()
        ]
        used = {name for step in self.steps for name in step.inputs}
        constants = [
            numpy_helper.from_array(self.arrays[n], n) for n in sorted(self.constants & used)
        ]
        outputs = [onnx.ValueInfoProto(name=name) for name in self.outputs]
        graph = helper.make_graph(nodes, "case", inputs, outputs, constants)
        opsets = [helper.make_opsetid("", self.opset), helper.make_opsetid(MICROSOFT, 1)]
        opsets += [helper.make_opsetid(OWN, 1)] * any(s.domain == OWN for s in self.steps)
        return helper.make_model(graph, opset_imports=opsets, ir_version=10)


class _Numbers:
    """Arrays of a case, seeded by its label."""

    def __init__(self, label: str) -> None:
        self.rng = np.random.default_rng(zlib.crc32(label.encode()))

    def f(self, *shape: int) -> Array:
        return self.rng.standard_normal(shape).astype(np.float32)

    def positive(self, *shape: int) -> Array:
        return self.rng.uniform(0.5, 2, shape).astype(np.float32)

    def scales(self, *shape: int) -> Array:
        """Numbers that are exact in F16, to which scales of blocks are rounded."""
        return (self.positive(*shape) / 8).astype(np.float16).astype(np.float32)

    def u8(self, *shape: int) -> Array:
        return self.rng.integers(0, 256, shape).astype(np.uint8)

    def i8(self, *shape: int) -> Array:
        """Seven bits: on some processors, ONNX Runtime truncates sums of larger ones."""
        return self.rng.integers(-64, 64, shape).astype(np.int8)

    def below(self, maximum: int, *shape: int, dtype: Any = np.int64) -> Array:
        return self.rng.integers(0, maximum, shape).astype(dtype)


N = _Numbers("cases")


def i64(*values: int) -> Array:
    """A vector of integers."""
    return np.array(values, np.int64)


def one(value: float, dtype: Any = np.float32) -> Array:
    """A scalar."""
    return np.array(value, dtype)


def case(
    operator: str, *inputs: Array | None, known: Sequence[int] = (), outputs: int = 1,
    opset: int = 17, domain: str = "", label: str = "", rounding: float = 0.0, **attributes: Any,
) -> Case:  # fmt: skip
    """A single node; inputs whose numbers are `known` are initializers."""
    names = tuple("" if v is None else f"x{i}" for i, v in enumerate(inputs))
    arrays = {n: v for n, v in zip(names, inputs, strict=True) if v is not None}
    step = Step(operator, names, tuple(f"y{i}" for i in range(outputs)), attributes, domain)
    title = f"{domain}.{operator}".lstrip(".") + f"-{opset}" + (f"-{label}" if label else "")
    return Case(title, (step,), arrays, frozenset(names[i] for i in known), opset, rounding)


def microsoft(operator: str, *inputs: Array | None, **options: Any) -> Case:
    """A node of ONNX Runtime's own operators."""
    return case(operator, *inputs, domain=MICROSOFT, **options)


def elementwise() -> Iterator[Case]:
    for name in ("Abs", "Neg", "Relu", "Sigmoid", "Tanh", "Erf", "Exp", "HardSwish", "Identity"):
        yield case(name, N.f(2, 3, 5))
    yield case("Sqrt", N.positive(3, 4))
    yield case("Reciprocal", N.positive(3, 4))
    yield case("LeakyRelu", N.f(3, 4), alpha=0.2)
    yield case("HardSigmoid", N.f(3, 4), alpha=0.3, beta=0.4)
    yield case("Gelu", N.f(3, 4), opset=20, approximate="tanh")
    yield case("Swish", N.f(3, 4), opset=24, alpha=1.0)
    for name in ("Add", "Sub", "Mul", "Div"):
        yield case(name, N.f(2, 3, 4), N.positive(3, 1), known=[1])
        yield case(name, N.f(2, 3, 1), N.positive(1, 4), label="both")
    yield case("Pow", N.positive(2, 3), one(2.0), known=[1])
    yield case("Pow", N.positive(2, 3), np.full(1, 0.5, np.float32), known=[1], label="root")
    yield case("Clip", N.f(2, 3), one(-0.5), one(0.5), known=[1, 2])
    yield case("Clip", N.f(2, 3), opset=9, min=-0.5, max=0.5)
    for name in ("Max", "Min"):
        yield case(name, N.f(2, 3, 4), one(0.25), known=[1], opset=13)
        yield case(name, N.f(2, 3, 4), N.f(3, 1), N.f(2, 3, 4), opset=13, label="three")
    yield case("Elu", N.f(2, 3), alpha=0.5)
    yield case("Softplus", N.f(2, 3))
    yield case("PRelu", N.f(2, 3, 4), N.f(3, 1), known=[1])
    yield case("Cast", N.below(9, 2, 3), to=1)
    yield case("Cast", N.u8(2, 3), to=1, label="bytes")
    yield case("Dropout", N.f(2, 3), one(0.5), one(False, np.bool_), known=[1, 2])
    yield microsoft("Gelu", N.f(2, 3))
    yield microsoft("BiasGelu", N.f(2, 3, 4), N.f(4), known=[1])
    yield microsoft("FastGelu", N.f(2, 3, 4), N.f(4), known=[1])
    yield microsoft("QuickGelu", N.f(2, 3), alpha=1.5)


def views() -> Iterator[Case]:
    x = N.f(2, 3, 4)
    yield case("Shape", x, start=1, end=-1)
    yield case("Size", x)
    yield case("Reshape", x, i64(0, -1, 2), known=[1], opset=14)
    yield case("Reshape", x, i64(4, 6), known=[1], opset=14, allowzero=1, label="zero")
    yield case("Flatten", x, axis=2)
    yield case("Squeeze", N.f(1, 3, 1), i64(0, -1), known=[1])
    yield case("Squeeze", N.f(1, 3, 1), label="all")
    yield case("Squeeze", N.f(1, 3, 1), opset=11, axes=[0, 2])
    yield case("Unsqueeze", x, i64(0, -1), known=[1])
    yield case("Unsqueeze", x, opset=11, axes=[0, 2])
    yield case("Transpose", x, perm=[2, 0, 1])
    yield case("Expand", N.f(3, 1), i64(2, 1, 4), known=[1])


def parts() -> Iterator[Case]:
    x = N.f(4, 5, 6)
    yield case("Slice", x, i64(1, -2), i64(4, -6), i64(0, 2), i64(2, -1), known=[1, 2, 3, 4])
    yield case("Slice", x, opset=9, starts=[1, 0], ends=[3, -1], axes=[0, -1])
    yield case("Split", x, opset=11, axis=1, split=[2, 3], outputs=2)
    yield case("Split", x, i64(1, 3), known=[1], opset=13, axis=0, outputs=2)
    yield case("Split", x, opset=18, axis=1, num_outputs=2, outputs=2)
    yield case("Concat", x, N.f(4, 2, 6), axis=1)
    yield case("Concat", x, N.f(4, 2, 6), axis=-2, known=[1], label="known")
    yield case("Gather", x, i64(1, 3), known=[1], axis=-1)
    yield case("Gather", N.f(7, 3), N.below(7, 2, 2), known=[0], label="table")
    yield microsoft(
        "GatherBlockQuantized", N.u8(5, 32), N.below(5, 3), N.scales(5, 2), known=[0, 2],
        bits=4, block_size=32, gather_axis=0, quantize_axis=1,
    )  # fmt: skip
    yield microsoft(
        "GatherBlockQuantized", N.u8(5, 64), N.below(5, 3), N.scales(5, 2), known=[0, 2],
        bits=8, block_size=32, gather_axis=0, quantize_axis=1, label="bytes",
    )  # fmt: skip


def pads() -> Iterator[Case]:
    """Axes that are continued."""
    x = N.f(3, 4, 5)
    yield case("Pad", x, i64(0, 1, 2, 1, 0, 3), known=[1], label="constant")
    for mode in ("DCR", "CRD"):
        yield case("DepthToSpace", N.f(2, 12, 3, 4), blocksize=2, mode=mode, label=mode)
    yield case("SpaceToDepth", N.f(2, 3, 4, 6), blocksize=2)
    yield case("Pad", x, i64(1, 2), one(0.5), i64(-1), known=[1, 2, 3], opset=18)
    yield case("Pad", x, opset=9, pads=[0, 0, 2, 1, 0, 0], value=1.5)
    for mode in ("edge", "reflect"):
        yield case("Pad", x, i64(0, 1, 4, 2, 0, 3), known=[1], mode=mode, label=mode)
    yield case("Pad", x, i64(3, 1, 0, 0, 4, 2), known=[1], mode="wrap", opset=19, label="wrap")
    yield case("Pad", N.below(9, 2, 5), i64(0, 4, 1, 2), known=[1], mode="reflect", label="ints")


def recurrent() -> Iterator[Case]:
    """Layers of few steps, whose sizes are no multiples of vectors."""
    for operator, gates, states in (("LSTM", 4, 2), ("GRU", 3, 1), ("RNN", 1, 1)):
        for direction, count, batch in (("reverse", 1, 1), ("bidirectional", 2, 3)):
            sizes = (count, gates * 5, 7), (count, gates * 5, 5), (count, 2 * gates * 5)
            weights = [N.f(*size) / 4 for size in sizes]
            lengths = np.full(batch, 2, np.int32)
            begin = [N.f(count, batch, 5) for _ in range(states)]
            yield case(
                operator, N.f(2, batch, 7), *weights, lengths, *begin, known=[1, 2, 3, 4],
                label=direction, direction=direction, hidden_size=5,
            )  # fmt: skip
        yield case(
            operator, N.f(4, 2, 3), N.f(1, gates * 6, 3), N.f(1, gates * 6, 6), known=[1, 2],
            label="clip", clip=0.5, hidden_size=6,
            **({"linear_before_reset": 1} if operator == "GRU" else {}),
        )  # fmt: skip


def reductions() -> Iterator[Case]:
    x = N.f(2, 3, 4)
    for name in ("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceL2",
                 "ReduceSumSquare"):  # fmt: skip
        yield case(name, x, i64(1, -1), known=[1], opset=18, keepdims=0, noop_with_empty_axes=1)
        yield case(name, x, opset=11, axes=[0, 1], keepdims=1)
    yield case("Softmax", x, opset=11, axis=1)
    yield case("Softmax", x, opset=13, axis=-1)


def norms() -> Iterator[Case]:
    x = N.f(2, 3, 4)
    yield case("LayerNormalization", x, N.f(4), N.f(4), known=[1, 2], axis=-1, epsilon=1e-3)
    yield case("LayerNormalization", x, N.f(3, 4), N.f(3, 4), known=[1, 2], axis=1, label="two")
    yield case("RMSNormalization", x, N.f(4), known=[1], opset=23, axis=-1, epsilon=1e-3)
    yield case("SimplifiedLayerNormalization", x, N.f(4), known=[1], axis=-1, epsilon=1e-3)
    yield microsoft("SimplifiedLayerNormalization", x, N.f(4), known=[1], axis=-1, epsilon=1e-3)
    skips = {"known": [2, 3, 4], "epsilon": 1e-3}
    yield microsoft("SkipLayerNormalization", x, N.f(2, 3, 4), N.f(4), N.f(4), N.f(4), **skips)
    skips["known"] = [2, 3]
    yield microsoft("SkipSimplifiedLayerNormalization", x, N.f(2, 3, 4), N.f(4), N.f(4), **skips)
    image, known = N.f(2, 3, 4, 2), [1, 2, 3, 4]
    yield case("InstanceNormalization", image, N.f(3), N.f(3), known=[1, 2], epsilon=1e-3)
    yield case("InstanceNormalization", N.f(2, 4, 9), N.f(4), N.f(4), label="line")
    wide = N.f(2, 6, 4, 2)
    yield case("GroupNormalization", wide, N.f(6), N.f(6), known=[1, 2], opset=21, num_groups=3)
    yield case("GroupNormalization", wide, N.f(2), N.f(2), known=[1, 2], opset=18, num_groups=2)
    vectors = N.f(3), N.f(3), N.f(3), N.positive(3)
    yield case("BatchNormalization", image, *vectors, known=known, opset=9, epsilon=1e-3)
    yield case("BatchNormalization", image, *vectors, known=known, opset=15, epsilon=1e-3)


def windows() -> Iterator[Case]:
    image, line = N.f(2, 4, 6, 5), N.f(1, 4, 9)
    window = {"pads": [1, 0, 1, 1], "strides": [2, 1], "dilations": [1, 2]}
    kernel = {**window, "kernel_shape": [3, 2]}
    known = [1, 2]
    yield case("Conv", image, N.f(6, 4, 3, 2), N.f(6), known=known, **kernel)
    yield case("Conv", image, N.f(6, 2, 3, 2), N.f(6), known=known, group=2, label="groups")
    yield case("Conv", image, N.f(4, 1, 3, 2), N.f(4), known=known, group=4, label="depthwise")
    yield case("Conv", image, N.f(12, 1, 3, 2), N.f(12), known=known, group=4, strides=[2, 1],
               label="multiplied")  # fmt: skip
    yield case("Conv", N.f(1, 1, 6, 61), N.f(2, 1, 1, 8), N.f(2), known=known, strides=[1, 2],
               pads=[0, 3, 0, 2], label="filter")  # fmt: skip
    yield microsoft(
        "FusedConv", image, N.f(3, 4, 3, 3), N.f(3), N.f(2, 3, 6, 5), known=known,
        pads=[1, 1, 1, 1], activation="Relu", label="few",
    )  # fmt: skip
    yield case("Conv", image, N.f(3, 4, 3, 3), N.f(3), known=known, dilations=[9, 3],
               pads=[9, 3, 9, 3], label="beyond")  # fmt: skip
    yield case("Conv", line, N.f(5, 4, 3), N.f(5), known=known, pads=[1, 2], label="line")
    volume = N.f(2, 4, 3, 5, 4)
    yield case("Conv", volume, N.f(3, 4, 2, 2, 3), N.f(3), known=known, label="volume",
               pads=[1, 0, 1, 0, 1, 1], strides=[2, 1, 2], dilations=[1, 2, 1])  # fmt: skip
    yield case("Conv", volume, N.f(6, 4, 1, 3, 2), N.f(6), known=known, label="planes")
    yield case("Conv", volume, N.f(6, 4, 2, 1, 1), N.f(6), known=known, label="lines")
    yield case("Conv", volume[:1], N.f(4, 1, 2, 2, 2), N.f(4), known=known, group=4,
               label="volume-groups")  # fmt: skip
    yield microsoft(
        "FusedConv", volume, N.f(6, 4, 2, 3, 3), N.f(6), N.f(2, 6, 2, 3, 2), known=known,
        activation="Relu", label="volume",
    )  # fmt: skip
    yield microsoft(
        "FusedConv", image, N.f(6, 4, 3, 2), N.f(6), N.f(2, 6, 3, 4), known=known,
        activation="Relu", **window,
    )  # fmt: skip
    yield microsoft(
        "FusedConv", image, N.f(4, 1, 1, 1), N.f(4), N.f(2, 4, 6, 5), known=known, group=4,
        activation="LeakyRelu", activation_params=[0.1], label="depthwise",
    )  # fmt: skip
    pool = {"pads": [1, 0, 1, 1], "strides": [2, 1], "kernel_shape": [3, 2]}
    yield case("MaxPool", image, opset=12, ceil_mode=1, **pool)
    yield case("MaxPool", line, opset=12, kernel_shape=[3], label="line")
    yield case("MaxPool", volume, opset=12, kernel_shape=[2, 3, 2], strides=[1, 2, 1],
               pads=[1, 0, 1, 0, 1, 0], label="volume")  # fmt: skip
    yield case("AveragePool", image, opset=19, count_include_pad=1, **pool)
    yield case("AveragePool", image, opset=19, ceil_mode=1, **pool, label="ceil")
    yield case("GlobalAveragePool", image)
    yield case("GlobalMaxPool", image)


def transposed_windows() -> Iterator[Case]:
    image, line, known = N.f(2, 4, 3, 5), N.f(1, 4, 6), [1, 2]
    transposed = {"known": known, "label": "2x2"}
    yield case("ConvTranspose", image, N.f(4, 3, 2, 2), N.f(3), strides=[2, 2], **transposed)
    yield case("ConvTranspose", image, N.f(4, 3, 4, 3), N.f(3), strides=[2, 3], pads=[1, 0, 1, 2],
               output_padding=[1, 0], known=known, label="cropped")  # fmt: skip
    yield case("ConvTranspose", image, N.f(4, 2, 3, 3), N.f(4), group=2, dilations=[2, 1],
               pads=[1, 1, 1, 1], known=known, label="groups")  # fmt: skip
    yield case("ConvTranspose", image, N.f(4, 1, 3, 3), N.f(4), group=4, strides=[2, 2],
               auto_pad="SAME_UPPER", known=known, label="depthwise")  # fmt: skip
    yield case("ConvTranspose", line, N.f(4, 2, 7), strides=[3], pads=[2, 1], known=[1],
               label="line")  # fmt: skip
    yield case("ConvTranspose", line, N.f(4, 2, 4), N.f(4), strides=[2], group=2, known=known,
               output_shape=[13], label="line-groups")  # fmt: skip


def resizes() -> Iterator[Case]:
    image, line, none = N.f(2, 3, 4, 5), N.f(1, 3, 6), np.zeros(0, np.float32)

    def scales(*values: float) -> Array:
        return np.array(values, np.float32)

    double = scales(1, 1, 2, 1.5)
    for mode in ("nearest", "linear", "cubic"):
        yield case("Resize", image, none, double, known=[1, 2], mode=mode, label=mode,
                   coordinate_transformation_mode="asymmetric", opset=13)  # fmt: skip
    yield case("Resize", image, none, none, i64(2, 3, 7, 3), known=[1, 2, 3], mode="linear",
               coordinate_transformation_mode="align_corners", opset=13, label="sizes")  # fmt: skip
    yield case("Resize", image, none, none, i64(2, 3), known=[1, 2, 3], mode="cubic", antialias=1,
               axes=[2, 3], opset=18, label="antialias")  # fmt: skip
    yield case("Resize", line, none, scales(1, 1, 2), known=[1, 2], mode="linear", opset=13,
               label="line")  # fmt: skip
    yield case("Resize", N.f(1, 2, 2, 3, 4), none, scales(1, 1, 2, 2, 3), known=[1, 2],
               mode="linear", opset=13, label="volume")  # fmt: skip
    yield case("Resize", N.u8(1, 3, 4, 4), none, scales(1, 1, 2, 2), known=[1, 2], opset=13,
               label="bytes")  # fmt: skip
    yield case("Resize", image, double, known=[1], mode="linear", opset=10)
    yield case("Upsample", image, double, known=[1], mode="nearest", opset=9)


def products() -> Iterator[Case]:
    x = N.f(2, 3, 4)
    yield case("MatMul", x, N.f(4, 5), known=[1])
    yield case("MatMul", x, N.f(2, 4, 5), label="stack")
    yield case("Einsum", N.f(2, 3, 4, 5), N.f(3, 6, 5), known=[1], equation="bhwc,hkc->bhwk")
    yield case("Einsum", N.f(2, 3, 4), N.f(2, 4, 5), equation="bij,bjk->kbi", label="transposed")
    yield case("Gemm", N.f(3, 4), N.f(4, 5), N.f(5), known=[1, 2], alpha=0.5, beta=2.0)
    yield case("Gemm", N.f(4, 3), N.f(5, 4), N.f(5), known=[1, 2], transA=1, transB=1, label="turn")
    yield case("Gemm", N.f(3, 4), N.f(4, 5), N.f(3, 5), known=[1], label="residual")
    yield case("Linear", x, N.f(4, 5), N.f(5), known=[1, 2], domain=OWN, activation="Relu")
    blocks = {"K": 64, "N": 5, "block_size": 32}
    integers, scales = N.u8(5, 2, 16), N.scales(5, 2)
    yield microsoft("MatMulNBits", N.f(3, 64), integers, scales, known=[1, 2], bits=4, **blocks)
    yield microsoft(
        "MatMulNBits", N.f(3, 64), integers, scales, N.u8(5, 1), None, N.f(5), known=[1, 2, 3, 5],
        bits=4, **blocks, label="zeros", rounding=1 / 2048,
    )  # fmt: skip
    yield microsoft(
        "MatMulNBits", N.f(3, 40), integers, scales, known=[1, 2], bits=4, K=40, N=5,
        block_size=32, label="ragged", rounding=1 / 2048,
    )  # fmt: skip
    yield microsoft(
        "MatMulNBits", N.f(3, 64), N.u8(5, 2, 32), scales / 16, known=[1, 2], bits=8,
        accuracy_level=4, **blocks, label="bytes", rounding=1 / 64,
    )  # fmt: skip
    yield microsoft(
        "MatMulNBits", N.f(3, 64), N.u8(32, 2, 16), N.scales(32, 2), None, None, N.f(32),
        known=[1, 2, 5], bits=4, accuracy_level=4, K=64, N=32, block_size=32, label="packed",
        rounding=1 / 64,
    )  # fmt: skip


def attention() -> Iterator[Case]:
    q, k = N.f(2, 3, 8), N.f(2, 5, 8)
    heads = {"q_num_heads": 2, "kv_num_heads": 2}
    yield case("Attention", q, k, N.f(2, 5, 8), N.f(3, 5), opset=23, **heads)
    yield case("Attention", N.f(2, 2, 3, 4), N.f(2, 1, 5, 4), N.f(2, 1, 5, 6), opset=23,
               is_causal=1, label="heads")  # fmt: skip
    mask = np.ones((2, 5), np.int32)
    mask[1, 3:] = 0
    yield microsoft(
        "MultiHeadAttention", q, k, N.f(2, 5, 8), N.f(24), mask, N.f(2, 2, 3, 5), known=[3],
        num_heads=2,
    )  # fmt: skip
    yield microsoft("MultiHeadAttention", N.f(2, 3, 2, 3, 4), num_heads=2, label="one")
    yield microsoft(
        "Attention", q, N.f(8, 24), N.f(24), np.array([[1, 1, 1], [1, 1, 0]], np.int32),
        known=[1, 2], num_heads=2,
    )  # fmt: skip


def quantized() -> Iterator[Case]:
    scale, zero = one(0.05), one(120, np.uint8)
    vector, zeros = N.positive(3) / 8, N.u8(3)
    x, image = N.f(2, 3, 4), N.u8(1, 3, 5, 4)
    for build, opset in ((case, 13), (case, 21), (microsoft, 17)):
        yield build("QuantizeLinear", x, scale, zero, known=[1, 2], opset=opset)
        yield build(
            "QuantizeLinear", x, vector, zeros, known=[1, 2], opset=opset, axis=1, label="c"
        )
        yield build("DequantizeLinear", image, scale, zero, known=[1, 2], opset=opset)
    yield case("DynamicQuantizeLinear", x, outputs=3)
    all_known = [1, 2, 3, 4, 5, 6, 7, 8]
    scales, signed = N.positive(4) / 100, one(0, np.int8)
    bias = N.below(200, 4, dtype=np.int32)
    for build in (case, microsoft):
        yield build(
            "QLinearConv", image, scale, zero, N.i8(4, 3, 3, 2), scales, signed, one(0.3), zero,
            bias, known=all_known, pads=[1, 0, 1, 0], strides=[1, 2],
        )  # fmt: skip
        yield build(
            "QLinearConv", image, scale, zero, N.i8(3, 1, 3, 2), scales[:1], signed, one(0.3), zero,
            bias[:3], known=all_known, group=3, label="depthwise",
        )  # fmt: skip
    rows = N.u8(2, 3, 8)
    yield case(
        "QLinearMatMul", rows, scale, zero, N.i8(8, 4), one(0.02), signed, one(0.3), zero,
        known=all_known[:7],
    )  # fmt: skip
    yield case(
        "QLinearMatMul", rows, scale, zero, N.u8(2, 8, 4), one(0.02), zero, one(0.3), zero,
        known=[1, 2, 4, 5, 6, 7], label="stack",
    )  # fmt: skip
    yield case(
        "QLinearMatMul", N.u8(2, 300), scale, zero, N.i8(300, 3), one(0.02), one(3, np.int8),
        one(9.0), zero, known=[1, 2, 3, 4, 5, 6, 7], label="long",
    )  # fmt: skip
    yield microsoft(
        "QGemm", rows[0], scale, zero, N.i8(8, 4), scales, np.zeros(4, np.int8), bias, one(0.3),
        zero, known=all_known, alpha=1.0, transB=0,
    )  # fmt: skip
    known = {"known": [1, 2, 4, 5, 6, 7]}
    for name in ("QLinearAdd", "QLinearMul"):
        other = N.u8(1, 3, 5, 4)
        yield microsoft(name, image, scale, zero, other, scale, zero, scale, zero, **known)
        known["known"] = [1, 2, 3, 4, 5, 6, 7]
        yield microsoft(name, image, scale, zero, N.u8(4), scale, zero, scale, zero, label="known",
                        **known)  # fmt: skip
        known["known"] = [1, 2, 4, 5, 6, 7]
    single = {"known": [1, 2, 3, 4]}
    yield microsoft("QLinearSigmoid", image, scale, zero, one(0.004), one(0, np.uint8), **single)
    yield microsoft("QLinearLeakyRelu", image, scale, zero, scale, zero, alpha=0.2, **single)
    yield microsoft("QLinearGlobalAveragePool", image, scale, zero, scale, zero, **single)
    yield microsoft("QLinearAveragePool", image, scale, zero, scale, zero, kernel_shape=[2, 2],
                    strides=[2, 1], pads=[1, 0, 0, 1], **single)  # fmt: skip
    yield microsoft(
        "DynamicQuantizeMatMul", N.f(2, 3, 8), N.i8(8, 4), scales, np.zeros(4, np.int8), N.f(4),
        known=[1, 2, 3, 4],
    )  # fmt: skip
    yield microsoft(
        "MatMulIntegerToFloat", rows, N.i8(8, 4), scale, scales, zero, np.zeros(4, np.int8), N.f(4),
        known=[1, 2, 3, 4, 5, 6],
    )  # fmt: skip


def logarithms() -> Iterator[Case]:
    yield case("Log", N.positive(3, 4))


def quantized_attention() -> Iterator[Case]:
    zero = one(120, np.uint8)
    yield microsoft(
        "QAttention", N.u8(2, 3, 8), N.i8(8, 24), N.f(24), one(0.01), one(0.005),
        np.array([[1, 1, 1], [1, 1, 0]], np.int32), zero, one(0, np.int8),
        known=[1, 2, 3, 4, 6, 7], num_heads=2,
    )  # fmt: skip


class _Chain:
    """A chain of steps: a pattern that is fused."""

    def __init__(self, label: str, opset: int = 17) -> None:
        self._case = Case(label, (), {}, frozenset(), opset)

    def x(self, values: Array, *, known: bool = False) -> str:
        name = f"x{len(self._case.arrays)}"
        arrays = {**self._case.arrays, name: values}
        constants = self._case.constants | ({name} if known else set())
        self._case = replace(self._case, arrays=arrays, constants=constants)
        return name

    def w(self, values: Array) -> str:
        return self.x(values, known=True)

    def do(self, operator: str, *inputs: str, domain: str = "", **attributes: Any) -> str:
        name = f"{operator}{len(self._case.steps)}"
        step = Step(operator, inputs, (name,), attributes, domain)
        self._case = replace(self._case, steps=(*self._case.steps, step))
        return name

    def case(self) -> Case:
        return self._case


def patterns() -> Iterator[Case]:
    """Several nodes that are fused into one."""
    g = _Chain("fused-linear")
    y = g.do("Add", g.do("MatMul", g.x(N.f(2, 3, 4)), g.w(N.f(4, 5))), g.w(N.f(5)))
    g.do("Relu", y)
    yield g.case()
    g = _Chain("fused-convolution", 14)
    y = g.do("Conv", g.x(N.f(1, 4, 5, 5)), g.w(N.f(6, 4, 3, 3)), g.w(N.f(6)))
    y = g.do("BatchNormalization", y, *(g.w(N.f(6)) for _ in range(3)), g.w(N.positive(6)))
    g.do("Relu", g.do("Add", y, g.x(N.f(1, 6, 3, 3))))
    yield g.case()
    yield from fused_norms()
    for label, shape in (("fused-gelu", ()), ("fused-gelu-vectors", (1,))):
        g = _Chain(label)
        x = g.x(N.f(2, 3, 8))
        root, one_, half = (g.w(np.full(shape, v, np.float32)) for v in (2**0.5, 1.0, 0.5))
        erf = g.do("Erf", g.do("Div", x, root))
        g.do("Mul", g.do("Mul", x, g.do("Add", erf, one_)), half)
        yield g.case()
    g = _Chain("fused-attention")
    q, k, v = (g.x(N.f(2, 2, n, 4)) for n in (3, 5, 5))
    scores = g.do("MatMul", q, g.do("Transpose", k, perm=[0, 1, 3, 2]))
    scores = g.do("Add", g.do("Div", scores, g.w(one(2.0))), g.x(N.f(2, 1, 1, 5)))
    g.do("MatMul", g.do("Softmax", scores, axis=-1), v)
    yield g.case()
    g = _Chain("fused-attention-torch")  # as TorchDynamo exports it
    q, k, v = (g.x(N.f(2, 2, n, 4)) for n in (3, 5, 5))
    root = g.w(one(0.7))
    transposed = g.do("Transpose", g.do("Reshape", k, g.w(i64(-1, 5, 4))), perm=[0, 2, 1])
    transposed = g.do("Mul", g.do("Reshape", transposed, g.w(i64(2, 2, 4, 5))), root)
    scores = g.do("Add", g.do("MatMul", g.do("Mul", q, root), transposed), g.x(N.f(2, 1, 1, 5)))
    weights = g.do("Softmax", scores, axis=-1)
    weights = g.do("Where", g.do("IsNaN", weights), g.w(one(0.0)), weights)
    g.do("MatMul", weights, v)
    yield g.case()
    for opset in (11, 17):
        g = _Chain(f"fused-attention-axis-{opset}", opset)
        q, k, v = (g.x(N.f(2, 2, n, 4)) for n in (3, 5, 5))
        scores = g.do("MatMul", q, g.do("Transpose", k, perm=[0, 1, 3, 2]))
        seen = g.x(np.arange(10).reshape(2, 1, 1, 5) % 3 > 0)
        scores = g.do("Where", seen, scores, g.w(one(-1e9)))
        g.do("MatMul", g.do("Softmax", scores, axis=3), v)
        yield g.case()
    g = _Chain("fused-qdq")
    scale, zero = g.w(one(0.05)), g.w(one(120, np.uint8))
    x = g.do("DequantizeLinear", g.do("QuantizeLinear", g.x(N.f(1, 4, 5, 5)), scale, zero), scale,
             zero)  # fmt: skip
    w = g.do("DequantizeLinear", g.w(N.i8(6, 4, 3, 3)), g.w(N.positive(6) / 50),
             g.w(np.zeros(6, np.int8)), axis=0)  # fmt: skip
    b = g.do("DequantizeLinear", g.w(N.below(99, 6, dtype=np.int32)), g.w(N.positive(6) / 1000),
             g.w(np.zeros(6, np.int32)), axis=0)  # fmt: skip
    g.do("QuantizeLinear", g.do("Conv", x, w, b), g.w(one(0.2)), zero)
    yield g.case()
    g = _Chain("fused-qdq-sigmoid")
    scale, zero = g.w(one(0.05)), g.w(one(120, np.uint8))
    x = g.do("DequantizeLinear", g.do("QuantizeLinear", g.x(N.f(2, 3, 4)), scale, zero), scale,
             zero)  # fmt: skip
    g.do("QuantizeLinear", g.do("Sigmoid", x), g.w(one(0.004)), g.w(one(0, np.uint8)))
    yield g.case()
    g = _Chain("fused-dynamic")
    x = g.x(N.f(3, 8))
    g._case = replace(
        g._case,
        steps=(Step("DynamicQuantizeLinear", (x,), ("q", "scale", "zero")),),
    )
    y = g.do("MatMulInteger", "q", g.w(N.i8(8, 4)), "zero", g.w(one(0, np.int8)))
    y = g.do("Mul", g.do("Cast", y, to=1), g.do("Mul", "scale", g.w(N.positive(4) / 50)))
    g.do("Add", y, g.w(N.f(4)))
    yield g.case()


def channels_last() -> Iterator[Case]:
    """What follows a convolution, whose result has its channels last."""
    shape = (2, 6, 3, 4)

    def pixels(g: _Chain) -> str:
        return g.do("Conv", g.x(N.f(2, 3, 3, 4)), g.w(N.f(6, 3, 1, 1)))

    for label, operator, numbers, attributes in (
        ("Softmax", "Softmax", (), {"axis": 1}),
        ("Softmax-rows", "Softmax", (), {"axis": 2}),
        ("mean", "ReduceMean", (), {"axes": [2, 3]}),
        ("sum-channels", "ReduceSum", (i64(1),), {"keepdims": 0}),
        ("Slice", "Slice", (i64(1, 3), i64(5, -5), i64(1, 3), i64(2, -1)), {}),
        ("Pad", "Pad", (i64(0, 0, 1, 1, 0, 1, 0, 2),), {"mode": "reflect"}),
        ("gather", "Gather", (np.array(2),), {"axis": 1}),
        ("transposed", "Transpose", (), {"perm": [0, 2, 3, 1]}),
        ("merged", "Reshape", (i64(2, 6, 12),), {}),
        ("split", "Reshape", (i64(2, 2, 3, 12),), {}),
        ("mixed", "Reshape", (i64(2, 18, 4),), {}),
        ("flat", "Flatten", (), {"axis": 1}),
        ("squeezed", "Unsqueeze", (i64(0, 3),), {}),
        ("elu", "Elu", (), {}),
        ("norm", "InstanceNormalization", (N.f(6), N.f(6)), {}),
        ("blocks", "SpaceToDepth", (), {"blocksize": 1}),
    ):
        g = _Chain(f"last-{label}")
        y = g.do(operator, pixels(g), *(g.w(v) for v in numbers), **attributes)
        g.do("Relu", y)
        yield g.case()
    g = _Chain("last-Concat")
    x, y = pixels(g), pixels(g)
    g.do("Concat", x, g.x(N.f(2, 1, 3, 4)), y, g.w(N.f(2, 2, 3, 4)), axis=1)
    yield g.case()
    g = _Chain("last-Max")
    g.do("Max", pixels(g), pixels(g), g.x(N.f(1, 4)))
    yield g.case()
    g = _Chain("last-tokens")  # to rows of channels and back
    y = g.do("Reshape", pixels(g), g.w(i64(2, 6, -1)))
    y = g.do("MatMul", g.do("Transpose", y, perm=[0, 2, 1]), g.w(N.f(6, 6)))
    y = g.do("Reshape", g.do("Transpose", y, perm=[0, 2, 1]), g.w(i64(*shape)))
    g.do("Conv", y, g.w(N.f(4, 6, 3, 3)), pads=[1, 1, 1, 1])
    yield g.case()
    g = _Chain("last-gelu")
    x = pixels(g)
    root, one_, half = (g.w(one(v)) for v in (2**0.5, 1.0, 0.5))
    erf = g.do("Erf", g.do("Div", x, root))
    g.do("Mul", g.do("Mul", x, g.do("Add", erf, one_)), half)
    yield g.case()


def _spelled_norm(g: _Chain, x: str, size: int = 8, centred: bool = True) -> str:
    """x / sqrt(mean(x^2) + epsilon) scale; of x - mean(x), with a bias, if `centred`."""
    y = g.do("Sub", x, g.do("ReduceMean", x, axes=[-1])) if centred else x
    square = g.do("Pow", y, g.w(one(2.0))) if size > 1 else g.do("Mul", y, y)
    squares = g.do("ReduceMean", square, axes=[-1])
    y = g.do("Div", y, g.do("Sqrt", g.do("Add", squares, g.w(one(1e-3)))))
    y = g.do("Mul", y, g.w(N.f(size)))
    return g.do("Add", y, g.w(N.f(size))) if centred else y


def fused_norms() -> Iterator[Case]:
    """Normalizations that are spelled out, and of sums."""
    for label, size, centred in (
        ("fused-norm", 8, True), ("fused-norm-by-one", 1, True), ("fused-rms", 8, False),
    ):  # fmt: skip
        g = _Chain(label)
        _spelled_norm(g, g.x(N.f(2, 3, 8)), size, centred)
        yield g.case()
    g = _Chain("fused-norm-folded")  # x f + (bias - mean f)
    x = g.x(N.f(2, 3, 8))
    mean = g.do("ReduceMean", x, axes=[-1])
    centred = g.do("Sub", x, mean)
    variance = g.do("ReduceMean", g.do("Mul", centred, centred), axes=[-1])
    root = g.do("Sqrt", g.do("Add", variance, g.w(one(1e-3))))
    factor = g.do("Mul", g.do("Reciprocal", root), g.w(N.f(8)))
    rest = g.do("Sub", g.w(N.f(8)), g.do("Mul", mean, factor))
    g.do("Add", g.do("Mul", x, factor), rest)
    yield g.case()
    for size in (8, 1):
        g = _Chain(f"fused-skip-{size}")
        total = g.do("Add", g.x(N.f(2, 3, 8)), g.x(N.f(2, 3, 8)))
        g.do("Add", total, _spelled_norm(g, total, size))
        yield g.case()
        g = _Chain(f"fused-skip-onnx-{size}")
        total = g.do("Add", g.x(N.f(2, 3, 8)), g.x(N.f(2, 3, 8)))
        g.do("LayerNormalization", total, g.w(N.f(size)), g.w(N.f(size)), epsilon=1e-3)
        yield g.case()


def whole_numbers() -> Iterator[Case]:
    """Rounding to 16-bit integers and back."""
    yield case("QuantizeDequantize", N.f(3, 4), one(0.01), known=[1], domain=OWN, low=-9, high=90)
    g = _Chain("fused-16-bits", 21)
    names = g.w(one(0.001)), g.w(one(30000, np.uint16))
    g.do("DequantizeLinear", g.do("QuantizeLinear", g.x(N.f(2, 3, 8)), *names), *names)
    yield g.case()


def thin_windows() -> Iterator[Case]:
    """Images of one column or pixel, and transposed convolutions of few."""
    column, known = N.f(2, 4, 9, 1), [1, 2]
    step = {"pads": [1, 0, 2, 0], "strides": [2, 1]}
    yield case("Conv", column, N.f(6, 4, 3, 1), N.f(6), known=known, label="column", **step)
    yield case("Conv", column, N.f(6, 2, 3, 1), known=[1], group=2, label="column-groups", **step)
    yield microsoft(
        "FusedConv", column, N.f(6, 4, 3, 1), N.f(6), N.f(2, 6, 5, 1), known=known,
        activation="Relu", label="column", **step,
    )  # fmt: skip
    yield case("ConvTranspose", N.f(2, 4, 1, 1), N.f(4, 3, 4, 3), N.f(3), strides=[2, 1],
               pads=[1, 0, 0, 1], known=known, label="pixel")  # fmt: skip
    yield case("ConvTranspose", N.f(1, 4, 1), N.f(4, 2, 3), known=[1], pads=[1, 0],
               label="line-pixel")  # fmt: skip
    yield case("ConvTranspose", N.f(2, 4, 2, 3), N.f(4, 3, 5, 4), N.f(3), strides=[3, 2],
               pads=[1, 1, 1, 1], known=known, label="phases")  # fmt: skip
    yield case("ConvTranspose", N.f(1, 4, 2), N.f(4, 2, 4), strides=[2], pads=[1, 1], known=[1],
               label="line-phases")  # fmt: skip


def chosen_rows() -> Iterator[Case]:
    yield case("Gather", N.f(5, 3), i64(4, 0, -1, 0), known=[1], label="rows")
    yield case("Gather", N.f(1, 5, 2, 3), i64(1, 3, 2), known=[1], axis=1, label="inner-rows")


def signals_and_places() -> Iterator[Case]:
    """STFT by a product, elements at constant places, pads that crop, reductions of any axes."""
    window = np.hanning(9).astype(np.float32)
    yield case("STFT", N.f(2, 40, 1), one(3, np.int64), window, known=[1, 2], label="onesided")
    yield case("STFT", N.f(1, 40), one(4, np.int64), None, one(8, np.int64), known=[1, 3],
               onesided=0, label="both-sides")  # fmt: skip
    near = np.arange(4)[:, None] - np.arange(4) + 3
    yield case("GatherElements", N.f(4, 9), near, known=[1], axis=1, label="relative")
    yield case("GatherElements", N.f(4, 9), near % 5 - 2, known=[1], axis=1, label="any-places")
    yield case("Pad", N.f(2, 3, 9), i64(0, 1, 1, 0, 0, -2), known=[1], mode="edge", label="shift")
    yield case("Pad", N.f(2, 3, 9), i64(0, -1, -1, 0, 2, -2), known=[1], label="crop")
    yield case("ReduceMean", N.f(2, 3, 4, 5), axes=[1, 3], opset=13, label="apart")
    yield case("ReduceMax", N.f(2, 3, 4, 5), axes=[0, 2], keepdims=0, opset=13, label="apart")
    yield case("Mul", np.arange(6).reshape(2, 3), i64(0), known=[1], label="zeros")
    truth = np.arange(24).reshape(2, 3, 4) % 3 > 0
    yield case("Where", truth, N.f(1, 3, 4), N.f(4), label="both")
    yield case("Where", truth, one(-np.inf), N.f(2, 3, 1), known=[1], label="constant")


def kept_and_large() -> Iterator[Case]:
    """Slices at constant places, a resize that changes nothing, a large window."""
    places = np.array([[[0, -1], [3, 2]], [[-4, 0], [1, 1]]])
    yield case("GatherND", N.f(4, 5, 3), places, known=[1], opset=13, label="slices")
    yield case("GatherND", N.f(4, 5), places, known=[1], opset=13, label="elements")
    yield case("MaxPool", N.f(2, 3, 5, 6), opset=12, kernel_shape=[4, 5], pads=[2, 1, 1, 3],
               strides=[1, 2], label="large")  # fmt: skip
    none, scales = np.zeros(0, np.float32), np.array([1, 1, 1.1, 1], np.float32)
    yield case("Resize", N.f(2, 3, 5, 6), none, scales, known=[1, 2], mode="nearest",
               nearest_mode="floor", opset=13, label="kept")  # fmt: skip


def samples() -> Iterator[Case]:
    """GridSample of images and of a volume."""
    image, grid = N.f(2, 3, 5, 6), 0.7 * N.f(2, 4, 3, 2)
    for mode in ("bilinear", "nearest", "bicubic"):
        for padding in ("zeros", "border", "reflection"):
            for corners in (0, 1):
                yield case("GridSample", image, grid, mode=mode, padding_mode=padding, opset=16,
                           align_corners=corners, label=f"{mode}-{padding}-{corners}")  # fmt: skip
    yield case("GridSample", image, grid, known=[1], mode="cubic", opset=22, label="known")
    yield case("GridSample", N.f(1, 2, 3, 4, 5), 0.7 * N.f(1, 2, 3, 2, 3), mode="linear", opset=20,
               padding_mode="reflection", label="volume")  # fmt: skip
    yield microsoft("GridSample", image, grid, known=[1], mode="bicubic", label="contrib")


def layers_in_bytes() -> Iterator[Case]:
    """An LSTM with weights in bytes, of seven bits: pairs of products do not saturate."""
    weights = [(N.below(127, 2, size, 20) - 63).astype(np.int8) for size in (3, 5)]
    scale, zero = np.full(2, 0.01, np.float32), np.zeros(2, np.int8)
    yield microsoft(
        "DynamicQuantizeLSTM", N.f(4, 2, 3), *weights, None, None, None, None, None, scale, zero,
        scale, zero, known=[1, 2, 8, 9, 10, 11], direction="bidirectional", hidden_size=5,
    )  # fmt: skip


def all_cases() -> list[Case]:
    """The cases of all families."""
    families = (
        elementwise, views, parts, pads, recurrent, reductions, norms, windows, products, attention,
        quantized, patterns, transposed_windows, resizes, channels_last,
        logarithms, quantized_attention, whole_numbers, thin_windows,
        chosen_rows, signals_and_places, kept_and_large, samples, layers_in_bytes,
    )  # fmt: skip
    return [one_case for family in families for one_case in family()]
