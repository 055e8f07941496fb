"""Graphs on devices: the bytes of their programs, the time of a run, and what would fit."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from tests.device.test_fit import watch, with_app
from tests.onnx.convert import model_from
from tests.onnx.graphs import Net
from tools.onnx_models.builder import FLOAT

from halfbyte.cli import main
from halfbyte.core.buffer import Kind
from halfbyte.device.cost import work_of
from halfbyte.device.graphs import GraphFitter, GraphNeed, GraphPlanner, Runs
from halfbyte.device.profile import load_profile, profile_names
from halfbyte.device.quantity import Draws
from halfbyte.device.room import Fit
from halfbyte.device.smaller import fp16_memory, smaller_graphs
from halfbyte.device.speed import Processor, fast_cores
from halfbyte.errors import HalfbyteError
from halfbyte.onnx.files import open_onnx
from halfbyte.onnx.files.model import Model
from halfbyte.onnx.session import InferenceSession
from halfbyte.quantize.onnx import Options, quantize_onnx
from halfbyte.text.footprint import in_app

WIDE, DEEP = 512, 256
INTERPRETER = in_app({})["interpreter"] / 1e6


def perceptron(batch: int | str = "batch") -> onnx.ModelProto:
    """Two products with relu between, and a table: y = relu(x w) v, z = table[ids]."""
    net = Net()
    x, ids = net.input("x", FLOAT, [batch, DEEP]), net.input("ids", onnx.TensorProto.INT64, ["n"])
    hidden = net.node("Relu", net.node("MatMul", x, net.w(DEEP, WIDE)))
    z = net.node("Gather", net.w(1000, DEEP), ids)
    return net.proto(net.node("MatMul", hidden, net.w(WIDE, DEEP)), z)


def saved(tmp_path: Path, model: onnx.ModelProto) -> Path:
    path = tmp_path / "graph.onnx"
    path.write_bytes(model.SerializeToString())
    return path


def fit(model: Model, megabytes: float, sizes: Mapping[str, int]) -> Fit[GraphNeed]:
    return GraphFitter(model, with_app(megabytes)).fit(sizes)


@pytest.fixture
def model(tmp_path: Path) -> Model:
    return open_onnx(saved(tmp_path, perceptron()))


def test_the_bytes_are_the_programs(model: Model, tmp_path: Path) -> None:
    """They equal the memory plans of a session's programs, by kind, at the requested sizes."""
    sizes = {"batch": 8, "n": 3}
    memory = GraphPlanner(model).plan(sizes).memory
    with InferenceSession(tmp_path / "graph.onnx") as session:
        session.run(None, {"x": np.ones((8, DEEP), np.float32), "ids": np.zeros(3, np.int64)})
        (program,) = session.programs()
    kinds = program.bytes_by_kind()
    assert memory["activations"] == kinds[Kind.SCRATCH] + kinds[Kind.INPUT] + kinds[Kind.OUTPUT]
    weights = memory["weights (packed)"] + memory["weights (mapped)"]
    assert weights + memory["constants"] == kinds[Kind.WEIGHT] + kinds[Kind.CONSTANT]
    assert weights == 4 * (2 * WIDE * DEEP + 1000 * DEEP)
    assert memory["weights (packed)"] >= 4 * 2 * WIDE * DEEP
    assert memory["interpreter"] == in_app({})["interpreter"]


def test_weights_read_from_the_file(tmp_path: Path) -> None:
    """NumPy's float64 products read the file; folded constants do not."""
    net = Net()
    x = net.input("x", onnx.TensorProto.DOUBLE, [4, 64])
    w = net.array(net.numbers(64, 32), np.float64)
    y = net.node("MatMul", x, w)
    path = saved(tmp_path, net.proto(y))
    planned = GraphPlanner(open_onnx(path)).plan({})
    assert planned.memory["weights (mapped)"] == 64 * 32 * 8
    assert planned.memory["weights (packed)"] == 0
    assert work_of(planned.program, {})["numpy"].passing == 8 * (4 * 64 + 4 * 32 + 64 * 32)
    net = Net()
    y = net.node("MatMul", net.x(4, 64), net.node("Neg", net.w(64, 32)))
    folded = GraphPlanner(open_onnx(saved(tmp_path, net.proto(y)))).plan({"x0_0": 4, "x0_1": 64})
    assert folded.memory["weights (packed)"] == folded.memory["weights (mapped)"] + 64 * 32 * 4
    assert folded.memory["constants"] >= 64 * 32 * 4  # the numbers before they were packed


