"""Tables, files and inputs of the benchmark beside ONNX Runtime; nothing here is measured."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from benches import suite_table
from benches.figures import Series
from benches.onnx import apart, measure, table
from benches.onnx.files import Contest, contests
from benches.onnx.measure import Plan
from benches.peers import native
from benches.peers.errors import PeerError, reason
from benches.peers.native import Process
from benches.suite import bench_operators


def pair(ours: list[float], theirs: list[float]) -> list[Series]:
    return [
        Series("minilm", engine, "int8 1 x 16", 2, seconds, {"cosine": 0.5, "file_bytes": 23e6})
        for engine, seconds in (("halfbyte", ours), ("onnxruntime", theirs))
    ]


def test_table_has_a_row_per_pair() -> None:
    """The ratio is that of the rounds, and above 1 where halfbyte is faster."""
    text = table.runs(pair([0.010, 0.100, 0.012], [0.020, 0.200, 0.012]))
    assert [cell.strip() for cell in text.splitlines()[2].strip("|").split("|")] == [
        "minilm", "int8 1 x 16", "2", "12", "20", "2.00", "0.50000", "0.50000"
    ]  # fmt: skip
    assert len(text.splitlines()) == 3
    assert "| onnxruntime |       2 |                   0.30 |      23 |" in table.loads(
        pair([0.1], [0.3])
    )


def test_contests() -> None:
    """Every file of a text model; integer convolutions only in ONNX Runtime's files."""
    names = [c.name for c in contests(["minilm"], ["fp32", "int4"], ["own", "onnxruntime"])]
    assert names == ["fp32", "int4 by own", "int4 by onnxruntime"]
    images = contests(["resnet-34"], ["fp32", "int8", "int4"], ["own", "halfbyte"])
    assert [c.name for c in images] == ["fp32", "int8 by onnxruntime"]
    plan = Plan(rounds=1, threads=[1], batches=[1, 32], lengths=[16])
    assert plan.shapes("minilm") == [(1, 16), (32, 16)]
    assert plan.shapes("resnet-34") == [(1, 0)]


class Engine:
    """An engine whose second output differs from the reference's, with given times."""

    def __init__(self, *seconds: float) -> None:
        self._left = list(seconds)

    def output(self, feeds: dict[str, Any]) -> npt.NDArray[Any]:
        return np.array([[2.0, 0.0], [1.0, 1.0]], np.float32)

    def seconds(self, feeds: dict[str, Any], runs: int) -> list[float]:
        taken, self._left = self._left[:runs], self._left[runs:]
        return taken


def test_cosine_is_that_of_the_worst(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure, "_reference", lambda model: np.array([[1.0, 0.0], [1.0, 0.0]]))
    assert measure.least_cosine("resnet-34", Engine()) == pytest.approx(0.5**0.5)


def test_text_is_as_long_as_asked() -> None:
    feeds = measure.inputs("minilm", 3, 700)
    assert {name: x.shape for name, x in feeds.items()} == dict.fromkeys(
        ("input_ids", "attention_mask", "token_type_ids"), (3, 700)
    )
    assert not np.array_equal(feeds["input_ids"][0], feeds["input_ids"][1])
    assert measure.sentences()["attention_mask"].sum(1).min() == 4  # "No." and its marks


def test_turn_is_the_median_of_its_runs() -> None:
    """And holds as many runs as fit into it."""
    engine = Engine(9.0, 0.05, 0.01, 0.03, 0.50)
    assert measure.runs_of_a_turn(engine, {}) == 4
    assert measure.turn(engine, {}, 3) == 0.03


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["-m", "gpt5"], "expected some of minilm, mobilenet-v2, resnet-34; found gpt5"),
        (["-t", "0"], "expected 1 or more, found 0"),
        (["-r", "0"], "expected 1 or more, found 0"),
    ],
)
def test_wrong_options(repository: Path, options: list[str], message: str) -> None:
    command = [sys.executable, "-m", "benches.onnx", *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=repository)
    assert done.returncode == 2
    assert message in done.stderr


