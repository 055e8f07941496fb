"""``halfbyte embed``: vectors of lines, and the lines that answer a question."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from tests.text.encoders import encoders
from tests.text.encoders.encoders import TEXTS

import halfbyte
from halfbyte.cli import main

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def lines(tmp_path: Path) -> str:
    path = tmp_path / "lines.txt"
    path.write_text("\n".join(TEXTS) + "\n")
    return str(path)


def test_vectors_of_lines(lines: str, tmp_path: Path, capsys: Capture) -> None:
    folder = str(encoders.write(tmp_path / "m", "bert"))
    with halfbyte.load_encoder(folder) as model:
        expected, prompted = model.embed(TEXTS), model.embed(TEXTS, prompt="w1 ")
    assert main(["embed", folder, lines]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert (shown["model"], shown["width"]) == (folder, 32)
    np.testing.assert_allclose(shown["vectors"], expected, rtol=1e-6)
    target = tmp_path / "v.npy"
    for _ in range(2):  # its own file is replaced
        assert main(["embed", folder, lines, "--npy", "-o", str(target)]) == 0
        np.testing.assert_array_equal(np.load(target), expected)
    assert main(["embed", folder, lines, "-o", str(tmp_path / "v.json"), "--prompt", "w1 "]) == 0
    kept = json.loads((tmp_path / "v.json").read_text())["vectors"]
    np.testing.assert_allclose(kept, prompted, rtol=1e-6)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["lines.txt", "m", "v.json", "v.npy"]
    capsys.readouterr()
    assert main(["embed", folder, lines, "--context", "5"]) == 0
    assert "2 texts were cut to 5 tokens" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["bert", "bert-rank"])
def test_the_best_answers_come_first(
    name: str, lines: str, tmp_path: Path, capsys: Capture
) -> None:
    folder = encoders.write(tmp_path / "m", name)
    assert main(["embed", str(folder), lines, "--query", encoders.QUERY, "--best", "3"]) == 0
    rows = [line.strip().split("  ", 1) for line in capsys.readouterr().out.splitlines()]
    with halfbyte.load_encoder(folder) as model:
        if name == "bert":
            [query] = model.embed([encoders.QUERY], normalize=True)
            scores = model.embed(TEXTS, normalize=True) @ query
        else:
            scores = model.rerank(encoders.QUERY, TEXTS)
    order = np.argsort(-scores)[:3].tolist()
    assert [row[1] for row in rows] == [TEXTS[i] for i in order]
    np.testing.assert_allclose([float(row[0]) for row in rows], scores[order], atol=6e-5)


def test_wrong_calls_are_explained(lines: str, tmp_path: Path, capsys: Capture) -> None:
    folder = str(encoders.write(tmp_path / "m", "bert"))
    (tmp_path / "empty.txt").write_text("")
    (tmp_path / "mine.npy").write_text("mine")
    calls = {
        "expected texts, one a line, found none": [str(tmp_path / "empty.txt")],
        "mine.npy: exists already": [lines, "--npy", "-o", str(tmp_path / "mine.npy")],
        "--query: prints to the terminal": [lines, "--query", "w1", "-o", "x.json"],
        "'query': expected none, the model has no prompts": [lines, "--prompt-name", "query"],
    }
    for message, arguments in calls.items():
        assert main(["embed", folder, *arguments]) == 2
        assert message in capsys.readouterr().err
    assert (tmp_path / "mine.npy").read_text() == "mine"
    ranks = str(encoders.write(tmp_path / "ranks", "bert-rank"))
    for option in ("--prompt", "--prompt-name"):
        assert main(["embed", ranks, lines, "--query", "w1", option, "query"]) == 2
        assert "ranks: scores pairs of texts, which take no prompt" in capsys.readouterr().err
    assert main(["run", folder, "w1"]) == 2
    assert "writes no text, it turns texts into vectors" in capsys.readouterr().err
