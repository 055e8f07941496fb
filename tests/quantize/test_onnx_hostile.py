"""Randomly changed models are quantized, or refused with one line."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import AttributeProto, TensorProto, helper
from tests.quantize.small_models import convolutions, load, products

from halfbyte.errors import FormatError, HalfbyteError
from halfbyte.quantize.onnx import Options, quantize_onnx

WAYS = (
    Options(compare=False),
    Options(type="int4", compare=False),
    Options(method="dynamic", compare=False),
    Options(type="fp16", compare=False),
    Options(type="bf16", compare=False),
    Options(method="static", compare=False),
)


def drop_input(model: onnx.ModelProto, chance: random.Random) -> None:
    node = chance.choice(model.graph.node)
    if node.input:
        del node.input[chance.randrange(len(node.input))]


def clear_name(model: onnx.ModelProto, chance: random.Random) -> None:
    node = chance.choice(model.graph.node)
    names = chance.choice([node.input, node.output])
    if names:
        names[chance.randrange(len(names))] = ""


def swap_names(model: onnx.ModelProto, chance: random.Random) -> None:
    node, other = chance.choice(model.graph.node), chance.choice(model.graph.node)
    if node.input and other.input:
        node.input[0] = chance.choice([*other.input, *other.output, "nothing"])


def change_operator(model: onnx.ModelProto, chance: random.Random) -> None:
    names = [node.op_type for node in model.graph.node]
    chance.choice(model.graph.node).op_type = chance.choice([*names, "Nonsense", "If", "LSTM"])


def change_attribute(model: onnx.ModelProto, chance: random.Random) -> None:
    node = chance.choice(model.graph.node)
    name = chance.choice(["axis", "perm", "transB", "alpha", "pads", "to", "epsilon", "group"])
    value = chance.choice([1, -7, 1 << 40, 0.5, "text", [1, 2], [0.5], []])
    if value != []:
        node.attribute.append(helper.make_attribute(name, value))
    elif node.attribute:
        node.attribute[0].type = AttributeProto.STRING


def change_shape(model: onnx.ModelProto, chance: random.Random) -> None:
    tensor = chance.choice(model.graph.initializer)
    size = int(np.prod(tensor.dims))
    shape = chance.choice([[size], [1, size], [size, 1], [size, 1, 1, 1], [0], [], [-1, size]])
    del tensor.dims[:]
    tensor.dims.extend(shape)


def change_type(model: onnx.ModelProto, chance: random.Random) -> None:
    tensor = chance.choice(model.graph.initializer)
    tensor.data_type = chance.choice([*range(27), 99, TensorProto.STRING])


def drop_initializer(model: onnx.ModelProto, chance: random.Random) -> None:
    del model.graph.initializer[chance.randrange(len(model.graph.initializer))]


def repeat_node(model: onnx.ModelProto, chance: random.Random) -> None:
    model.graph.node.append(chance.choice(model.graph.node))


def change_opset(model: onnx.ModelProto, chance: random.Random) -> None:
    model.opset_import[0].version = chance.choice([-1, 0, 1, 7, 12, 30, 1 << 40])


CHANGES = (
    drop_input, clear_name, swap_names, change_operator, change_attribute, change_shape,
    change_type, drop_initializer, repeat_node, change_opset,
)  # fmt: skip


@pytest.mark.parametrize("make", [products, convolutions])
@pytest.mark.parametrize("change", CHANGES)
def test_changed_models(
    tmp_path: Path,
    make: Callable[[Path], Path],
    change: Callable[[onnx.ModelProto, random.Random], None],
) -> None:
    """Only `HalfbyteError` is raised, with one line, and no file is left."""
    chance = random.Random(f"{make.__name__} {change.__name__}")
    original = load(make(tmp_path / "m.onnx"))
    samples = tmp_path / "samples.npz"
    name = original.graph.input[0].name
    kind = np.zeros((2, 4), np.int64) if make is products else np.ones((2, 3, 12, 12), np.float32)
    np.savez(samples, **{name: kind})  # type: ignore[arg-type]
    for index in range(12):
        model = onnx.ModelProto()
        model.CopyFrom(original)
        change(model, chance)
        (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
        options = WAYS[index % len(WAYS)]
        message = refusal(tmp_path, options, samples if options.method == "static" else None)
        assert "\n" not in message
        assert (tmp_path / "o.onnx").exists() != bool(message)
        (tmp_path / "o.onnx").unlink(missing_ok=True)
        assert sorted(p.name for p in tmp_path.iterdir()) == ["m.onnx", "samples.npz"]


def refusal(folder: Path, options: Options, samples: Path | None = None) -> str:
    """Why a model is not quantized; '' where it is."""
    try:
        quantize_onnx(folder / "m.onnx", folder / "o.onnx", options, samples=samples)
    except HalfbyteError as error:
        return str(error) or "\n"
    return ""


def test_bytes_at_random(tmp_path: Path) -> None:
    chance = random.Random(1)
    path = products(tmp_path / "m.onnx")
    original = path.read_bytes()
    for _ in range(60):
        data = bytearray(original)
        for _ in range(chance.choice([1, 3, 20])):
            end = len(data) if chance.random() < 0.3 else 900  # bytes other than numbers come first
            data[chance.randrange(end)] = chance.randrange(256)
        path.write_bytes(data)
        assert "\n" not in refusal(tmp_path, Options(compare=False))
        (tmp_path / "o.onnx").unlink(missing_ok=True)
        assert [p.name for p in tmp_path.iterdir()] == ["m.onnx"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda n: n.input.pop(), r"node 'up_product' \(MatMul\): expected 2 to 2 inputs, found 1"),
        (lambda n: n.output.pop(), "it has no outputs"),
        (lambda n: n.input.append("up"), "expected 2 to 2 inputs, found 3"),
    ],
)
def test_nodes_that_differ_from_their_operators(
    tmp_path: Path, change: Callable[[onnx.NodeProto], None], message: str
) -> None:
    model = load(products(tmp_path / "m.onnx"))
    change(next(node for node in model.graph.node if node.name == "up_product"))
    if message == "it has no outputs":
        model.graph.node[2].input[0] = "rows"
    (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
    with pytest.raises(FormatError, match=message):
        quantize_onnx(tmp_path / "m.onnx")


def sized(path: Path, *sizes: int) -> Path:
    """A product whose input is declared to have these sizes."""
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, sizes)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [onnx.numpy_helper.from_array(np.ones((64, 64), np.float32), "w")],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)]), path)
    return path


@pytest.mark.parametrize("kind", ["int8", "int4", "fp16"])
def test_inputs_of_absurd_sizes_are_refused_by_name(tmp_path: Path, kind: str) -> None:
    path = sized(tmp_path / "huge.onnx", 1 << 40, 64)
    with pytest.raises(HalfbyteError, match=r"huge\.onnx: input 'x': float32 \[1099511627776, 64"):
        quantize_onnx(path, tmp_path / "out.onnx", Options(type=kind))


def test_a_size_of_minus_one_says_nothing(tmp_path: Path) -> None:
    """As exporters write it where others leave a name."""
    report = quantize_onnx(sized(tmp_path / "open.onnx", -1, 64), tmp_path / "out.onnx", Options())
    assert [row.name for row in report.outputs] == ["y"]


def test_loops_that_do_not_end_are_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("halfbyte.quantize.onnx.running.MAX_STEPS", 1000)
    body = helper.make_graph(
        [helper.make_node("Identity", ["go"], ["go2"]), helper.make_node("Neg", ["a"], ["a2"])],
        "body",
        [
            helper.make_tensor_value_info("i", TensorProto.INT64, []),
            helper.make_tensor_value_info("go", TensorProto.BOOL, []),
            helper.make_tensor_value_info("a", TensorProto.FLOAT, None),
        ],
        [
            helper.make_tensor_value_info("go2", TensorProto.BOOL, []),
            helper.make_tensor_value_info("a2", TensorProto.FLOAT, None),
        ],
    )
    path = sized(tmp_path / "loop.onnx", 1, 64)
    model = onnx.load(path)
    model.graph.node[0].output[0] = "p"
    model.graph.node.append(helper.make_node("Loop", ["trips", "", "p"], ["y"], body=body))
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.int64(1 << 62), "trips"))
    onnx.save(model, path)
    report = quantize_onnx(path, tmp_path / "out.onnx", Options())
    assert any("loops do not end" in note for note in report.notes)
