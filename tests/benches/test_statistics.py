"""Statistics, turns, sessions and alarms of the suite, on synthetic samples."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from benches import samples, session, turns, yardstick
from benches.comparison import WORSE, pairs, report, worse
from benches.figures import Content, Series, pytest_json, series_of
from benches.turns import Contender


def sample(seed: int, factor: float = 1.0, *, spread: float = 0.02, passes: int = 3) -> Series:
    """Five rounds in each of three processes, whose speeds differ, beside a yardstick."""
    random = np.random.default_rng(seed)
    drift = np.repeat(random.normal(1, 0.2, passes).clip(0.5), 5)  # of the machine's speed
    places = np.repeat(random.normal(1, spread, passes), 5)
    noise = random.normal(1, spread, 5 * passes)
    numbers = [number for number in range(passes) for _ in range(5)]
    return Series(
        "m", "native", "1 row", 1, list(0.01 * factor * drift * places * noise), {"case": "c"},
        yardstick="clock", beside=list(0.001 * drift), passes=numbers,
    )  # fmt: skip


def content(*series: Series) -> Content:
    return pytest_json(series, "benches/products")


# ---- samples -------------------------------------------------------------------------------------


def test_variation_and_quartiles() -> None:
    assert samples.variation([9.0, 10.0, 11.0]) == pytest.approx(0.1)
    assert samples.variation([5.0]) == 0
    assert samples.quartiles([1.0, 2.0, 3.0, 4.0, 5.0]) == (2, 4)
    assert samples.quartiles([7.0]) == (7, 7)


def test_a_change_has_an_interval() -> None:
    old, new = sample(1), sample(2, 1.3)
    change = samples.change(old.by_pass, new.by_pass)
    assert change
    assert change.low < change.value < change.high
    assert change.low > 0.15
    assert change == samples.change(old.by_pass, new.by_pass)


def test_processes_widen_the_interval() -> None:
    """Fifteen close values of one slow process are one slow process."""
    old = [[value, value + 0.01, value - 0.01] for value in (1.0, 1.02, 1.2, 1.05)]
    new = [[1.08 * value for value in values] for values in old]
    by_process = samples.change(old, new)
    pooled = samples.change(*([[v for values in each for v in values]] for each in (old, new)))
    assert by_process
    assert pooled
    assert by_process.value == pooled.value == pytest.approx(0.08)
    assert by_process.high - by_process.low > 1.2 * (pooled.high - pooled.low)


def test_few_values_have_no_interval() -> None:
    assert samples.change([[1.0] * 4], [[2.0] * 9]) is None


@pytest.mark.parametrize(
    ("value", "low", "high", "beyond"),
    [
        (0.06, 0.01, 0.1, True), (-0.06, -0.1, -0.01, True), (0.06, -0.01, 0.1, False),
        (0.04, 0.03, 0.05, False),
    ],
)  # fmt: skip
def test_beyond(value: float, low: float, high: float, beyond: bool) -> None:
    assert samples.Change(value, low, high).beyond(0.05) is beyond


# ---- comparison ----------------------------------------------------------------------------------


def alarms(factor: float, spread: float = 0.02) -> int:
    """How many of fifty cases are worse."""
    compared = (
        pairs(content(sample(2 * i)), content(sample(2 * i + 1, factor))) for i in range(50)
    )
    return sum(bool(worse(pair)) for [*pair] in compared)


def test_unchanged_results_raise_no_alarm() -> None:
    """Although the machine's speed differs by a fifth between processes."""
    assert alarms(1.0, 0.01) <= 2


def test_a_tenth_alarms() -> None:
    assert alarms(1.1, 0.01) >= 40


def test_faster_results_raise_no_alarm() -> None:
    [pair] = pairs(content(sample(1)), content(sample(2, 0.7)))
    assert pair.verdict(5) == "faster"
    assert not worse([pair])


def test_what_varies_is_not_judged() -> None:
    old, new = content(sample(1)), content(sample(2, 2, spread=0.3))
    [pair] = pairs(old, new)
    assert pair.new.noisy
    assert pair.verdict(5) == "not judged: varies"
    assert "1 not judged" in report(old, new)


