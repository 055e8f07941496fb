"""Killed runs of `quantize` leave either the old or the new file, complete."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.quantize.kills import KINDS

KILLS = os.environ.get("HALFBYTE_KILLS", "20")  # at random moments


@pytest.mark.parametrize(
    "kind",
    [kind if kind == "gguf" else pytest.param(kind, marks=pytest.mark.long) for kind in KINDS],
)
def test_killed_runs(kind: str, tmp_path: Path, repository: Path) -> None:
    """In a separate process, which has no threads and can be forked."""
    command = [sys.executable, "-m", "tests.quantize.kills", kind, tmp_path, KILLS]
    done = subprocess.run(command, cwd=repository, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
