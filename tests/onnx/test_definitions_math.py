"""Mathematics and data movement: versions and edges that ONNX's node tests leave out.

Most are compared with onnxruntime; cases that it has no kernel for state their result.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper
from tests.onnx.convert import model_from

from halfbyte.errors import (
    HalfbyteError,
    MemoryBudgetError,
    OutOfMemoryError,
    ProgramError,
    UnsupportedError,
)
from halfbyte.onnx.evaluate import Evaluator
from halfbyte.onnx.files import dtypes
from halfbyte.onnx.reference import find, operators, slicing
from halfbyte.onnx.reference.math import BINARY, UNARY

Array = npt.NDArray[Any]
F = np.float32
X234 = (np.arange(24, dtype=F).reshape(2, 3, 4) - 9) / 4
N_OPS = 28  # the newest version of the default domain


@dataclass(frozen=True)
class Case:
    """One node: a missing input is None."""

    operator: str
    version: int
    inputs: Sequence[Any]
    attributes: dict[str, Any] = field(default_factory=dict)
    outputs: int = 1

    def __str__(self) -> str:
        shown = "-".join(f"{k}={v}" for k, v in self.attributes.items() if k != "value")
        return f"{self.operator}-{self.version}-{shown}"

    @property
    def arrays(self) -> list[Array | None]:
        return [None if v is None else np.asarray(v) for v in self.inputs]

    def feeds(self) -> dict[str, Array]:
        return {f"i{n}": v for n, v in enumerate(self.arrays) if v is not None}

    def proto(self) -> onnx.ModelProto:
        names = ["" if v is None else f"i{n}" for n, v in enumerate(self.arrays)]
        outputs = [f"o{n}" for n in range(self.outputs)]
        node = helper.make_node(self.operator, names, outputs, **self.attributes)
        graph = helper.make_graph(
            [node],
            "case",
            [
                helper.make_tensor_value_info(name, element_type(v), v.shape)
                for name, v in self.feeds().items()
            ],
            [onnx.ValueInfoProto(name=name) for name in outputs],
        )
        opsets = [helper.make_opsetid("", self.version)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=10)

    def run(self) -> list[Any]:
        """Values of the outputs by the definitions."""
        return list(Evaluator(model_from(self.proto(), "case.onnx")).run(self.feeds()).values())

    def judged(self) -> list[Any]:
        """The same by onnxruntime."""
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        session = onnxruntime.InferenceSession(self.proto().SerializeToString(), options)
        return list(session.run(None, self.feeds()))


def element_type(array: Array) -> int:
    return TensorProto.STRING if array.dtype == object else dtypes.NUMBERS[array.dtype]


def strings(*values: str) -> Array:
    return np.array(values, object)


def i64(*values: int) -> Array:
    return np.array(values, np.int64)


def arithmetic() -> Iterator[Case]:
    integers = np.array([-7, -6, 6, 7, -(2**31), 2**31 - 1], np.int32)
    divisors = np.array([2, -4, 4, -2, 3, 5], np.int32)
    for version in (7, 13, 14):
        yield Case("Div", version, [integers, divisors])
    yield Case("Add", 14, [np.uint8([250, 3]), np.uint8([10, 1])])
    yield Case("Mul", 7, [integers, integers])
    yield Case("Sub", 7, [X234, X234[0, 0]])
    for fmod in (0, 1):
        yield Case("Mod", 10, [integers[:4], divisors[:4]], {"fmod": fmod})
    yield Case("Mod", 13, [F([-7.5, 7.5, 0.1]), F([2, -2, 0.3])], {"fmod": 1})
    yield Case("Pow", 7, [F([2, 3, -2, 0]), F([0.5, -2, 3, 0])])
    yield Case("Pow", 12, [F([2, 3]), i64(-2, 5)])
    yield Case("Pow", 12, [np.int32([2, -1, 5, -2]), np.int32([10, -3, 0, 3])])
    yield Case("Pow", 13, [np.int64([2, 9]), F([0.5, 0.5])])
    yield Case("Clip", 7, [X234], {"min": -1.0, "max": 2.0})
    yield Case("Clip", 6, [X234], {"max": 2.0})
    yield Case("Clip", 11, [X234, None, F(0.5)])
    yield Case("Clip", 12, [np.int8([-5, 3, 100]), np.int8(-1), np.int8(50)])
    yield Case("Clip", 13, [X234, F(2), F(1)])
    for name in ("Min", "Max", "Sum", "Mean"):
        yield Case(name, 8, [X234, X234[:, :1], F(0.25)])
        yield Case(name, 13, [X234])
    yield Case("Max", 12, [np.uint64([1, 2**63]), np.uint64([3, 4])])
    yield Case("Erf", 9, [F([-5, -1, -0.0, 1e-8, 0.3, 2, np.inf])])
    yield Case("Round", 11, [F([0.5, 1.5, -2.5, -0.4, 1e9])])
    yield Case("Sign", 9, [np.int8([-3, 0, 3])])
    yield Case("Abs", 13, [np.int8([-128, -1, 5])])
    yield Case("IsInf", 10, [F([np.inf, -np.inf, np.nan, 1])], {"detect_positive": 0})
    for name in ("Less", "Greater", "Equal"):
        yield Case(name, 9 if name != "Equal" else 11, [X234, X234[0]])
    yield Case("Equal", 19, [strings("a", "b"), strings("a", "c")])
    yield Case("Not", 7, [np.array([True, False])])
    yield Case("BitShift", 11, [np.uint8([255, 3, 4]), np.uint8([4, 7, 0])], {"direction": "LEFT"})
    yield Case("BitShift", 11, [np.uint8([255, 3, 4]), np.uint8([4, 7, 0])], {"direction": "RIGHT"})


def products() -> Iterator[Case]:
    r = np.random.default_rng(1)
    a, b = r.normal(size=(2, 3, 4)).astype(F), r.normal(size=(4, 5)).astype(F)
    yield Case("MatMul", 9, [a, b])
    yield Case("MatMul", 9, [a[0, 0], b])
    yield Case("MatMul", 9, [a[0, 0], b[:, 0]])
    yield Case("MatMul", 9, [np.int32([[70000, 2]]), np.int32([[70000], [3]])])
    for version in (7, 9):
        yield Case("Gemm", version, [a[0], b, b[0]], {"alpha": 0.5, "beta": 2.0})
    yield Case("Gemm", 11, [a[0].T.copy(), b.T.copy()], {"transA": 1, "transB": 1, "alpha": 3.0})
    yield Case("Gemm", 13, [a[0], b, F(2)], {"beta": 0.0})
    for equation, parts in (
        ("ij,jk", [a[0], b]), ("bij, jk -> bki", [a, b]), ("...j,jk->...k", [a, b]),
        ("ii->i", [b[:, :4]]), ("ii", [b[:, :4]]), ("bij->b", [a]), ("i,j->ij", [b[0], b[1]]),
        ("bij,bkj->bik", [a, a]), ("...ij->...ji", [a]),
    ):  # fmt: skip
        yield Case("Einsum", 12, parts, {"equation": equation})
    yield Case("Det", 11, [r.normal(size=(2, 3, 3)).astype(F)])
    yield Case("Det", 11, [r.normal(size=(3, 3)).astype(F)])


def reductions() -> Iterator[Case]:
    positive = np.abs(X234) + F(0.1)
    names = ("Sum", "Mean", "Max", "Min", "Prod", "L1", "L2", "LogSum", "LogSumExp", "SumSquare")
    for name in names:
        moved = 13 if name == "Sum" else 18  # axes became an input
        for axes in ([1], [0, 2], [0]):
            yield Case(f"Reduce{name}", 7, [positive], {"axes": axes})
            yield Case(f"Reduce{name}", moved, [positive, i64(*axes)], {"keepdims": 0})
        yield Case(f"Reduce{name}", 11, [positive], {"keepdims": 0})
        yield Case(f"Reduce{name}", 11, [positive], {"axes": [-1], "keepdims": 0})
        yield Case(f"Reduce{name}", moved, [positive])
        yield Case(f"Reduce{name}", moved, [positive, i64()], {"noop_with_empty_axes": 0})
        yield Case(f"Reduce{name}", moved, [F(0.7)])
    yield Case("ReduceSum", 13, [positive, i64()], {"noop_with_empty_axes": 1})
    yield Case("ReduceSum", 13, [np.zeros((2, 0), F), i64(1)])
    yield Case("ReduceMean", 13, [np.int32([[-3, 0], [3, 4]])], {"axes": [1]})
    yield Case("ReduceMax", 12, [np.uint8([[1, 200], [3, 4]])], {"axes": [1]})
    yield Case("ReduceLogSumExp", 18, [F([1000, 1000, -np.inf])])
    ties = np.array([[1, 3, 3], [2, 2, 0]], F)
    for name in ("ArgMax", "ArgMin"):
        yield Case(name, 7, [ties], {"axis": 1})
        yield Case(name, 11, [ties], {"axis": -1, "keepdims": 0})
        yield Case(name, 12, [ties], {"axis": 1, "select_last_index": 1})
    for exclusive in (0, 1):
        for reverse in (0, 1):
            attributes = {"exclusive": exclusive, "reverse": reverse}
            yield Case("CumSum", 11, [X234, np.int32(1)], attributes)
            yield Case("CumSum", 14, [np.int32([1, 2, 3]), i64(-1)[0]], attributes)


def casts() -> Iterator[Case]:
    numbers = F([-3.7, 0, 0.5, 2.5, 100.6])
    for to in (TensorProto.INT8, TensorProto.INT64, TensorProto.BOOL, TensorProto.FLOAT16,
               TensorProto.DOUBLE):  # fmt: skip
        yield Case("Cast", 9, [numbers], {"to": to})
    yield Case("Cast", 13, [np.int32([-1, 200, 70000])], {"to": TensorProto.UINT8})
    yield Case("Cast", 13, [F([1e6, -1e6, np.nan])], {"to": TensorProto.FLOAT16})
    yield Case("Cast", 9, [F([0.1, 1, 1e30, np.nan, np.inf, -np.inf])], {"to": TensorProto.STRING})
    yield Case("Cast", 9, [np.array([True, False])], {"to": TensorProto.STRING})
    yield Case("Cast", 13, [np.uint64([2**64 - 1])], {"to": TensorProto.STRING})
    yield Case("Cast", 9, [strings("1.5", "INF", "-inf", "+INF", "1e3")], {"to": TensorProto.FLOAT})
    yield Case("Cast", 9, [strings("-12", "3")], {"to": TensorProto.INT16})
    yield Case("Cast", 9, [strings("1", "0")], {"to": TensorProto.BOOL})
    yield Case("CastLike", 15, [numbers, np.zeros(1, np.int32)])


def movements() -> Iterator[Case]:
    yield Case("Reshape", 7, [X234, i64(0, -1)])
    yield Case("Reshape", 13, [X234, i64(4, 0, 2)])
    yield Case("Reshape", 14, [np.zeros((0, 3), F), i64(3, 0)], {"allowzero": 1})
    yield Case("Reshape", 13, [F([[5]]), np.zeros(0, np.int64)])
    yield Case("Shape", 13, [X234])
    for start, end in ((1, None), (-2, -1), (0, 99), (-99, 2), (2, 1)):
        given = {"start": start} | ({} if end is None else {"end": end})
        yield Case("Shape", 15, [X234], given)
    yield Case("Size", 13, [X234])
    for axis in (0, 1, 3, -1, -3):
        yield Case("Flatten", 11, [X234], {"axis": axis})
    thin = X234.reshape(1, 2, 1, 12)
    yield Case("Squeeze", 7, [thin])
    yield Case("Squeeze", 11, [thin], {"axes": [-2]})
    yield Case("Squeeze", 13, [thin, i64(0)])
    yield Case("Squeeze", 13, [thin])
    yield Case("Unsqueeze", 7, [X234], {"axes": [4, 0]})
    yield Case("Unsqueeze", 11, [X234], {"axes": [-1]})
    yield Case("Unsqueeze", 13, [X234, i64(2, -1)])
    yield Case("Transpose", 7, [X234])
    yield Case("Transpose", 13, [X234], {"perm": [1, 2, 0]})
    yield Case("Concat", 7, [X234, X234[:, :1]], {"axis": 1})
    yield Case("Concat", 11, [strings("a"), strings("b", "c")], {"axis": -1})
    yield Case("Split", 7, [X234], {"axis": 2}, 2)
    yield Case("Split", 2, [X234], {"axis": 1, "split": [1, 2]}, 2)
    yield Case("Split", 11, [X234], {"axis": -1, "split": [1, 0, 3]}, 3)
    yield Case("Split", 13, [X234, i64(1, 2)], {"axis": 1}, 2)
    yield Case("Split", 13, [X234], {"axis": 0}, 2)
    yield Case("Split", 18, [X234[:, :, :3]], {"axis": 2, "num_outputs": 2}, 2)
    yield Case("Slice", 7, [X234], {"starts": [0, -2], "ends": [1, 99], "axes": [0, 2]})
    yield Case("Slice", 9, [X234], {"starts": [1, 1], "ends": [2, -1]})
    far = 2**63 - 1
    for start, end, step in (
        (0, far, 1), (-1, -far, -1), (far, -far - 1, -2), (-99, -99, -1), (3, 1, 1), (1, -1, 2),
        (-3, 99, 1), (2, 0, -1),
    ):  # fmt: skip
        parts = [X234, i64(start), i64(end), i64(2), i64(step)]
        yield Case("Slice", 10, parts)
    yield Case("Slice", 13, [X234, np.int32([1, 1]), np.int32([2, 3])])
    yield Case("Slice", 13, [np.zeros((0, 2), F), i64(-1), i64(-9), i64(0), i64(-1)])
    yield Case("Expand", 8, [X234[:, :1], i64(2, 1, 3, 1)])
    yield Case("Tile", 7, [X234, i64(1, 2, 0)])
    yield Case("Tile", 13, [strings("a", "b"), i64(2)])
    yield Case("Trilu", 14, [X234, i64(-1)[0]], {"upper": 0})
    yield Case("Trilu", 14, [X234, i64(99)[0]])
    for mode in ("DCR", "CRD"):
        blocks = np.arange(32, dtype=F).reshape(1, 8, 2, 2)
        yield Case("DepthToSpace", 11, [blocks], {"blocksize": 2, "mode": mode})
    yield Case("SpaceToDepth", 7, [blocks], {"blocksize": 2})
    lengths = i64(1, 3)
    yield Case("ReverseSequence", 10, [X234, lengths], {"batch_axis": 0, "time_axis": 1})


def paddings() -> Iterator[Case]:
    row = np.arange(5, dtype=F)
    yield Case("Pad", 7, [X234], {"pads": [0, 1, 0, 2, 0, -1], "value": 1.5})
    for mode in ("constant", "edge", "reflect"):
        for pads in (i64(2, 3), i64(-1, 3), i64(0, -2)):
            yield Case("Pad", 11, [row, pads], {"mode": mode})
    for pads in (i64(-len(row) - 2, 3), i64(3, -len(row) - 2)):  # part of what the other adds
        yield Case("Pad", 11, [row, pads])
    yield Case("Pad", 13, [X234, i64(1, 0, 2, 0, 1, 0), F(7)])
    yield Case("Pad", 18, [X234, i64(2, 1), None, i64(-1)], {"mode": "edge"})
    yield Case("Pad", 19, [row, i64(7, 4)], {"mode": "wrap"})
    yield Case("Pad", 13, [np.array([True, False]), i64(1, 1)])


def indexing() -> Iterator[Case]:
    indices = i64(1, -1, 0).reshape(3, 1)
    for version in (7, 11):
        yield Case("Gather", version, [X234, indices % 2], {"axis": 1})
    yield Case("Gather", 13, [X234, indices], {"axis": -1})
    yield Case("Gather", 13, [strings("a", "b"), np.array(1)])
    within = np.array([[[0, -1], [1, 2]]], np.int32)
    yield Case("GatherElements", 11, [X234, within], {"axis": 1})
    yield Case("GatherND", 11, [X234, i64(0, -1, 1, 2).reshape(2, 2)])
    yield Case("GatherND", 12, [X234, i64(1, 0).reshape(2, 1)], {"batch_dims": 1})
    yield Case("GatherND", 12, [X234, i64(1, 0, 2, 1).reshape(2, 1, 2)], {"batch_dims": 1})
    yield Case("GatherND", 13, [strings("a", "b"), i64(1)])
    updates = np.full((1, 2, 2), 9, F)
    yield Case("Scatter", 9, [X234, within, updates], {"axis": 1})
    for version, reductions in ((11, ("",)), (18, ("add", "mul", "max", "min"))):
        for reduction in reductions:
            given = {"reduction": reduction} if reduction else {}
            yield Case("ScatterElements", version, [X234, within, updates], {"axis": 1, **given})
            twice = i64(0, 1, 1, 0, 0, 1).reshape(3, 2)
            if not reduction:
                twice = twice[:2]
            parts = [X234, twice, np.ones((len(twice), 4), F)]
            yield Case("ScatterND", version, parts, given)
    yield Case("Compress", 9, [X234, np.array([True, False, True])], {"axis": 2})
    yield Case("Compress", 11, [X234, np.array([False, True])])
    yield Case("NonZero", 9, [np.array([[1, 0], [0, 3]], F)])
    yield Case("Where", 9, [X234 > 0, X234, F(0)])
    for axis in (-1, 0, 1):
        yield Case("OneHot", 11, [i64(0, -1, 5), i64(3), F([2, 5])], {"axis": axis})
    yield Case("OneHot", 9, [F([0, 2]), F(3), F([0, 1])])


def choices() -> Iterator[Case]:
    ties = np.array([[1, 3, 3, 2], [2, 2, 0, 2]], F)
    yield Case("TopK", 7, [ties], {"k": 3, "axis": 1}, 2)
    yield Case("TopK", 10, [ties, i64(2)], {}, 2)
    yield Case("TopK", 11, [ties, i64(3)], {"largest": 0}, 2)
    yield Case("TopK", 11, [ties.astype(np.int64), i64(1)], {"axis": 0}, 2)
    yield Case("TopK", 11, [ties, i64(0)], {}, 2)
    values = np.array([2, 1, 1, 3, 4, 3], F)
    for ordered in (0, 1):
        yield Case("Unique", 11, [values], {"sorted": ordered}, 4)
        rows = np.array([[2, 1], [1, 2], [2, 1], [1, 1]], F)
        yield Case("Unique", 11, [rows], {"sorted": ordered, "axis": 0}, 4)
        yield Case("Unique", 11, [strings("b", "a", "b")], {"sorted": ordered}, 4)
    yield Case("Range", 11, [F(1), F(2), F(0.3)])
    yield Case("Range", 11, [i64(10)[0], i64(-1)[0], i64(-3)[0]])
    yield Case("Range", 11, [np.int32(3), np.int32(3), np.int32(1)])
    yield Case("ConstantOfShape", 9, [i64(2, 0, 3)])
    full = helper.make_tensor("value", TensorProto.INT32, [1], [7])
    yield Case("ConstantOfShape", 9, [i64(2, 3)], {"value": full})
    yield Case("EyeLike", 9, [np.zeros((3, 4), F)], {"k": -1, "dtype": TensorProto.INT64})
    yield Case("EyeLike", 9, [np.zeros((3, 4), F)], {"k": 9})


CASES = [
    case
    for family in (arithmetic, products, reductions, casts, movements, paddings, indexing, choices)
    for case in family()
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_onnxruntime_agrees(case: Case) -> None:
    actual, expected = case.run(), case.judged()
    assert len(actual) == len(expected) == case.outputs
    for ours, theirs in zip(actual, expected, strict=True):
        assert isinstance(ours, np.ndarray)
        assert (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape)
        if ours.dtype.kind == "f":
            np.testing.assert_allclose(ours, theirs, rtol=2e-6, atol=1e-7)
        else:
            np.testing.assert_array_equal(ours, theirs)


def stated() -> Iterator[tuple[Case, list[Any]]]:
    yield Case("ReduceSum", 13, [np.int32([2**31 - 1, 1])]), [np.int32([-(2**31)])]
    nothing, inf = np.zeros((2, 0), F), F([np.inf, np.inf])
    for name, expected in (("Max", -inf), ("Min", inf), ("LogSum", -inf), ("LogSumExp", -inf),
                           ("Prod", F([1, 1])), ("L2", F([0, 0]))):  # fmt: skip
        yield Case(f"Reduce{name}", 20, [nothing, i64(1)], {"keepdims": 0}), [expected]
    yield Case("ReduceMin", 20, [np.zeros(0, np.int8)]), [np.int8([127])]
    yield Case("ReduceMax", 20, [np.array([False, True])]), [np.array([True])]
    yield Case("ReduceSumSquare", 18, [F([2, 3])], {"noop_with_empty_axes": 1}), [F([4, 9])]
    yield Case("NonZero", 13, [F(3)]), [np.zeros((0, 1), np.int64)]
    signed = np.int8([-128, -1, 64, 5])
    amounts = np.int8([1, 9, 1, -1])
    left, right = np.int8([0, 0, -128, 0]), np.int8([-64, -1, 32, 0])
    yield Case("BitShift", 28, [signed, amounts], {"direction": "LEFT"}), [left]
    yield Case("BitShift", 28, [signed, amounts], {"direction": "RIGHT"}), [right]
    infinite = [F([-1, 1, 0.0, np.inf]), F([np.inf, np.inf, -2, 2])]
    yield Case("Mod", 28, infinite), [F([np.inf, 1, -0.0, np.nan])]
    yield Case("Div", 14, [np.int32([-(2**31), 5]), np.int32([-1, 0])]), [np.int32([-(2**31), 0])]
    half = np.float16([0.1, 0.2])
    sums = np.float32(half).sum(keepdims=True)
    yield Case("ReduceSum", 13, [half]), [sums.astype(np.float16)]
    yield Case("MatMul", 13, [half, half]), [np.float16(np.dot(F(half), F(half)))]
    counted = np.float16(np.arange(3, dtype=F) * F(half[0]))
    starts = [np.float16(0), np.float16(0.25), half[0]]
    yield Case("Range", 27, starts), [counted]
    blocks = np.arange(8).reshape(1, 2, 2, 2)
    crd = i64(0, 1, 2, 3, 4, 5, 6, 7).reshape(1, 8, 1, 1)
    yield Case("SpaceToDepth", 28, [blocks], {"blocksize": 2, "mode": "CRD"}), [crd]
    yield Case("CumProd", 26, [i64(2, 3, 4), i64(0)[0]], {"exclusive": 1}), [i64(1, 2, 6)]
    reflected = F([3, 2, 1, 0, 1, 2, 3, 2])
    yield Case("Pad", 13, [np.arange(4, dtype=F), i64(3, 1)], {"mode": "reflect"}), [reflected]
    one = F([7, 7, 7])
    yield Case("Pad", 13, [F([7]), i64(1, 1)], {"mode": "reflect"}), [one]
    yield Case("Pad", 13, [strings("a"), i64(0, 1)]), [strings("a", "")]
    yield (
        Case("Cast", 9, [strings("-2.7", "1e3")], {"to": TensorProto.INT32}),
        [np.int32([-2, 1000])],
    )
    rows = np.array([["b", "a"], ["a", "c"], ["b", "a"]], object)
    yield Case("Unique", 11, [rows], {"axis": 0}, 4), [
        rows[[1, 0]], i64(1, 0), i64(1, 0, 1), i64(1, 2)
    ]  # fmt: skip


STATED = list(stated())


@pytest.mark.parametrize(("case", "expected"), STATED, ids=[str(case) for case, _ in STATED])
def test_results_are_as_stated(case: Case, expected: list[Any]) -> None:
    actual = case.run()
    assert len(actual) == len(expected)
    for ours, theirs in zip(actual, expected, strict=True):
        assert (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape)
        np.testing.assert_array_equal(ours, theirs)


def call(operator: str, version: int, *inputs: Any, **attributes: Any) -> Any:
    """Call the function of an operator's definition."""
    definition = find("", operator, version)
    assert definition is not None
    with np.errstate(all="ignore"):
        return definition.meaning(*inputs, **attributes)


