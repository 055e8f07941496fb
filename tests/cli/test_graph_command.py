"""`halfbyte run` and `halfbyte info` of ONNX graphs, from a user's perspective."""

from __future__ import annotations

import json
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from tests.formats.test_pictures import PIXELS, bitmap
from tests.onnx.session.models import (
    BOOL,
    FLOAT,
    added,
    identity,
    model,
    node,
    proto,
    tensor,
    weight,
)

from halfbyte.cli import main
from halfbyte.evaluation.inputs import graph_feeds
from halfbyte.onnx.files import open_onnx

Capture = pytest.CaptureFixture[str]


def saved(tmp_path: Path, data: bytes, name: str = "model.onnx") -> str:
    path = tmp_path / name
    path.write_bytes(data)
    return str(path)


def test_random_inputs(tmp_path: Path, capsys: Capture) -> None:
    path, out = saved(tmp_path, added()), tmp_path / "out.npz"
    command = ["run", path, "--size", "n=3", "--seed", "7", "--output", str(out)]
    assert main(command) == 0
    printed, said = capsys.readouterr()
    x = np.random.default_rng(7).standard_normal((3, 2)).astype(np.float32)
    y = x + np.array([1, 2], np.float32)
    with np.load(out) as written:
        np.testing.assert_array_equal(written["y"], y)
    assert printed.startswith(f"y: float32 [3, 2], min {y.min():.6g}, mean {y.mean():.6g}")
    assert printed.rstrip().endswith(" ".join(f"{v:.6g}" for v in y.reshape(-1)))
    assert said.startswith("first run ")
    assert main(["run", path]) == 0
    assert "float32 [1, 2]" in capsys.readouterr().out


@pytest.mark.parametrize(("kind", "width"), [(FLOAT, 4), (TensorProto.INT32, 4), (BOOL, 1)])
def test_random_inputs_need_little_additional_memory(tmp_path: Path, kind: int, width: int) -> None:
    count = 3 << 20
    opened = open_onnx(saved(tmp_path, identity(kind, ["n"])))
    tracemalloc.start()
    (x,) = graph_feeds(opened, None, {"n": count}, 5).values()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < width * count + (1 << 23)
    if kind == FLOAT:  # in parts as at once
        np.testing.assert_array_equal(
            x, np.random.default_rng(5).standard_normal(count).astype(np.float32)
        )


def test_arrays(tmp_path: Path, capsys: Capture) -> None:
    data = model([node("Sub", "a b")], [tensor("a"), tensor("b")])
    path = saved(tmp_path, data, "named as nothing")
    np.savez(tmp_path / "in.npz", a=np.array([3, 4], np.float32), b=np.array([1, 1], np.float32))
    assert main(["run", path, "--input", str(tmp_path / "in.npz"), "--runs", "2"]) == 0
    printed, said = capsys.readouterr()
    assert "min 2, mean 2.5, max 3: 2 3" in printed
    assert "2 more: least" in said
    np.save(tmp_path / "in.npy", np.array([[3, 4]], np.float32))
    assert main(["run", saved(tmp_path, added()), "--input", str(tmp_path / "in.npy")]) == 0
    assert "4 6" in capsys.readouterr().out


def test_pictures(tmp_path: Path, capsys: Capture) -> None:
    picture = tmp_path / "picture.bmp"
    picture.write_bytes(bitmap(PIXELS))
    out = tmp_path / "out.npz"
    for kind, shape, options, expected in (
        (FLOAT, [1, 3, 5, 7], [], PIXELS.transpose(2, 0, 1) / 255),
        (FLOAT, ["n", "h", "w", 3], ["--bgr", "--scale", "2"], PIXELS[:, :, ::-1] * 2.0),
        (TensorProto.UINT8, [3, 5, 7], [], PIXELS.transpose(2, 0, 1)),
        (
            FLOAT, [1, 5, 7, 3], ["--mean", "0.1,0.2,0.3", "--std", "0.5"],
            (PIXELS / 255 - [0.1, 0.2, 0.3]) / 0.5,
        ),
    ):  # fmt: skip
        path = saved(tmp_path, identity(kind, shape))
        command = ["run", path, "--input", str(picture), "--output", str(out), *options]
        assert main(command) == 0
        with np.load(out) as written:
            result = written["y"].reshape(expected.shape)
        np.testing.assert_allclose(result, expected, atol=1e-6)
    capsys.readouterr()
    assert main(["run", saved(tmp_path, identity()), "--input", str(picture)]) == 2
    assert "no input takes a picture" in capsys.readouterr().err


