"""Peers that fail leave the reason where their figures would be, and AMX that is denied."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from benches import prepare
from benches.figures import Series, pytest_json, series_of
from benches.peers import amx, native, session, table
from benches.peers.errors import PeerError
from benches.peers.limits import Limits, Work
from benches.peers.session import Plan
from benches.peers.trial import tried

LIMITS, WORK = Limits(read={1: 40.0}, dot={1: 500.0}), {"m": Work(10**8, 10**8)}


class Worker:
    """Stands for a process; `fails` says when it ends."""

    fails = ""
    load_seconds = 0.5
    about = "code"

    def __init__(self, engine: str, path: Path, threads: int, context: int) -> None:
        self.engine, self.threads, self.reason = engine, threads, ""
        if f"{engine} load" == self.fails:
            raise PeerError(f"{engine} ended with -11:\nbacktrace")

    def run(self, test: str) -> float:
        if f"{self.engine} {test}" == self.fails:
            raise PeerError(f"{self.engine} ended with -11:\nbacktrace")
        return 0.5 * int(test[2:])

    def peak_bytes(self) -> int:
        return 10**6

    def close(self) -> None:
        pass


def measured(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, fails: str) -> session.Results:
    monkeypatch.setattr(session, "Worker", Worker)
    monkeypatch.setattr(Worker, "fails", fails)
    path = tmp_path / "model"
    path.touch()
    return session.measure("m", path, Plan(2, [1], [128], [64], []), None, "")


@pytest.mark.parametrize("fails", ["llama.cpp load", "llama.cpp pp128", "llama.cpp tg64"])
def test_a_failing_peer_ends_no_run(
    fails: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    results = measured(monkeypatch, tmp_path, fails)
    ours = [s for s in results.native if s.engine == "halfbyte"]
    assert [s.seconds for s in ours] == [[0.5, 0.5]] * 2
    theirs = {s.test: s for s in results.native if s.engine == "llama.cpp"}
    assert theirs["tg64"].seconds == []
    assert theirs["tg64"].more["reason"] == "llama.cpp ended with -11: backtrace"
    rows = table.native(results.native, WORK, LIMITS)
    assert "| llama.cpp ended with -11: backtrace |     - |" in rows
    assert len(rows.splitlines()) == 4
    again = series_of(pytest_json(results.all, "benches/peers"))
    assert [s.more for s in again] == [s.more for s in results.all]
    assert table.loads(results.loads)


def test_types_have_a_row_each() -> None:
    """With a peer that does not read one of them."""
    speeds = {"halfbyte": [0.01], "llama.cpp": [0.02]}
    series = [
        Series(f"m {kind}", engine, test, 1, [] if kind == "B" and engine != "halfbyte" else s)
        for kind in ("A", "B") for test in ("tg64", "load") for engine, s in speeds.items()
    ]  # fmt: skip
    rows = [{"model": f"m {kind}", "file": 2.5, "memory": 3.0} for kind in ("A", "B")]
    lines = table.types(series, rows).splitlines()
    first, second = ([cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:])
    assert first == ["A", "2.50", "3.00", "100", "50", "2.00", "0.01", "0.02", "2.00"]
    assert second == ["B", "2.50", "3.00", "100", "-", "-", "0.01", "-", "-"]


def test_halfbyte_may_not_fail(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with pytest.raises(PeerError, match="halfbyte ended"):
        measured(monkeypatch, tmp_path, "halfbyte tg64")


def test_all_work(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    results = measured(monkeypatch, tmp_path, "")
    assert [len(s.seconds) for s in results.all] == [2] * 9
    assert results.loads[1].more["memory_bytes"] == 10**6


def test_a_missing_peer_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No run builds or fetches a peer."""
    results = measured(monkeypatch, tmp_path, "ik_llama.cpp load")
    engines = [series.engine for series in results.native if series.test == "tg64"]
    assert engines == ["halfbyte", "llama.cpp", "ik_llama.cpp"]
    assert results.native[-1].more["reason"] == "ik_llama.cpp ended with -11: backtrace"
    monkeypatch.setattr(prepare, "folder", lambda: tmp_path)
    for engine, command in (("llama.cpp", "make peers"), ("ik_llama.cpp", "--also ik_llama.cpp")):
        with pytest.raises(PeerError, match=f"not installed: .*{command}"):
            native.Worker(engine, tmp_path / "model", 1, 64)


def test_what_varies_is_measured_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """All of it; the second time counts."""
    seconds = iter([1.0] * 3 + [1.0, 2.0, 1.0] + [1.5] * 100)
    monkeypatch.setattr(Worker, "run", lambda self, test: next(seconds) * int(test[2:]))
    results = measured(monkeypatch, tmp_path, "")
    assert [s.seconds for s in results.native] == [[1.5, 1.5]] * 6


def test_steps_go_on_without_what_fails() -> None:
    done: list[str] = []

    def fail() -> None:
        raise PeerError("no compiler")

    steps = {"a": lambda: done.append("a"), "llama.cpp": fail, "b": lambda: done.append("b")}
    assert prepare.failures(steps) == ["llama.cpp"]
    assert done == ["a", "b"]


def test_a_peer_in_a_tab_that_was_not_fetched_says_so(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(prepare, "folder", lambda: tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    files = prepare.or_reason(prepare.transformers_js, "x.mjs")
    why = "@huggingface/transformers was not fetched: npm is missing"
    assert files == {"x.mjs": f'throw new Error("{why}");'.encode()}


def test_a_peer_that_would_end_this_process_ends_a_copy() -> None:
    assert tried(lambda: lambda: 3)() == 3
    with pytest.raises(PeerError, match=f"ended with -{int(signal.SIGTERM)}"):
        tried(lambda: lambda: signal.raise_signal(signal.SIGTERM))
    with pytest.raises(ValueError, match="no model"):
        tried(raising)


def raising() -> Callable[[], None]:
    raise ValueError("no model")


@pytest.mark.parametrize(
    ("listed", "allowed", "native"),
    [(True, True, True), (True, False, False), (False, False, True)],
)
def test_amx_is_left_out_where_it_is_denied(listed: bool, allowed: bool, native: bool) -> None:
    options = amx.cmake_options(lambda: listed, lambda: allowed)
    assert ("-DGGML_NATIVE=ON" in options) is native
    assert ("-DGGML_AVX512_VNNI=ON" in options) is not native
    assert "AMX" not in options


@pytest.mark.parametrize(
    ("text", "expected"),
    [("flags\t\t: fpu amx_tile avx2\n", True), ("flags\t: fpu avx2\nname: amx_tile\n", False)],
)
def test_amx_is_listed(
    text: str, expected: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file: Any = tmp_path / "cpuinfo"
    file.write_text(text)
    monkeypatch.setattr(amx, "CPUINFO", file)
    assert amx.listed() is expected


@pytest.mark.parametrize("code", [0, 1])
def test_a_compiler_gets_options_that_it_knows(
    code: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    compiler = tmp_path / "c++"
    compiler.write_text(f"#!/bin/sh\nexit {code}\n")
    compiler.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert amx.compiler_flags(lambda: True) == ("" if code else "-fno-tree-dse -fno-dse")
    assert not amx.compiler_flags(lambda: False)