@pytest.mark.parametrize("name", [name for name, *_ in UNARY])
def test_functions_of_scalars_are_arrays_of_their_type(name: str) -> None:
    for dtype in (np.float16, np.float32, np.float64):
        result = call(name, 24, np.array(0.5, dtype))
        assert isinstance(result, np.ndarray)
        assert (result.dtype, result.shape) == (np.dtype(dtype), ())


SCALARS = [
    *(Case(name, 24, [F(2), F(3)]) for name, *_ in BINARY),
    *(Case(name, 24, [F(2)]) for name in ("Sum", "Min", "Max", "Mean", "IsNaN", "ReduceSum")),
    *(Case(name, 24, [F(2), F(3)]) for name in ("Pow", "Mod", "Less", "Equal", "Sum")),
    *(Case(name, 24, [strings("a", "b"), i64(1)]) for name in ("GatherND",)),
    Case("Gather", 24, [strings("a", "b"), np.array(1)]),
    Case("Where", 24, [np.array(True), F(1), F(2)]),
    Case("Where", 24, [np.array(True), np.array("a", object), np.array("b", object)]),
    Case("MatMul", 24, [F([1, 2]), F([3, 4])]),
    Case("Einsum", 24, [F([1, 2]), F([3, 4])], {"equation": "i,i"}),
    Case("Det", 24, [np.eye(2, dtype=F)]),
    Case("ArgMax", 24, [F([1, 2])], {"keepdims": 0}),
    Case("ReduceLogSumExp", 24, [F(3)], {"keepdims": 0}),
    Case("Clip", 24, [F(2), F(3), F(4)]),
    Case("Slice", 24, [F(2), i64(), i64(), i64()]),
    Case("Pad", 24, [F(2), i64()]),
    Case("Tile", 24, [F(2), i64()]),
    Case("Transpose", 24, [F(2)]),
    Case("Not", 24, [np.array(True)]),
    Case("Cast", 24, [F(2)], {"to": TensorProto.STRING}),
]