def test_nodes_between_programs_are_counted(tmp_path: Path) -> None:
    net = Net()
    x = net.x(6, 4)
    some = net.node("Compress", net.node("Relu", x), net.array([True, False] * 3), axis=0)
    places = net.node("NonZero", some)
    y = net.node("Mul", net.node("Cast", places, to=FLOAT), net.array([2.0], np.float32))
    planned = GraphPlanner(open_onnx(saved(tmp_path, net.proto(y)))).plan({"x0_0": 6, "x0_1": 4})
    assert planned.calls == 2
    names = [i.operator.name for i in planned.program.instructions]
    assert "NonZero" in names
    profile = load_profile("pixel-6")
    rates = Processor(profile, 1, Draws()).rates()
    both, one = (
        Runs(p).passes(profile, Draws())[0].seconds(rates)[0]
        for p in (planned, replace(planned, calls=1))
    )
    assert both - one > rates.call[0]
    hosts = work_of(planned.program, {})["numpy"].calls
    assert one > (hosts + 1) * rates.call[0]


def test_numpy_reads_only_the_rows_it_needs(tmp_path: Path) -> None:
    net = Net()
    ids = net.input("ids", onnx.TensorProto.INT64, [3])
    y = net.node("Gather", net.array(np.ones((1000, 8)), np.float64), ids)
    path = saved(tmp_path, net.proto(net.node("Cast", y, to=FLOAT)))
    planned = GraphPlanner(open_onnx(path)).plan({})
    assert planned.memory["weights (mapped)"] + planned.memory["constants"] >= 1000 * 8 * 8
    assert 3 * 8 * 8 < work_of(planned.program, {})["numpy"].passing < 1000


def test_dropped_pages_are_read_from_storage(tmp_path: Path) -> None:
    net = Net()
    x = net.input("x", onnx.TensorProto.DOUBLE, [1, 2048])
    y = net.node("MatMul", x, net.array(np.ones((2048, 4096)), np.float64))
    model = open_onnx(saved(tmp_path, net.proto(y)))
    roomy = fit(model, 4000, {}).asked
    tight = fit(model, roomy.private / 1e6 + 1, {}).asked
    assert roomy.fits
    assert tight.fits
    assert (roomy.from_storage, tight.from_storage) == (False, True)
    storage = load_profile("pixel-6").memory.storage_gb_s
    assert tight.runs is not None
    assert tight.runs.high < storage.high * 1e9 / (8 * 2048 * 4096)


def test_bytes_and_time_depend_on_sizes(model: Model) -> None:
    small, large = (fit(model, 4000, {"batch": batch}).asked for batch in (8, 512))
    ratio = large.memory["activations"] / small.memory["activations"]
    assert 30 < ratio < 64  # the table's rows do not grow
    assert large.memory["weights (packed)"] == small.memory["weights (packed)"]
    assert large.inputs == {"x": (512, DEEP), "ids": (1,)}
    assert small.runs is not None
    assert large.runs is not None
    assert 2 < small.runs.median / large.runs.median < 64


def test_planning_opens_no_program(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: Any, **names: Any) -> Any:
        raise AssertionError("a program took memory")

    monkeypatch.setattr("halfbyte.device.graphs.open_program", refuse)
    planned = GraphPlanner(model).plan({"batch": 100_000})
    assert planned.memory["activations"] > 4 * 100_000 * (WIDE + 2 * DEEP)


def test_each_suggestion_fits(model: Model) -> None:
    asked = fit(model, 4000, {"batch": 1000}).asked
    limit = asked.private / 1e6 - 1.2
    result = fit(model, limit, {"batch": 1000})
    assert not result.fits
    assert result.levels == {}
    assert all(need.fits for need in result.would)
    assert [need.runs is None for need in result.would] == [False, False, False, True]
    words = [need.settings for need in result.would]
    (size,) = [int(w.split("=")[1]) for w in words if w.startswith("--size batch")]
    assert fit(model, limit, {"batch": size}).fits
    assert not fit(model, limit, {"batch": size + 1}).fits
    assert [w.split()[-1] for w in words if w.startswith("quantize")] == [
        "--int8", "--int4", "--fp16",
    ]  # fmt: skip


def test_a_graph_that_cannot_fit(model: Model) -> None:
    result = fit(model, INTERPRETER / 2, {})
    assert not result.fits
    assert result.would == []


