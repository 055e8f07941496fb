"""A device that is simulated along with real work: as `simulate` predicts, in any pieces."""

from __future__ import annotations

from dataclasses import replace
from math import inf
from pathlib import Path

import numpy as np
import pytest
from tests.device.devices import AIR, CAPACITY, IDLE, RESISTANCE, exactly, one_node, small_plan

from halfbyte.device.emulate import STEP_S, Emulation, Work
from halfbyte.device.profile import load_profile
from halfbyte.device.quantity import Draws
from halfbyte.device.simulate import simulate
from halfbyte.device.speed import Task, Tokens
from halfbyte.device.tab import in_tab


@pytest.fixture(scope="module")
def task(storyteller: Path) -> Task:
    return Tokens(small_plan(storyteller), from_storage=False)


@pytest.mark.parametrize("device", ["galaxy-s25", "raspberry-pi-5"])
def test_it_is_what_simulate_predicts(task: Task, device: str) -> None:
    """A text without a pause, in pieces that do not match the steps."""
    profile, minutes = in_tab(load_profile(device)), 1.0
    predicted = simulate(task, profile, minutes=minutes, threads=2, draws=Draws(), step=STEP_S)
    emulation = Emulation(task, profile, 2)
    rng, left = np.random.default_rng(1), 60 * minutes
    while left > 0:
        piece = min(left, rng.choice([0.003, 0.4, 3.0]))
        emulation.go_on(piece, Work.ANSWER)
        left -= piece
    state = emulation.state
    assert state.seconds == pytest.approx(60 * minutes)
    for node, celsius in predicted.temperatures.items():
        assert state.celsius[node] == pytest.approx(celsius[-1, 0], abs=1e-3)
    if predicted.charge is not None:
        assert state.charge == pytest.approx(predicted.charge[-1, 0] / 100, rel=1e-9)
    assert 1 / state.speed == pytest.approx(1 / predicted.speed[-1, 0], rel=0.2)  # one step later


def test_the_heat_slows_it_down(task: Task) -> None:
    emulation = Emulation(task, in_tab(load_profile("galaxy-s25")), 8)
    cold = emulation.state
    assert cold.kept == 1
    emulation.go_on(90, Work.ANSWER)
    hot = emulation.state
    assert hot.kept == pytest.approx(hot.speed / cold.speed)
    assert hot.kept < 0.8
    assert hot.megahertz < cold.megahertz
    emulation.go_on(60, Work.REST)
    assert emulation.state.kept > hot.kept
    assert emulation.state.celsius["chassis"] < hot.celsius["chassis"] - 1


@pytest.mark.parametrize("work", [Work.PROMPT, Work.ANSWER])
def test_work_warms_and_rest_does_not(task: Task, work: Work) -> None:
    """By the closed form of one node, with 2 W above idle while it works."""
    emulation, seconds = Emulation(task, one_node(), 1), 8.0
    emulation.go_on(30, Work.REST)
    at_rest = AIR + RESISTANCE * IDLE
    assert emulation.state.celsius["soc"] == pytest.approx(at_rest)
    emulation.go_on(seconds, work)
    rise = 2 * RESISTANCE * (1 - np.exp(-seconds / (RESISTANCE * CAPACITY)))
    assert emulation.state.celsius["soc"] == pytest.approx(at_rest + rise)


def test_a_step_of_several_kinds(task: Task) -> None:
    """Half a step of work warms half as much."""
    one, other = Emulation(task, one_node(), 1), Emulation(task, one_node(), 1)
    one.go_on(STEP_S, Work.ANSWER)
    for work in (Work.ANSWER, Work.REST):
        other.go_on(STEP_S / 2, work)
    at_rest = AIR + RESISTANCE * IDLE
    warm, half = (e.state.celsius["soc"] - at_rest for e in (one, other))
    assert warm > 0
    assert half == pytest.approx(warm / 2)


def test_an_empty_battery_switches_it_off(task: Task) -> None:
    profile = one_node()
    assert profile.battery
    small = replace(profile.battery, capacity_wh=exactly(0.01))
    emulation = Emulation(task, replace(profile, battery=small), 1)
    emulation.go_on(10, Work.ANSWER)
    assert emulation.on
    emulation.go_on(10, Work.ANSWER)
    state = emulation.state
    assert not state.on
    assert (state.charge, state.speed, state.kept) == (0, 0, 0)
    assert emulation.token_s == emulation.prompt_s == inf
