"""Models and types on devices: figures of the same functions as `fit` and `simulate`, and pages."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import shutil
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.device.test_fit import watch
from tests.text.test_outline import folder_of

from halfbyte.cli import main
from halfbyte.cli.compare_output import sparkline
from halfbyte.device.candidates import Choices, candidates
from halfbyte.device.comparison import Conditions, compare
from halfbyte.device.fit import Fitter
from halfbyte.device.profile import load_profile
from halfbyte.device.simulate import simulate
from halfbyte.device.smaller import in_type
from halfbyte.device.speed import Tokens
from halfbyte.device.summary import bands
from halfbyte.quantize import quantize_file
from halfbyte.text.opening import open_model
from halfbyte.text.planning import LEVELS, plan

QUICK = ["--minutes", "1", "--draws", "8"]


def run(*arguments: Any) -> int:
    return main(["compare", *map(str, arguments), *QUICK])


@pytest.mark.parametrize("type_", ["int8", "int4", "Q4_K_M", "fp16", "Q2_K"])
def test_planned_sizes_are_those_of_quantize(type_: str, storyteller: Path, tmp_path: Path) -> None:
    quantize_file(storyteller, type_, tmp_path / "small.gguf", requantize=True)
    written = open_model(tmp_path / "small.gguf").tensors
    planned = in_type(open_model(storyteller), type_).tensors
    assert {n: (t.format, t.shape, t.nbytes) for n, t in planned.items()} == {
        n: (t.format, t.shape, t.nbytes) for n, t in written.items()
    }


def test_figures_are_those_of_fit_and_simulate(storyteller: Path) -> None:
    (candidate,) = candidates([storyteller], [], Choices(prompt=128))
    conditions = Conditions(minutes=2, draws=20, seed=3, ambient=30)
    profile = load_profile("pixel-6")
    result = compare(candidate, profile, conditions)
    file = open_model(storyteller)
    planned = plan(file, LEVELS["baseline"])
    need = Fitter(file, profile, seed=3).need("", planned)
    assert (result.memory.private, result.memory.fits) == (need.private, need.fits)
    s = simulate(Tokens(planned, False), profile, minutes=2, ambient=30, draws=20, seed=3)
    expected, measured = bands(s), result.measured
    assert measured is not None
    assert measured.percent is not None
    assert measured.cold.median == expected["first_minute_tokens_s"].median
    assert measured.hot.high == expected["sustained_tokens_s"].high
    assert measured.joules.median == pytest.approx(200 * expected["joules_per_token"].median)
    assert measured.percent.median == pytest.approx(
        200 / expected["tokens_per_percent"].median, rel=0.2
    )
    assert measured.speed[-1].median == np.quantile(s.speed[-1], 0.5, method="inverted_cdf")
    assert measured.first_s.median == pytest.approx(128 / need.prompt.median, rel=0.05)


def test_what_does_not_fit_is_marked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = folder_of(tmp_path / "big", hidden_size=4096, head_dim=128, intermediate_size=11008,
                       num_attention_heads=32, num_key_value_heads=32, num_hidden_layers=4,
                       max_position_embeddings=4096)  # fmt: skip
    small = watch(tmp_path, 200)
    assert run(folder, "--type", "int4", "--device", small, "--json") == 1
    (result,) = json.loads(capsys.readouterr().out)["results"]
    assert not result["memory"]["fits"]
    assert result["measured"] is None
    assert result["memory"]["private"] > 200e6
    assert run(folder, "--type", "int4", "--device", f"{small},galaxy-s25") == 0
    lines = capsys.readouterr().out.splitlines()
    row = next(line for line in lines if " watch " in line)
    assert re.search(r" no\??(,|  )", row)


def test_a_device_without_a_battery_says_so(
    storyteller: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(storyteller, "--device", "raspberry-pi-5") == 0
    assert "no battery" in capsys.readouterr().out
    assert run(storyteller, "--device", "raspberry-pi-5,pixel-6", "--json") == 0
    board, phone = json.loads(capsys.readouterr().out)["results"]
    assert (board["battery"], board["measured"]["percent"]) == (False, None)
    assert phone["measured"]["percent"]["median"] > 0
    assert main(["simulate", str(storyteller), "--device", "raspberry-pi-5", *QUICK]) == 0
    out = capsys.readouterr().out
    assert "no battery" in out
    assert "% of the battery" not in out


def test_all_devices_and_types(storyteller: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(storyteller, "--type", "as-is,int8", "--device", "all", "--csv") == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert {row["type"] for row in rows} == {"as-is", "int8"}
    assert len({row["device"] for row in rows}) == len(rows) / 2 >= 12
    assert all(float(row["hot_median"]) <= 1.001 * float(row["cold_median"]) for row in rows)


def test_graphs_are_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from tools.onnx_models import make, save

    save(make("mobilenet-v2-small"), tmp_path / "m.onnx")
    assert run(tmp_path / "m.onnx", "--type", "as-is,int8", "--device", "pixel-6", "--json") == 0
    results = json.loads(capsys.readouterr().out)["results"]
    assert [(r["unit"], r["answer"]) for r in results] == [("run", 1)] * 2
    first = results[0]["measured"]
    assert first["first_s"]["median"] == pytest.approx(1 / first["cold"]["median"], rel=0.5)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--device", "pixel6"], "'pixel-6'"),
        (["--device", "pixel-6", "--type", "int5"], "--type 'int5': expected one of"),
        (["--device", "pixel-6,pixel-6"], "given twice"),
        (["--device", "pixel-6", "--type", "int4,INT4"], "given twice"),
        (["--device", "pixel-6,"], "separated by commas"),
        (["--device", "pixel-6", "--prompt", "0"], "prompt of 0 tokens"),
        (["--device", "pixel-6", "--prompt", "100000"], "expected 1 to"),
        (["--device", "pixel-6", "--minutes", "-1"], "--minutes -1: expected"),
        (["--device", "pixel-6", "--draws", "0"], "--draws 0: expected"),
        (["--device", "pixel-6", "--ambient", "nan"], "--ambient nan: expected"),
        (["--device", "pixel-6", "--size", "batch=2"], "expected an ONNX graph"),
        ([], "--device: expected"),
        (["--device", "pixel-6", "--html", "nowhere/x.html"], "nowhere"),
    ],
)
def test_bad_input(
    arguments: list[str], words: str, storyteller: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["compare", str(storyteller), *QUICK, *arguments]) == 2
    out, err = capsys.readouterr()
    assert not out
    assert words in err


def test_models_twice_and_folders_that_are_none(
    storyteller: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(storyteller, storyteller, "--device", "pixel-6") == 2
    assert "given twice" in capsys.readouterr().err
    assert run(tmp_path, "--device", "pixel-6") == 2
    assert "config.json" in capsys.readouterr().err
    assert run(tmp_path / "nothing.gguf", "--device", "pixel-6") == 2
    assert "nothing.gguf" in capsys.readouterr().err


# ---- the page ------------------------------------------------------------------------------------


class Read(HTMLParser):
    """Tags with their attributes, and the text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attributes)))

    def handle_data(self, data: str) -> None:
        self.text += data


