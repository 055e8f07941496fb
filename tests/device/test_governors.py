"""The rules of governors and trip points, at artificial temperatures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.device.devices import cluster, exactly, one_node, small_plan

from halfbyte.device.cooling import Node, Trip
from halfbyte.device.electricity import Indices, Supply, by_cluster
from halfbyte.device.governors import (
    Board,
    Firmware,
    Governor,
    Observation,
    Orders,
    PowerAllocator,
    StepWise,
    Unlimited,
)  # fmt: skip
from halfbyte.device.profile import Profile, load_profile
from halfbyte.device.quantity import Draws
from halfbyte.device.simulate import simulate
from halfbyte.device.speed import Task, Tokens


@pytest.fixture(scope="module")
def task(storyteller: Path) -> Task:
    return Tokens(small_plan(storyteller))


def board(task: Task, profile: Profile, draws: int = 1, threads: int | None = None) -> Board:
    supplies = [Supply(c, int(c.cores.value), Draws()) for c in profile.clusters]
    allocator = profile.thermal.allocator
    return Board(
        profile, task, threads or profile.cores, supplies,
        list(profile.thermal.nodes).index(allocator.node),
        np.full(draws, allocator.control_c.value), np.full(draws, allocator.sustainable_w.value),
    )  # fmt: skip


def run(
    governor: Governor, on: Board, temperatures: Sequence[float], busy: float = 1.0
) -> list[Orders]:
    """The caps that a governor sets at these temperatures of one node."""
    tops = [np.full(on.draws, supply.highest) for supply in on.supplies]
    result, at = [], tops
    for now in temperatures:
        seen = Observation(
            np.full((on.draws, 1), now), *np.full((2, on.draws), busy), tops, at, np.zeros(on.draws)
        )
        result.append(governor.decide(seen))
        at = list(result[-1].steps)
    return result


def first(orders: Sequence[Orders], of: int = 0) -> list[int]:
    return [int(one.steps[of][0]) for one in orders]


# ---- no governor, step-wise ----------------------------------------------------------------------


def test_without_a_governor_nothing_is_limited(task: Task) -> None:
    on = board(task, one_node())
    assert first(run(Unlimited(on), on, [30, 50, 90])) == [15, 15, 15]


def test_step_wise_changes_by_one_step(task: Task) -> None:
    on = board(task, one_node(control=40))
    temperatures = [39, 40, 41, 41, 42, 41, 39, 39, 38, 39.5, 38]
    #  warming to and above 40: slower; level or cooling above it: as before; cooling below: faster
    assert first(run(StepWise(on), on, temperatures)) == [
        15, 14, 13, 13, 12, 12, 13, 13, 14, 14, 15,
    ]  # fmt: skip


def test_step_wise_stops_at_both_ends(task: Task) -> None:
    on = board(task, one_node(control=40))
    there, back = np.arange(40, 60, 0.5), np.arange(40, 20, -0.5)
    result = first(run(StepWise(on), on, [*there, *back]))
    assert result[len(there) - 1] == 0
    # staying at 40 is not cooling below it
    assert result[len(there) : len(there) + 3] == [0, 1, 2]
    assert result[-1] == 15


# ---- the power allocator -------------------------------------------------------------------------


def test_power_allocator_is_off_below_its_switch_on_temperature(task: Task) -> None:
    on = board(task, one_node(control=40, sustainable=0.6))
    assert first(run(PowerAllocator(on), on, [32.9])) == [15]
    assert first(run(PowerAllocator(on), on, [39.0])) != [15]


@pytest.mark.parametrize("below", [0.0, 0.5, 2.0, 5.0])
def test_power_budget_grows_with_the_distance(below: float, task: Task) -> None:
    """A core takes 1 mW per MHz, so the step is the budget S (1 + 2 e / 7) in 100 MHz."""
    on = board(task, one_node(control=40, sustainable=0.61))
    budget = 0.61 * (1 + 2 * below / 7)
    expected = min(int(budget * 10 + 1e-6) - 5, 15)
    assert first(run(PowerAllocator(on), on, [40 - below])) == [expected]


def test_integral_of_the_error_is_reset_below_the_switch_on_temperature(task: Task) -> None:
    on = board(task, one_node(control=40, sustainable=1.9))
    # at 41: S - S/7 - n S/35, which is 1.9 - 0.27 - 0.054 n
    budgets = [1.9 - 1.9 / 7 - n * 1.9 / 35 for n in range(1, 6)]
    expected = [int(10 * budget + 1e-6) - 5 for budget in budgets]
    governor = PowerAllocator(on)
    assert first(run(governor, on, [41] * 5)) == expected
    # at 40 only the sum is left; it stays as long as it is not cool
    assert first(run(governor, on, [40, 40])) == [int(10 * (1.9 - 1.9 / 7)) - 5] * 2
    assert first(run(governor, on, [30, 40])) == [15, int(19 + 1e-6) - 5]


def test_power_is_granted_in_proportion_to_requests(task: Task) -> None:
    """At 2 GHz they request 2 and 6 W: they get 1/4 and 3/4 of the budget of 4 W."""
    three = cluster("more", cores=exactly(3))
    on = board(task, one_node([cluster(), three], control=40, sustainable=4.0))
    orders = run(PowerAllocator(on), on, [40.0])
    assert first(orders, 0) == [5]  # 1 W: 1000 MHz
    assert first(orders, 1) == [5]  # 3 W for three cores
    idle = run(PowerAllocator(on), on, [40.0], busy=0.5)  # half as busy: twice as fast
    assert first(idle, 0) == [15]


def test_unused_power_goes_to_other_clusters(task: Task) -> None:
    on = board(task, one_node([cluster(), cluster("two")], control=40, sustainable=2.4))
    governor = PowerAllocator(on)
    slow, fast = np.zeros(1, np.intp), np.full(1, 15)
    orders = governor.decide(
        Observation(
            np.full((1, 1), 40.0), np.ones(1), np.ones(1), [fast, fast], [slow, fast], np.zeros(1)
        )
    )
    # 0.5 and 2 W ask for 2.4 W: 0.48 (below the slowest step) and 1.92 W
    assert [int(steps[0]) for steps in orders.steps] == [0, 14]
    on = board(task, one_node([cluster(), cluster("two")], control=40, sustainable=3.5))
    orders = PowerAllocator(on).decide(
        Observation(
            np.full((1, 1), 40.0), np.ones(1), np.ones(1), [fast, fast], [slow, fast], np.zeros(1)
        )
    )
    # 0.7 and 2.8 W, of which 2 can be used: the rest makes the first 1.5 W
    assert [int(steps[0]) for steps in orders.steps] == [10, 15]


# ---- the device's own trips ----------------------------------------------------------------------


def steps_of(caps: Sequence[Indices]) -> list[int]:
    return [int(cap[0]) for cap in caps]


def test_a_trip_slows_down_from_its_start_to_its_floor() -> None:
    trip = Trip("soc", exactly(50), exactly(60), exactly(0.5), exactly(2))
    profile = one_node(trips=[trip])
    supply = Supply(profile.clusters[0], 1, Draws())
    firmware = Firmware(profile, [supply], Draws())
    result = [steps_of(firmware.caps(np.array([[c]])))[0] for c in (49, 55, 54, 52, 60, 70, 45)]
    #   1500 MHz at 55; as hot as 55 down to 53, then as at 54; 1000 MHz from 60
    assert result == [15, 10, 10, 11, 5, 5, 15]


def test_trips_of_dies_slow_down_their_cluster_and_other_trips_all() -> None:
    phone = load_profile("galaxy-s25")
    nodes = list(phone.thermal.nodes)
    supplies = [Supply(c, 1, Draws()) for c in phone.clusters]

    def caps(node: str, celsius: float, of: Sequence[Supply] = supplies) -> list[int]:
        temperatures = np.full((1, len(nodes)), 30.0)
        temperatures[0, nodes.index(node)] = celsius
        return steps_of(Firmware(phone, of, Draws()).caps(temperatures))

    tops = [supply.highest for supply in supplies]
    assert caps("gpu", 100) == tops
    assert caps("cpu_big", 100)[0] < tops[0]
    assert caps("cpu_big", 100)[1] == tops[1]
    assert all(cap < top for cap, top in zip(caps("battery", 41), tops, strict=True))
    assert caps("cpu_little", 100, supplies[:1]) == tops[:1]  # whose cores are not in use


def test_cores_of_the_first_clusters_compute_first() -> None:
    pixel = load_profile("pixel-6")
    supplies = [Supply(c, int(c.cores.value), Draws()) for c in pixel.clusters]
    counts = by_cluster(np.arange(1, 9), supplies)
    np.testing.assert_array_equal(counts[0], [1, 2, 2, 2, 2, 2, 2, 2])
    np.testing.assert_array_equal(counts[1], [0, 0, 1, 2, 2, 2, 2, 2])
    np.testing.assert_array_equal(counts[2], [0, 0, 0, 0, 1, 2, 3, 4])


def test_draws_are_independent(task: Task) -> None:
    on = board(task, one_node(control=40), 2)
    on = replace(on, control_c=np.array([40.0, 60.0]))
    for output in (StepWise(on), PowerAllocator(on)):
        steps = run(output, on, [45.0, 46.0])[-1].steps[0]
        assert steps[0] < steps[1] == 15


def test_a_die_that_is_hot_within_a_step_keeps_to_its_trip(task: Task) -> None:
    """2 W for 2 GHz, T = 30 + 20 f, f = 1 - 3/8 (T - 44): it settles at 44.7 degrees. Decided only
    by the last step's temperature, the frequency would swing from end to end."""
    trip = Trip("soc", exactly(44), exactly(46), exactly(0.25), exactly(0))
    device = one_node(trips=[trip], control=90.0)
    fast = replace(device.thermal, nodes={"soc": Node(exactly(0.05))})
    s = simulate(task, replace(device, thermal=fast), minutes=1, draws=3)
    soc = s.temperatures["soc"]
    assert soc.max() < 46
    assert soc[-60:].min() > 43.5
