"""Tables and files that the benches write; nothing here is measured."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from benches import comparison, governors, rounding, tables
from benches.__main__ import alarm
from benches.browser.measure import Tab
from benches.figures import Series, digits, markdown, pytest_json, write_json
from benches.onnx.table import tabs as onnx_tabs
from benches.peers import table
from benches.peers.limits import Limits, Work, work_of
from benches.peers.session import Plan, _take_turn
from benches.popular.__main__ import merged
from benches.popular.configs import CONFIGS as popular
from tests.support import wasm

from halfbyte.core.backends.libraries import instruction_sets, library
from halfbyte.core.backends.native import Kernels
from halfbyte.device.simulate import GOVERNORS
from halfbyte.formats.huggingface.names import naming
from halfbyte.text import architectures
from halfbyte.text.opening import open_model
from halfbyte.text.planning import LEVELS, plan

LIMITS = Limits(read={1: 40.0, 2: 50.0}, dot={1: 500.0, 2: 1000.0})
WORK = {"m": Work(file_bytes=100_000_000, block_products=100_000_000)}


def series(engine: str, test: str, seconds: list[float], threads: int = 1) -> Series:
    return Series("m", engine, test, threads, seconds)


def cells(text: str, row: int) -> list[str]:
    """Of the row-th line under a table's header."""
    return [cell.strip() for cell in text.splitlines()[2 + row].strip("|").split("|")]


def test_models_of_today() -> None:
    """Their types open, and the table says what a tab refused."""
    types = architectures.model_types()
    for config in popular.values():
        assert naming(config, types).metadata["general.architecture"]
    row = {
        "model": "Tiny", "type": "llama", "weights": 10_000_000, "file": 6_200_000,
        "quantize": [1.25, 90e6], "answer": [0.5, 80e6], "tab": {"reason": "too large"},
        "date": "2026-11-28",
    }  # fmt: skip
    whole = {**row, "tab": {"seconds": 12.0, "bytes": 70e6}}
    text = tables.popular([row, whole])
    times = ["1.25 s, 90 MB", "0.5 s, 80 MB"]
    assert cells(text, 0)[2:] == ["10", "6", *times, "too large", "11-28"]
    assert cells(text, 1)[-2] == "12 s, 70 MB"


def test_rows_of_other_models_stay(tmp_path: Path) -> None:
    path, names = tmp_path / "popular.json", list(popular)[:3]
    old = [{"model": name, "date": "2026-11-26"} for name in names[1:]]
    write_json(path, pytest_json([], "benches/popular", rows=old))
    new = [{"model": name, "date": "2026-11-28"} for name in names[:2]]
    assert merged(new, path) == [*new, old[-1]]
    assert merged(new, None) == merged(new, tmp_path / "none.json") == new


def test_rows_of_other_files_stay(tmp_path: Path) -> None:
    def row(model: str, kind: str, by: str, kl: float) -> dict[str, Any]:
        return {"model": model, "type": kind, "by": by, "kl": kl, "bytes": 2_500_000,
                "perplexity": 12.25, "agreement": 0.875, "date": "2026-11-28"}  # fmt: skip

    path = tmp_path / "rounding.json"
    old = [row("A", "F32", "", 0.0), row("A", "Q4_0", "rtn", 0.3), row("B", "F32", "", 0.0)]
    write_json(path, pytest_json([], "benches/rounding", rows=old))
    peer = row("A", "Q4_0", tables.IMPORTANCE, 0.2)
    new = [peer, row("A", "Q4_0", "gptq", 0.05), row("A", "Q4_0", "rtn", 0.4)]
    every = rounding.merged(new, path)
    assert every == [old[0], new[2], new[1], peer, old[2]]
    assert cells(tables.rounding(every), 2) == [
        "A", "Q4_0", "gptq", "2.5", "50", "25%", "12.25", "87.5%", "11-28"
    ]  # fmt: skip


def test_benches_import(repository: Path) -> None:
    """What they import from the tests has been moved before."""
    for path in sorted((repository / "benches").rglob("*.py")):
        if "suite" in path.parts:
            continue  # make bench
        name = ".".join(path.relative_to(repository).with_suffix("").parts)
        if path.name not in {"pytorch.py", "tflite.py", "rounding_worker.py", "folder.py"}:
            import_module(name)  # others run in a peer's Python


def test_ratio_is_the_median_of_the_rounds() -> None:
    """A round in which the machine was slow for both changes nothing."""
    ours = series("halfbyte", "tg64", [0.010, 0.100, 0.010])
    peer = series("llama.cpp", "tg64", [0.020, 0.200, 0.015])
    assert ours.times_as_fast_as(peer) == pytest.approx(2)
    assert ours.speed == pytest.approx(100)


@pytest.mark.parametrize(
    ("value", "text"), [(1234.5, "1234"), (99.94, "99.9"), (0.01234, "0.0123"), (100.4, "100")]
)
def test_digits(value: float, text: str) -> None:
    assert digits(value) == text