def test_a_page_has_everything_and_fetches_nothing(storyteller: Path, tmp_path: Path) -> None:
    evil = tmp_path / "<script>alert(1)</script>&'\".gguf".replace("/", "-")
    shutil.copy(storyteller, evil)
    page = tmp_path / "report.html"
    devices = "pixel-6,raspberry-pi-5,galaxy-s25"
    assert run(evil, "--type", "as-is,int8", "--device", devices, "--html", page) == 0
    text = page.read_text("utf-8")
    read = Read(text)
    assert "<script>alert(1)<-script>&'\".gguf" in read.text
    assert "script" not in {tag for tag, _ in read.tags}
    addresses = [a.get(key) for _, a in read.tags for key in ("src", "href") if a.get(key)]
    assert addresses == ["data:,"]
    assert "url(" not in text
    assert "@import" not in text
    curves = [a["points"] for tag, a in read.tags if tag == "polyline"]
    assert len(curves) == 2 * 2 * 3  # in the map and in the cards
    assert re.fullmatch(r"[\d., -]+", " ".join(map(str, curves)))
    for words in ("no battery", "assumed", "have a source", "checked against recordings"):
        assert words in read.text
    # in attributes too
    assert not any("onerror" in a or "onload" in a for _, a in read.tags)


def test_only_its_own_page_is_replaced(
    storyteller: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "report.html"
    page.write_text("<p>mine</p>")
    assert run(storyteller, "--device", "pixel-6", "--html", page) == 2
    assert "--force" in capsys.readouterr().err
    assert page.read_text() == "<p>mine</p>"
    assert run(storyteller, "--device", "pixel-6", "--html", page, "--force") == 0
    assert run(storyteller, "--device", "pixel-6", "--html", page) == 0


@pytest.mark.parametrize(
    ("values", "expected"),
    [([8.0] * 40, "█" * 10), ([0.0] * 40, ""), ([2.0, *[1.0] * 39], "█" + "▅" * 9)],
)
def test_curves_of_the_terminal(values: list[float], expected: str) -> None:
    assert sparkline(values) == expected


@pytest.mark.parametrize("name", ["=1+1.gguf", "--1+cmd|' calc'!A0.gguf", "-"])
def test_a_name_is_a_text_in_a_spreadsheet(
    name: str, storyteller: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copy(storyteller, tmp_path / name)
    assert run(tmp_path / name, "--device", "pixel-6", "--csv") == 0
    (row,) = csv.DictReader(io.StringIO(capsys.readouterr().out))
    assert row["model"] == f"'{name}"


@pytest.mark.skipif(sys.platform in ("darwin", "win32"), reason="names are Unicode there")
@pytest.mark.parametrize("form", ["--csv", "--json"])
def test_names_of_any_bytes_are_shown(
    form: str, storyteller: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model, page = tmp_path / os.fsdecode(b"\x1b[31m\xff\n.gguf"), tmp_path / "r.html"
    shutil.copy(storyteller, model)
    assert run(model, "--device", "pixel-6", form, "--html", page) == 0
    shown = r"\x1b[31m\udcff\n.gguf"
    text = capsys.readouterr().out
    assert (json.dumps(shown) if form == "--json" else shown) in text
    assert "\x1b" not in text
    assert shown in page.read_text()
