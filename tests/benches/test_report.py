"""The page of benchmarks and the README's table are what the committed results give."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path

import pytest
from benches import builds, readme, report
from benches.figures import Series, command_of, pytest_json, series_of, write_json, zen_generation
from benches.popular.configs import SUGGESTED

HINT = "run `make report`: the page is written from benches/results/, not by hand"


def test_pages_are_written_from_the_results() -> None:
    for path, text in report.pages():
        assert path.read_text(encoding="utf-8") == text, HINT


def test_every_file_of_results_is_of_a_bench(repository: Path) -> None:
    names = {path.stem for path in (repository / "benches/results").iterdir()}
    assert names
    assert names <= {*report.BENCHES}
    assert {section.bench for section in report.SECTIONS} == {*report.BENCHES}
    for name, content in report.read_results().items():
        module = report.BENCHES[name].split()[0]
        assert content["command"].split()[:3] == ["python", "-m", module]


def test_the_page_suggests_models_with_their_memory(repository: Path) -> None:
    """As measured, rounded up."""
    page = (repository / "web/page/index.html").read_text(encoding="utf-8")
    shown = re.findall(r'<option value="([^"]+)">([\d.]+) GB of memory<', page)
    rows = {row["model"]: row["tab"]["bytes"] for row in report.read_results()["popular"]["rows"]}
    expected = {file: f"{math.ceil(rows[n] / 1e8) / 10:.1f}" for n, file in SUGGESTED.items()}
    assert dict(shown) == expected


def test_readme_has_few_rows() -> None:
    assert len(readme.ROWS) <= 8


@pytest.mark.parametrize("name", report.BENCHES)
def test_a_run_asks_for_its_file(
    name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    commands = []
    monkeypatch.setattr(report, "RESULTS", tmp_path)
    monkeypatch.setattr(report.subprocess, "run", lambda command, **_: commands.append(command))
    report.run(name)
    ((_, *words),) = commands
    assert words[0] == "-m"
    assert words[-2:] == ["--json", str(tmp_path / f"{name}.json")]


def test_changed_results_change_the_page() -> None:
    results = report.read_results()
    for name in results:
        content = json.loads(json.dumps(results[name]))
        content["datetime"] = "1999-12-31T00:00:00+00:00"
        assert "1999-12-31" in report.page({**results, name: content})
        assert report.page({name: content}).count("\n## ") == 1


def test_readme_without_its_markers(repository: Path) -> None:
    with pytest.raises(SystemExit, match=r"README.md: expected"):
        readme.text("no table", {})


def test_readme_names_a_figure_that_is_missing() -> None:
    content = pytest_json([], "benches/onnx")
    with pytest.raises(SystemExit, match=r"results/onnx.json: the README needs minilm int8 by own"):
        readme.table({"onnx": content})


def test_readme_says_where_figures_are_from() -> None:
    series = [
        Series(row.model, engine, row.test, 1, [seconds])
        for row in readme.ROWS
        for engine, seconds in ((row.ours, 0.002), (row.peer, 0.004))
    ]
    content = pytest_json(series, "benches/peers")
    content["machine_info"]["processor"], content["datetime"] = "A", "2026-11-23T"
    other = {**content, "machine_info": {**content["machine_info"], "processor": "B"}}
    lines = readme.table({"peers": content, "onnx": content, "onnx-browser": other}).splitlines()
    assert lines[0] == "On one thread, both sides taking turns; A, 2026-11-23; B, 2026-11-23."
    assert lines[4].endswith("prompt of 128, tokens/s | 500 | llama.cpp 250 | 2.00 |")
    assert "| 500 | wllama 2 250 | 2.00 |" in lines[6]
    assert lines[7].endswith("| 2 | ONNX Runtime 4 | 2.00 |")


# ---- files of results ----------------------------------------------------------------------------


def test_a_file_gives_its_series_again(tmp_path: Path) -> None:
    series = [
        Series("m", "halfbyte", "int8 1 x 16", 2, [0.1234567, 0.2], {"cosine": 0.123456789}),
        Series("m", "onnxruntime", "int8 1 x 16", 2, [0.5, 0.25]),
    ]
    path = tmp_path / "x.json"
    write_json(path, pytest_json(series, "benches/onnx", rows=[{"a": 1}], peak=[1 / 3]))
    content = json.loads(path.read_text())
    first, second = series_of(content)
    assert (first.seconds, first.more, first.threads) == ([0.123457, 0.2], {"cosine": 0.123457}, 2)
    series[1].source = "benches/onnx"
    assert second == series[1]
    assert content["rows"] == [{"a": 1}]
    assert content["machine_info"]["peak"] == [0.333333]
    assert len(path.read_text().splitlines()) < 20  # a line per entry
    write_json(None, content)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], "python -m benches.peers"),
        (["--json", "x", "-m", "135M Q4_0"], "python -m benches.peers -m '135M Q4_0'"),
        (["--json=x", "--compare", "y", "--large"], "python -m benches.peers --large"),
    ],
)  # fmt: skip
def test_command_without_names_of_files(arguments: list[str], expected: str) -> None:
    assert command_of("benches/peers", arguments) == expected


@pytest.mark.parametrize(
    ("family", "model", "zen"),
    [(0x17, 0x01, 1), (0x17, 0x31, 2), (0x19, 0x01, 3), (0x19, 0x21, 3), (0x19, 0x11, 4),
     (0x19, 0x61, 4), (0x1A, 0x02, 5), (0x15, 0x02, None)],
)  # fmt: skip
def test_generations_of_amd(family: int, model: int, zen: int | None) -> None:
    assert zen_generation(family, model) == zen


# ---- benches.builds ------------------------------------------------------------------------------


class Process:
    """Answers with given seconds."""

    def __init__(self, seconds: float) -> None:
        self.seconds, self.asked = seconds, 0

    def ask(self, line: str) -> float:
        self.asked += 1
        return self.seconds


def test_two_builds_take_turns() -> None:
    new, old = Process(0.05), Process(0.06)
    job = builds.Job("m", "tg64", 1, {"new": new, "old": old})
    job.warm_up()
    assert job.runs == 3
    for number in range(4):
        job.take_turns(number)
    assert new.asked == old.asked == 2 + 4 * 3
    text, slower = builds.table([job], 2)
    assert "|   1.200 |  1.200 | 1.200 to 1.200 |" in text
    assert slower == 0
    text, slower = builds.table([builds_job(0.0103, 0.0100), builds_job(0.0101, 0.0100)], 2)
    assert slower == 1
    assert text.count("slower") == 1


def test_starts_of_the_same_test_are_joined() -> None:
    """One slow round of three is not the median, nor the minimum."""
    jobs = [builds_job(0.01, 0.01), builds_job(0.02, 0.01), builds_job(0.01, 0.01)]
    (job,) = builds.joined(jobs)
    assert job.series["new"].seconds == [0.01, 0.02, 0.01]
    assert builds.table([job], 2)[1] == 0


def builds_job(new: float, old: float) -> builds.Job:
    job = builds.Job("m", "tg64", 1, {"new": Process(new), "old": Process(old)})
    job.take_turns(0)
    return job


def test_builds_need_the_other_checkouts_python(tmp_path: Path, repository: Path) -> None:
    with pytest.raises(SystemExit, match=r"expected a checkout with python in .venv/bin"):
        builds.python_of(tmp_path)
    assert builds.python_of(repository).exists()