def test_markdown_aligns() -> None:
    text = markdown(["name", "n"], [["a", "1"], ["long name", "100"]])
    assert text.splitlines() == [
        "| name      |   n |",
        "|-----------|----:|",
        "| a         |   1 |",
        "| long name | 100 |",
    ]


def test_native_table() -> None:
    """Decoding reads the file once per token; a prompt needs two operations per weight."""
    engines = [
        series("halfbyte", "pp128", [0.001]), series("llama.cpp", "pp128", [0.002]),
        series("halfbyte", "tg64", [0.005]), series("llama.cpp", "tg64", [0.010]),
        series("halfbyte", "tg64", [0.004], 2), series("llama.cpp", "tg64", [0.004], 2),
    ]  # fmt: skip
    text = table.native(engines, WORK, LIMITS)
    assert cells(text, 0) == ["m", "pp128", "1", "1000", "500", "2.00", "40 %", "20 %"]
    assert cells(text, 1) == ["m", "tg64", "1", "200", "100", "2.00", "50 %", "25 %"]
    assert cells(text, 2) == ["m", "tg64", "2", "250", "250", "1.00", "50 %", "50 %"]


def test_limits_that_do_not_apply() -> None:
    floats = Work(file_bytes=1, block_products=0)
    assert floats.share(series("halfbyte", "pp128", [1.0]), LIMITS) == "-"
    assert WORK["m"].share(series("wllama-2", "pp128", [1.0], threads=4), LIMITS) == "-"


def test_tabs_and_loads() -> None:
    relaxed = series("relaxed", "tg64", [0.01])
    other = series("wllama-2", "tg64", [0.04])
    for s in (relaxed, other):
        s.more["first_seconds"] = 0.1
    relaxed.more["reads"] = [WORK["m"].file_bytes / 1e9 / 0.005]
    peers = [series("llama.cpp", "tg64", [0.02], threads) for threads in (1, 2)]
    text = table.tabs([relaxed, other], [*peers, series("halfbyte", "tg64", [1])], WORK, LIMITS)
    assert cells(text, 0)[1:] == [
        "halfbyte, relaxed SIMD", "tg64", "1", "100", "10", "1.00", "25 %", "50 %"
    ]  # fmt: skip
    assert cells(text, 1)[3:] == ["1", "25", "10", "4.00", "6 %", "-"]
    native = ["llama.cpp, natively", "tg64", "1", "50", "-", "2.00", "12 %", "-"]
    assert cells(text, 2)[1:] == native
    assert len(text.splitlines()) == 2 + 3
    load = series("halfbyte", "load", [0.3, 0.1, 0.2])
    load.more["memory_bytes"] = 159_000_000
    assert cells(table.loads([load]), 0) == ["m", "halfbyte", "1", "0.200", "159"]


def test_a_tab_that_fails_says_why() -> None:
    """Of text and of graphs; halfbyte's may not fail."""
    relaxed, dead = series("relaxed", "tg64", [0.01]), series("wllama-3", "tg64", [])
    tab = Tab("wllama-3", 1, None, ([], 0, ""), False, "no memory")  # type: ignore[arg-type]
    _take_turn(tab, (dead, series("wllama-3", "pp64", [])), first=True)
    relaxed.more["first_seconds"] = 0.1
    text = table.tabs([relaxed, dead], [], WORK, LIMITS)
    assert cells(text, 1)[3:] == ["1", "no memory", "-", "-", "-", "-"]
    peer = series("transformers.js", "1 x 16", [])
    peer.more["reason"] = "no wasm"
    assert cells(onnx_tabs([peer]), 0)[2:] == ["1", "no wasm", "-", "-", "-", "-"]


def test_an_alarm_names_the_kernel() -> None:
    old, new = (series("native", "1 row", [s] * 9) for s in (1.0, 1.1))
    new.more["kernels"] = ["matmul_int8_q4_0_r16"]
    assert alarm(comparison.Pair("products::1 row", old, new)) == (
        "ALARM: products::1 row: +10.0 % (matmul_int8_q4_0_r16)"
    )


def test_context_holds_every_test() -> None:
    assert Plan(1, [1], [128, 512], [64], []).context == 512
    assert Plan(1, [1], [], [600], []).context == 601  # BOS comes first


def test_work_of_a_model(repository: Path, tmp_path: Path) -> None:
    """Matrices of blocks count; norms, the embedding and float matrices do not."""
    products = 3 * (64 * 64 * 2 + 64 * 32 * 2 + 64 * 160 * 3)
    for kind, expected in (("Q4_0", products), ("F16", 0)):
        path = tmp_path / f"{kind}.gguf"
        tool = [sys.executable, repository / "tools/make_model.py", "--shape", "tiny"]
        subprocess.run([*tool, "--type", kind, "-o", path], check=True, capture_output=True)
        assert work_of(path) == Work(path.stat().st_size, expected)