def test_smaller_types_have_the_sizes_of_their_blocks(model: Model) -> None:
    numbers, table = 2 * WIDE * DEEP, 1000 * DEEP
    expected = {"--int8": (numbers + table) * 34 // 32, "--int4": (numbers * 18 + table * 34) // 32}
    output = {words.split()[-1]: output for words, output in smaller_graphs(model)}
    for option, size in expected.items():
        memory = GraphPlanner(output[option]).plan({}).memory
        assert memory["weights (packed)"] == size
    before = GraphPlanner(model).plan({}).memory
    half = fp16_memory(model, before)
    assert half["weights (mapped)"] - before["weights (mapped)"] == 2 * (numbers + table)
    assert half["weights (packed)"] == 0


def test_smaller_types_without_matrices(tmp_path: Path) -> None:
    net = Net()
    y = net.node("Conv", net.x(1, 32, 8, 8), net.w(32, 32, 3, 3))
    assert not dict(smaller_graphs(model_from(net.proto(y))))


def test_smaller_types_of_gemm_and_of_a_shared_table(tmp_path: Path) -> None:
    """The table is also the head, transposed; a Gemm that adds a matrix is not quantized."""
    net = Net()
    ids = net.input("ids", onnx.TensorProto.INT64, [2])
    table = net.w(64, 32)
    x = net.node("Gather", table, ids)
    y = net.node("Gemm", x, table, net.w(64), transB=1)
    z = net.node("Gemm", x, net.w(64, 32), net.w(2, 64), transB=1)
    graph = open_onnx(saved(tmp_path, net.proto(y, z)))
    output = next(output for words, output in smaller_graphs(graph))
    kinds = {node.op_type: node for node in output.graph.nodes}
    assert set(kinds) == {"GatherBlockQuantized", "MatMulNBits", "Gemm"}
    planned = GraphPlanner(output).plan({})
    assert planned.memory["weights (packed)"] >= 2 * 64 * 34  # in rows, and packed for products


def test_a_size_that_cannot_be_planned(tmp_path: Path) -> None:
    net = Net()
    x, y = net.input("x", FLOAT, ["n", 1]), net.input("y", FLOAT, [1, "n"])
    wide = net.node("Cast", net.node("MatMul", x, y), to=onnx.TensorProto.DOUBLE)
    model = open_onnx(saved(tmp_path, net.proto(wide)))
    with pytest.raises(
        HalfbyteError,
        match=r"graph.onnx: node .*a result of shape \[10000000, 10000000\], 100000.0 GB",
    ):
        GraphPlanner(model).plan({"n": 10_000_000})


@pytest.mark.parametrize("option", ["--int8", "--int4"])
def test_quantize_writes_what_was_planned(model: Model, tmp_path: Path, option: str) -> None:
    """The weights in the file of `quantize` have the planned bytes; the head stays int8."""
    out = tmp_path / "small.onnx"
    quantize_onnx(model.path, out, Options(option[2:], compare=False))
    real = GraphPlanner(open_onnx(out)).plan({}).memory["weights (packed)"]
    output = next(m for words, m in smaller_graphs(model) if words.endswith(option))
    planned = GraphPlanner(output).plan({}).memory["weights (packed)"]
    head = WIDE * DEEP * (34 - 18) // 32 if option == "--int4" else 0
    assert planned <= real <= planned + 2 * head


@pytest.mark.parametrize("name", profile_names())
def test_every_device_has_a_plausible_speed(name: str, model: Model) -> None:
    """A run with 64 rows reaches between a hundredth of the peak and the peak."""
    profile = load_profile(name)
    threads = fast_cores(profile)
    planned = GraphPlanner(model).plan({"batch": 64})
    cpu = Processor(profile, threads, Draws())
    seconds = Runs(planned).passes(profile, Draws())[0].seconds(cpu.rates())[0]
    operations = 2 * 64 * 2 * WIDE * DEEP
    assert operations / cpu.rates().float32[0] / 1.1 < seconds < 0.1


# ---- on the command line -------------------------------------------------------------------------


def test_exit_codes_and_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(saved(tmp_path, perceptron()))
    assert main(["fit", path, "--device", "pixel-6", "--size", "batch=2"]) == 0
    out = capsys.readouterr().out
    assert "memory of a run with x [2, 256], ids [1]" in out
    assert "runs/s: " in out
    assert "fits: with" in out
    assert "level" not in out
    small = str(watch(tmp_path, round(INTERPRETER + 6)))
    assert main(["fit", path, "--device", small, "--size", "batch=3000"]) == 1
    out = capsys.readouterr().out
    assert "DOES NOT FIT" in out
    assert "--size batch=" in out.split("What would fit:")[1]


def test_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(saved(tmp_path, perceptron()))
    assert main(["fit", path, "--device", "pixel-6", "--json", "--threads", "1"]) == 0
    data = json.loads(capsys.readouterr().out)
    asked = data["asked"]
    assert data["fits"] is True
    assert data["threads"] == 1
    assert asked["total"] == sum(asked["memory"].values())
    assert asked["inputs"] == {"x": [1, DEEP], "ids": [1]}
    assert 0 < asked["runs"]["low"] < asked["runs"]["median"] < asked["runs"]["high"]


def test_user_errors(tmp_path: Path, storyteller: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, device = str(saved(tmp_path, perceptron())), ["--device", "pixel-6"]
    for words, expected in (
        ([path, "--size", "rows=2"], "size 'rows': expected one of ['batch', 'n']"),
        (
            [str(storyteller), "--size", "n=2"],
            "--size is for ONNX graphs; this is a language model",
        ),
        ([path, "--level", "basic"], "--level is for language models"),
        ([path, "--context", "64"], "--context is for language models"),
        ([str(tmp_path / "none.onnx")], "none.onnx"),
    ):
        assert main(["fit", *words, *device]) == 2
        assert expected in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["fit", path, "--size", "batch", *device])
    assert "expected a name and a size" in capsys.readouterr().err
    (tmp_path / "other.onnx").write_bytes(b"no graph at all")
    assert main(["fit", str(tmp_path / "other.onnx"), *device]) == 2
    assert "error: " in capsys.readouterr().err