@pytest.mark.parametrize("case", SCALARS, ids=str)
def test_scalars_stay_arrays(case: Case) -> None:
    result = call(case.operator, case.version, *case.arrays, **case.attributes)
    assert isinstance(result, np.ndarray)
    assert result.shape == ()


def bfloat16(*values: float) -> Array:
    return dtypes.narrow(F(values), dtypes.BFLOAT16)


def test_types_that_numpy_lacks_are_moved_as_they_are() -> None:
    x = bfloat16(1, 2, 3, 4)
    moved = {
        "Where": (np.array([True, False, True, False]), x, x[::-1]),
        "Tile": (x, i64(2)),
        "Expand": (x, i64(2, 4)),
        "Gather": (x, i64(3, 0)),
        "Concat": (x, x),
        "Pad": (x, i64(1, 1), bfloat16(9)[:1]),
        "Slice": (x, i64(3), i64(-9), i64(0), i64(-1)),
        "Reshape": (x, i64(2, -1)),
        "ScatterND": (x, i64(1, 3).reshape(2, 1), x[:2]),
        "GatherND": (x, i64(2)),
        "OneHot": (i64(1), i64(2), bfloat16(3, 4)),
        "Trilu": (x.reshape(2, 2),),
    }
    given = {"Concat": {"axis": 0}}
    for name, inputs in moved.items():
        result = call(name, 24, *inputs, **given.get(name, {}))
        wide = [dtypes.widen(v) if v.dtype.names else v for v in inputs]
        expected = call(name, 24, *wide, **given.get(name, {}))
        assert (result.dtype, result.shape) == (dtypes.BFLOAT16, expected.shape)
        np.testing.assert_array_equal(dtypes.widen(result), expected, err_msg=name)


