"""Mutated files of every format: read or refused, never a crash, a hang or a foreign error.

`make fuzz MINUTES=30` goes on with other files. This module is itself a format, for the runner's
own test.
"""

from __future__ import annotations

import os
import random
import threading
from pathlib import Path

import pytest
from tests.fuzz import runner
from tests.fuzz.runner import Report, formats, run_all, table

from halfbyte.errors import HalfbyteError

CHANGED = 270  # cases of each format, after its corpus
SEED = 0


@pytest.mark.parametrize("name", formats())
def test_mutated_files(name: str) -> None:
    corpus = len(runner.module_of(name).corpus())
    count = corpus + CHANGED
    reports = run_all([name], SEED, count, jobs=2, batch=count // 2 + 1)
    assert not reports[name].failures, "\n".join(map(str, reports[name].failures))
    assert reports[name].counts.total() == count
    assert reports[name].counts["accepted"] >= corpus // 2
    assert reports[name].counts["refused"] > CHANGED // 10


@pytest.mark.parametrize("name", formats())
def test_a_corpus_is_small_and_its_changes_are_the_same_again(name: str) -> None:
    module = runner.module_of(name)
    corpus = module.corpus()
    assert all(isinstance(data, bytes) for data in corpus)
    for index in range(len(corpus), len(corpus) + 5):
        assert runner.case(module, corpus, 1, index) == runner.case(module, corpus, 1, index)


# ---- the runner --------------------------------------------------------------------------------

ENDS = ("accepted", "refused", "message", "foreign", "memory", "crash", "hang")


def corpus() -> list[bytes]:
    """What `target` is to do."""
    return [end.encode() for end in (*ENDS, "accepted")]


def mutate(data: bytes, chance: random.Random) -> bytes:
    """The same."""
    return data


def target(data: bytes) -> None:
    """End as the file says."""
    end = data.decode()
    if end == "refused":
        raise HalfbyteError("fuzz: refused")
    if end == "message":
        raise HalfbyteError("")
    if end == "foreign":
        raise KeyError(end)
    if end == "memory":
        bytearray(b"x" * (300 << 20))
    if end == "crash":
        os.abort()
    if end == "hang":
        threading.Event().wait()


def test_the_runner_sees_each_end(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(runner, "SECONDS", 5)
    monkeypatch.setattr(runner, "REPRODUCERS", tmp_path)
    report: Report = runner.run("tests.test_fuzz", 0, 0, len(ENDS) + 1)
    assert report.counts == {**dict.fromkeys(ENDS, 1), "accepted": 2}
    assert [f.outcome for f in report.failures] == [e for e in ENDS if e not in runner.GOOD]
    kept = tmp_path / f"tests.test_fuzz-0-{ENDS.index('crash')}-crash.bin"
    assert kept.read_bytes() == b"crash"
    assert "| tests.test_fuzz | 8 | 2 | 1 | 1 | 1 | 1 | 1 | 1 |" in table(
        {"tests.test_fuzz": report}
    )
