"""Hadamard matrices between activations and weights: where they are used, and their effect."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, numpy_helper
from tests.quantize.small_models import Array, load, node, normal, operators, run, tensors_of, write

from halfbyte.core.ops import hadamard
from halfbyte.core.ops.rotated import matrix
from halfbyte.errors import HalfbyteError
from halfbyte.onnx.reference.contrib.matmul import matmul_nbits
from halfbyte.onnx.session import InferenceSession
from halfbyte.quantize.onnx import Options, quantize_onnx

FLOAT, HALF = TensorProto.FLOAT, TensorProto.FLOAT16


def products(path: Path, k: int = 128, n: int = 32, dtype: type = np.float32) -> Path:
    """Three products of one value, one of them a Gemm of a transposed matrix."""
    kind = FLOAT if dtype is np.float32 else HALF
    nodes = [
        node("MatMul", ["x", "a"], ["first"], name="first"),
        node("MatMul", ["x", "b"], ["second"], name="second"),
        node("Reshape", ["x", "rows"], ["flat"]),
        node("Gemm", ["flat", "c", "bias"], ["third"], name="third", transB=1),
    ]
    tensors: dict[str, Array] = {
        "a": normal(k, n, seed=1), "b": normal(k, n, seed=2), "c": normal(n, k, seed=3),
        "bias": normal(n, seed=4),
    }  # fmt: skip
    constants = {name: value.astype(dtype) for name, value in tensors.items()}
    constants["rows"] = np.array([-1, k])
    outputs = {name: (kind, [*rows, n]) for name, rows in
               (("first", ("b", "t")), ("second", ("b", "t")), ("third", ("m",)))}  # fmt: skip
    return write(path, nodes, {"x": (kind, ["b", "t", k])}, outputs, constants)


def quantized(path: Path, **options: Any) -> Path:
    output = path.with_name("o.onnx")
    quantize_onnx(path, output, Options(**{"type": "int8", "compare": False, **options}))
    return output


def spiky(*shape: int) -> Array:
    """Numbers of which every 64th is forty times as large."""
    x = normal(*shape, seed=5)
    x[..., ::64] *= 40
    return x


@pytest.mark.parametrize("kind", ["int8", "int4"])
def test_products_share_a_rotated_input(kind: str, tmp_path: Path) -> None:
    output = quantized(products(tmp_path / "m.onnx"), type=kind)
    rotations = [one for one in load(output).graph.node if "hadamard" in one.input]
    assert [one.op_type for one in rotations] == ["MatMul", "MatMul"]  # of x, and of it as rows
    np.testing.assert_array_equal(tensors_of(output)["hadamard"], matrix())
    nodes = {one.name: one for one in load(output).graph.node}
    assert nodes["first"].input[0] == nodes["second"].input[0] != nodes["third"].input[0]


def test_weights_come_back(tmp_path: Path) -> None:
    """Stored weights, times the matrix, are the original up to quantization."""
    path = products(tmp_path / "m.onnx")
    tensors = tensors_of(quantized(path))
    unit = np.eye(128, dtype=np.float32)
    q, scales = tensors["a.q8"], tensors["a.q8_scale"]
    rotated = hadamard.meaning(unit)
    actual = matmul_nbits(rotated, q, scales, K=128, N=32, block_size=32, bits=8)
    expected = tensors_of(path)["a"]
    assert 1e-4 < np.abs(actual - expected).max() < np.abs(expected).max() / 100


@pytest.mark.parametrize(
    ("sizes", "options"),
    [({"k": 96}, {}), ({"n": 24}, {}), ({}, {"rtn": True}), ({"dtype": np.float16}, {})],
)
def test_what_stays(sizes: dict[str, Any], options: dict[str, Any], tmp_path: Path) -> None:
    """Sizes without kernels, plain rounding, float16."""
    path = products(tmp_path / "m.onnx", **sizes)
    assert "hadamard" not in tensors_of(quantized(path, **options))


def test_products_in_floats_are_not_rotated(tmp_path: Path) -> None:
    path = products(tmp_path / "m.onnx")
    nodes = {one.name: one for one in load(quantized(path, keep=[("first", "fp32")])).graph.node}
    assert (nodes["first"].op_type, nodes["first"].input[0]) == ("MatMul", "x")
    assert nodes["second"].input[0] != "x"


def test_it_pays(tmp_path: Path) -> None:
    """Large channels no longer cost their neighbours precision, in both engines."""
    path, feeds = products(tmp_path / "m.onnx"), {"x": spiky(2, 5, 128)}
    expected = run(path, feeds)[0]
    errors = {}
    for rtn in (True, False):
        output = quantized(path, rtn=rtn)
        for engine in (run, lambda file, feeds: InferenceSession(file).run(None, feeds)):
            noise = engine(output, feeds)[0] - expected
            errors[rtn, engine is run] = float(np.square(noise).mean())
    assert errors[False, True] < 0.5 * errors[True, True]
    assert errors[False, False] < 0.5 * errors[True, False]


@pytest.mark.parametrize("shape", [(0, 3, 128), (2, 0, 128), (1, 1, 128)])
def test_few_rows(shape: tuple[int, int, int], tmp_path: Path) -> None:
    """No rows give empty outputs, in the shapes of the original."""
    path = products(tmp_path / "m.onnx")
    feeds = {"x": normal(*shape, seed=6)}
    output = quantized(path)
    assert operators(output).count("Shape") == 2
    for expected, actual in zip(run(path, feeds), run(output, feeds), strict=True):
        assert actual.shape == expected.shape
    mine = InferenceSession(output).run(None, feeds)
    assert [y.shape for y in mine] == [y.shape for y in run(path, feeds)]


@pytest.mark.parametrize(("first", "last"), [(0, 1), (1, 3), (0, 3)])
def test_a_part_of_a_rotated_input(first: int, last: int, tmp_path: Path) -> None:
    """A product may read a part of the rows while others read all."""
    model = load(quantized(products(tmp_path / "m.onnx")))
    for name, value in (("begin", [first]), ("end", [last]), ("axes", [1])):
        model.graph.initializer.append(numpy_helper.from_array(np.array(value), name))
    at = next(i for i, one in enumerate(model.graph.node) if one.name == "first")
    rotated = model.graph.node[at].input[0]
    model.graph.node[at].input[0] = "part"
    model.graph.node.insert(at, node("Slice", [rotated, "begin", "end", "axes"], ["part"]))
    onnx.save(model, tmp_path / "sliced.onnx")
    feeds = {"x": normal(1, 3, 128, seed=6)}
    expected = run(tmp_path / "sliced.onnx", feeds)
    outputs = InferenceSession(tmp_path / "sliced.onnx").run(None, feeds)
    for mine, theirs in zip(outputs, expected, strict=True):
        assert mine.shape == theirs.shape
        assert np.abs(mine - theirs).max() < 0.02 * np.abs(theirs).max()


def test_what_the_matrix_does_not_fit_is_refused(tmp_path: Path) -> None:
    nodes = [node("MatMul", ["x", "h"], ["y"], name="product")]
    path = tmp_path / "m.onnx"
    write(path, nodes, {"x": (FLOAT, ["n", "k"])}, {"y": (FLOAT, ["n", 32])}, {"h": matrix()})
    x = normal(3, 32, seed=1)
    np.testing.assert_allclose(
        InferenceSession(path).run(None, {"x": x})[0], x @ matrix(), rtol=1e-5, atol=1e-5
    )
    with pytest.raises(HalfbyteError, match="64"):
        InferenceSession(path).run(None, {"x": normal(3, 64, seed=2)})
