"""Suites: lists of models with workloads, their tolerances, and their exit codes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.evaluation.models import write_chain

from halfbyte.cli import main

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a graph, for suites."""
    write_chain(tmp_path / "chain.onnx")
    return tmp_path


def _suite(folder: Path, text: str, *options: str) -> tuple[int, list[dict[str, Any]]]:
    (folder / "suite.toml").write_text(text)
    report = folder / "report.json"
    words = ["eval", "--suite", str(folder / "suite.toml"), "--json", str(report), "-t", "1"]
    code = main([*words, *options])
    return code, json.loads(report.read_text())["results"] if report.exists() else []


def test_all_workloads_of_all_models(folder: Path, storyteller: Path, capsys: Capture) -> None:
    text = f"""
        [defaults]
        repetitions = 2
        [[model]]
        model = "chain.onnx"
        workloads = ["validate", "trace", "run"]
        sizes = {{ n = 3 }}
        [[model]]
        model = "{storyteller}"
        prompt = "One"
        workloads = ["validate"]
    """
    code, results = _suite(folder, text)
    assert code == 0
    assert [(r["workload"], r["passed"]) for r in results] == [
        ("validate", True), ("trace", True), ("run", None), ("validate", True)
    ]  # fmt: skip
    assert results[2]["kernels"]["unary_relu"]["calls"] == 2
    assert results[0]["outputs"][0]["size"] == 12
    rows = capsys.readouterr().out.splitlines()[-4:]
    assert [row.split()[:3] for row in rows] == [
        ["chain.onnx", "validate", "pass"], ["chain.onnx", "trace", "pass"],
        ["chain.onnx", "run", "-"], ["storyteller.bin", "validate", "pass"],
    ]  # fmt: skip


LAYERS = {
    "suite": ('tolerances = "tight.toml"\n', ""),
    "entry's file": ('tolerances = "loose.toml"\n', 'tolerances = "tight.toml"'),
    "entry": ('tolerances = "loose.toml"\n', 'tolerances = "loose.toml"\nrtol = 0\natol = 0'),
}


@pytest.mark.parametrize("layer", LAYERS)
def test_the_nearer_tolerance_decides(folder: Path, layer: str) -> None:
    """The strongest layer allows no error, so that any rounding fails."""
    (folder / "tight.toml").write_text("[[rule]]\nrtol = 0\natol = 0\n")
    (folder / "loose.toml").write_text('[[rule]]\nmodel = "chain.onnx"\nrtol = 1\natol = 1\n')
    top, entry = LAYERS[layer]
    text = f"""{top}
        [[model]]
        model = "chain.onnx"
        reference = "onnxruntime"
        sizes = {{ n = 50 }}
        {entry}
    """
    assert _suite(folder, text)[0] == 1
    assert _suite(folder, text, "--tolerances", str(folder / "loose.toml"))[0] == 0
    assert _suite(folder, text, "--rtol", "1e-3", "--atol", "1e-3")[0] == 0


def test_one_that_cannot_run_keeps_no_other_from_it(folder: Path, capsys: Capture) -> None:
    text = """
        [[model]]
        model = "missing.onnx"
        [[model]]
        model = "chain.onnx"
        rtol = 0
        atol = 0
        min_cosine = 1
        reference = "onnxruntime"
        sizes = { n = 50 }
        [[model]]
        model = "chain.onnx"
    """
    code, results = _suite(folder, text)
    assert code == 2
    assert [r["passed"] for r in results] == [None, False, True]
    assert "missing.onnx" in results[0]["error"]
    captured = capsys.readouterr()
    assert "error: " in captured.err
    assert [row.split()[2] for row in captured.out.splitlines()[-3:]] == ["error", "FAIL", "pass"]


def test_each_dumps_into_a_folder_of_its_own(folder: Path) -> None:
    text = '[[model]]\nmodel = "chain.onnx"\nworkloads = ["validate", "trace"]\n'
    assert _suite(folder, text, "--dump-dir", str(folder / "d"))[0] == 0
    assert sorted(p.name for p in (folder / "d").iterdir()) == [
        "00-chain.onnx-validate", "01-chain.onnx-trace"
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "key 'model': expected one or more tables [[model]], found None"),
        ("[[model]]\nworkloads = []", "key 'model[0].model': expected a path, found None"),
        (
            '[[model]]\nmodel = "a"\nworkloads = ["x"]',
            "key 'model[0].workloads[0]': expected one of validate, trace, bench, run, found 'x'",
        ),
        ('[[model]]\nmodel = "a"\nsize = 1', "key 'model[0].size': expected one of the keys model"),
        ('[[model]]\nmodel = "a"\nsizes = {n = "x"}', "key 'model[0].sizes.n': expected a whole"),
        ('[[model]]\nmodel = "a"\nthreads = [0]', "key 'model[0].threads[0]': expected 1 or more"),
        ('[[model]]\nmodel = "a"\nreference = "x"', "key 'model[0].reference': expected one of"),
        ('[[model]]\nmodel = "a"\nstop = 1', "key 'model[0].stop': expected true or false"),
        ('[[model]]\nmodel = "a"\nrtol = -1', "key 'model[0].rtol': expected 0 or more"),
        ('[[model]]\nmodel = "a"\n[more]', "key 'more': expected one of the keys tolerances"),
        ('[defaults]\nmodel = "a"\n[[model]]\nstop = true', "key 'model[0].model': expected a"),
        ('[defaults]\nfoo = 1\n[[model]]\nmodel = "a"', "key 'model[0].foo': expected one of"),
    ],
)
def test_what_is_refused(folder: Path, capsys: Capture, text: str, said: str) -> None:
    assert _suite(folder, text)[0] == 2
    err = capsys.readouterr().err
    assert err.startswith(f"error: {folder / 'suite.toml'}: ")
    assert said in err


def test_a_trace_is_of_one_model(folder: Path, capsys: Capture) -> None:
    assert _suite(folder, '[[model]]\nmodel = "chain.onnx"', "--trace", "t.json")[0] == 2
    assert "--trace: expected a model, found --suite" in capsys.readouterr().err
