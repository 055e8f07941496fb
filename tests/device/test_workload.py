"""Workloads of devices: turns over time, and invalid files."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from pathlib import Path

import numpy as np
import pytest

from halfbyte.device.workload import (
    CHAT,
    CONTINUOUS,
    Progress,
    Turn,
    Workload,
    load_workload,
)  # fmt: skip
from halfbyte.errors import ProfileError

TOML = "[[turn]]\nprompt = 200\nanswer = 150\npause_s = 20\n"


def by_hand(turns: Sequence[Turn], seconds: float, prompt_s: float, unit_s: float) -> list[float]:
    """Tokens and seconds of prompts and answers, computed event by event."""
    result = [0.0, 0.0, 0.0, 0.0]
    while True:
        for turn in turns:
            token_s = max(unit_s, 1 / turn.per_s)
            for part, (amount, each) in enumerate(
                ((turn.prompt, prompt_s), (turn.answer, token_s), (turn.pause_s, 1.0))
            ):
                used = min(amount * each, seconds)
                if part < 2:
                    result[part] += used / each
                    result[part + 2] += used
                seconds -= used
                if seconds <= 0:
                    return result


def test_turns_in_sequence() -> None:
    turns = (Turn(7, 3, 0.5), Turn(0, 11, 0.1, per_s=10), Turn(2, 0, 4.0), Turn(1, 2, 0.2, 0.5))
    prompt_s, token_s = np.array([0.01, 0.3, 1.7]), np.array([0.13, 0.02, 2.5])
    progress = Progress(Workload("x", turns), 3)
    done, spent = np.zeros((2, 2, 3))
    for step in np.full(230, 0.5):
        tokens, seconds = progress.advance(np.full(3, step), prompt_s, token_s)
        done, spent = done + tokens, spent + seconds
    for draw in range(3):
        expected = by_hand(turns, 115.0, prompt_s[draw], token_s[draw])
        np.testing.assert_allclose([*done[:, draw], *spent[:, draw]], expected, rtol=1e-9)


def test_an_answer_without_an_end() -> None:
    tokens, seconds = Progress(CONTINUOUS, 2).advance(
        np.array([1.0, 0.0]), np.ones(2), np.full(2, 0.25)
    )
    np.testing.assert_array_equal(tokens, [[0, 0], [4, 0]])
    np.testing.assert_array_equal(seconds, [[0, 0], [1, 0]])


def test_names_and_files(tmp_path: Path) -> None:
    assert load_workload("chat") is CHAT
    assert load_workload("continuous").turns[0].answer == inf
    (tmp_path / "a.toml").write_text(TOML * 2)
    (tmp_path / "b.csv").write_bytes(
        b"\xef\xbb\xbfpause_s, prompt,answer\r\n20,200,150\r\n20,200,150\r\n"
    )
    for name in ("a.toml", "b.csv"):
        assert load_workload(str(tmp_path / name)) == Workload(name, CHAT.turns * 2)


def test_workloads_of_graphs(tmp_path: Path) -> None:
    assert load_workload("continuous", "run") is CONTINUOUS
    bursts = Workload("a.toml", (Turn(0, 300, 10, 30), Turn(0, 5, 0.5)))
    (tmp_path / "a.toml").write_text(
        "[[burst]]\nruns = 300\nper_s = 30\npause_s = 10\n[[burst]]\nruns = 5\npause_s = 0.5\n"
    )
    assert load_workload(str(tmp_path / "a.toml"), "run") == bursts
    assert bursts.per_s == inf
    (tmp_path / "b.csv").write_text("per_s,runs,pause_s\n30,300,10\n\n")
    output = load_workload(str(tmp_path / "b.csv"), "run")
    assert output == Workload("b.csv", bursts.turns[:1])
    assert output.per_s == 30
    (tmp_path / "c.csv").write_text("runs,pause_s\n5,0.5\n")
    assert load_workload(str(tmp_path / "c.csv"), "run").turns == bursts.turns[1:]


@pytest.mark.parametrize("unit", ["token", "run"])
def test_a_rate(unit: str) -> None:
    camera = load_workload("29.97/s", unit)
    assert camera == Workload("29.97/s", (Turn(0, inf, 0, 29.97),))
    runs, seconds = Progress(camera, 2).advance(np.full(2, 3.0), np.ones(2), np.array([1e-4, 0.1]))
    np.testing.assert_allclose(runs[1], [3 * 29.97, 30])
    np.testing.assert_allclose(seconds[1], 3)  # waiting too
    for name in ("0/s", "nan/s", "inf/s", "-3/s"):
        with pytest.raises(ProfileError, match=f"workload '{name}': expected a number from 0.001"):
            load_workload(name, unit)
    with pytest.raises(ProfileError, match="workload 'many/s': expected continuous, "):
        load_workload("many/s", unit)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("x.toml", TOML, "turn: expected one of burst, found 'turn'"),
        ("x.toml", "[[burst]]\nruns = 0\npause_s = 1\n", "runs: expected a burst with runs"),
        ("x.toml", "[[burst]]\nruns = 9\npause_s = 0\n", r"burst\[0\].pause_s: .* found 0"),
        (
            "x.csv",
            "prompt,answer,pause_s\n1,2,3\n",
            "line 1: expected the columns runs,pause_s and",
        ),
        ("x.csv", "runs,pause_s,per_s\n1,2,0\n", "line 2.per_s: expected a number from 0.001"),
    ],
)
def test_invalid_workloads_of_graphs(name: str, content: str, message: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(ProfileError, match=message):
        load_workload(str(tmp_path / name), "run")


def test_chat_is_refused_for_graphs() -> None:
    words = "'chat': expected continuous, a rate .*; graphs have no prompts and answers"
    with pytest.raises(ProfileError, match=words):
        load_workload("chat", "run")


REFUSED = {
    "x.toml": {
        TOML.replace("20\n", "nan\n"): r"turn\[0\].pause_s: expected a number from 0.1 to 1e\+06, "
        "found nan",
        TOML.replace("20\n", "0\n"): r"turn\[0\].pause_s: .* found 0",
        TOML.replace("150", "-1"): r"turn\[0\].answer: .* found -1",
        TOML.replace("150", "true"): r"turn\[0\].answer: .* found True",
        TOML.replace("150", "0"): "answer: expected a turn with an answer, found 0 in all",
        TOML.replace("answer", "reply"): r"turn\[0\].reply: expected one of prompt, answer",
        TOML.replace("answer = 150\n", ""): r"turn\[0\].answer: .* found nothing",
        TOML.replace("turn", "move"): "move: expected one of turn",
        "": "turn: expected an array of 1 to 1000000 tables, found nothing",
        "[[turn": "expected TOML, found",
        "#" * 1_000_001: "expected a file of at most 1000000 bytes, found more",
    },
    "x.csv": {
        "": "line 1: expected the columns prompt,answer,pause_s and optionally per_s, found ''",
        "prompt,answer\n1,2\n": "line 1: expected the columns .* found 'prompt,answer'",
        "prompt,answer,answer,pause_s\n1,2,3,4\n": "line 1: expected the columns",
        "prompt,answer,pause_s\n": "line 2: expected a line of numbers, found nothing",
        "prompt,answer,pause_s\n1,2,nan\n": "line 2.pause_s: expected a number .* found nan",
        "prompt,answer,pause_s\n1,2,3\n-1,2,3\n": "line 3.prompt: .* found -1",
        "prompt,answer,pause_s\n1,inf,3\n": "line 2.answer: .* found inf",
        "prompt,answer,pause_s\n1,many,3\n": "line 2.answer: .* found 'many'",
        "prompt,answer,pause_s\n1,2\n": "line 2: expected 3 numbers, found 2",
        "prompt,answer,pause_s\n1,0,3\n": "answer: expected a turn with an answer",
        'prompt,answer,pause_s\n1,2,"3\n': "expected a table of text with commas, found",
        "x" * 1_000_001: "expected a file of at most 1000000 bytes, found more",
        "prompt,answer,pause_s\n" + "1" * 200_000: "expected a table of text with commas, found",
    },
}


@pytest.mark.parametrize(
    ("name", "content"), [(name, content) for name, cases in REFUSED.items() for content in cases]
)
def test_invalid_workloads(name: str, content: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(ProfileError, match=REFUSED[name][content]) as caught:
        load_workload(str(tmp_path / name))
    assert str(caught.value).startswith(str(tmp_path / name))
    assert len(str(caught.value)) < 500 + len(str(tmp_path))
    assert "\n" not in str(caught.value)


def test_bytes_that_are_not_text(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_bytes(bytes(range(256)))
    with pytest.raises(ProfileError, match="expected a table of text with commas"):
        load_workload(str(tmp_path / "x.csv"))
    with pytest.raises(
        ProfileError, match=r"'x.json': expected continuous, chat, a rate .* or a .toml or"
    ):
        load_workload("x.json")
    with pytest.raises(FileNotFoundError):
        load_workload(str(tmp_path / "none.csv"))