def test_contest_names_files(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Each engine's own, or one for both; an existing file is not written again."""
    monkeypatch.setattr("benches.onnx.files.prepare.folder", lambda: tmp_path)
    for by in ("halfbyte", "onnxruntime"):
        (tmp_path / f"minilm-int8-{by}.onnx").touch()
    engines = ("halfbyte", "onnxruntime")
    own, one = (Contest("minilm", "int8", whose) for whose in ("own", "halfbyte"))
    assert [own.file(e).name.split("-")[2] for e in engines] == [
        "halfbyte.onnx",
        "onnxruntime.onnx",
    ]
    assert {one.file(e).name for e in engines} == {"minilm-int8-halfbyte.onnx"}


class Failing(Engine):
    """A peer whose process ends after some answers."""

    engine = "openvino"

    def seconds(self, feeds: dict[str, Any], runs: int) -> list[float]:
        if taken := super().seconds(feeds, runs):
            return taken
        raise PeerError("openvino ended with -11:\nlast words")


def test_a_failing_peer_ends_no_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its figures give way to the reason; the others have all their rounds."""
    monkeypatch.setattr(measure, "REST", 0)
    ours, theirs = Engine(*[1.0] * 9), Failing(*[1.0] * 3)
    ours.engine = "halfbyte"  # type: ignore[attr-defined]
    contest, one = Contest("resnet-34", "fp32", ""), [ours, theirs]
    plan = Plan(4, [1], [1], [], ["openvino"])
    first, second = measure._measure_shape(contest, (1, 0), 1, one, plan)  # type: ignore[arg-type]
    assert first.seconds == [1.0] * 4
    assert second.seconds == []
    assert second.more["reason"] == "openvino ended with -11: last words"


def test_an_ended_process_says_so() -> None:
    """Also when it is asked for more afterwards."""
    program = 'import sys; print(\'{"seconds": 1, "about": ""}\'); sys.exit(\'no memory\')'
    process = Process("peer", [sys.executable, "-c", program])
    for _ in range(2):
        with pytest.raises(PeerError, match="peer ended with 1:\nno memory") as error:
            process.ask("pp128")
        assert reason(error.value) == "peer ended with 1: no memory"
    process.close()


def test_a_process_that_hangs_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "PATIENCE", 0.2)
    with pytest.raises(PeerError, match="peer ended with -9"):
        Process("peer", [sys.executable, "-c", "import time; time.sleep(60)"])


def test_worker_runs_a_graph(tmp_path: Path) -> None:
    """Seconds of a run, and the first output when asked for."""
    model, feeds = tmp_path / "m.onnx", tmp_path / "x.npz"
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    model.write_bytes(bench_operators.model(bench_operators.Node("Exp", x.shape)))
    np.savez(feeds, x=x)
    process = Process("halfbyte", [sys.executable, str(apart.WORKER), str(model), "1"])
    assert process.ask(str(feeds)) > 0
    assert process.ask(f"={feeds}") > 0
    process.close()
    np.testing.assert_allclose(np.load(f"{feeds}.npy"), np.exp(x), rtol=1e-6)


def test_a_missing_peer_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("benches.prepare.folder", lambda: tmp_path)
    with pytest.raises(PeerError, match=r"not installed: make peers ARGS='--also pytorch'"):
        apart.Apart("pytorch-compiled", Contest("resnet-34", "fp32", ""), 1)


def test_modules_are_of_two_models() -> None:
    """What there is no module of, says so; it is not left out."""
    with pytest.raises(PeerError, match="has no mobilenet-v2 in int8 here"):
        apart.file_for("litert", Contest("mobilenet-v2", "int8", "onnxruntime"))
    plan = Plan(1, [1], [1], [16, 128])
    tests = [f"int4 by own {measure.test_name(*shape)}" for shape in plan.shapes("minilm")]
    load = Series("minilm", "litert", "load", 1, more={"reason": "no int4"})
    failed = measure.missing(load, tests)
    assert [(s.test, s.seconds, s.more["reason"]) for s in failed] == [
        ("int4 by own 1 x 16", [], "no int4"), ("int4 by own 1 x 128", [], "no int4")
    ]  # fmt: skip
    text = suite_table.table([*pair([0.01], [0.02]), *failed])
    assert "- litert, minilm int4 by own 1 x 16, minilm int4 by own 1 x 128: no int4" in text
