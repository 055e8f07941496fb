"""The zoo's list, files and table; nothing here is measured."""

from __future__ import annotations

from concurrent.futures import Future
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from benches import prepare
from benches.figures import Series
from benches.onnx import zoo, zoo_files, zoo_tabs

CASE = zoo.Case("mlp", "fp32", threads=1, rounds=1)


def test_list_has_many_models() -> None:
    """Exports are architectures; what wheels carry is pinned, with an input for everything."""
    entries = zoo_files.entries()
    assert len(entries) >= 60
    sources = "".join(p.read_text() for p in (prepare.ROOT / "tools/onnx_exports").glob("*.py"))
    for entry in entries.values():
        if entry.requirement:
            assert "==" in entry.requirement
            assert len(entry.sha256) == 64
            assert entry.inputs
        else:
            assert f'"{entry.name}"' in sources, entry.name
    assert len(zoo_files.of_tabs()) >= 20
    assert set(zoo_files.of_tabs()) <= set(entries)


def test_random_inputs() -> None:
    """Numbers are of the model's types: below a limit, filled, or normal."""
    types = {"bytes": "tensor(int32)"}
    [array] = zoo_files.feeds("magika", types).values()
    assert (array.dtype, array.shape) == (np.int32, (1, 2048))
    assert 200 < array.max() < 256
    feeds = zoo_files.feeds(
        "silero-vad", {"input": "tensor(float)", "state": "tensor(float)", "sr": "tensor(int64)"}
    )
    assert feeds["sr"].dtype == np.int64
    assert feeds["sr"] == 16000
    assert feeds["input"].std() == pytest.approx(0.5, rel=0.2)


def test_files_are_made_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A file that a tool cannot make says why, and is tried again."""
    monkeypatch.setattr(zoo_files, "folder", lambda: tmp_path)
    monkeypatch.setattr(prepare, "python_of", lambda name: Path("/bin/false"))
    with pytest.raises(OSError, match="1"):
        zoo_files.file("mlp", "fp32")
    (tmp_path / "mlp.onnx").touch()
    assert zoo_files.file("mlp", "fp32") == tmp_path / "mlp.onnx"


class Pool:
    """Calls in this process."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        pass

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def submit(self, function: Any, case: zoo.Case) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(function(case))
        except ValueError as error:
            future.set_exception(error)
        return future


def test_a_model_that_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """It stops no other one, and the table says why."""

    def fail(case: zoo.Case) -> list[Series]:
        raise ValueError("no\nkernel")

    monkeypatch.setattr(zoo, "ProcessPoolExecutor", Pool)
    monkeypatch.setattr(zoo, "measured", fail)
    [series] = zoo.run(CASE, 1)
    assert series.more["reason"] == "ValueError: no kernel"
    assert "| mlp   | fp32 | ValueError: no kernel |" in zoo.table([series])


def test_table_begins_with_the_slowest() -> None:
    series = []
    for name, ours in (("fast", 0.010), ("slow", 0.040)):
        for engine, seconds in (("halfbyte", ours), ("onnxruntime", 0.020)):
            more = {"difference": 1e-6, "numpy": 0.25}
            series.append(Series(name, engine, "fp32", 1, [seconds] * 3, more))
            series.append(Series(name, engine, "open fp32", 1, [0.3]))
    lines = zoo.table(series).splitlines()
    assert [cell.strip() for cell in lines[2].strip("|").split("|")] == [
        "slow", "fp32", "40", "20", "0.50", "1e-06", "25%", "300", "300"
    ]  # fmt: skip
    assert "2 runs: geometric mean 1.00, worst 0.50, 1 below 0.9" in lines


def test_difference_is_the_largest() -> None:
    """Relative to the largest number of an output; NaN belong where the other has them."""
    whole = np.array([1.0, -4.0, np.nan], np.float32)
    near = np.array([1.0, -4.2, np.nan], np.float32)
    assert zoo.difference([whole, whole], [whole, near]) == pytest.approx(0.2 / 4.2)
    assert zoo.difference([np.nan_to_num(whole)], [whole]) == float("inf")
    assert zoo.difference([whole[:2]], [whole]) == float("inf")


def test_a_table_of_tabs_says_what_failed() -> None:
    """halfbyte's times stand before those of its peer, and a model without any has its reason."""
    series = [
        Series("unet", "relaxed", "fp32", 1, [0.1], {"difference": 2e-6, "load_seconds": 1.25}),
        Series("unet", "onnxruntime-web", "fp32", 1, [0.15], {"load_seconds": 0.5}),
        Series("vits", "relaxed", "fp32", 1, more={"reason": "out of memory"}),
    ]
    lines = zoo_tabs.table(series).splitlines()
    cells = [cell.strip() for cell in lines[2].strip("|").split("|")]
    assert cells == ["unet", "fp32", "100", "150", "1.50", "2e-06", "1.2", "0.5"]
    assert "1 runs: geometric mean 1.50, worst 1.50, 0 below 0.9" in lines
    assert [c.strip() for c in lines[-1].strip("|").split("|")] == ["vits", "fp32", "out of memory"]


def test_a_model_that_fails_in_a_tab(monkeypatch: pytest.MonkeyPatch) -> None:
    """It has one series, with the reason."""

    def fail(name: str, precision: str) -> Path:
        raise OSError("no such wheel")

    monkeypatch.setattr(zoo_files, "file", fail)
    [series] = zoo_tabs.measured(cast("Any", None), CASE)
    assert series.more["reason"] == "no such wheel"