def test_powers_have_the_type_of_their_base() -> None:
    base, exponent = bfloat16(2, 3), F([2, 0.5])
    result = call("Pow", 15, base, exponent)
    assert result.dtype == dtypes.BFLOAT16
    np.testing.assert_allclose(dtypes.widen(result), [4, 3**0.5], rtol=2**-8)
    assert call("Pow", 15, exponent, base).dtype == np.float32
    assert call("Pow", 15, np.float16([2]), np.int64([3])).dtype == np.float16


def test_reductions_of_scattered_bfloat16_are_summed() -> None:
    x = bfloat16(1, 2)
    result = call("ScatterND", 18, x, np.zeros((2, 1), np.int64), x, reduction="add")
    assert dtypes.widen(result).tolist() == [4, 2]


@pytest.mark.parametrize(
    ("source", "target", "expected"),
    [
        (np.int8([-1, 3]), TensorProto.UINT8, np.uint8([255, 3])),
        (F([1, -2]), TensorProto.INT32, np.int32([0x3F800000, -0x40000000])),
        (np.uint16([0x3F80]), TensorProto.BFLOAT16, bfloat16(1)),
        (np.array([True]), TensorProto.INT8, np.int8([1])),
        (np.uint8([2, 0]), TensorProto.BOOL, np.array([True, False])),
        (np.uint8([15, 3]).view(dtypes.UINT4), TensorProto.INT4,
         np.int8([-1, 3]).view(dtypes.INT4)),
        (np.int8([-1, 3]).view(dtypes.INT4), TensorProto.FLOAT4E2M1,
         np.uint8([15, 3]).view(dtypes.FLOAT4E2M1)),
        (np.int8([-2]).view(dtypes.INT2), TensorProto.UINT2, np.uint8([2]).view(dtypes.UINT2)),
    ],
)  # fmt: skip
def test_bits_are_kept(source: Array, target: int, expected: Array) -> None:
    result = call("BitCast", 26, source, to=target)
    assert result.dtype == expected.dtype
    assert result.tobytes() == expected.tobytes()