def test_classes_sequences_strings_and_small_types(tmp_path: Path, capsys: Capture) -> None:
    sequence = helper.make_tensor_sequence_value_info
    data = model(
        [
            node("Identity", "x", "scores"),
            node("SequenceConstruct", "x x", "parts"),
            node("Identity", "s", "t"),
            node("Cast", "x", "small", to=TensorProto.BFLOAT16),
        ],
        [tensor("x", FLOAT, [1, 3]), tensor("s", TensorProto.STRING, [1])],
        [
            tensor("scores", FLOAT, [1, 3]),
            sequence("parts", FLOAT, None),
            tensor("t", TensorProto.STRING, [1]),
            tensor("small", TensorProto.BFLOAT16, [1, 3]),
        ],
    )
    path, given, out = saved(tmp_path, data), tmp_path / "in.npz", tmp_path / "out.npz"
    np.savez(given, x=np.array([[1, 9, 5]], np.float32), s=np.array(["a\x1bb"]))
    assert main(["run", path, "--input", str(given), "--output", str(out)]) == 0
    printed = capsys.readouterr().out
    assert "  top: 1 (9), 2 (5), 0 (1)\n" in printed
    assert "parts: 2 parts\n  [0]: float32 [1, 3]" in printed
    assert r"t: object [1]: 'a\x1bb'" in printed
    assert "small: bfloat16 [1, 3], min 1, mean 5, max 9: 1 9 5" in printed
    with np.load(out) as written:
        assert sorted(written) == ["parts.0", "parts.1", "scores", "small", "t"]
        assert written["small"].dtype == np.float32
        assert written["t"].tolist() == ["a\x1bb"]


def test_profile_dump_and_execution(tmp_path: Path, capsys: Capture) -> None:
    path = saved(tmp_path, added())
    assert main(["run", path, "--profile", "--dump", "-t", "2", "--backend", "numpy"]) == 0
    printed, said = capsys.readouterr()
    assert "# add" in printed
    assert "GB/s" in said
    assert main(["run", path, "--passes", "off", "--profile"]) == 0
    assert "numpy:Add" in capsys.readouterr().err


WRONG = {
    "prompt": (["Once"], "takes --input, not a prompt"),
    "a budget": (["--memory-budget", "9MB"], "--memory-budget is for language models"),
    "no such size": (["--size", "m=3"], r"size 'm': expected one of ['n']"),
    "no such file": (["--input", "nowhere.npz"], "nowhere.npz"),
    "no such backend": (["--backend", "abacus"], "abacus"),
    "output in no folder": (["--output", "no/folder/out.npz"], "cannot be written"),
}


@pytest.mark.parametrize("name", WRONG)
def test_impossible_options(tmp_path: Path, capsys: Capture, name: str) -> None:
    options, text = WRONG[name]
    assert main(["run", saved(tmp_path, added()), *options]) == 2
    error = capsys.readouterr().err
    assert text in error
    assert error.count("\n") <= 2


def test_broken_models_and_inputs(tmp_path: Path, capsys: Capture) -> None:
    broken = saved(tmp_path, b"nothing of the kind", "broken.onnx")
    assert main(["run", broken]) == 2
    assert "not an ONNX model" in capsys.readouterr().err
    array = saved(tmp_path, b"\x93NUMPY and no more", "in.npy")
    assert main(["run", saved(tmp_path, added()), "--input", array]) == 2
    assert "expected an array in NumPy's .npy" in capsys.readouterr().err


def test_graph_options_are_not_for_language_models(storyteller: Path, capsys: Capture) -> None:
    assert main(["run", str(storyteller), "--runs", "3"]) == 2
    assert "--runs is for ONNX graphs" in capsys.readouterr().err


def test_info(tmp_path: Path, capsys: Capture) -> None:
    branch = helper.make_graph(
        [node("Add", "x w", "b")], "b", [], [tensor("b")], [weight("w", [1, 2])]
    )
    body = [node("Relu", "a", "b")]
    function = helper.make_function("own", "F", ["a"], ["b"], body, [helper.make_opsetid("", 21)])
    output = proto(
        [
            node("If", "c", "d", then_branch=branch, else_branch=branch),
            node("F", "d", "y", domain="own"),
            node("Constant", "", "k", value=weight("", [1], np.int64)),
        ],
        [tensor("x", FLOAT, ["n", 2]), tensor("c", TensorProto.BOOL, [])],
        weights=[helper.make_tensor("q", TensorProto.INT4, [3], [1, 2, 3])],
        domains=[("own", 1)],
        functions=[function],
        producer_name="te\x1bst",
    )
    path = saved(tmp_path, output.SerializeToString())
    assert main(["info", path]) == 0
    printed = capsys.readouterr().out
    assert "IR version 10, opsets ai.onnx 21, own 1" in printed
    assert r"producer: te\x1bst" in printed
    assert "x: tensor(float) ['n', 2]" in printed
    assert main(["info", path, "--json"]) == 0
    data: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert data["operators"] == {"Add": 2, "If": 1, "own.F": 1, "Constant": 1, "Relu": 1}
    assert data["parameters"] == 3 + 4 + 1
    assert data["bytes_by_type"] == {"float": 16, "int64": 8, "int4": 2}
    assert data["inputs"][1] == {"name": "c", "type": "tensor(bool)", "shape": []}


@pytest.mark.data
def test_the_digit_in_the_guide(data: Path, capsys: Capture) -> None:
    folder = data / "onnx"
    command = ["run", str(folder / "mnist.onnx"), "--input", str(folder / "mnist_nine.bmp")]
    assert main(command) == 0
    assert "  top: 9 (" in capsys.readouterr().out
    assert main(["info", str(folder / "mnist.onnx")]) == 0
    assert onnx.load(folder / "mnist.onnx").graph.node[0].op_type in capsys.readouterr().out
