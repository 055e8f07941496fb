"""Profiles as Chrome traces: every instruction, its place in time and what it moved."""

from __future__ import annotations

import json
import time
from pathlib import Path

import numpy as np
import pytest

import halfbyte
from halfbyte.core import ops, profiling
from halfbyte.core.chrome_trace import chrome_trace
from halfbyte.core.profiling import Call, Profile
from halfbyte.core.program import Program, capture


def _program() -> Program:
    with capture("sum") as program:
        x = program.input("x", "f32", (4, 8))
        y = program.output("y", ops.add(ops.add(x, x), x))
        program.change_last((y,), origin="/layer/Add")
    return program


def test_events_follow_each_other() -> None:
    kept = Profile(keep_events=True)
    kept.add(_program(), {}, np.array([2e-6, 3e-6]))
    kept.add(_program(), {}, np.array([4e-6, 1e-6]))
    events = chrome_trace(kept, backend="native-avx2", threads=2)
    nodes = [e for e in events if e.get("cat") == "Node"]
    assert [e["dur"] for e in nodes] == pytest.approx([2, 3, 4, 1])
    assert [e["name"] for e in nodes] == ["Add_kernel_time", "/layer/Add_kernel_time"] * 2
    assert nodes[0]["ts"] == 0
    assert nodes[1]["ts"] == pytest.approx(2)
    assert nodes[3]["ts"] == pytest.approx(nodes[2]["ts"] + 4, abs=2e-3)
    assert nodes[0]["args"] == {
        "op_name": "Add", "kernel": "add", "provider": "CPUExecutionProvider", "threads": 2,
        "bytes": 3 * 4 * 8 * 4, "operations": 32,
        "input_type_shape": [{"float32": [4, 8]}] * 2, "output_type_shape": [{"float32": [4, 8]}],
    }  # fmt: skip


def test_runs_of_a_model(storyteller: Path) -> None:
    with halfbyte.load(storyteller, threads=1) as model:
        model.profile = Profile(keep_events=True)
        model.feed([1, 2, 3])
        model.feed([4])
        events = chrome_trace(model.profile, backend=model.executable.backend)
        count = len(model.program.instructions)
    assert json.loads(json.dumps(events)) == events
    nodes = [e for e in events if e["ph"] == "X" and e["cat"] == "Node"]
    assert len(nodes) == 2 * count
    assert nodes[count]["ts"] >= nodes[count - 1]["ts"] + nodes[count - 1]["dur"] - 2e-3
    assert {(e["args"]["n"], e["args"]["position"]) for e in nodes} == {(3, 0), (1, 3)}


def test_rows_of_kernels_and_of_numpy() -> None:
    kept = Profile(keep_events=True)
    kept.add(_program(), {}, np.zeros(2))
    kept.add_call(Call("where", "NonZero", time.perf_counter(), 1e-6, 16, [], [{"int64": [1, 2]}]))
    kept.add_span("run", kept.events[0].start)
    for backend, rows in (("native", [0, 0, 1]), ("numpy", [1, 1, 1])):
        events = chrome_trace(kept, backend=backend, start=kept.events[0].start - 1)
        nodes = [e for e in events if e["cat"] == "Node"]
        assert [e["tid"] for e in nodes] == rows
        assert nodes[0]["ts"] == pytest.approx(1e6)
        assert [e["args"]["kernel"] for e in nodes][2] == "numpy:NonZero"
    (span,) = [e for e in events if e["cat"] == "Session"]
    assert span["ts"] + span["dur"] >= nodes[2]["ts"]


def test_events_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(profiling, "MAX_EVENTS", 5)
    kept = Profile(keep_events=True)
    for _ in range(4):
        kept.add(_program(), {}, np.zeros(2))
    kept.add_span("run", 0.0)
    events = chrome_trace(kept)
    assert len([e for e in events if e["cat"] == "Node"]) == 5
    assert (kept.left_out, events[-1]["name"]) == (4, "4 later events are left out")
    assert kept.rows["add"].calls == 8
