"""The bar of a session, and the suite's section of the page."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from benches import report, suite_table
from benches.comparison import pairs
from benches.figures import PEERS, Series, pytest_json
from benches.progress import SECONDS, Progress, clock, minutes


def test_every_file_has_an_expected_time(repository: Path) -> None:
    files = {p.stem.removeprefix("bench_") for p in (repository / "benches/suite").glob("bench_*")}
    assert files == {*SECONDS}


def test_a_bar_counts_all_passes() -> None:
    """Half of the work took 100 s where 2 x SECONDS were expected: as much is left."""
    cases = ["load"] * 8
    each = SECONDS["load"]
    progress = Progress(0, 2, 1000.0, before=0, after=8 * each, left=[*cases])
    for _ in cases:
        progress.ended("load", 2 * each)
    text = progress.line("last", 1000 + 16 * each)
    assert text.startswith(f"[{'#' * 12}{'.' * 12}]  50 %, pass 1 of 2, {clock(16 * each)} so far")
    assert f"about {clock(16 * each)} left: last" in text
    assert minutes(progress.taken)[-1] == ["all", f"{16 * each / 60:.1f}"]


def test_a_session_shows_its_progress(repository: Path) -> None:
    command = [sys.executable, "-m", "pytest", "-qq", "-p", "no:xdist", "--rounds=1"]
    case = "benches/suite/bench_products.py::bench_product[F16-128x128-1]"
    done = subprocess.run(
        [*command, "--passes=2", "--started=1", case],
        cwd=repository, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert "0 %, pass 1 of 2" in done.stdout
    assert "products bench_product[F16-128x128-1]" in done.stdout


# ---- the page ------------------------------------------------------------------------------------


def session() -> list[Series]:
    named = [
        Series("m", "halfbyte", "1 x 16", 1, [0.001] * 5, source="benches/onnx"),
        Series("m", "litert", "1 x 16", 1, [0.003] * 5, source="benches/onnx"),
        Series("m", "pytorch", "1 x 16", 1, [], {"reason": "ended"}, source="benches/onnx"),
        Series("m", "eager", "peak", 1, [5e6] * 2, unit="B", source="benches/memory"),
    ]
    assert {"litert", "pytorch"} < {*PEERS}
    return named


def test_page_has_a_section_per_file(monkeypatch: pytest.MonkeyPatch) -> None:
    text = report.page({}, pytest_json(session(), "benches"))
    assert [line for line in text.splitlines() if line.startswith("### ")] == [
        "### Suite: Onnx", "### Suite: Memory"
    ]  # fmt: skip
    cells = [cell.strip() for cell in text.split("### Suite: Onnx")[1].splitlines()[6].split("|")]
    assert cells == ["", "m", "1 x 16", "1", "1", "3", "3.00", "-", "-", ""]
    assert "- pytorch, m 1 x 16: ended" in text
    assert "5 MB" in text
    assert suite_table.about("memory").startswith("Memory, in processes of their own")
    assert suite_table.about("nothing") == ""


def test_many_engines_have_rows() -> None:
    """Lines fit a window; nothing is left out but what has no figure."""
    names = ["halfbyte", *(name for name in PEERS if name != "tokenizers")]
    series = [Series("minilm", name, "int8 by own 1 x 128", 1, [0.25] * 3) for name in names]
    series.append(Series("minilm", "tokenizers", "t", 1, [], {"reason": "word " * 40}))
    lines = suite_table.table(series).splitlines()
    assert max(map(len, lines)) <= suite_table.WIDTH
    assert [cell.strip() for cell in lines[3].split("|")[1:-1]] == [
        "minilm", "int8 by own 1 x 128", PEERS[0], "1", "250", "1.00"
    ]  # fmt: skip
    assert len([line for line in lines if "1 x 128" in line]) == len(names)
    assert sum("word" in line for line in lines) > 1


def test_peers_are_never_judged() -> None:
    before, after = (
        pytest_json([Series("m", engine, "t", 1, [s] * 9) for engine in ("litert", "x")], "b")
        for s in (1.0, 2.0)
    )
    verdicts = [pair.verdict(5) for pair in pairs(before, after)]
    assert verdicts == ["not judged: a peer", "slower"]
