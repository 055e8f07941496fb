"""Mutated files of every format: read or refused, never a crash, a hang or a foreign error.

`make fuzz MINUTES=30` continues with other files. This module is itself a format, for the test of
the runner.
"""

from __future__ import annotations

import os
import random
import sys
import threading
from pathlib import Path

import pytest
from tests.fuzz import coverage, runner
from tests.fuzz.__main__ import main
from tests.fuzz.runner import Report, formats, run_all, table

from halfbyte.errors import HalfbyteError

CHANGED = 30  # cases of each format, after its corpus
MORE = 27 * CHANGED  # the same of the long tests
SEED = 0


@pytest.mark.parametrize("changed", [CHANGED, pytest.param(MORE, marks=pytest.mark.long)])
@pytest.mark.parametrize("name", formats())
def test_mutated_files(name: str, changed: int) -> None:
    corpus = len(runner.module_of(name).corpus())
    count = corpus + changed
    reports = run_all([name], SEED, count, jobs=1, batch=count)
    assert not reports[name].failures, "\n".join(map(str, reports[name].failures))
    assert reports[name].counts.total() == count
    assert reports[name].counts["accepted"] >= corpus // 2
    assert reports[name].counts["refused"] > changed // 10


@pytest.mark.parametrize("name", formats())
def test_a_corpus_is_small_and_its_changes_are_the_same_again(name: str) -> None:
    module = runner.module_of(name)
    corpus = module.corpus()
    assert all(isinstance(data, bytes) for data in corpus)
    for index in range(len(corpus), len(corpus) + 5):
        assert runner.case(module, corpus, 1, index) == runner.case(module, corpus, 1, index)


# ---- the runner --------------------------------------------------------------------------------

ENDS = ("accepted", "refused", "message", "foreign", "memory", "slow", "crash", "hang")


def corpus() -> list[bytes]:
    """The outcomes that `target` shall have."""
    return [end.encode() for end in (*ENDS, "accepted")]


def mutate(data: bytes, chance: random.Random) -> bytes:
    """Return the file unchanged."""
    return data


def target(data: bytes) -> None:
    """Have the outcome that the file names."""
    end = data.decode()
    if end == "refused":
        raise HalfbyteError("fuzz: refused")
    if end == "message":
        raise HalfbyteError("")
    if end == "foreign":
        raise KeyError(end)
    if end == "memory":
        bytearray(b"x" * (300 << 20))
    if end == "slow":
        vars(sys.modules["__main__"])["REFUSAL"] = -1.0  # the worker's limit
        raise HalfbyteError("fuzz: slow")
    if end == "crash":
        os.abort()
    if end == "hang":
        threading.Event().wait()


@pytest.mark.long
def test_the_runner_sees_each_end(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(runner, "SECONDS", 5)
    monkeypatch.setattr(runner, "REPRODUCERS", tmp_path)
    report: Report = runner.run("tests.test_fuzz", 0, 0, len(ENDS) + 1)
    assert report.counts == {**dict.fromkeys(ENDS, 1), "accepted": 2}
    bad = [end for end in ENDS if end not in runner.GOOD]
    assert [failure.split(": ")[1] for failure in report.failures] == bad
    number = ENDS.index("crash")
    assert (tmp_path / f"tests.test_fuzz-0-{number}-crash.bin").read_bytes() == b"crash"
    row = "| tests.test_fuzz | 9 | 2 | 1 | 1 | 1 | 1 | 1 | 1 | 1 | "
    assert row in table({"tests.test_fuzz": report})
    assert len(list(tmp_path.iterdir())) == 2 * len(bad)


def test_one_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "file"
    path.write_bytes(runner.module_of("gguf").corpus()[0])
    assert main(["gguf", "--file", str(path)]) == 0
    assert capsys.readouterr().out == "accepted\n"
    path.write_bytes(b"GGUF")
    with pytest.raises(HalfbyteError):
        main(["gguf", "--file", str(path)])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["png"], "format 'png': expected one of ['chat_template', "),
        (["gguf", "--coverage"], "--coverage: expected --minutes, of each format"),
        (["gguf", "--coverage", "--minutes", "1"], "expected the package atheris; pip install"),
    ],
)
def test_refused_arguments(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setitem(sys.modules, "atheris", None)
    with pytest.raises(SystemExit, match="2"):
        main(arguments)
    assert message in capsys.readouterr().err


STAND_IN = """
def instrument_func(function):
    pass

def Setup(arguments, one, custom_mutator):
    global files
    assert "-max_total_time=60" in arguments
    files = [one, custom_mutator(b"refused", 100, 5)]

def Mutate(data, most):
    return data

def Fuzz():
    one, refused = files
    for data in (refused, b"foreign", b"foreign", b"message", b"crash", b"refused"):
        one(data)
"""


def test_files_that_are_guided_by_coverage(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(runner, "REPRODUCERS", tmp_path)
    (tmp_path / "atheris.py").write_text(STAND_IN)  # the current folder comes first
    (tmp_path / "part").mkdir()
    (tmp_path / "part/ends.py").write_text(
        "from tests.test_fuzz import mutate, target\ndef corpus():\n    return [b'accepted']\n"
    )
    report = coverage.guided("part.ends", 60, 0)
    assert report.counts == {"accepted": 1, "refused": 1, "foreign": 2, "message": 1, "crash": 1}
    kept = {path.name: path.read_bytes() for path in tmp_path.glob("*.bin")}
    numbers = {2: b"foreign", 4: b"message", 5: b"crash"}  # the same place is kept once
    assert kept == {f"part.ends-coverage-{n}.bin": data for n, data in numbers.items()}
    assert [failure.split(":")[0] for failure in report.failures] == [
        f"part.ends --file {tmp_path}/{name}" for name in sorted(kept)
    ]
    assert "part.ends: 0 branches reached; 1 files in " in capsys.readouterr().out
