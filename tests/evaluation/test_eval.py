"""`halfbyte eval` on graphs and on the shipped model, and its results if something is wrong."""

from __future__ import annotations

import gc
import json
import sys
from collections import Counter
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from tests.evaluation.models import plant, write_chain, write_dynamic
from tests.onnx.session import models
from tools.onnx_models import make, save

import halfbyte
from halfbyte import evaluation
from halfbyte.cli import evaluate as command
from halfbyte.cli import main
from halfbyte.core import ops
from halfbyte.onnx import fusion, prepare
from halfbyte.onnx.files.model import Model
from halfbyte.onnx.session import InferenceSession
from halfbyte.quantize import quantize_file

Capture = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Graphs: bert-small.onnx, resnet-small.onnx, chain.onnx."""
    target = tmp_path_factory.mktemp("eval")
    for name in ("bert-small", "resnet-small"):
        save(make(name), target / f"{name}.onnx")
    write_chain(target / "chain.onnx")
    return target


@pytest.fixture(scope="module")
def small(storyteller: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The shipped model as int4."""
    target = tmp_path_factory.mktemp("eval") / "small.gguf"
    quantize_file(storyteller, "int4", target)
    return target


def _eval(report: Path, *arguments: Any) -> tuple[int, dict[str, Any]]:
    """The exit code and the JSON of a command."""
    code = main(["eval", *map(str, arguments), "-t", "1", "--json", str(report)])
    return code, json.loads(report.read_text())


# ---- validate ------------------------------------------------------------------------------------


@pytest.mark.parametrize("reference", ["numpy", "onnxruntime"])
@pytest.mark.parametrize("name", ["bert-small", "resnet-small"])
def test_graphs_agree(folder: Path, tmp_path: Path, name: str, reference: str) -> None:
    arguments = [folder / f"{name}.onnx", "--reference", reference]
    code, report = _eval(tmp_path / "r.json", *arguments)
    assert code == 0
    assert report["passed"] is True
    (output,) = report["outputs"]
    assert output["size"] > 0
    assert output["cosine"] > 0.999999
    assert output["max_rel_error"] < 1e-4


