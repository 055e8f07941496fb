"""Random graphs of operators of all kinds.

Each node is computed when it is added, so that the next ones can fit its results; a node that its
definition refuses is not added.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from halfbyte.errors import HalfbyteError
from halfbyte.onnx.evaluate import Evaluator
from halfbyte.onnx.files.model import Graph, Model, Node, TypeInfo, ValueInfo

Array = npt.NDArray[Any]
MAX_ELEMENTS = 4000  # elements of a value
SIZE = 18  # nodes
FUNCTIONS = ("Relu", "Sigmoid", "Tanh", "Erf", "Neg", "Abs", "LeakyRelu", "HardSigmoid",
             "HardSwish", "Gelu", "Softplus", "Sin", "Floor", "Clip", "Identity")  # fmt: skip
REDUCTIONS = ("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceL2", "ReduceSumSquare")


class RandomGraph:
    """A model and values for its inputs.

    Attributes
    ----------
    model : Model
    feeds : dict of str to array
    """

    def __init__(self, seed: int, size: int = SIZE) -> None:
        self._random = np.random.default_rng(seed)
        self._opset = int(self._random.choice([13, 18, 20, 22]))
        self._nodes: list[Node] = []
        self._values: dict[str, Any] = {}
        self._constants: dict[str, Array] = {}
        graph = Graph("random", self._nodes, dict(self._constants))
        opsets = {"": self._opset, "com.microsoft": 1}
        self.model = Model(Path(f"random-{seed}.onnx"), graph, opsets)
        self._evaluator = Evaluator(self.model)
        self.feeds = {f"x{i}": self.numbers(*self.shape()) for i in range(self.below(3) + 1)}
        self._values.update(self.feeds)
        for _ in range(50 * size):
            if len(self._nodes) >= size:
                break
            self._random.choice(np.array(STEPS, object))(self)
        self._finish(graph)

    def _finish(self, graph: Graph) -> None:
        """Set inputs, constants and outputs, which are all unused values and a few others."""
        graph.initializers.update(self._constants)
        used = {name for node in self._nodes for name in node.inputs}
        outputs = [n for n in self._values if n not in used or self.below(6) == 0]
        tensor = TypeInfo("tensor", 1, None)
        graph.inputs = [ValueInfo(name, tensor) for name in self.feeds]
        graph.outputs = [ValueInfo(name, tensor) for name in outputs]

    # ---- choices ---------------------------------------------------------------------------------

    def below(self, n: int) -> int:
        return int(self._random.integers(n))

    def one(self, *options: Any) -> Any:
        return options[self.below(len(options))]

    def numbers(self, *shape: int) -> Array:
        return self._random.standard_normal(shape).astype(np.float32)

    def shape(self) -> list[int]:
        return [self.one(1, 2, 3, 4, 5, 17) for _ in range(self.one(0, 1, 2, 2, 3, 3, 4, 4, 5))]

    def value(self, ranks: Sequence[int] = range(9)) -> str:
        """A random float value with one of these ranks; '' if there is none."""
        fit = [n for n, v in self._values.items() if v.dtype == np.float32 and v.ndim in ranks]
        return str(self.one(*fit[-4:], *fit)) if fit else ""

    def of(self, name: str) -> Array:
        array: Array = self._values[name]
        return array

    def constant(self, values: Any, dtype: Any = np.int64) -> str:
        name = f"c{len(self._constants)}"
        self._constants[name] = np.asarray(values, dtype)
        return name

    def axis(self, name: str) -> int:
        rank = self.of(name).ndim
        return self.below(2 * rank) - rank if rank else 0

    def add(
        self, kind: str, *inputs: str, outputs: int = 1, domain: str = "", **attributes: Any
    ) -> str:
        """The first output of a new node; '' if the node is refused."""
        names = tuple(f"{kind}{len(self._nodes)}.{i}" for i in range(outputs))
        node = Node(kind, inputs, names, attributes, domain, f"{kind}{len(self._nodes)}")
        scope = ChainMap(dict(self._values), self._constants, {"": None})
        try:
            self._evaluator.node(node, scope)
        except HalfbyteError:
            return ""
        results = {name: scope[name] for name in names}
        if any(v.size > MAX_ELEMENTS or not np.isfinite(v).all() for v in results.values()):
            return ""
        if any(v.dtype == np.float32 and np.abs(v).max(initial=0) > 1e3 for v in results.values()):
            return ""
        self._nodes.append(node)
        self._values.update(results)
        return names[0]


Step = Callable[[RandomGraph], Any]


def function(g: RandomGraph) -> None:
    kind = g.one(*FUNCTIONS)
    attributes = {"alpha": 0.3} if kind in ("LeakyRelu", "HardSigmoid") else {}
    limits = [g.constant(-0.5, np.float32), g.constant(0.7, np.float32)] if kind == "Clip" else []
    g.add(kind, g.value(), *limits, **attributes)


def risky(g: RandomGraph) -> None:
    """Functions of positive or small numbers."""
    x = g.add("Abs", g.value())
    kind = g.one("Sqrt", "Exp", "Log", "Reciprocal")
    g.add(kind, g.add("Tanh" if kind == "Exp" else "Add", x, *(
        [] if kind == "Exp" else [g.constant(0.5, np.float32)]
    )))  # fmt: skip


def pair(g: RandomGraph) -> None:
    """Two values, or one and a constant that is broadcast."""
    x = g.value()
    shape = [g.one(d, d, 1) for d in g.of(x).shape][g.below(g.of(x).ndim + 1) :]
    other = g.one(g.value(), g.constant(g.numbers(*shape), np.float32))
    kind = g.one("Add", "Sub", "Mul", "Add", "Max", "Min", "Div")
    if kind == "Div":
        other = g.add("Add", g.add("Abs", g.value()), g.constant([1.5], np.float32))
    g.add(kind, *g.one((x, other), (other, x)) if kind != "Div" else (x, other))


def power(g: RandomGraph) -> None:
    g.add("Pow", g.value(), g.constant(g.one(2, 3, 0.5), np.float32))


def transpose(g: RandomGraph) -> None:
    x = g.value()
    perm = g._random.permutation(g.of(x).ndim).tolist()
    g.add("Transpose", x, **g.one({"perm": perm}, {"perm": perm}, {}))


def reshape(g: RandomGraph) -> None:
    x = g.value()
    size, shape = g.of(x).size, []
    while size > 1 and len(shape) < 4:
        divisors = [d for d in range(1, size + 1) if size % d == 0]
        shape.append(g.one(*divisors))
        size //= shape[-1]
    shape.append(size)
    if size and g.below(2):
        shape[g.below(len(shape))] = -1
    g.add("Reshape", x, g.constant(shape))


def squeeze(g: RandomGraph) -> None:
    x = g.value()
    if g.below(2):
        g.add("Unsqueeze", x, g.constant([g.one(0, -1, g.below(g.of(x).ndim + 1))]))
        return
    ones = [i for i, d in enumerate(g.of(x).shape) if d == 1]
    g.add("Squeeze", x, *([g.constant([g.one(*ones)])] if ones and g.below(2) else []))


def flatten(g: RandomGraph) -> None:
    x = g.value()
    g.add("Flatten", x, axis=g.below(g.of(x).ndim + 1))


def slice_(g: RandomGraph) -> None:
    x = g.value(range(1, 9))
    if not x:
        return
    axes = g._random.permutation(g.of(x).ndim)[: g.below(2) + 1]
    steps = [g.one(1, 1, 2, 3, -1, -2) for _ in axes]
    starts = [g.below(9) - 4 if s > 0 else g.one(9, -1, 2) for s in steps]
    ends = [g.one(99, g.below(9) - 4) if s > 0 else g.one(-99, 0, -3) for s in steps]
    g.add("Slice", x, *(g.constant(v) for v in (starts, ends, axes, steps)))


def split(g: RandomGraph) -> None:
    x = g.value(range(1, 9))
    if not x:
        return
    axis = g.axis(x)
    size = g.of(x).shape[axis]
    first = g.below(size + 1)
    g.add("Split", x, g.constant([first, size - first]), outputs=2, axis=axis)


def concat(g: RandomGraph) -> None:
    x = g.value(range(1, 9))
    if not x:
        return
    axis = g.axis(x)
    rest = list(g.of(x).shape)
    rest[axis] = g.below(3)
    parts = [x, g.one(x, g.value(), g.constant(g.numbers(*rest), np.float32))]
    g.add("Concat", *g.one(parts, parts[::-1], [x, *parts]), axis=axis)


def gather(g: RandomGraph) -> None:
    x = g.value(range(1, 9))
    if not x:
        return
    axis = g.axis(x)
    size = max(g.of(x).shape[axis], 1)
    ids = g.one(g.below(size), [g.below(size)], [0, size - 1], [-1, 0], [[0], [size - 1]],
                list(range(size))[::-1])  # fmt: skip
    g.add("Gather", x, g.constant(ids), axis=axis)


def expand(g: RandomGraph) -> None:
    x = g.value()
    shape = [g.one(1, d) if d != 1 else g.one(1, 2, 3) for d in g.of(x).shape]
    if g.below(3) == 0:
        g.add("Tile", x, g.constant([g.one(1, 2) for _ in shape]))
        return
    g.add("Expand", x, g.constant(g.one(shape, [2, *shape])))


def pad(g: RandomGraph) -> None:
    x = g.value(range(1, 6))
    if x:
        pads = [g.one(0, 0, 1, 2, -1) for _ in range(2 * g.of(x).ndim)]
        g.add("Pad", x, g.constant(pads), mode=g.one("constant", "edge", "reflect"))


def reduce(g: RandomGraph) -> None:
    x, kind = g.value(), g.one(*REDUCTIONS)
    attributes: dict[str, Any] = {"keepdims": g.below(2)}
    axes = g._random.permutation(g.of(x).ndim)[: g.below(g.of(x).ndim + 1)].tolist()
    names = []
    if axes and (g._opset >= 18 or kind == "ReduceSum"):
        names = [g.constant(axes)]
    elif axes:
        attributes["axes"] = axes
    g.add(kind, x, *names, **attributes)


def softmax(g: RandomGraph) -> None:
    x = g.value(range(1, 9))
    if x:
        g.add(g.one("Softmax", "LogSoftmax"), x, axis=g.one(-1, g.axis(x)))


def product(g: RandomGraph) -> None:
    """Products with a constant matrix, with a stack of matrices, or of two values."""
    x = g.value(range(1, 5))
    if not x:
        return
    k = g.of(x).shape[-1]
    w = g.constant(g.numbers(k, g.one(1, 3, 16, 33)) * 0.3, np.float32)
    stack = g.constant(g.numbers(*g.of(x).shape[:-2], k, 4) * 0.3, np.float32)
    y = g.add("MatMul", *g.one((x, w), (x, w), (x, stack), (x, g.add("Transpose", x)), (x, x)))
    if y and g.below(2):
        bias = g.constant(g.numbers(g.of(y).shape[-1] if g.of(y).ndim else 1), np.float32)
        y = g.add("Add", y, bias)
        if g.below(2):
            g.add(g.one("Relu", "Gelu"), y)


def gemm(g: RandomGraph) -> None:
    x = g.value((2,))
    if not x:
        return
    transposed, other = g.below(2), g.below(2)
    k, m = g.of(x).shape[0 if transposed else 1], g.one(1, 5, 16)
    w = g.constant(g.numbers(*((m, k) if other else (k, m))) * 0.3, np.float32)
    bias = g.one([], [g.constant(g.numbers(m), np.float32)], [g.constant(g.numbers(1, 1), "f4")])
    scale = g.one(1.0, 0.5)
    g.add("Gemm", x, w, *bias, transA=transposed, transB=other, alpha=scale, beta=g.one(1.0, 0.25))


def convolution(g: RandomGraph) -> None:
    x = g.value((3, 4))
    if not x:
        return
    channels, rank = g.of(x).shape[1], g.of(x).ndim - 2
    group = g.one(1, 1, channels)
    m = group * g.one(1, 2, 4)
    kernel = [g.one(1, 2, 3) for _ in range(rank)]
    w = g.constant(g.numbers(m, channels // max(group, 1), *kernel) * 0.3, np.float32)
    bias = g.one([], [g.constant(g.numbers(m), np.float32)])
    attributes: dict[str, Any] = {
        "pads": [g.one(0, 1, 2) for _ in range(2 * rank)], "group": group,
        "strides": [g.one(1, 1, 2)] * rank, "dilations": [g.one(1, 1, 2)] * rank,
    }  # fmt: skip
    y = g.add("Conv", x, w, *bias, **attributes)
    if not y or g.below(2):
        return
    if g.below(2):
        names = [g.constant(g.numbers(m), np.float32) for _ in range(3)]
        variance = g.constant(np.abs(g.numbers(m)) + 0.5, np.float32)
        y = g.add("BatchNormalization", y, *names, variance)
    if y and g.below(2):
        y = g.add("Add", y, g.one(x, g.value((4,)), y))
    if y:
        g.add(g.one("Relu", "Sigmoid", "LeakyRelu"), y)


def pool(g: RandomGraph) -> None:
    x = g.value((3, 4))
    if not x:
        return
    rank = g.of(x).ndim - 2
    kind = g.one("MaxPool", "AveragePool", "GlobalAveragePool", "GlobalMaxPool")
    attributes: dict[str, Any] = {}
    if not kind.startswith("Global"):
        attributes = {
            "kernel_shape": [g.one(1, 2, 3)] * rank, "strides": [g.one(1, 2)] * rank,
            "pads": [g.one(0, 1)] * (2 * rank), "ceil_mode": g.below(2),
        }  # fmt: skip
    g.add(kind, x, **attributes)


def norm(g: RandomGraph) -> None:
    x = g.value(range(1, 6))
    if not x:
        return
    size = g.of(x).shape[-1]
    names = [g.constant(g.numbers(size), np.float32) for _ in range(2)]
    x = g.add("Add", x, x) if g.below(3) == 0 else x
    if x:
        g.add("LayerNormalization", x, *names, axis=-1, epsilon=1e-3)


def choose(g: RandomGraph) -> None:
    x, y = g.value(), g.value()
    condition = g.add(g.one("Greater", "Less"), x, y)
    if condition:
        g.add("Where", condition, x, g.one(y, g.constant(0.5, np.float32)))


def integers(g: RandomGraph) -> None:
    """A cast to another type and back."""
    x = g.add("Cast", g.value(), to=g.one(6, 7, 3, 11))
    if not x:
        return
    x = g.one(x, g.add("Transpose", x), g.add("Concat", x, x, axis=0)) or x
    g.add("Cast", x, to=1)


def by_shape(g: RandomGraph) -> None:
    """Shapes computed from shapes."""
    x = g.value(range(1, 5))
    if not x:
        return
    shape = g.add("Shape", x)
    if shape:
        g.add("Reshape", g.add("Transpose", x) or x, shape)


def dynamic(g: RandomGraph) -> None:
    """Nodes whose results' shapes depend on values, which end a program."""
    x = g.value(range(1, 4))
    if not x:
        return
    kind = g.one("Compress", "NonZero", "Unique", "TopK")
    if kind == "Compress":
        flat = g.add("Greater", g.add("Flatten", x, axis=0) or x, g.constant(0, np.float32))
        flags = g.add("Reshape", flat, g.constant([-1])) if flat else ""
        if flags:
            g.add("Compress", x, flags)
    elif kind == "NonZero":
        places = g.add("NonZero", x)
        if places:
            g.add("Cast", places, to=1)
    elif kind == "Unique":
        g.add("Unique", x)
    else:
        g.add("TopK", x, g.constant([1]), outputs=2, axis=-1)


STEPS: tuple[Step, ...] = (
    function, function, risky, pair, pair, pair, power, transpose, transpose, transpose, reshape,
    squeeze, flatten, slice_, split, concat, gather, expand, pad, reduce, reduce, softmax, product,
    product, gemm, convolution, convolution, convolution, pool, norm, choose, integers, by_shape,
    dynamic,
)  # fmt: skip
