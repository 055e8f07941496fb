"""Profiles of devices: the shipped ones, their numbers, and the folders that have them."""

from __future__ import annotations

import tomllib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.device.profile_tables import small

from halfbyte.device import profile as profiles
from halfbyte.device.kernels import Kernel, usual_kernels
from halfbyte.device.profile import load_profile, profile_names, user_folder
from halfbyte.device.quantity import Quantity
from halfbyte.device.schema import Where, read_table
from halfbyte.device.toml_writer import to_toml
from halfbyte.errors import ProfileError

NAMES = sorted(path.stem for path in Path(profiles.__file__).with_name("profiles").glob("*.toml"))

pytestmark = pytest.mark.usefixtures("own")


# ---- shipped profiles ----------------------------------------------------------------------------


def test_number_of_shipped_profiles() -> None:
    assert len(NAMES) >= 10
    assert profile_names() == NAMES
    assert {load_profile(name).kind for name in NAMES} >= {"phone", "tablet", "board", "laptop"}
    assert any(load_profile(name).memory.ram_mb.value < 2200 for name in NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_every_number_of_a_shipped_profile_has_a_source(name: str) -> None:
    profile = load_profile(name)
    numbers = dict(profile.numbers())
    assert len(numbers) >= 30
    for key, number in numbers.items():
        assert bool(number.source) != bool(number.assumed), key
        if isinstance(number, Quantity):
            assert number.low <= number.value <= number.high, key
    sources = sum(bool(number.source) for number in numbers.values())
    assert sources >= 3, "hardly anything is known of it"


@pytest.mark.parametrize("name", NAMES)
def test_a_shipped_profile_is_plausible(name: str) -> None:
    """At the sustained power, the controlled node is near its control temperature."""
    profile = load_profile(name)
    thermal, allocator = profile.thermal, profile.thermal.allocator
    nodes = list(thermal.nodes)
    flow, watts = np.zeros((len(nodes), len(nodes))), np.zeros(len(nodes))
    for link in thermal.links:
        ends = [nodes.index(end) for end in link.between if end in nodes]
        conductance = 1 / link.resistance_k_w.value
        for end in ends:
            flow[end, end] += conductance
        if len(ends) == 2:
            flow[ends, ends[::-1]] -= conductance
    watts[nodes.index(profile.clusters[0].node)] += allocator.sustainable_w.value
    watts[nodes.index(profile.power.node)] += profile.power.idle_w.value
    rises = dict(zip(nodes, np.linalg.solve(flow, watts), strict=True))
    reached = thermal.ambient_c.value + rises[allocator.node]
    assert abs(reached - allocator.control_c.value) < 7
    assert sum(cluster.full_w for cluster in profile.clusters) < 25
    capacities = sum(node.heat_capacity_j_k.value for node in thermal.nodes.values())
    cooling = capacities * rises[profile.power.node] / watts.sum()
    assert 100 < cooling < 1300  # seconds
    order = [cluster.operations(cluster.int8_ops_per_cycle) for cluster in profile.clusters]
    each = [o / c.cores.value for o, c in zip(order, profile.clusters, strict=True)]
    assert each == sorted(each, reverse=True), "fastest first"


def test_pixel_6_agrees_with_its_device_tree() -> None:
    """P = C f V^2 of a Cortex-X1 at 2802 MHz and 1.05625 V."""
    fast = load_profile("pixel-6").clusters[0]
    assert fast.full_w == pytest.approx(2 * 650e-6 * 2802 * 1.05625**2)
    assert fast.operations(fast.int8_ops_per_cycle) == 2 * 2802e6 * 128
    assert load_profile("pixel-6").cores == 8


# ---- drawing -------------------------------------------------------------------------------------


def test_draws_are_triangular_around_the_value() -> None:
    quantity = Quantity(20, 15, 40, assumed="x")
    drawn = quantity.draw(np.random.default_rng(0), 50_000)
    assert drawn.shape == (50_000,)
    assert drawn.dtype == np.float64
    assert 15 <= drawn.min() < 15.2
    assert 39.5 < drawn.max() <= 40
    assert np.mean(drawn < 20) == pytest.approx((20 - 15) / (40 - 15), abs=0.01)
    assert drawn.mean() == pytest.approx((15 + 20 + 40) / 3, abs=0.1)
    counts, edges = np.histogram(drawn, bins=25)
    assert edges[counts.argmax()] == pytest.approx(20, abs=1.5)


def test_the_value_is_drawn_without_range_or_generator() -> None:
    random = np.random.default_rng(0)
    assert Quantity(3, 3, 3, source="x").draw(random, 4).tolist() == [3, 3, 3, 3]
    assert Quantity(20, 15, 40, source="x").draw().tolist() == [20]
    assert Quantity(20, 15, 40, source="x").draw(None, 2).tolist() == [20, 20]


@pytest.mark.parametrize("name", NAMES)
def test_every_quantity_can_be_drawn(name: str) -> None:
    random = np.random.default_rng(1)
    for key, number in load_profile(name).numbers():
        if isinstance(number, Quantity):
            drawn = number.draw(random, 50)
            assert np.all((drawn >= number.low) & (drawn <= number.high)), key


# ---- writing -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_a_written_profile_is_read_back(name: str, tmp_path: Path) -> None:
    profile = load_profile(name)
    path = tmp_path / f"{name}.toml"
    path.write_text(to_toml(profile), encoding="utf-8")
    assert load_profile(path) == profile


def test_writing_keeps_every_digit_and_sign(tmp_path: Path) -> None:
    table = small()
    table["title"] = 'A "quoted" \\ title, £5 °C'
    table["power"]["idle_w"] = {"value": 1 / 3, "range": [1e-7, 7e3], "source": "x = 'y' # z"}
    profile = read_table(profiles.Profile, table, Where("small"))
    path = tmp_path / "small.toml"
    path.write_text(to_toml(profile), encoding="utf-8")
    assert load_profile(path) == profile
    assert profile.power.idle_w == Quantity(1 / 3, 1e-7, 7e3, "x = 'y' # z")


def test_absent_parts_are_not_written(tmp_path: Path) -> None:
    table = small()
    del table["battery"], table["thermal"]["trips"]
    profile = read_table(profiles.Profile, table, Where("small"))
    path = tmp_path / "small.toml"
    path.write_text(to_toml(profile), encoding="utf-8")
    assert tomllib.loads(path.read_text()).keys() == table.keys()
    assert load_profile(path) == profile


# ---- finding -------------------------------------------------------------------------------------


def test_an_unknown_device_lists_the_known_ones() -> None:
    with pytest.raises(
        ProfileError, match=r"'nokia': expected one of .*pixel-6.* or a \.toml file"
    ):
        load_profile("nokia")


@pytest.mark.parametrize("name", ["../pixel-6", "Pixel 6", "", "a" * 500, "\x1b[31m"])
def test_names_are_not_paths(name: str) -> None:
    with pytest.raises(ProfileError, match="expected one of") as caught:
        load_profile(name)
    assert "\x1b" not in str(caught.value)


def test_profiles_of_the_user_come_first(own: Path) -> None:
    assert user_folder() == own
    own.mkdir(parents=True)
    for name in ("this-machine", "pixel-6"):
        table = {**small(), "name": name, "title": "mine"}
        text = to_toml(read_table(profiles.Profile, table, Where(name)))
        (own / f"{name}.toml").write_text(text)
    assert profile_names() == sorted([*NAMES, "this-machine"])
    assert load_profile("this-machine").title == "mine"
    assert load_profile("pixel-6").title == "mine"
    assert load_profile("raspberry-pi-5").title != "mine"


@pytest.mark.parametrize(
    ("system", "variable", "expected"),
    [
        ("linux", "XDG_DATA_HOME", "{given}/halfbyte/devices"),
        ("linux", "", "{home}/.local/share/halfbyte/devices"),
        ("linux", "relative", "{home}/.local/share/halfbyte/devices"),
        ("darwin", "", "{home}/Library/Application Support/halfbyte/devices"),
        ("win32", "LOCALAPPDATA", "{given}/halfbyte/devices"),
        ("win32", "", "{home}/AppData/Local/halfbyte/devices"),
    ],
)
def test_folder_of_the_user(
    system: str, variable: str, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.platform", system)
    monkeypatch.setattr(Path, "home", lambda: tmp_path / "home")
    for name in ("XDG_DATA_HOME", "LOCALAPPDATA"):
        monkeypatch.delenv(name, raising=False)
    if variable == "relative":
        monkeypatch.setenv("XDG_DATA_HOME", "data")
    elif variable:
        monkeypatch.setenv(variable, str(tmp_path / "given"))
    places = {"given": (tmp_path / "given").as_posix(), "home": (tmp_path / "home").as_posix()}
    assert user_folder().as_posix() == expected.format(**places)


def test_numbers_are_counted_by_their_origin() -> None:
    """Fractions measured on another processor are assumed, those of this one are not."""
    usual = usual_kernels()
    for kind, kernel in usual.items():
        for number in (kernel.prompt, kernel.token, kernel.memory):
            assert number.assumed, kind
    phone = load_profile("pixel-6")
    own = [bool(number.source) for _, number in phone.numbers()]
    kernels = {**usual, **phone.fractions}.values()
    every = own + [bool(n.source) for k in kernels for n in (k.prompt, k.token, k.memory)]
    assert phone.origins() == {"sourced": sum(every), "assumed": every.count(False)}
    known = Quantity(0.5, 0.5, 0.5, "here")
    measured = replace(phone, kernels=dict.fromkeys(usual, Kernel("int8", known, known, known)))
    assert measured.origins()["assumed"] == own.count(False)


@pytest.mark.parametrize("name", profile_names())
def test_dies_follow_their_power_within_a_second(name: str) -> None:
    """By the heat capacity of a cluster's node, and its ways out."""
    profile = load_profile(name)
    for node in {cluster.node for cluster in profile.clusters}:
        links = [link for link in profile.thermal.links if node in link.between]
        away = sum(1 / link.resistance_k_w.value for link in links)
        assert profile.thermal.nodes[node].heat_capacity_j_k.value / away <= 1
