"""The cases that each form of the suite has, planted slowdowns, and the sessions of the report."""

from __future__ import annotations

import json
import mmap
import subprocess
import sys
from pathlib import Path

import pytest
from benches import memory, planted, report, tables
from benches.figures import Series, pytest_json


def collected(repository: Path, *options: str) -> set[str]:
    command = [sys.executable, "-m", "pytest", "benches/suite", "--collect-only", "-q", *options]
    done = subprocess.run(command, cwd=repository, capture_output=True, text=True, check=True)
    return {line for line in done.stdout.splitlines() if "::" in line}


@pytest.mark.long
def test_forms_of_the_suite(repository: Path) -> None:
    """The short form has cases of every kind; later passes leave out what is measured once."""
    every = collected(repository)
    short, later = collected(repository, "--short"), collected(repository, "--number=1")
    files = {case.split("::")[0] for case in every}
    assert len(files) == len([*(repository / "benches/suite").glob("bench_*.py")])
    assert short < every
    assert later < every
    assert len(short) < len(every) / 2
    left_out = {"bench_fusions.py", "bench_browser.py"}
    assert {case.split("::")[0].split("/")[-1] for case in short} == {
        file.split("/")[-1] for file in files
    } - left_out
    assert not any("bench_load.py" in case or "bench_peers.py" in case for case in later)


def test_a_slowdown_is_planted_in_every_call(repository: Path) -> None:
    text = (repository / "runtime/kernels/run.c").read_text(encoding="utf-8")
    slowed = planted.plant(text, "matmul_f32", 10)
    assert slowed.count("run_planted(table, instruction, ") == 1
    assert slowed.count(planted.RUN) == 1  # in run_planted itself
    assert "== HB_PLANTED_matmul_f32)" in slowed
    assert "* 10 / 100;" in slowed
    with pytest.raises(SystemExit, match=r"run.c: expected run_units"):
        planted.plant("int main(void);", "matmul_f32", 10)


def test_growth_is_what_stays() -> None:
    # Pages of its own: the allocator may serve a large object from memory it has kept.
    with mmap.mmap(-1, 50_000_000, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as pages:

        def rest() -> None:
            for _ in range(50):
                pages.write(b"x" * 1_000_000)

        after, grown = memory.growth(lambda: None, rest)
    assert 45e6 < grown < 60e6
    assert after > grown


def test_sessions_of_the_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In order; one that was kept and is the last as well counts once."""
    history, latest = tmp_path / "history", tmp_path / "latest.json"
    assert report.sessions(history, latest) == []
    history.mkdir()
    content = pytest_json([Series("m", "e", "t", 1, [1.0])], "benches")
    for name, date in (("b", "2026-11-25T"), ("a", "2026-11-24T")):
        (history / f"{name}.json").write_text(json.dumps({**content, "datetime": date}))
    latest.write_text((history / "b.json").read_text())
    sessions = report.sessions(history, latest)
    assert [session["datetime"] for session in sessions] == ["2026-11-24T", "2026-11-25T"]
    monkeypatch.setattr(report, "sessions", lambda: sessions)
    monkeypatch.setattr(report, "ROOT", tmp_path)
    monkeypatch.setattr(report, "HTML", tmp_path / "build/report.html")
    report.write_html()
    assert "2026-11-25" in report.HTML.read_text()


def test_table_of_products() -> None:
    steady, varying = [0.001] * 5, [0.001, 0.002, 0.004]
    series = [
        Series("Q4_0 576x576", "native", "1 row", 1, steady, {"bytes": 2e6}),
        Series("Q4_0 576x576", "native", "128 rows", 1, varying, {"operations": 3e9}),
    ]
    row = tables.products(series).splitlines()[2]
    cells = [cell.strip() for cell in row.strip("|").split("|")]
    assert cells == ["Q4_0", "576x576", "1", "2", "2*", "1500"]
