"""A thousand broken models in sessions: each runs or is refused, soon and in little memory."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper
from tests.onnx.session.models import FLOAT, HALFBYTE, INT64, model, node, session, tensor, weight
from tests.onnx.session.mutants import attention, feeds, network

from halfbyte.onnx.session import Fail

COUNT, PARTS = 500, 2


@pytest.mark.long
@pytest.mark.parametrize("part", range(PARTS))
def test_mutants_run_or_are_refused(part: int, repository: Path, tmp_path: Path) -> None:
    """They run in a process of their own, which records the mutant that it dies of."""
    environment = os.environ | {"PYTHONPATH": str(repository), "OPENBLAS_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "tests.onnx.session.mutants", str(part), str(COUNT)]
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    at = (tmp_path / "at").read_text() if (tmp_path / "at").exists() else "the beginning"
    assert done.returncode == 0, f"ended with {done.returncode} at {at}: {done.stderr[-2000:]}"
    *problems, counts = map(json.loads, done.stdout.splitlines())
    assert not problems
    assert counts["ran"] > COUNT // 10
    assert counts["refused"] > COUNT // 2
    assert sum(counts.values()) == COUNT


@pytest.mark.parametrize("make", [network, attention])
def test_the_models_before_mutation_run(make: Any) -> None:
    with session(HALFBYTE, make()) as ours:
        assert all(np.isfinite(y).all() for y in ours.run(None, feeds(ours)))


def test_a_loop_without_end_is_ended() -> None:
    body = helper.make_graph(
        [node("Identity", "go", "go2"), node("Neg", "a", "a2")],
        "body",
        [tensor("i", INT64, []), tensor("go", TensorProto.BOOL, []), tensor("a")],
        [tensor("go2", TensorProto.BOOL, []), tensor("a2")],
    )
    data = model(
        [node("Loop", "trips yes x", "y", body=body)],
        [tensor("x", FLOAT, [2])],
        weights=[weight("trips", 1 << 62, np.int64), weight("yes", True, np.bool_)],
    )
    ours, options = session(HALFBYTE, data), HALFBYTE.RunOptions()
    timer = threading.Timer(0.2, setattr, (options, "terminate", True))
    timer.start()
    with pytest.raises(Fail, match="terminate"):
        ours.run(None, {"x": np.zeros(2, np.float32)}, options)
    timer.join()
