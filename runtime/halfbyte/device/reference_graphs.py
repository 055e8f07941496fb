"""Reference graphs to be measured: operators of each kind that kernels run, with usual shapes."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from halfbyte.onnx.files.dtypes import NUMBERS
from halfbyte.onnx.files.model import Graph, Model, Node, TypeInfo, ValueInfo

Array = npt.NDArray[Any]
_MICROSOFT = "com.microsoft"
_OPSETS = {"": 23, _MICROSOFT: 1}
_PADS = [1, 1, 1, 1]  # of windows of three by three
_TOKENS, _WIDTH, _HIDDEN, _HEADS = 128, 384, 1536, 12


@dataclass
class GraphBuilder:
    """Builds a graph, with values for its inputs."""

    nodes: list[Node] = field(default_factory=list)
    initializers: dict[str, Any] = field(default_factory=dict)
    feeds: dict[str, Array] = field(default_factory=dict)

    def node(self, operator: str, *inputs: str | Array, domain: str = "", **attributes: Any) -> str:
        """Add a node; arrays become initializers. Returns the name of its output."""
        name = f"{operator} {len(self.nodes)}"
        names = tuple(v if isinstance(v, str) else self._initializer(v) for v in inputs)
        self.nodes.append(Node(operator, names, (name,), attributes, domain))
        return name

    def input(self, *shape: int, dtype: npt.DTypeLike = np.float32) -> str:
        """Add an input: floats between 0 and 1, or integers that are all 3."""
        name, kind = f"x{len(self.feeds)}", np.dtype(dtype)
        self.feeds[name] = _numbers(shape) if kind == np.float32 else np.full(shape, 3, kind)
        return name

    def model(self) -> Model:
        """The model, whose outputs are the values that no node reads."""
        read = {name for node in self.nodes for name in node.inputs}
        outputs = [ValueInfo(n.outputs[0]) for n in self.nodes if n.outputs[0] not in read]
        inputs = [
            ValueInfo(name, TypeInfo(dtype=NUMBERS[v.dtype], shape=v.shape))
            for name, v in self.feeds.items()
        ]
        graph = Graph("reference", self.nodes, self.initializers, inputs, outputs)
        return Model(Path("reference.onnx"), graph, dict(_OPSETS))

    def _initializer(self, value: Array) -> str:
        name = f"w{len(self.initializers)}"
        self.initializers[name] = value
        return name


def _numbers(shape: tuple[int, ...]) -> Array:
    """A thousand different numbers, repeated: more would take a while."""
    return np.resize(np.linspace(0.001, 0.999, 1009, dtype=np.float32), shape)


def _integers(*shape: int) -> Array:
    return np.resize(np.arange(-100, 101, dtype=np.int8), shape)


def many_rows_graph() -> GraphBuilder:
    """All kinds of kernels on many tokens and on pictures."""
    builder = GraphBuilder()
    _add_encoder(builder)
    _add_integer_products(builder)
    _add_pictures(builder)
    _add_quantized_pictures(builder)
    return builder


def one_row_graph(size: int) -> GraphBuilder:
    """Products of one row with square matrices."""
    builder = GraphBuilder()
    x = builder.input(1, size)
    builder.node("MatMul", x, _numbers((size, size)))
    builder.node(
        "DynamicQuantizeMatMul", x, _integers(size, size), _numbers((1,)), domain=_MICROSOFT
    )  # fmt: skip
    return builder


def _add_encoder(builder: GraphBuilder) -> None:
    """A layer of an encoder, and other operators that encoders use."""
    node, x = builder.node, builder.input(1, _TOKENS, _WIDTH)
    bias = _numbers((_WIDTH,))
    q, k, v = (_linear(builder, x, _WIDTH, _WIDTH) for _ in range(3))
    mixed = node("Attention", q, k, v, q_num_heads=_HEADS, kv_num_heads=_HEADS)
    normed = node(
        "LayerNormalization", node("Add", x, _linear(builder, mixed, _WIDTH, _WIDTH)), bias, bias
    )  # fmt: skip
    hidden = node("Gelu", _linear(builder, normed, _WIDTH, _HIDDEN))
    node("Add", normed, _linear(builder, hidden, _HIDDEN, _WIDTH))
    heads = node("Reshape", x, np.array([1, _TOKENS, _HEADS, -1]))
    q, k = (node("Transpose", heads, perm=perm) for perm in ([0, 2, 1, 3], [0, 2, 3, 1]))
    node("Softmax", node("MatMul", q, k), axis=-1)
    node("Transpose", heads, perm=[0, 2, 1, 3])
    node("Mul", node("Sigmoid", x), builder.input(1, _TOKENS, _WIDTH))
    node("Gelu", x)
    node("ReduceMean", x, np.array([1]), keepdims=1)
    node("Concat", x, normed, axis=2)
    node("Where", node("Greater", x, bias), x, bias)  # by NumPy
    node("CumSum", x, np.array(1))


def _linear(builder: GraphBuilder, x: str, k: int, m: int) -> str:
    return builder.node("Add", builder.node("MatMul", x, _numbers((k, m))), _numbers((m,)))


def _add_integer_products(builder: GraphBuilder) -> None:
    """Integer products, after operators whose output is quantized for them."""
    node, x, bias = builder.node, builder.input(1, _TOKENS, _WIDTH), _numbers((_WIDTH,))
    normalized = node("LayerNormalization", x, bias, bias)
    gelu = node("Gelu", _matmul_blocks(builder, normalized, _WIDTH))
    for source, k in ((normalized, _WIDTH), (gelu, _WIDTH)):
        _matmul_blocks(builder, source, k)
    node(
        "DynamicQuantizeMatMul", x, _integers(_WIDTH, _HIDDEN), _numbers((1,)), domain=_MICROSOFT
    )  # fmt: skip


def _matmul_blocks(builder: GraphBuilder, x: str, k: int) -> str:
    quantized = np.full((_WIDTH, k // 32, 32), 100, np.uint8)
    return builder.node(
        "MatMulNBits", x, quantized, _numbers((_WIDTH, k // 32)),
        domain=_MICROSOFT, K=k, N=_WIDTH, bits=8, block_size=32, accuracy_level=4,
    )  # fmt: skip


def _add_pictures(builder: GraphBuilder) -> None:
    """Convolutions of early and late layers, and pools."""
    node, early = builder.node, builder.input(1, 64, 56, 56)
    middle, late = builder.input(1, 192, 28, 28), builder.input(1, 256, 14, 14)
    picture = builder.input(1, 3, 224, 224)
    results = [
        node("Conv", picture, _numbers((64, 3, 7, 7)), strides=[2, 2], pads=[3, 3, 3, 3]),
        node("MaxPool", early, kernel_shape=[3, 3], strides=[2, 2], pads=_PADS),
        node("AveragePool", early, kernel_shape=[2, 2], strides=[2, 2]),
    ]
    for x, c in ((early, 64), (middle, 192), (late, 256)):
        wide = node("Relu", node("Conv", x, _numbers((2 * c, c, 1, 1))))
        results += [
            node("Relu", node("Conv", x, _numbers((c, c, 3, 3)), pads=_PADS)),
            node("Relu", node("Conv", wide, _numbers((2 * c, 1, 3, 3)), group=2 * c, pads=_PADS)),
        ]
    for result in results:
        node("GlobalAveragePool", result)


def _add_quantized_pictures(builder: GraphBuilder) -> None:
    """Quantized convolutions, an addition and a pool."""
    node, zero = builder.node, np.array(3, np.uint8)
    scale = np.array(0.5, np.float32)
    x = node("QuantizeLinear", builder.input(1, 64, 56, 56), scale, zero)
    last = x
    for m, k, size, group in (
        (32, 64, 1, 1), (192, 32, 1, 1), (192, 1, 3, 192), (64, 192, 1, 1), (64, 64, 3, 1),
    ):  # fmt: skip
        last = node(
            "QLinearConv", last, scale, zero, _integers(m, k, size, size), scale,
            np.array(0, np.int8), scale, zero, pads=[size // 2] * 4, group=group,
        )  # fmt: skip
    added = node(
        "QLinearAdd", x, scale, zero, last, scale, zero, scale, zero, domain=_MICROSOFT
    )  # fmt: skip
    node("GlobalAveragePool", node("DequantizeLinear", added, scale, zero))