def write(path: Path, tokens: dict[str, float]) -> Path:
    engines = [series(engine, "tg64", [seconds] * 5) for engine, seconds in tokens.items()]
    path.write_text(json.dumps(pytest_json(engines, "benches/peers")))
    return path


def test_file_is_pytest_benchmarks(tmp_path: Path) -> None:
    """Its own tool reads it."""
    path = write(tmp_path / "0001_x.json", {"halfbyte": 0.01})
    command = [Path(sys.executable).parent / "pytest-benchmark", "--storage", tmp_path, "compare"]
    done = subprocess.run([*command, path], capture_output=True, text=True, check=True)
    assert "tg64[m-halfbyte-1]" in done.stdout


def test_compare_marks_what_changed(tmp_path: Path) -> None:
    old = write(tmp_path / "old.json", {"a": 0.0100, "b": 0.0100, "c": 0.0100, "gone": 1.0})
    new = write(tmp_path / "new.json", {"a": 0.0090, "b": 0.0108, "c": 0.0103, "come": 1.0})
    text = comparison.report(comparison.read(old), comparison.read(new))
    name = "benches/peers::tg64[m-a-1]"
    assert cells(text, 0) == [name, "10 ms", "9 ms", "-10.0 %", "-10.0 to -10.0", "faster"]
    assert cells(text, 1)[3:] == ["+8.0 %", "+8.0 to +8.0", "slower"]
    assert cells(text, 2)[3:] == ["+3.0 %", "+3.0 to +3.0", ""]
    assert "only in the old file: benches/peers::tg64[m-gone-1]" in text
    assert "only in the new file: benches/peers::tg64[m-come-1]" in text
    assert text.splitlines()[-1] == "1 slower, 1 faster, 1 within 5 %, 0 not judged"
    assert "\033" not in text
    coloured = comparison.report(
        comparison.read(old), comparison.read(new), colours=True
    ).splitlines()
    assert [line[:5] for line in coloured[2:5]] == ["\033[32m", "\033[31m", "| ben"]


def test_compare_names_another_machine(tmp_path: Path) -> None:
    old = comparison.read(write(tmp_path / "old.json", {"a": 1.0}))
    new = json.loads(json.dumps(old))
    new["machine_info"]["cpu"] = {"count": 4096}
    assert "Two machines" in comparison.report(old, new)
    assert "Two machines" not in comparison.report(old, old)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "cannot be read: No such file"),
        ("{", "expected JSON"),
        ('{"benchmarks": [{}]}', "expected pytest-benchmark's format"),
        ("[]", "expected pytest-benchmark's format"),
    ],
)
def test_compare_refuses(content: str | None, message: str, tmp_path: Path) -> None:
    path = tmp_path / "old.json"
    if content is not None:
        path.write_text(content)
    with pytest.raises(SystemExit, match=message) as error:
        comparison.read(path)
    assert str(path) in str(error.value)


def test_dot_peak_computes_every_product(native_backends: list[str]) -> None:
    """On every table: without some of the products it would not be the peak."""
    assert native_backends
    tables = [(isa, library()) for isa in instruction_sets()]
    tables += [(isa, wasm.library(isa, 1 << 20)) for isa in wasm.FILES]
    random = np.random.default_rng(0)
    w = random.integers(0, 256, (4, 16, 4)).astype(np.uint8)
    x = random.integers(0, 128, (8, 8, 4)).astype(np.int8)
    expected = (
        512 * int(np.einsum("irc,jic->", np.vstack([w & 15, w >> 4]), x, dtype=np.int64)) % 2**32
    )
    for isa, opened in tables:
        sums, weights, four = (opened.memory.reach(a) for a in (np.zeros(2, np.int32), w, x))
        kernels = Kernels(isa, library=opened)
        kernels.call("dot_peak", s=sums, w=weights, x=four, n=2)
        kernels.close()
        assert np.asarray(sums.view(np.uint32)).tolist() == [expected] * 2, isa


# ---- benches.governors ---------------------------------------------------------------------------


def test_every_governor_has_a_row(storyteller: Path) -> None:
    planned = plan(open_model(storyteller), LEVELS["baseline"])
    options = argparse.Namespace(minutes=0.5, ambient=25.0, draws=3, seed=0)
    rows = governors.compare(planned, "pixel-6", options)
    assert [row[1] for row in rows] == [*GOVERNORS, "power-allocator, k_i = 0"]
    assert not {*governors.PHONES} & {*governors.TUNED_ON}
    assert all(len(row) == 7 for row in rows)
    # cold, Linux's governors limit nothing; pacing waits from the beginning
    speeds = {row[1]: row[2] for row in rows}
    assert speeds["none"] == speeds["step-wise"] == speeds["power-allocator"] != speeds["pacing"]
