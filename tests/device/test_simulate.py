"""Simulations: energy is conserved, heat follows closed forms, speed falls with temperature."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from tests.device.devices import (
    AIR,
    CAPACITY,
    IDLE,
    RESISTANCE,
    cluster,
    exactly,
    one_node,
    small_plan,
)
from tests.support.sampled import often

from halfbyte.device.profile import load_profile
from halfbyte.device.quantity import Draws
from halfbyte.device.recording import Simulation
from halfbyte.device.simulate import GOVERNORS, simulate
from halfbyte.device.speed import Task, Tokens
from halfbyte.device.summary import quantities
from halfbyte.device.workload import CHAT, CONTINUOUS, Turn, Workload
from halfbyte.errors import HalfbyteError

LIMITING = [name for name in GOVERNORS if name != "none"]
PHONES = ("pixel-6", "galaxy-s25", "fairphone-4")


@pytest.fixture(scope="module")
def task(storyteller: Path) -> Task:
    return Tokens(small_plan(storyteller))


# ---- physics -------------------------------------------------------------------------------------


@pytest.mark.parametrize("governor", GOVERNORS)
@pytest.mark.parametrize("workload", [CONTINUOUS, CHAT])
def test_energy_is_conserved(governor: str, workload: Workload, task: Task) -> None:
    s = simulate(
        task, load_profile("galaxy-s25"), workload, governor, minutes=5, draws=20, ambient=35
    )
    assert (s.taken_j > 20).all()  # without a governor it is off in seconds
    np.testing.assert_allclose(s.stored_j + s.given_j, s.taken_j, rtol=1e-9)
    lengths = np.diff(s.seconds, prepend=0.0)
    np.testing.assert_allclose((s.watts * lengths[:, None]).sum(axis=0), s.taken_j, rtol=1e-9)


def test_one_node_follows_its_closed_form(task: Task) -> None:
    """With 2 W above idle: T = air + P R - 2 W R exp(-t / RC)."""
    s = simulate(task, one_node(), governor="none", minutes=10, draws=3)
    expected = AIR + RESISTANCE * (IDLE + 2 * (1 - np.exp(-s.seconds / (RESISTANCE * CAPACITY))))
    np.testing.assert_allclose(s.temperatures["soc"], expected[:, None].repeat(3, 1), rtol=1e-6)
    np.testing.assert_allclose(s.watts, 2 + IDLE, rtol=1e-12)


def test_leakage_depends_on_the_temperature(task: Task) -> None:
    leaking = cluster(leakage_w=exactly(0.2), leakage_doubling_k=exactly(20))
    s = simulate(task, one_node([leaking]), governor="none", minutes=60, draws=1)
    at, watts = float(s.temperatures["soc"][-1, 0]), float(s.watts[-1, 0])
    assert watts == pytest.approx(2 + IDLE + 0.2 * 2 ** ((at - 25) / 20), rel=1e-5)
    assert at == pytest.approx(AIR + RESISTANCE * watts, rel=1e-4)
    assert watts > 2.9


def test_the_step_does_not_matter_at_constant_power(task: Task) -> None:
    result = [
        simulate(task, one_node(), governor="none", minutes=4, draws=3, step=step)
        for step in (1.0, 0.5, 0.125)
    ]
    for other in result[1:]:
        np.testing.assert_allclose(other.taken_j, result[0].taken_j, rtol=1e-9)
        np.testing.assert_allclose(other.given_j, result[0].given_j, rtol=1e-9)
        np.testing.assert_allclose(
            other.units.sum(axis=0), result[0].units.sum(axis=0), rtol=1e-9
        )  # fmt: skip


@pytest.mark.long
def test_the_step_matters_little_with_leakage(task: Task) -> None:
    def heat(step: float) -> Any:
        profile = load_profile("pixel-6")
        s = simulate(task, profile, governor="none", minutes=2, draws=20, step=step)
        return s.given_j[~s.overheated]

    errors = [np.abs(heat(step) / heat(0.0625) - 1).max() for step in (1.0, 0.5, 0.25)]
    assert errors[1] < 2e-3
    assert errors[0] > 1.5 * errors[1] > 2.2 * errors[2]  # of first order


@pytest.mark.parametrize("governor", often(GOVERNORS, ["power-allocator", "pacing"]))
@pytest.mark.parametrize("name", often(PHONES, [PHONES[0]]))
def test_hotter_air_never_gives_more_tokens(governor: str, name: str, task: Task) -> None:
    tokens = [
        simulate(
            task, load_profile(name), governor=governor, minutes=6, ambient=ambient, draws=20
        ).units.sum(axis=0)
        for ambient in (5.0, 27.0, 50.0)
    ]
    # steps of frequency and temperature decide by less than a hundredth
    some = 1e-9 if governor == "none" else 0.01
    for cooler, hotter in pairwise(tokens):
        assert (hotter <= cooler * (1 + some)).all()
    assert governor == "none" or np.median(tokens[-1]) < 0.7 * np.median(tokens[0])


# ---- draws ---------------------------------------------------------------------------------------


def test_the_same_seed_gives_the_same_devices(task: Task) -> None:
    def run(seed: int) -> Simulation:
        return simulate(task, load_profile("pixel-6"), minutes=1, draws=5, seed=seed)

    first, again, other = run(3), run(3), run(4)
    np.testing.assert_array_equal(first.units, again.units)
    np.testing.assert_array_equal(first.watts, again.watts)
    assert (first.watts != other.watts).any()


class Replayed:
    """A generator that replays only draw `at` of recorded draws, in the same order."""

    def __init__(self, drawn: list[Any], at: int) -> None:
        self._drawn, self._at = iter(drawn), at

    def triangular(self, low: float, mode: float, high: float, count: int) -> Any:
        return next(self._drawn)[self._at : self._at + 1]


class Recorded(Replayed):
    """A generator that records its draws."""

    def __init__(self) -> None:
        self.drawn: list[Any] = []
        self._random = np.random.default_rng(5)

    def triangular(self, low: float, mode: float, high: float, count: int) -> Any:
        self.drawn.append(self._random.triangular(low, mode, high, count))
        return self.drawn[-1]


@pytest.mark.parametrize("governor", often(GOVERNORS, ["power-allocator", "pacing"]))
def test_draws_are_independent(governor: str, task: Task) -> None:
    def run(random: Any, count: int) -> Simulation:
        return simulate(
            task, load_profile("galaxy-s25"), CHAT, governor, minutes=3, ambient=40,
            draws=Draws(cast(np.random.Generator, random), count),
        )  # fmt: skip

    recorded = Recorded()
    together = run(recorded, 3)
    for draw in range(3):
        single = run(Replayed(recorded.drawn, draw), 1)
        np.testing.assert_allclose(single.units[:, 0], together.units[:, draw], rtol=1e-9)
        np.testing.assert_allclose(single.watts[:, 0], together.watts[:, draw], rtol=1e-9)


# ---- throttling, switching off -------------------------------------------------------------------


@pytest.mark.parametrize("governor", GOVERNORS)
def test_devices_that_stay_cool_are_never_throttled(governor: str, task: Task) -> None:
    s = simulate(task, one_node(resistance=0.1), governor=governor, minutes=5, draws=5)
    result = quantities(s)
    assert np.isinf(result["throttle_s"]).all()
    np.testing.assert_allclose(result["kept"], 1, rtol=1e-9)
    np.testing.assert_allclose(result["token_spread"], 0, atol=1e-9)
    full = simulate(task, one_node(resistance=0.1), governor="none", minutes=5, draws=5)
    np.testing.assert_allclose(s.units, full.units, rtol=1e-9)


@pytest.mark.parametrize("governor", LIMITING)
def test_governors_hold_the_control_temperature(governor: str, task: Task) -> None:
    """2.5 W would reach 50 degrees; 40 degrees allow 1.5 W, of which the core takes 1 W."""
    s = simulate(task, one_node(control=40), governor=governor, minutes=40, draws=3)
    late = s.seconds > 1500
    soc = s.temperatures["soc"][late]
    assert soc.max() < 41.5
    assert soc.mean() > 36
    assert governor == "pacing" or (quantities(s)["throttle_s"] < 600).all()


def test_thermal_runaway_switches_the_device_off(task: Task) -> None:
    leaking = cluster(leakage_w=exactly(1.0), leakage_doubling_k=exactly(10))
    s = simulate(task, one_node([leaking]), governor="none", minutes=30, draws=2)
    assert s.overheated.all()
    off = np.argmax(~s.on[:, 0])
    assert 60 < s.seconds[off] < 600
    assert s.units[off:].max() == s.watts[off:].max() == s.speed[off:].max() == 0
    assert 105 < s.temperatures["soc"].max() < 125
    assert s.temperatures["soc"][-1, 0] < 40  # it cools
    result = quantities(s)
    assert result["sustained_tokens_s"].max() == 0
    assert result["throttle_s"].max() <= s.seconds[off]
    np.testing.assert_allclose(s.stored_j + s.given_j, s.taken_j, rtol=1e-9)


def test_a_battery_loses_the_energy_used(task: Task) -> None:
    profile = one_node(resistance=1.0)
    assert profile.battery is not None
    small = replace(profile, battery=replace(profile.battery, capacity_wh=exactly(2.5 / 6)))
    s = simulate(task, small, governor="none", minutes=15, draws=2)  # 2.5 W empty it in 10
    assert s.charge is not None
    np.testing.assert_allclose(s.charge[s.seconds == 300], 50, rtol=1e-9, atol=0.1)
    off = float(s.seconds[np.argmax(~s.on[:, 0])])
    assert off == pytest.approx(600, abs=1)
    assert s.charge[-1].max() == 0
    assert not s.overheated.any()
    mains = simulate(task, replace(small, battery=None), governor="none", draws=2)
    assert mains.charge is None
    assert "tokens_per_percent" not in quantities(mains)


# ---- work, time and bounds -----------------------------------------------------------------------


def test_turns_of_a_chat_take_time(task: Task) -> None:
    profile = one_node(resistance=0.1)
    speed = simulate(task, profile, governor="none", minutes=1, draws=2).units.sum(axis=0) / 60
    turns = Workload("x", (Turn(0, 1000, 7.0),))
    s = simulate(task, profile, turns, "none", minutes=30, draws=2)
    whole = 1800 / (1000 / speed + 7)
    assert (np.abs(s.units.sum(axis=0) / 1000 - whole) < 1).all()
    np.testing.assert_allclose(s.units.sum(axis=0) / s.spent.sum(axis=0), speed, rtol=1e-9)
    slower = simulate(
        task, profile, Workload("x", (Turn(50_000, 1000, 7.0),)), "none", minutes=30, draws=2
    )
    assert (slower.units.sum(axis=0) < s.units.sum(axis=0)).all()


def test_long_simulations_have_fewer_samples(task: Task) -> None:
    s = simulate(task, one_node(), governor="none", minutes=35, draws=1)
    assert len(s.seconds) == 1050
    assert s.seconds[-1] == 2100
    np.testing.assert_allclose(s.watts, 2.5, rtol=1e-12)
    np.testing.assert_allclose(s.spent[:-1], 2.0, rtol=1e-9)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"governor": "fan"}, "governor 'fan': expected one of none, step-wise"),
        ({"minutes": 0}, "minutes 0: expected 0.00833"),
        ({"minutes": float("nan")}, "minutes nan: expected"),
        ({"minutes": 601}, "minutes 601: expected .* to 600"),
        ({"ambient": 90.0}, "ambient 90: expected -30 to 80"),
        ({"threads": 9}, "threads 9: expected 1 to 8"),
        ({"threads": 0}, "threads 0: expected 1 to 8"),
        ({"draws": 0}, "draws 0: expected 1 to 10000"),
        ({"step": 0.3}, "step of 0.3 s: expected 1 s or a whole part of it"),
        ({"step": 0.0}, "step of 0.0 s"),
    ],
)
def test_numbers_out_of_bounds(changes: dict[str, Any], message: str, task: Task) -> None:
    with pytest.raises(HalfbyteError, match=message):
        simulate(task, load_profile("pixel-6"), **changes)
