"""Pacing: efficient settings, what it learns of a device, and the speed that it reaches."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.device.devices import AIR, IDLE, RESISTANCE, cluster, one_node, small_plan

from halfbyte.device.cooling import Link
from halfbyte.device.operating_points import efficient_points, lumped, network_of
from halfbyte.device.pacing import Line, Tuning
from halfbyte.device.profile import Profile, load_profile
from halfbyte.device.quantity import Draws, Quantity, Steps
from halfbyte.device.simulate import simulate
from halfbyte.device.speed import Processor, Task, Tokens
from halfbyte.device.summary import quantities
from halfbyte.device.workload import CHAT

CONTROL = 37.0  # at which one_node's core may take 0.7 W


@pytest.fixture(scope="module")
def task(storyteller: Path) -> Task:
    return Tokens(small_plan(storyteller))


def phone(low: float = RESISTANCE, high: float = RESISTANCE) -> Profile:
    """One node and core: voltage rises with frequency; the link to the air is uncertain."""
    core = cluster()
    volts = tuple(600.0 + 40 * i for i in range(16))
    output = one_node([replace(core, voltages_mv=Steps(volts))], control=CONTROL)
    way = Link(("soc", "ambient"), Quantity(RESISTANCE, low, high, "made up"))
    return replace(output, thermal=replace(output.thermal, links=(way,)))


# ---- settings ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["pixel-6", "oneplus-12", "raspberry-pi-5"])
def test_slower_settings_warm_less(name: str, task: Task) -> None:
    profile = load_profile(name)
    node = list(profile.thermal.nodes).index(profile.thermal.allocator.node)
    ways = efficient_points(task, profile, 4, node, 1200.0)
    assert (np.diff(ways.unit_s) > 0).all()
    assert (np.diff(ways.kelvin_s) < 0).all()
    assert 5 < len(ways.unit_s) < 500
    assert ways.threads.max() <= 4
    each, _ = task.passes(profile, Draws())
    every = [each.seconds(Processor(profile, threads, Draws()).rates()) for threads in range(1, 5)]
    assert ways.unit_s[0] == pytest.approx(min(float(seconds[0]) for seconds in every))


def test_kelvins_are_those_of_the_horizon(task: Task) -> None:
    """Of one node: R W (1 - exp(-t / RC)) for the duration of a token."""
    ways = efficient_points(task, phone(), 1, 0, 100.0)
    watts = ways.watts[:, 0]
    share = RESISTANCE * (1 - np.exp(-100 / 200))
    np.testing.assert_allclose(ways.kelvin_s, share * watts * ways.unit_s, rtol=1e-9)
    assert watts[0] == pytest.approx(2 * 1.2**2)  # at 2 GHz and 1.2 V


# ---- learning ------------------------------------------------------------------------------------


def test_a_line_is_learned_from_changes() -> None:
    """Two devices at 30 and 33 degrees when idle warm 1.2 and 0.9 times as much."""
    rest, scale = np.array([30.0, 33.0]), np.array([1.2, 0.9])
    line = Line(rest + 0.4, Tuning())
    for second in range(7200):
        rise = np.full(2, 12 * (1 - np.exp(-second / 600)))
        line.learn(rise, rest + scale * rise)
    np.testing.assert_allclose(line.rest + line.scale * 12, rest + scale * 12, atol=0.1)
    np.testing.assert_allclose(line.scale, scale, atol=0.06)


def test_a_line_hardly_moves_in_a_minute() -> None:
    line = Line(np.array([30.0]), Tuning())
    for second in range(60):
        line.learn(np.array([0.05 * second]), np.array([30 + 0.1 * second]))
    assert abs(line.scale[0] - 1) < 0.05


# ---- the speed that is reached -------------------------------------------------------------------


def test_a_known_device_is_paced_from_its_first_token(task: Task) -> None:
    s = simulate(task, phone(), governor="pacing", minutes=40, draws=4)
    soc = s.temperatures["soc"]
    assert soc.max() < CONTROL
    assert soc[-1].min() > CONTROL - 1
    # the power at the control temperature, minus the idle power: the core's share in the end
    np.testing.assert_allclose(s.watts[-1], (CONTROL - 0.3 - AIR) / RESISTANCE, rtol=0.05)
    assert s.watts[-1].max() > IDLE
    steps = np.abs(np.diff(s.speed, axis=0)) / s.speed[1:]
    assert steps[1:].max() < 0.02  # in the first seconds it learns how fast the device is
    result = quantities(s)
    assert result["token_spread"].max() < 0.15
    limited = simulate(task, phone(), governor="power-allocator", minutes=40, draws=4)
    assert (result["sustained_tokens_s"] > 0.97 * quantities(limited)["sustained_tokens_s"]).all()


@pytest.mark.long
def test_an_unknown_device_is_learned(task: Task) -> None:
    """Its resistance to the air is up to twice that of the profile."""
    s = simulate(task, phone(6.0, 20.0), governor="pacing", minutes=100, draws=20)
    soc = s.temperatures["soc"]
    late = soc[s.seconds > 4500]
    assert late.max() < CONTROL + 0.5
    assert np.median(late) > CONTROL - 1
    steps = np.abs(np.diff(s.speed, axis=0)) / s.speed[1:]
    assert steps.max() < 0.2


def test_hot_air_does_not_stop_decoding(task: Task) -> None:
    s = simulate(task, phone(), governor="pacing", minutes=10, ambient=50, draws=2)
    full = simulate(task, phone(), governor="none", minutes=10, ambient=50, draws=2)
    share = s.units.sum(axis=0) / full.units.sum(axis=0)
    assert (share > 0.02).all()
    assert (share < 0.1).all()


@pytest.mark.long
def test_pauses_for_reading_make_answers_faster(task: Task) -> None:
    hot = phone()
    result = [
        quantities(simulate(task, hot, workload, "pacing", minutes=30, draws=2))
        for workload in (CHAT, replace(CHAT, turns=(replace(CHAT.turns[0], answer=1e6),)))
    ]
    paused, without = (one["sustained_tokens_s"] for one in result)
    assert (paused > 1.2 * without).all()


def test_paced_tokens_take_the_requested_time(task: Task) -> None:
    """The governor sees the computing time of tokens and sets a duration, not a rate."""
    s = simulate(task, load_profile("pixel-6"), governor="pacing", minutes=5, draws=30)
    each = s.spent[20:] / s.units[20:]
    changes = np.abs(np.diff(each, axis=0)) / each[1:]
    assert np.quantile(changes, 0.99) < 0.01


def test_pacing_plans_with_a_simpler_device() -> None:
    """One node with all heat capacity, as warm in the end as the controlled node."""
    profile = load_profile("galaxy-s25")
    known, network = lumped(profile), network_of(profile, Draws())
    assert len(known.thermal.nodes) == 1 < len(profile.thermal.nodes)
    (node,), (way,) = known.thermal.nodes.values(), known.thermal.links
    assert node.heat_capacity_j_k.value == pytest.approx(network.capacities.sum())
    watts = np.zeros((1, len(network.nodes)))
    for warm in profile.clusters:
        watts[0, network.nodes.index(warm.node)] += warm.full_w
    body = network.steady(watts, 0.0)[0, network.nodes.index(profile.thermal.allocator.node)]
    assert way.resistance_k_w.value == pytest.approx(body / watts.sum())
    single = phone()
    assert lumped(single).thermal.links[0].resistance_k_w.value == pytest.approx(RESISTANCE)