def test_a_flipped_weight_is_seen(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    plant(monkeypatch, ops.unary, lambda y, x: np.where(y > 0.5, -y, y))
    arguments = [folder / "chain.onnx", "--backend", "numpy", "--size", "n=3"]
    code, report = _eval(tmp_path / "r.json", *arguments)
    assert (code, report["passed"]) == (1, False)
    assert report["outputs"][0]["differing"] > 0
    out = capsys.readouterr().out
    assert "FAIL" in out
    assert "\033" not in out  # no colours in a pipe
    assert "x [3, 4]" in out


def test_every_number_of_threads_is_compared(folder: Path, tmp_path: Path) -> None:
    report = tmp_path / "r.json"
    path = folder / "bert-small.onnx"
    assert main(["eval", str(path), "-t", "1,2", "--json", str(report)]) == 0
    assert [o["threads"] for o in json.loads(report.read_text())["outputs"]] == [1, 2]


def test_inputs_come_from_a_file(folder: Path, tmp_path: Path) -> None:
    fed = {"x": np.full((2, 4), 0.25, np.float32)}
    np.savez(tmp_path / "feeds.npz", **fed)
    arguments = [
        folder / "chain.onnx",
        "--input",
        tmp_path / "feeds.npz",
        "--dump-dir",
        tmp_path / "d",
    ]
    assert _eval(tmp_path / "r.json", *arguments)[0] == 0
    expected = InferenceSession(folder / "chain.onnx").run(None, fed)[0]
    np.testing.assert_allclose(np.load(tmp_path / "d/values/y.npy"), expected, rtol=1e-6)
    assert np.array_equal(np.load(tmp_path / "d/inputs/x.npy"), fed["x"])


def test_language_models_agree(storyteller: Path, small: Path, tmp_path: Path) -> None:
    for model in (storyteller, small):
        code, report = _eval(tmp_path / "r.json", model, "--prompt", "One day a fox")
        assert code == 0
        assert report["same_token"] == 1
        assert report["outputs"][0]["size"] == report["tokens"] * 1024


def test_torch_is_asked_for_logits(
    small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    """A stand-in for the packages: its logits are ours, then others."""
    with halfbyte.load(small, backend="numpy") as model:
        logits = model.logits(model.tokenizer.encode("One"))
    asked: dict[str, Any] = {}

    class Model:
        def eval(self) -> Model:
            return self

        def __call__(self, ids: Any) -> Any:
            asked["ids"] = ids
            return SimpleNamespace(logits=[logits])

    def from_pretrained(**source: Any) -> Model:
        asked.update(source)
        return Model()

    class NoGrad:
        def __enter__(self) -> None: ...

        def __exit__(self, *exception: object) -> None: ...

    torch, transformers = ModuleType("torch"), ModuleType("transformers")
    monkeypatch.setattr(torch, "no_grad", NoGrad, raising=False)
    monkeypatch.setattr(torch, "tensor", lambda ids: ids, raising=False)
    monkeypatch.setattr(torch, "float32", "float32", raising=False)
    auto = SimpleNamespace(from_pretrained=from_pretrained)
    monkeypatch.setattr(transformers, "AutoModelForCausalLM", auto, raising=False)
    monkeypatch.setitem(sys.modules, "torch", torch)
    monkeypatch.setitem(sys.modules, "transformers", transformers)
    arguments = [small, "--prompt", "One", "--reference", "torch"]
    assert _eval(tmp_path / "r.json", *arguments)[0] == 0
    assert asked["gguf_file"] == "small.gguf"
    assert asked["dtype"] == "float32"
    logits = logits[:, ::-1]
    assert _eval(tmp_path / "r.json", *arguments)[0] == 1
    monkeypatch.setitem(sys.modules, "torch", None)
    assert main(["eval", *map(str, arguments)]) == 2
    assert "expected the packages torch and transformers" in capsys.readouterr().err


# ---- trace ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("reference", ["numpy", "onnxruntime"])
@pytest.mark.parametrize("name", ["bert-small", "resnet-small"])
def test_all_values_agree(folder: Path, tmp_path: Path, name: str, reference: str) -> None:
    arguments = [folder / f"{name}.onnx", "-w", "trace", "--reference", reference]
    code, report = _eval(tmp_path / "r.json", *arguments)
    assert code == 0
    assert report["first_difference"] is None
    assert len(report["values"]) > 10
    assert len(report["removed"]) > 10
    last = report["values"][-1]
    assert last["value"] == make(name).graph.output[0].name


def test_unfused_every_value_is_compared(folder: Path, tmp_path: Path) -> None:
    arguments = [folder / "resnet-small.onnx", "-w", "trace", "--passes", "off"]
    code, report = _eval(tmp_path / "r.json", *arguments)
    assert code == 0
    assert report["removed"] == []
    assert len(report["values"]) == len(make("resnet-small").graph.node)


def test_a_trace_grows_with_the_graph(tmp_path: Path) -> None:
    """Measured in function calls, which are the same every time."""
    calls = []
    for count in (30, 150, 600):  # the first one imports
        names = ["x", *(f"v{i}" for i in range(count - 1)), "y"]
        nodes = [models.node("Add", f"{names[i]} x", names[i + 1]) for i in range(count)]
        path = tmp_path / f"{count}.onnx"
        path.write_bytes(models.model(nodes))
        counted = Counter[str]()
        gc.collect()
        gc.disable()  # finalizers of other tests' objects would be counted too
        sys.setprofile(lambda _, event, __, to=counted: to.update([event]))
        try:
            assert main(["eval", str(path), "-w", "trace", "-t", "1"]) == 0
        finally:
            sys.setprofile(None)
            gc.enable()
        calls.append(counted["call"])
    assert calls[2] < 4.5 * calls[1]


@pytest.mark.parametrize("reference", ["numpy", "onnxruntime"])
def test_values_between_programs(tmp_path: Path, reference: str) -> None:
    path, dump = write_dynamic(tmp_path / "dynamic.onnx"), tmp_path / "d"
    arguments = [path, "-w", "trace", "--reference", reference, "--size", "a=3", "--size", "b=4"]
    code, report = _eval(tmp_path / "r.json", *arguments, "--dump-dir", dump)
    assert code == 0
    names = [v["value"] for v in report["values"]]
    assert names == ["places", "transposed", "taken", "cut", "list", "item", "chosen", "y"]
    assert {v["size"] for v in report["values"]} >= {12, 1}
    assert np.load(dump / "inputs/flag.npy").shape == ()
    assert np.load(dump / "values/list.11.npy").shape == (1,)


def test_a_wrong_kernel_is_found(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    """Relu is wrong, Tanh of the same kernel is not: the node is named, and later values differ."""
    plant(monkeypatch, ops.unary, lambda y, x: y if y.min() < 0 else y * 1.5)
    arguments = [folder / "chain.onnx", "-w", "trace", "--backend", "numpy", "--size", "n=3"]
    code, report = _eval(tmp_path / "r.json", *arguments)
    assert code == 1
    first = report["first_difference"]
    assert (first["value"], first["node"], first["operator"]) == ("c", "cut", "Relu")
    assert 0 < first["max_abs_error"] <= 0.5
    passed = {v["value"]: v["passed"] for v in report["values"]}
    assert passed == {"a": True, "b": True, "c": False, "y": False}
    assert "first difference: value 'c', node 'cut' (Relu)" in capsys.readouterr().out
    code, report = _eval(tmp_path / "r.json", *arguments, "--stop-on-first-mismatch")
    assert code == 1
    assert [v["value"] for v in report["values"]] == ["a", "b", "c"]


def test_a_wrong_weight_is_found(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One kernel of a fused convolution with the other sign, on compiled kernels."""
    spoiled: list[str] = []

    def fuse(model: Model) -> None:
        fusion.fuse(model)
        node = [n for n in model.graph.nodes if n.op_type == "FusedConv"][1]
        (scaled,) = (n for n in model.graph.nodes if node.inputs[1] in n.outputs)
        factor = np.array(model.graph.initializers[scaled.inputs[1]])
        factor[3] *= -1
        model.graph.initializers[scaled.inputs[1]] = factor
        spoiled.append(node.outputs[0])

    monkeypatch.setattr(prepare, "fuse", fuse)
    arguments = [folder / "resnet-small.onnx", "-w", "trace", "--stop-on-first-mismatch"]
    code, report = _eval(tmp_path / "r.json", *arguments)
    assert code == 1
    first = report["first_difference"]
    assert first["value"] == spoiled[0]
    assert first["made_by"] == "com.microsoft.FusedConv, fused"
    assert first["worst"][1] == 3
    assert [v["value"] for v in report["values"] if not v["passed"]] == spoiled


def test_instructions_of_a_graph(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With NumPy's inputs only the wrong instruction differs, not those after it."""
    arguments = [folder / "chain.onnx", "-w", "trace", "--forced", "--size", "n=3"]
    code, report = _eval(tmp_path / "r.json", *arguments)
    assert code == 0
    assert [v["operator"] for v in report["values"]].count("Unary") == 2
    plant(monkeypatch, ops.unary, lambda y, x: y if y.min() < 0 else y + 0.125)
    code, report = _eval(tmp_path / "r.json", *arguments)
    assert code == 1
    wrong = [v for v in report["values"] if not v["passed"]]
    assert [v["made_by"] for v in wrong] == ["unary_relu"]


@pytest.mark.parametrize("forced", ["--forced", "--no-forced"])
def test_instructions_of_a_language_model(
    small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, forced: str
) -> None:
    arguments = [small, "-w", "trace", forced]
    code, report = _eval(tmp_path / "r.json", *arguments)
    assert code == 0
    assert len(report["values"]) > 50
    plant(monkeypatch, ops.group_query_attention, lambda y, x: y * 1.5)
    code, report = _eval(tmp_path / "r.json", *arguments)
    assert code == 1
    assert report["first_difference"]["operator"] == "GroupQueryAttention"
    wrong = {v["operator"] for v in report["values"] if not v["passed"]}
    assert (wrong == {"GroupQueryAttention"}) is (forced == "--forced")


def test_long_prompts_run_in_parts(storyteller: Path, tmp_path: Path) -> None:
    """Both sides run what the model runs: 128 tokens, then 8 with the last one's logits."""
    ids, dump = np.arange(3, 139), tmp_path / "d"
    np.savez(tmp_path / "ids.npz", ids=ids)
    arguments = [storyteller, "-w", "trace", "--input", tmp_path / "ids.npz", "--context", 256]
    arguments += ["--dump-dir", dump]
    code, report = _eval(tmp_path / "r.json", *arguments)
    assert code == 0
    gathers = [v for v in report["values"] if v["operator"] == "Gather"]
    assert [v["size"] // gathers[1]["size"] * 8 for v in gathers] == [128, 8]
    with halfbyte.load(storyteller, threads=1) as model:
        expected = model.feed(ids)
        (file,) = (dump / "values").glob("1.*.logits.npy")
        np.testing.assert_allclose(np.load(file), expected, rtol=1e-4, atol=1e-4)


# ---- bench, run, dump ----------------------------------------------------------------------------


def test_bench_of_a_graph(folder: Path, tmp_path: Path, capsys: Capture) -> None:
    arguments = [folder / "bert-small.onnx", "-w", "bench", "-r", "2", "--size", "batch=2"]
    code, report = _eval(tmp_path / "r.json", *arguments)
    assert code == 0
    (test,) = report["tests"]
    assert test["reference"]["engine"] == "onnxruntime"
    assert len(test["speeds"]) == len(test["reference"]["speeds"]) == 2
    ratios = np.array(test["speeds"]) / test["reference"]["speeds"]
    assert test["ratio"] == pytest.approx(float(np.median(ratios)))
    assert "onnxruntime runs/s" in capsys.readouterr().out


def test_bench_of_a_language_model(small: Path, tmp_path: Path) -> None:
    arguments = ["eval", small, "-w", "bench", "-r", "2", "-p", "8", "-n", "4", "-t", "1,2"]
    report = tmp_path / "r.json"
    assert main([*map(str, arguments), "--json", str(report)]) == 0
    tests = json.loads(report.read_text())["tests"]
    assert [(t["test"], t["threads"]) for t in tests] == [
        ("pp8", 1), ("tg4", 1), ("pp8", 2), ("tg4", 2)
    ]  # fmt: skip
    assert all(t["unit"] == "tokens/s" and t["reference"]["engine"] == "numpy" for t in tests)


def test_run_shows_values_and_kernels(folder: Path, tmp_path: Path, capsys: Capture) -> None:
    trace = tmp_path / "trace.json"
    arguments = [folder / "chain.onnx", "-w", "run", "-r", "3", "--trace", trace, "--size", "n=3"]
    code, report = _eval(tmp_path / "r.json", *arguments)
    assert code == 0
    assert report["outputs"]["y"]["shape"] == [3, 4]
    assert report["outputs"]["y"]["mean"] == pytest.approx(0.25)  # of shares of four
    assert report["kernels"]["unary_relu"]["calls"] == 3
    nodes = [e for e in json.loads(trace.read_text()) if e.get("cat") == "Node"]
    assert sum(e["args"]["kernel"] == "unary_relu" for e in nodes) == 3
    assert "unary_relu" in capsys.readouterr().out


def test_run_of_a_language_model(small: Path, tmp_path: Path) -> None:
    arguments = [small, "-w", "run", "-r", "2", "--dump-dir", tmp_path / "d"]
    code, report = _eval(tmp_path / "r.json", *arguments)
    assert code == 0
    assert report["kernels"]["matmul_int8_q4_0_r16"]["calls"] > 0
    text = (tmp_path / "d/program-after.txt").read_text()
    assert "MatMulNBits" in text
    assert "MatMulNBits" not in (tmp_path / "d/program-before.txt").read_text()


def test_dump(folder: Path, tmp_path: Path) -> None:
    dump = tmp_path / "d"
    arguments = [folder / "resnet-small.onnx", "-w", "trace", "--dump-dir", dump]
    _, report = _eval(tmp_path / "r.json", *arguments)
    graph = make("resnet-small").graph
    before, after = ((dump / f"graph-{when}.txt").read_text() for when in ("before", "after"))
    assert all(node.output[0] in before for node in graph.node)
    assert "BatchNormalization" in before
    assert len(after.splitlines()) < len(before.splitlines())
    assert "@" in (dump / "program-after.txt").read_text()  # places in memory
    assert "@" not in (dump / "program-before.txt").read_text()
    assert len(list((dump / "reference").glob("*.npy"))) == len(graph.node)
    assert len(list((dump / "values").glob("*.npy"))) == len(report["values"])
    name = report["values"][0]["value"].replace("/", "%2F")
    ours, theirs = (np.load(dump / side / f"{name}.npy") for side in ("values", "reference"))
    np.testing.assert_allclose(ours, theirs, rtol=1e-3, atol=1e-4)


# ---- what cannot be used -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "expected a model or --suite FILE, one of the two"),
        (["chain.onnx", "--suite", "x.toml"], "one of the two"),
        (["none.onnx"], "No such file"),
        (["chain.onnx", "--reference", "torch"], "expected numpy or onnxruntime"),
        (["chain.onnx", "-w", "run", "--reference", "numpy"], "of run: expected none"),
        (["chain.onnx", "--size", "m=3"], "size 'm': expected one of ['n']"),
        (["chain.onnx", "--size", "n=9999999999"], "MB of memory that are left, found 160,000 MB"),
        (["chain.onnx", "--input", "chain.onnx"], "expected arrays in NumPy's .npz"),
        (["chain.onnx", "--input", "other.npz"], "array 'z': expected one of ['x']"),
        (["chain.onnx", "--input", "double.npz"], "array 'x': expected float32, found float64"),
        (["chain.onnx", "--input", "shape.npz"], "array 'x': expected ['n', 4], found [2, 5]"),
        (["chain.onnx", "--input", "object.npz"], "expected arrays in NumPy's .npz"),
        (["chain.onnx", "--rtol", "-1"], "--rtol: expected 0 or more, found -1.0"),
        (["chain.onnx", "--backend", "fast"], "backend 'fast'"),
        (["chain.onnx", "-w", "trace", "-t", "1,2"], "expected one number of threads"),
        (["chain.onnx", "--json", "no/folder.json"], "cannot be written"),
        (
            ["chain.onnx", "-w", "trace", "--forced", "--reference", "onnxruntime"],
            "--forced compares instructions, which only numpy has",
        ),
    ],
)
def test_what_is_refused(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture, arguments: list[str], said: str
) -> None:
    monkeypatch.chdir(folder)
    np.savez("other.npz", z=np.zeros(1))
    np.savez("double.npz", x=np.zeros((2, 4)))
    np.savez("shape.npz", x=np.zeros((2, 5), np.float32))
    np.savez("object.npz", x=np.array([None]))
    assert main(["eval", *arguments]) == 2
    err = capsys.readouterr().err
    assert err.startswith("error: ")
    assert said in err
    assert len(err.splitlines()) == 1


@pytest.mark.parametrize(
    "arguments", [["--size", "n"], ["--threads", "0"], ["--workload", "guess"], ["-r", "0"]]
)
def test_options_that_cannot_be(arguments: list[str], capsys: Capture) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["eval", "chain.onnx", *arguments])
    assert caught.value.code == 2
    assert "expected" in capsys.readouterr().err or arguments == ["--workload", "guess"]


def test_tokens_of_a_file_are_checked(storyteller: Path, tmp_path: Path, capsys: Capture) -> None:
    np.savez(tmp_path / "ids.npz", ids=np.zeros(3))
    assert main(["eval", str(storyteller), "--input", str(tmp_path / "ids.npz")]) == 2
    assert "expected integers 'ids' [tokens]" in capsys.readouterr().err


def test_the_command_knows_all_workloads() -> None:
    """It has its own lists, so that its parser need not import evaluations."""
    assert command.WORKLOADS == evaluation.WORKLOADS
    assert command.REFERENCES == evaluation.REFERENCES