def test_another_yardstick_is_not_judged() -> None:
    new = sample(2)
    new.yardstick = "memory"
    [pair] = pairs(content(sample(1)), content(new))
    assert pair.verdict(5) == "not judged: another yardstick"


def test_one_process_is_not_judged() -> None:
    """In a session of the suite; other benches have one."""
    [pair] = pairs(content(sample(1, passes=1)), content(sample(2, 2, passes=1)))
    assert pair.verdict(5) == "not judged: one process"
    pair.old.passes.clear()
    pair.new.passes.clear()
    assert pair.verdict(5) == "slower"


def test_bytes_are_larger() -> None:
    old, new = (
        Series("m", "native", "peak", 1, [size] * 6, unit="B", passes=[0] * 6)
        for size in (100e6, 120e6)
    )
    text = report(content(old), content(new))
    assert "100 MB" in text
    assert "+20.0 %" in text
    assert text.splitlines()[2].split()[-2] == "larger"
    assert "0 slower, 1 larger, 0 faster, 0 within" in text
    assert worse(pairs(content(old), content(new)))
    assert {"larger", "slower"} == {*WORSE}


# ---- turns ---------------------------------------------------------------------------------------


class Fake:
    """A yardstick that takes 1 s, and contenders' calls, by a clock that they advance."""

    name = "clock"

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now, self.order = 0.0, list[str]()
        monkeypatch.setattr(yardstick.time, "perf_counter", lambda: self.now)

    def seconds(self) -> float:
        self.order.append("yardstick")
        return 1.0

    def contender(self, name: str, *seconds: float) -> Contender:
        """Takes these times in turn; the last is repeated."""
        left = list(seconds)

        def call() -> None:
            self.order.append(name)
            self.now += left.pop(0) if len(left) > 1 else left[0]

        return Contender(Series("m", name, "t"), call)


def test_contenders_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = Fake(monkeypatch)
    both = [fake.contender("a", 0.5), fake.contender("b", 0.25)]
    turns.take_turns(both, fake, 2)  # type: ignore[arg-type]
    assert fake.order[4:] == ["yardstick", "b", "a", "yardstick", "a", "b"]
    assert both[0].series.seconds == [0.5, 0.5]
    assert both[0].series.ratios == [0.5, 0.5]
    assert both[1].series.yardstick == "clock"


def test_a_turn_of_several_threads_begins_after_a_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = Fake(monkeypatch)
    monkeypatch.setattr(turns.time, "sleep", lambda seconds: fake.order.append(str(seconds)))
    one = fake.contender("a", 1.0)
    one.rest = 0.5
    assert one.turn() == 1.0
    assert fake.order == ["0.5", "a"]