def huge() -> Iterator[Case]:
    far = 2**40
    yield Case("ConstantOfShape", 24, [i64(far)])
    yield Case("ConstantOfShape", 24, [i64(2**62, 2**62)])
    yield Case("Range", 24, [i64(0)[0], i64(2**62)[0], i64(1)[0]])
    yield Case("Range", 24, [F(0), F(1e30), F(1e-30)])
    yield Case("Tile", 24, [F([1]), i64(far)])
    yield Case("Expand", 24, [F([1]), i64(far, 1)])
    yield Case("OneHot", 24, [i64(0), i64(far), F([0, 1])])
    yield Case("Pad", 24, [F([1]), i64(far, 0)])
    yield Case("CenterCropPad", 24, [F([1]), i64(far)])
    wide = np.broadcast_to(F(0), (1 << 20, 1))
    yield Case("Add", 24, [wide, wide.T])
    yield Case("MatMul", 24, [wide, wide.T])
    yield Case("Gemm", 24, [wide, wide.T])
    yield Case("Einsum", 24, [wide, wide], {"equation": "ab,cd->ac"})
    yield Case("Where", 24, [wide == 0, wide, wide.T])
    many = np.broadcast_to(np.int64(0), (1 << 20,))
    yield Case("Gather", 24, [wide.T, many])
    yield Case("GatherND", 24, [wide.T, many.reshape(-1, 1)])


