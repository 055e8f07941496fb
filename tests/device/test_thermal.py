"""Networks of heat capacities, compared with closed forms and SciPy's matrix exponential."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.linalg import expm

from halfbyte.device.thermal import Network, Trip, leakage
from halfbyte.errors import ThermalError

DRAWS, SIZE = 7, 5


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(20)


def random_network(rng: np.random.Generator, open_air: bool = True) -> Network:
    """Sparse, with parameters over four decades."""
    joined = np.exp(rng.uniform(-5, 3, (DRAWS, SIZE, SIZE)))
    joined *= rng.random(joined.shape) < 0.6
    joined = np.tril(joined, -1)
    to_air = np.exp(rng.uniform(-5, 1, (DRAWS, SIZE))) * open_air
    capacities = np.exp(rng.uniform(-1, 5, (DRAWS, SIZE)))
    nodes = tuple(f"node{i}" for i in range(SIZE))
    return Network(nodes, capacities, joined + joined.swapaxes(1, 2), to_air)


def test_one_node_follows_its_exponential() -> None:
    capacity, resistance = np.array([2.0, 5.0, 75.0]), np.array([0.5, 4.0, 12.0])
    network = Network.from_resistances({"die": capacity}, [("die", "ambient", resistance)])
    air, watts, start, dt = 21.0, 3.0, 50.0, 1.7
    temperature = np.full((3, 1), start)
    stepper = network.stepper(dt)
    for i in range(1, 40):
        temperature = stepper.step(temperature, np.full((3, 1), watts), air)
        final = air + watts * resistance
        expected = final + (start - final) * np.exp(-i * dt / (resistance * capacity))
        np.testing.assert_allclose(temperature[:, 0], expected, rtol=1e-9)


def test_two_nodes_share_heat_in_proportion_to_capacity() -> None:
    """Insulated from the air: the difference decays, the weighted mean stays."""
    c1, c2, resistance, dt = 3.0, 12.0, 2.5, 0.9
    network = Network.from_resistances({"a": c1, "b": c2}, [("a", "b", resistance)])
    start, stepper = np.array([[80.0, 20.0]]), network.stepper(dt)
    temperature, mean = start, (80 * c1 + 20 * c2) / (c1 + c2)
    rate = (1 / c1 + 1 / c2) / resistance
    for i in range(1, 60):
        temperature = stepper.step(temperature, 0.0, 25.0)
        difference = 60 * np.exp(-i * dt * rate)
        expected = [mean + difference * c2 / (c1 + c2), mean - difference * c1 / (c1 + c2)]
        np.testing.assert_allclose(temperature[0], expected, rtol=1e-9)


def test_an_isolated_node_integrates_its_power() -> None:
    network = Network.from_resistances({"a": 4.0, "b": 2.0}, [("a", "ambient", 1.0)])
    temperature = network.stepper(10.0).step(np.array([[30.0, 30.0]]), np.array([[0.0, 3.0]]), 30.0)
    np.testing.assert_allclose(temperature, [[30.0, 45.0]], rtol=1e-12)


@pytest.mark.parametrize("dt", [1e-6, 0.01, 1.0, 60.0, 1e5])
def test_steps_equal_the_matrix_exponential(rng: np.random.Generator, dt: float) -> None:
    """[T, P, air] as one state whose derivative is a matrix: SciPy's exponential of it."""
    network = random_network(rng)
    start, watts = rng.uniform(0, 90, (DRAWS, SIZE)), rng.uniform(0, 9, (DRAWS, SIZE))
    air = rng.uniform(-5, 40, DRAWS)
    result = network.stepper(dt).step(start, watts, air)
    for draw in range(DRAWS):
        whole = np.zeros((2 * SIZE + 1, 2 * SIZE + 1))
        whole[:SIZE, :SIZE] = -network.laplacian[draw]
        whole[:SIZE, SIZE:-1] = np.eye(SIZE)
        whole[:SIZE, -1] = network.to_ambient[draw]
        whole[:SIZE] /= network.capacities[draw][:, None]
        state = np.concatenate([start[draw], watts[draw], air[draw : draw + 1]])
        expected = (expm(whole * dt) @ state)[:SIZE]
        np.testing.assert_allclose(result[draw], expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("open_air", [True, False])
@pytest.mark.parametrize("dt", [1e-4, 0.1, 10.0, 1e4])
def test_energy_is_conserved(rng: np.random.Generator, dt: float, open_air: bool) -> None:
    network = random_network(rng, open_air)
    stepper, air = network.stepper(dt), 25.0
    temperature = rng.uniform(0, 90, (DRAWS, SIZE))
    for _ in range(20):
        watts = rng.uniform(0, 9, (DRAWS, SIZE))
        after, given = stepper.advance(temperature, watts, air)
        before, stored = network.stored_heat(temperature), network.stored_heat(after)
        balance = stored - before + given - watts.sum(axis=1) * dt
        assert np.all(np.abs(balance) <= 1e-9 * (np.abs(stored) + np.abs(given))), balance
        temperature = after


def test_steady_state_is_the_limit_of_steps(rng: np.random.Generator) -> None:
    network = random_network(rng)
    watts, air = rng.uniform(0, 9, (DRAWS, SIZE)), rng.uniform(-5, 40, DRAWS)
    steady = network.steady(watts, air)
    stays = network.stepper(100.0).step(steady, watts, air)
    np.testing.assert_allclose(stays, steady, rtol=1e-9)
    ends = network.stepper(1e7).step(np.zeros((DRAWS, SIZE)), watts, air)
    np.testing.assert_allclose(ends, steady, rtol=1e-9)


def test_constant_power_does_not_depend_on_the_step(rng: np.random.Generator) -> None:
    network = random_network(rng)
    start, watts = rng.uniform(0, 90, (DRAWS, SIZE)), rng.uniform(0, 9, (DRAWS, SIZE))
    once, many = network.stepper(64.0).step(start, watts, 25.0), start
    for stepper in [network.stepper(0.25)] * 256:
        many = stepper.step(many, watts, 25.0)
    np.testing.assert_allclose(many, once, rtol=1e-9)


def test_maximum_principle(rng: np.random.Generator) -> None:
    """Without power all temperatures stay between air and start; warmer air warms every node."""
    for _ in range(20):
        network, dt = random_network(rng), float(np.exp(rng.uniform(-3, 8)))
        start, air = rng.uniform(0, 90, (DRAWS, SIZE)), rng.uniform(0, 90, DRAWS)
        stepper, temperature = network.stepper(dt), start
        lowest = np.minimum(start.min(axis=1), air)[:, None]
        highest = np.maximum(start.max(axis=1), air)[:, None]
        for _ in range(5):
            temperature = stepper.step(temperature, 0.0, air)
            assert np.all((temperature >= lowest - 1e-9) & (temperature <= highest + 1e-9))
        colder = stepper.step(start, 1.0, air)
        assert np.all(stepper.step(start, 1.0, air + 5) >= colder - 1e-9)
        assert np.all(network.steady(1.0, air + 5) > network.steady(1.0, air))


def test_driven_network_equals_the_whole_network(rng: np.random.Generator) -> None:
    """With temperatures of the whole network prescribed, the other nodes behave the same."""
    network, fine = random_network(rng), 0.01
    network = Network(network.nodes, *(part[:1] for part in (
        network.capacities, network.conductances, network.to_ambient)))  # fmt: skip
    watts, stepper = np.array([[0.0, 4.0, 0.0, 9.0, 0.0]]), network.stepper(fine)
    course = [rng.uniform(20, 60, (1, SIZE))]
    for _ in range(4000):
        course.append(stepper.step(course[-1], watts, 25.0))
    whole = np.stack(course)
    driven = network.driven(["node1", "node3"], fine)
    assert driven.free == ("node0", "node2", "node4")
    result = driven.run(whole[0][:, [0, 2, 4]], whole[:, 0, [1, 3]], 25.0)
    np.testing.assert_allclose(result, whole[:, :, [0, 2, 4]], atol=2e-5)  # curves are not lines


def test_driven_is_exact_for_lines() -> None:
    """One node driven by a ramp: T = a (t - tau) + (T0 + a tau) exp(-t / tau), for any step."""
    capacity, resistance, slope = np.array([10.0, 40.0]), np.array([3.0, 0.5]), 0.25
    tau = capacity * resistance
    network = Network.from_resistances({"in": 1.0, "out": capacity}, [("in", "out", resistance)])
    for dt in (0.1, 7.0):
        t = dt * np.arange(50.0)
        result = network.driven(["in"], dt).run(np.full((2, 1), 5.0), slope * t[:, None], 25.0)
        ramp = slope * (t[:, None] - tau) + (5 + slope * tau) * np.exp(-t[:, None] / tau)
        np.testing.assert_allclose(result[:, :, 0], ramp, rtol=1e-9)


def test_driven_takes_air_and_power_of_each_sample() -> None:
    network = Network.from_resistances({"in": 1.0, "out": 8.0}, [("out", "ambient", 2.0)])
    air, watts = np.array([10.0, 30.0, 20.0, 20.0]), np.array([0.0, 5.0, 1.0, 0.0])
    result = network.driven(["in"], 3.0).run(
        [[15.0]], np.zeros((4, 1)), air[:, None], watts[:, None, None]
    )
    temperature, stepper = np.array([[0.0, 15.0]]), network.stepper(3.0)
    for i in range(3):
        temperature = stepper.step(temperature, np.array([[0.0, watts[i]]]), air[i])
        np.testing.assert_allclose(result[i + 1, 0], temperature[0, 1:], rtol=1e-12)


def test_parallel_conductances_add_up() -> None:
    twice = Network.from_resistances({"a": 1.0}, [("a", "ambient", 4.0), ("ambient", "a", 4.0)])
    once = Network.from_resistances({"a": 1.0}, [("a", "ambient", 2.0)])
    np.testing.assert_array_equal(twice.to_ambient, once.to_ambient)


LINK: list[tuple[str, str, Any]] = [("a", "b", 1.0)]
REFUSED: dict[str, tuple[dict[str, Any], list[tuple[str, str, Any]]]] = {
    "heat capacity of b: expected > 0 J/K, found 0": ({"a": 1.0, "b": 0.0}, LINK),
    "heat capacity of a: expected > 0 J/K, found nan": ({"a": np.nan, "b": 1.0}, LINK),
    "heat capacity of b: expected > 0 J/K, found inf": ({"a": 1.0, "b": np.inf}, LINK),
    r"-1 \(draw 1\)": ({"a": [1.0, -1.0], "b": 1.0}, LINK),
    "resistance of a-b: expected > 0 K/W, found -2": ({"a": 1.0, "b": 1.0}, [("a", "b", -2.0)]),
    "resistance of a-b: expected > 0 K/W, found nan": ({"a": 1.0, "b": 1.0}, [("a", "b", np.nan)]),
    "link a-c: expected two of a, b, ambient": ({"a": 1.0, "b": 1.0}, [("a", "c", 1.0)]),
    "link a-a: expected two of": ({"a": 1.0, "b": 1.0}, [("a", "a", 1.0)]),
    "differ in their draws": ({"a": [1.0, 2.0], "b": [1.0, 2.0, 3.0]}, LINK),
    "one axis of draws": ({"a": np.ones((2, 2)), "b": 1.0}, LINK),
    "expected different names, found ambient": ({"ambient": 1.0}, []),
}


@pytest.mark.parametrize("sentence", REFUSED)
def test_refused_networks(sentence: str) -> None:
    with pytest.raises(ThermalError, match=sentence):
        Network.from_resistances(*REFUSED[sentence])


def test_refused_matrices() -> None:
    ones, across = np.ones((1, 2)), np.array([[[0.0, 1.0], [1.0, 0.0]]])
    with pytest.raises(ThermalError, match="conductance of a-b: expected >= 0 W/K, found -1"):
        Network(("a", "b"), ones, -across, ones)
    with pytest.raises(ThermalError, match="conductance to the air of a"):
        Network(("a", "b"), ones, across, -ones)
    with pytest.raises(ThermalError, match="symmetric"):
        Network(("a", "b"), ones, np.triu(across), ones)
    with pytest.raises(ThermalError, match=r"to_ambient: expected shape \(1, 2\), found \(1, 3\)"):
        Network(("a", "b"), ones, across, np.ones((1, 3)))


def test_refused_uses() -> None:
    network = Network.from_resistances(
        {"a": 1.0, "b": [1.0, 2.0], "c": 1.0}, [("a", "ambient", 1.0), ("b", "c", 1.0)]
    )
    with pytest.raises(ThermalError, match="insulated: b, c without a way to the air"):
        network.steady(1.0, 25.0)
    for dt in (0.0, -1.0, np.nan, np.inf):
        with pytest.raises(ThermalError, match="expected a step of > 0 s"):
            network.stepper(dt)
    with pytest.raises(ThermalError, match="temperatures: expected finite numbers"):
        network.stepper(1.0).step(np.full((2, 3), np.nan), 0.0, 25.0)
    with pytest.raises(ThermalError, match="power: expected finite"):
        network.stepper(1.0).step(np.zeros((2, 3)), np.inf, 25.0)
    with pytest.raises(ThermalError, match="driven: no node d"):
        network.driven(["d"], 1.0)
    with pytest.raises(ThermalError, match="no node is left"):
        network.driven(["a", "b", "c"], 1.0)
    with pytest.raises(ThermalError, match=r"expected \[samples, 1\], found \(4, 2\)"):
        network.driven(["a"], 1.0).run(np.zeros((2, 2)), np.zeros((4, 2)), 25.0)


def test_trip_follows_warming_and_lags_cooling() -> None:
    trip = Trip(40.0, 50.0, 0.5, 3.0)
    course = [
        *((39.0, 1.0), (42.0, 0.9), (46.0, 0.7)),  # warming: linear
        *((44.0, 0.7), (43.0, 0.7)),  # cooling by up to 3 K: nothing
        *((41.0, 0.8),),  # then as if it were 44
        *((43.5, 0.8), (45.0, 0.75)),  # warming again: nothing up to 44, then linear
        *((60.0, 0.5), (57.0, 0.5), (46.0, 0.55)),  # beyond full_c the floor
        *((37.0, 1.0), (20.0, 1.0)),
    ]
    for temperature, factor in course:
        assert trip.update(temperature) == pytest.approx(factor), temperature


def test_trip_of_many_draws(rng: np.random.Generator) -> None:
    """Draws are independent, never above the factor without hysteresis, at most `play` below."""
    start, full = np.array([30.0, 35.0, 40.0]), np.array([40.0, 45.0, 42.0])
    floor, play = np.array([0.2, 0.5, 0.0]), np.array([0.0, 2.0, 5.0])
    together = Trip(start, full, floor, play)
    single = [Trip(*one) for one in zip(start, full, floor, play, strict=True)]
    for temperature in rng.uniform(20, 60, (200, 3)):
        factor = together.update(temperature)
        expected = [trip.update(t) for trip, t in zip(single, temperature, strict=True)]
        np.testing.assert_array_equal(factor, expected)
        plain = 1 - (1 - floor) * np.clip((temperature - start) / (full - start), 0, 1)
        late = 1 - (1 - floor) * np.clip((temperature + play - start) / (full - start), 0, 1)
        assert np.all((factor <= plain) & (factor >= late))
        assert factor[0] == plain[0]  # without hysteresis it is the line


@pytest.mark.parametrize("bad", [(50.0, 50.0, 0.5, 1.0), (40.0, 50.0, 1.5, 1.0),
                                 (40.0, 50.0, 0.5, -1.0), (np.nan, 50.0, 0.5, 1.0)])  # fmt: skip
def test_refused_trips(bad: tuple[float, float, float, float]) -> None:
    with pytest.raises(ThermalError):
        Trip(*bad)


def test_leakage_doubles() -> None:
    np.testing.assert_allclose(leakage(0.1, 20.0, [25.0, 45.0, 85.0, 5.0]), [0.1, 0.2, 0.8, 0.05])
    with pytest.raises(ThermalError, match="doubling_k > 0"):
        leakage(0.1, 0.0, 25.0)