def test_short_calls_are_timed_together(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = Fake(monkeypatch)
    one = fake.contender("a", 1.0, 0.5, 0.0001)
    one.calibrate()
    assert (one.parts, one.calls) == (1, 1)  # as slow as the second call
    one.calibrate()
    assert one.parts == turns.MAX_PARTS
    assert one.parts * one.calls * 0.0001 == pytest.approx(turns.ROUND, rel=0.1)


def test_what_varies_is_measured_again(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = Fake(monkeypatch)
    one = fake.contender("a", 1, 1, 1, 3, 1, 3, 2)
    turns.take_turns([one], fake, 4)  # type: ignore[arg-type]
    assert one.series.seconds == [2, 2, 2, 2]
    assert len(one.series.beside) == 4
    assert not one.series.noisy


def test_a_peer_that_fails_has_no_more_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its reason stands for its figures; halfbyte may not fail."""
    fake = Fake(monkeypatch)
    ours, theirs = fake.contender("halfbyte", 0.5), fake.contender("llama.cpp", 0.5)
    answers = [0.5] * 3
    theirs.call = lambda: setattr(fake, "now", fake.now + answers.pop())
    unmade = Contender.of(Series("m", "openvino", "t"), lambda: {}["model"])
    turns.take_turns([ours, theirs, unmade], fake, 4)  # type: ignore[arg-type]
    assert ours.series.seconds == [0.5] * 4
    assert [(s.series.seconds, s.series.beside) for s in (theirs, unmade)] == [([], [])] * 2
    assert [s.series.more["reason"] for s in (theirs, unmade)] == [
        "pop from empty list", "'model'"
    ]  # fmt: skip
    ours.call = theirs.call
    with pytest.raises(IndexError):
        turns.take_turns([ours], fake, 1)  # type: ignore[arg-type]


def test_one_thread_has_its_own_clock() -> None:
    """Which leaves out the time in which others run; several threads have the wall's."""

    def wait() -> None:
        time.sleep(0.05)

    assert yardstick.timed(wait, 1, yardstick.clock_of(1)) < 0.03
    assert yardstick.timed(wait, 1, yardstick.clock_of(2)) >= 0.05
    contender = Contender(Series("m", "e", "t"), wait, clock=yardstick.clock_of(1))
    assert contender.turn() < 0.03


@pytest.mark.parametrize("name", yardstick.NAMES)
def test_yardsticks_take_time(name: str) -> None:
    assert 1e-5 < yardstick.Yardstick(name).seconds() < 10


# ---- sessions ------------------------------------------------------------------------------------


def once(factor: float, seed: int, passes: int = 3) -> Content:
    """A session with two cases, the second of which has another speed."""
    other = sample(seed + 100, factor, spread=0.005, passes=passes)
    other.model, other.more = "other", {"case": "other"}
    return content(sample(seed, spread=0.005, passes=passes), other)


def test_joined_keeps_processes_apart() -> None:
    both = session.joined([once(1, 1, passes=2), once(1, 5, passes=3)])
    first, second = series_of(both)
    assert first.passes == [number for number in range(5) for _ in range(5)]
    assert len(first.seconds) == len(second.beside) == 25
    assert first.yardstick == "clock"
    assert not both["failed"]


def test_joined_keeps_entries_of_single_passes() -> None:
    extra = Series("m", "halfbyte", "load", 1, [0.1], source="benches/load")
    merged = session.joined([content(sample(1), extra), {**content(sample(2)), "failed": True}])
    assert [s.source for s in series_of(merged)] == ["benches/products", "benches/load"]
    assert len(series_of(merged)[0].seconds) == 30
    assert merged["failed"]


def measuring(answer: Content, asked: list[str]) -> session.Measure:
    def measure(cases: Sequence[str]) -> Content:
        asked.extend(cases)
        return {**answer, "failed": False}

    return measure


def test_an_alarm_is_measured_twice() -> None:
    asked: list[str] = []
    _, alarms = session.compared(once(1, 1), once(1.1, 11), measuring(once(1.1, 21), asked))
    assert asked == ["other"]
    assert [pair.new.model for pair in alarms] == ["other"]


def test_what_does_not_come_again_is_no_alarm() -> None:
    asked: list[str] = []
    both, alarms = session.compared(once(1, 1), once(1.1, 11), measuring(once(1, 21), asked))
    assert asked == ["other"]
    assert not alarms
    assert len(series_of(both)[0].seconds) == 30


def test_without_suspects_nothing_is_measured_again() -> None:
    asked: list[str] = []
    _, alarms = session.compared(once(1, 1), once(1, 11), measuring(once(1, 21), asked))
    assert not asked
    assert not alarms


def test_a_session_runs_the_cases(tmp_path: Path) -> None:
    """One pass of one short case, through pytest and back from its file."""
    cases = ["benches/suite/bench_products.py::bench_product[F16-576x576-1]"]
    measured = session.passes(1, ["--rounds=2", "--short"], cases)
    [series] = series_of(json.loads(json.dumps(measured)))
    assert series.source == "benches/products"
    assert (series.model, series.test) == ("F16 576x576", "1 row")
    assert len(series.seconds) == len(series.beside) == 2
    assert series.more["case"] == cases[0]
    assert series.more["operations"] == 2 * 576 * 576
    with pytest.raises(SystemExit, match="no case was chosen"):
        session.passes(1, ["-k=nothing-has-this-name"], cases)