@pytest.mark.parametrize("case", list(huge()), ids=str)
def test_results_that_no_machine_holds_are_refused(case: Case) -> None:
    with pytest.raises(
        MemoryBudgetError, match=r"a result of shape \[.* GB: expected at most \d+ elements"
    ):
        call(case.operator, case.version, *case.arrays, **case.attributes)


def test_missing_memory_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: Any) -> None:
        raise MemoryError("no room")

    case = Case("Expand", 13, [X234, i64(1)])
    monkeypatch.setattr(slicing, "check_elements", refused)
    with pytest.raises(OutOfMemoryError, match=r"case.onnx: node of Expand: no room for float32"):
        case.run()


def wrong() -> Iterator[tuple[Case, type[HalfbyteError], str]]:
    yield Case("Reshape", 13, [X234, i64(-2, -3)]), ProgramError, "shape"
    yield Case("Reshape", 13, [X234, i64(5, -1)]), ProgramError, "reshape"
    yield Case("Gather", 13, [X234, i64(9)]), ProgramError, "out of bounds"
    yield Case("GatherND", 13, [X234, i64(0, 0, 0, 0).reshape(1, 4)]), ProgramError, "tuples of 4"
    yield Case("ScatterND", 13, [X234, i64(0).reshape(1, 1), F([1])]), ProgramError, "expected"
    yield Case("Slice", 13, [X234, i64(0), i64(1), i64(0), i64(0)]), ProgramError, "step of 0"
    yield Case("Slice", 13, [X234, i64(0), i64(1), i64(7)]), ProgramError, "axis 7 of 3"
    yield Case("Split", 13, [X234, i64(9, -6)], {"axis": 1}, 2), ProgramError, "sizes"
    yield Case("Range", 11, [F(0), F(1), F(0)]), ProgramError, "delta of 0"
    yield Case("ConstantOfShape", 9, [i64(-1)]), ProgramError, r"shape \[-1\]"
    yield Case("ConstantOfShape", 9, [np.full(100_000, 2**62)]), ProgramError, "100000 axes"
    blocks = {"blocksize": 0}
    yield Case("DepthToSpace", 13, [X234[np.newaxis]], blocks), ProgramError, "division"
    yield Case("TopK", 11, [F([1]), i64(2)], {}, 2), ProgramError, "top 2 of 1"
    yield Case("Squeeze", 13, [X234, i64(0)]), ProgramError, "size"
    yield Case("ReduceSum", 13, [X234, i64(0, -3)]), ProgramError, "name one twice"
    yield Case("Pad", 13, [X234, i64(0, 0)]), ProgramError, "2 pads of 3 axes"
    yield Case("Pad", 13, [X234, i64(*[0] * 6)], {"mode": "x"}), UnsupportedError, "mode 'x'"
    yield Case("Cast", 13, [F([1])], {"to": 99}), UnsupportedError, "element type 99"
    yield Case("Cast", 13, [strings("x")], {"to": 1}), ProgramError, "float"
    yield Case("BitCast", 26, [F([1])], {"to": 7}), ProgramError, "bits"
    yield Case("Einsum", 12, [X234], {"equation": "ab->a"}), ProgramError, "term 'ab'"
    yield Case("Einsum", 12, [X234], {"equation": "abc->ad"}), ProgramError, r"\['d'\] of .* in no"
    yield Case("Einsum", 12, [X234], {"equation": "abc,d"}), ProgramError, "2 terms, 1 inputs"
    yield Case("ReverseSequence", 10, [X234, i64(9, 9, 9)]), ProgramError, "lengths"
    one = F([1])
    yield Case("InstanceNormalization", 6, [one, one, one]), ProgramError, r"input \[1\]"
    flat = [F([[1]]), F([[[1]]]), F([[[1]]])]
    yield Case("RNN", 14, flat, {"hidden_size": 1}, 2), ProgramError, r"X \[1, 1\], .* three axes"
    writes = [np.zeros((1, 2, 3), F), np.zeros((1, 2, 3), F), i64(1)]
    yield Case("TensorScatter", 24, writes), ProgramError, "cache of 2"


WRONG = list(wrong())


@pytest.mark.parametrize(("case", "error", "message"), WRONG, ids=[str(c) for c, *_ in WRONG])
def test_wrong_values_are_refused(case: Case, error: type[HalfbyteError], message: str) -> None:
    with pytest.raises(error, match=rf"case.onnx: node of {case.operator}: .*{message}"):
        case.run()


def schemas() -> list[onnx.defs.OpSchema]:
    """Every version of the operators defined here that applies from opset 7 on."""
    starts = []
    for domain, name in operators():
        versions = [
            s for s in onnx.defs.get_all_schemas_with_history()
            if (s.domain, s.name) == (domain, name) and not s.deprecated
        ]  # fmt: skip
        if not versions:
            continue  # ONNX Runtime's, or of halfbyte's own domain
        versions.sort(key=lambda s: s.since_version)
        following = [s.since_version for s in versions[1:]] + [N_OPS + 1]
        starts += [s for s, end in zip(versions, following, strict=True) if domain or end > 7]
    return starts


def test_every_version_takes_the_inputs_of_its_schema() -> None:
    missing = []
    for schema in schemas():
        definition = find(schema.domain, schema.name, schema.since_version)
        where = f"{schema.name}-{schema.since_version}"
        if definition is None:
            missing.append(where)
        else:
            unknown = set(schema.attributes) - definition.attributes
            missing += [f"{where}: {name}" for name in sorted(unknown)]
    assert not missing
    assert len(schemas()) > 300
