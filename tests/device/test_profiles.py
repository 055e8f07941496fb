"""Profiles of devices: the shipped ones, what is refused and in which words, and the commands."""

from __future__ import annotations

import copy
import json
import tomllib
import zipfile
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from halfbyte.cli import main
from halfbyte.device import profile as profiles
from halfbyte.device.profile import load_profile, profile_names, read_profile, user_folder
from halfbyte.device.quantity import Quantity, Steps
from halfbyte.device.reading import Where, read_table
from halfbyte.device.writer import to_toml
from halfbyte.errors import HalfbyteError, ProfileError
from halfbyte.web.wheel import make_wheel

SHIPPED = sorted(Path(profiles.__file__).with_name("profiles").glob("*.toml"))
NAMES = [path.stem for path in SHIPPED]
Table = dict[str, Any]


@pytest.fixture(autouse=True)
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's own folder of profiles, not there yet."""
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    return tmp_path / "data" / "halfbyte" / "devices"


# ---- shipped profiles ----------------------------------------------------------------------------


def test_many_are_shipped() -> None:
    assert len(NAMES) >= 10
    assert profile_names() == NAMES
    assert {load_profile(name).kind for name in NAMES} >= {"phone", "tablet", "board", "laptop"}
    assert any(load_profile(name).memory.ram_mb.value < 2200 for name in NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_every_number_of_a_shipped_profile_says_where_it_is_from(name: str) -> None:
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
    """Steady at the watts that it sustains, what is controlled is about as warm as it may be."""
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


def test_pixel_6_is_as_its_device_tree() -> None:
    """P = C f V^2 of a Cortex-X1 at 2802 MHz and 1.05625 V."""
    fast = load_profile("pixel-6").clusters[0]
    assert fast.full_w == pytest.approx(2 * 650e-6 * 2802 * 1.05625**2)
    assert fast.operations(fast.int8_ops_per_cycle) == 2 * 2802e6 * 128
    assert load_profile("pixel-6").cores == 8


# ---- drawing -------------------------------------------------------------------------------------


def test_draws_are_in_range_and_most_at_the_value() -> None:
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


def test_without_a_range_or_a_generator_the_value_comes() -> None:
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
def test_written_it_reads_back_the_same(name: str, tmp_path: Path) -> None:
    profile = load_profile(name)
    path = tmp_path / f"{name}.toml"
    path.write_text(to_toml(profile), encoding="utf-8")
    assert read_profile(path) == profile


def test_writing_keeps_every_digit_and_sign(tmp_path: Path) -> None:
    table = small()
    table["title"] = 'A "quoted" \\ title, £5 °C'
    table["power"]["idle_w"] = {"value": 1 / 3, "range": [1e-7, 7e3], "source": "x = 'y' # z"}
    profile = read_table(profiles.Profile, table, Where("small"))
    path = tmp_path / "small.toml"
    path.write_text(to_toml(profile), encoding="utf-8")
    assert load_profile(path) == profile
    assert profile.power.idle_w == Quantity(1 / 3, 1e-7, 7e3, "x = 'y' # z")


def test_writing_leaves_out_what_there_is_not(tmp_path: Path) -> None:
    table = small()
    del table["battery"], table["thermal"]["trips"]
    profile = read_table(profiles.Profile, table, Where("small"))
    path = tmp_path / "small.toml"
    path.write_text(to_toml(profile), encoding="utf-8")
    assert tomllib.loads(path.read_text()).keys() == table.keys()
    assert load_profile(path) == profile


# ---- finding -------------------------------------------------------------------------------------


def test_an_unknown_device_lists_those_that_are_known() -> None:
    with pytest.raises(
        ProfileError, match=r"'nokia': expected one of .*pixel-6.* or a \.toml file"
    ):
        load_profile("nokia")


@pytest.mark.parametrize("name", ["../pixel-6", "Pixel 6", "", "a" * 500, "\x1b[31m"])
def test_a_name_is_no_path(name: str) -> None:
    with pytest.raises(ProfileError, match="expected one of") as caught:
        load_profile(name)
    assert "\x1b" not in str(caught.value)


def test_the_users_own_profiles_are_found_first(own: Path) -> None:
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
def test_where_the_users_own_are(
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


# ---- what is refused -----------------------------------------------------------------------------


def small() -> Table:
    """A small profile that is right."""

    def of(value: Any) -> Table:
        return {"value": value, "source": "a data sheet"}

    cluster = {
        "name": "all", "node": "soc", "cores": of(4), "frequencies_mhz": of([600, 1200]),
        "voltages_mv": of([700, 800]), "dynamic_power_uw_per_mhz_v2": of(100),
        "int8_ops_per_cycle": of(32), "float32_ops_per_cycle": of(8), "leakage_w": of(0.1),
        "leakage_doubling_k": of(25),
    }  # fmt: skip
    memory = {
        "ram_mb": of(2000), "app_mb": of(1000), "tab_mb": of(400), "bandwidth_gb_s": of(8),
        "core_bandwidth_gb_s": of(4), "storage_gb_s": of(0.2), "cache_mb": of(1),
    }  # fmt: skip
    trip = {"node": "soc", "start_c": of(40), "full_c": of(42), "floor": of(0.5)}
    thermal = {
        "ambient_c": of(25),
        "nodes": {"soc": {"heat_capacity_j_k": of(20)}, "case": {"heat_capacity_j_k": of(40)}},
        "links": [
            {"between": ["soc", "case"], "resistance_k_w": of(2)},
            {"between": ["case", "ambient"], "resistance_k_w": of(5)},
        ],
        "trips": [{**trip, "hysteresis_k": of(1)}],
        "allocator": {"node": "case", "control_c": of(43), "sustainable_w": of(2)},
    }
    return {
        "name": "small", "title": "Small", "kind": "board", "year": 2020, "memory": memory,
        "clusters": [cluster], "overhead": {"launch_us": of(1), "call_us": of(50)},
        "thermal": thermal,
        "power": {"node": "case", "idle_w": of(1), "memory_pj_per_byte": of(60)},
        "battery": {"capacity_wh": of(15), "full_v": of(4.4)},
    }  # fmt: skip


def put(path: str, value: Any) -> Callable[[Table], None]:
    """Set what a path of keys and indices leads to."""

    def change(table: Table) -> None:
        *way, last = [int(part) if part.isdigit() else part for part in path.split("/")]
        found: Any = table
        for part in way:
            found = found[part]
        found[last] = value

    return change


def drop(path: str) -> Callable[[Table], None]:
    def change(table: Table) -> None:
        *way, last = path.split("/")
        found: Any = table
        for part in way:
            found = found[int(part) if part.isdigit() else part]
        del found[last]

    return change


def value(of: Any, **more: Any) -> Table:
    return {"value": of, "source": "a data sheet", **more}


def guess(of: Any, **more: Any) -> Table:
    return {"value": of, "assumed": "a guess", **more}


LINKS = "thermal/links"
LINK = {"resistance_k_w": value(3)}

REFUSED = [
    # keys
    (put("colour", "red"), "colour", "one of name, title", "'colour'"),
    (put("memory/ram_gb", 2), "memory.ram_gb", "one of ram_mb, app_mb", "'ram_gb'"),
    (put("memory/ram_mb/unit", "MB"), "memory.ram_mb.unit", "one of value, range", "'unit'"),
    (put("memory/a b\x1b", 1), r"memory.'a b\x1b'", "one of ram_mb", r"'a b\x1b'"),
    (drop("memory"), "memory", "a table of ram_mb", "nothing"),
    (drop("memory/ram_mb"), "memory.ram_mb", "a table of value", "nothing"),
    (drop("memory/ram_mb/value"), "memory.ram_mb.value", "a number from 1", "nothing"),
    (drop("year"), "year", "a whole number from 1970 to 2100", "nothing"),
    (put("memory", 3), "memory", "a table of ram_mb", "3"),
    (put("memory/ram_mb", 2048), "memory.ram_mb", "a table of value", "2048"),
    # numbers
    (put("memory/ram_mb", value(-1)), "memory.ram_mb.value", "a number from 1", "-1"),
    (put("memory/ram_mb", value(float("nan"))), "memory.ram_mb.value", "a number", "nan"),
    (put("memory/ram_mb", value(float("inf"))), "memory.ram_mb.value", "a number", "inf"),
    (put("memory/ram_mb", value(1 << 99_999)), "memory.ram_mb.value", "a number", "100000 bits"),
    (put("memory/ram_mb", value("much")), "memory.ram_mb.value", "a number", "'much'"),
    (put("memory/ram_mb", value(True)), "memory.ram_mb.value", "a number", "True"),
    (put("memory/ram_mb", value([1])), "memory.ram_mb.value", "a number", "a list"),
    (put("memory/ram_mb", value({})), "memory.ram_mb.value", "a number", "a table"),
    (put("clusters/0/cores", value(1.5)), "clusters[0].cores.value", "a whole number", "1.5"),
    (put("year", 2020.5), "year", "a whole number", "2020.5"),
    (
        put("thermal/nodes/soc/heat_capacity_j_k", value(2e6)),
        "thermal.nodes.soc.heat_capacity_j_k.value", "a number from 0.001 to 1e+06", "2000000.0",
    ),
    (put("thermal/trips/0/floor", value(1.5)), "thermal.trips[0].floor.value", "0 to 1", "1.5"),
    (put("thermal/trips/0/floor", value(-0.1)), "thermal.trips[0].floor.value", "0 to 1", "-0.1"),
    # ranges and where numbers are from
    (
        put("memory/tab_mb", value(400, range=[500, 600])),
        "memory.tab_mb.range", "a range around 400", "500 to 600",
    ),
    (
        put("memory/tab_mb", value(400, range=[500, 300])),
        "memory.tab_mb.range", "a range around 400", "500 to 300",
    ),
    (put("memory/tab_mb", value(400, range=[1])), "memory.tab_mb.range", "two numbers", "1"),
    (put("memory/tab_mb", value(400, range=3)), "memory.tab_mb.range", "two numbers", "3"),
    (
        put("memory/tab_mb", value(400, range=[1, "x"])),
        "memory.tab_mb.range[1]", "a number", "'x'",
    ),
    (put("memory/tab_mb", {"value": 400}), "memory.tab_mb", "either a source or", "nothing"),
    (put("memory/tab_mb", value(400, assumed="x")), "memory.tab_mb", "either a source or", "both"),
    (put("memory/tab_mb", guess(400)), "memory.tab_mb.range", "the range of what", "nothing"),
    (
        put("memory/tab_mb", {"value": 400, "source": " "}),
        "memory.tab_mb.source", "a line of printable text", "' '",
    ),
    (
        put("memory/tab_mb", {"value": 400, "source": 3}),
        "memory.tab_mb.source", "a line of printable text", "3",
    ),
    # lists
    (
        put("clusters/0/voltages_mv", value([700])),
        "clusters[0].voltages_mv", "2 numbers, as in frequencies_mhz", "1",
    ),
    (
        put("clusters/0/frequencies_mhz", value([1200, 600])),
        "clusters[0].frequencies_mhz.value[1]", "1200 or more", "600",
    ),
    (
        put("clusters/0/voltages_mv", value([800, 700])),
        "clusters[0].voltages_mv.value[1]", "800 or more", "700",
    ),
    (
        put("clusters/0/frequencies_mhz", value([600, 600])),
        "clusters[0].frequencies_mhz", "each once", "600 twice",
    ),
    (
        put("clusters/0/frequencies_mhz", value([])),
        "clusters[0].frequencies_mhz.value", "a list of 1 to 64 numbers", "0",
    ),
    (
        put("clusters/0/frequencies_mhz", value([*range(100, 165)])),
        "clusters[0].frequencies_mhz.value", "a list of 1 to 64 numbers", "65",
    ),
    (
        put("clusters/0/frequencies_mhz", value([600, "fast"])),
        "clusters[0].frequencies_mhz.value[1]", "a number", "'fast'",
    ),
    (
        put("clusters/0/frequencies_mhz", {"value": [600, 1200]}),
        "clusters[0].frequencies_mhz", "either a source or", "nothing",
    ),
    (put("clusters", []), "clusters", "an array of 1 to 16 tables", "0"),
    (put("clusters", [{}] * 17), "clusters", "an array of 1 to 16 tables", "17"),
    (put("clusters", {}), "clusters", "an array of 1 to 16 tables", "0"),
    (put("clusters/0", 3), "clusters[0]", "a table of name, node", "3"),
    (put("thermal/nodes", {}), "thermal.nodes", "1 to 32 tables by name", "0"),
    (
        put("thermal/nodes", {f"n{i}": {} for i in range(33)}),
        "thermal.nodes", "1 to 32 tables by name", "33",
    ),
    # words
    (put("kind", "toaster"), "kind", "one of phone, tablet, board, laptop", "'toaster'"),
    (put("kind", ["phone"]), "kind", "one of phone, tablet", "a list"),
    (put("name", "Small"), "name", "a name of up to 64", "'Small'"),
    (put("name", "other"), "name", "the file's name, 'small'", "'other'"),
    (put("title", "\x1b[2J"), "title", "a line of printable text", r"'\x1b[2J'"),
    (put("title", "x" * 2001), "title", "at most 2000 characters", "2001"),
    # what contradicts itself
    (put("memory/app_mb", value(2001)), "memory.app_mb", "at most ram_mb, 2000", "2001"),
    (
        put("memory/app_mb", guess(1000, range=[900, 2100])),
        "memory.app_mb", "at most ram_mb, 2000", "2100",
    ),
    (put("memory/tab_mb", value(2001)), "memory.tab_mb", "at most ram_mb, 2000", "2001"),
    (
        put("memory/core_bandwidth_gb_s", value(9)),
        "memory.core_bandwidth_gb_s", "at most bandwidth_gb_s, 8", "9",
    ),
    (put("clusters/0/node", "gpu"), "clusters[0].node", "one of the nodes soc, case", "'gpu'"),
    (
        lambda table: table["clusters"].append(copy.deepcopy(table["clusters"][0])),
        "clusters[1].name", "a name of its own", "'all'",
    ),
    (put("power/node", "gpu"), "power.node", "one of the nodes soc, case", "'gpu'"),
    (
        put("thermal/allocator/node", "gpu"),
        "thermal.allocator.node", "one of the nodes soc, case", "'gpu'",
    ),
    (
        put("thermal/allocator/control_c", value(25)),
        "thermal.allocator.control_c", "more than ambient_c, 25", "25",
    ),
    (
        put("thermal/trips/0/node", "gpu"),
        "thermal.trips[0].node", "one of the nodes soc, case", "'gpu'",
    ),
    (
        put("thermal/trips/0/start_c", value(42)),
        "thermal.trips[0].start_c", "less than full_c, 42", "42",
    ),
    (
        put("thermal/trips/0/start_c", guess(40, range=[39, 43])),
        "thermal.trips[0].start_c", "less than full_c, 42", "43",
    ),
    (
        put("thermal/trips/0/start_c", value(20)),
        "thermal.trips[0].start_c", "more than ambient_c, 25", "20",
    ),
    # links
    (
        put(f"{LINKS}/0/between", ["soc", "gpu"]),
        "thermal.links[0].between", "one of the nodes soc, case", "'gpu'",
    ),
    (
        put(f"{LINKS}/0/between", ["soc", "soc"]),
        "thermal.links[0].between", "two different nodes", "soc twice",
    ),
    (
        lambda table: table["thermal"]["links"].append({"between": ["case", "soc"], **LINK}),
        "thermal.links[2].between", "each link once", "case and soc again",
    ),
    (put(f"{LINKS}/0/between", ["soc"]), "thermal.links[0].between", "two names", "1"),
    (put(f"{LINKS}/0/between", "soc"), "thermal.links[0].between", "two names", "'soc'"),
    (put(f"{LINKS}/0/between", ["soc", 3]), "thermal.links[0].between[1]", "a name", "3"),
    (
        put("thermal/nodes/gpu", {"heat_capacity_j_k": value(9)}),
        "thermal.nodes.gpu", "links from it to ambient", "no link",
    ),
    (
        put(LINKS, [{"between": ["soc", "case"], **LINK}]),
        "thermal.nodes.soc", "links from it to ambient", "it never cools",
    ),
    (
        put("thermal/nodes/ambient", {"heat_capacity_j_k": value(9)}),
        "thermal.nodes.ambient", "another name", "'ambient'",
    ),
    (put("thermal/nodes/A", {}), "thermal.nodes", "a name of up to 64", "'A'"),
    (put(f"{LINKS}/0/resistance_k_w", value(0)), "links[0].resistance_k_w.value", "0.0001", "0"),
]  # fmt: skip


def test_the_small_profile_is_right() -> None:
    profile = read_table(profiles.Profile, small(), Where("small"))
    assert profile.clusters[0].frequencies_mhz == Steps((600, 1200), "a data sheet")
    assert profile.thermal.links[1].between == ("case", "ambient")
    assert profile.battery is not None
    table = small()
    del table["battery"], table["thermal"]["trips"]
    without = read_table(profiles.Profile, table, Where("small"))
    assert (without.battery, without.thermal.trips) == (None, ())


@pytest.mark.parametrize(("change", "key", "expected", "found"), REFUSED)
def test_what_is_wrong_is_said_in_a_sentence(
    change: Callable[[Table], None], key: str, expected: str, found: str,
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """File, key, what was expected and what was found, of a table as TOML would give it."""
    table = small()
    change(table)
    path = tmp_path / "small.toml"
    path.write_text("")
    monkeypatch.setattr(tomllib, "loads", lambda _: table)
    with pytest.raises(ProfileError) as caught:
        read_profile(path)
    message = str(caught.value)
    place, _, rest = message.partition(": expected ")
    wanted, _, got = rest.rpartition(", found ")
    assert place.startswith(f"{path}: ")
    assert place.endswith(key)
    assert expected in wanted
    assert found in got
    assert message.isprintable()
    assert len(message) < len(str(path)) + 400
    assert isinstance(caught.value, HalfbyteError)


@pytest.mark.parametrize(
    ("data", "expected", "found"),
    [
        (b"", "a table of value, range, source, assumed|a name", "nothing"),
        (b"name = ", "TOML", "Invalid value"),
        (b"name = 'a'\nname = 'b'", "TOML", "overwrite"),
        (b"\xff\xfe", "TOML", "utf-8"),
        (b"year = " + b"9" * 5000, "TOML", "digits"),
        (b"year = 0x" + b"F" * 50_000, "a whole number|a name", "bits|nothing"),
        (b"name = " + b"[" * 100_000, "TOML", "recursion"),
        (b"#" * 1_000_001, "a file of at most 1000000 bytes", "more"),
    ],
)  # fmt: skip
def test_what_is_no_toml_is_said_in_a_sentence(
    data: bytes, expected: str, found: str, tmp_path: Path
) -> None:
    path = tmp_path / "small.toml"
    path.write_bytes(data)
    with pytest.raises(ProfileError) as caught:
        load_profile(path)
    message = str(caught.value)
    assert message.startswith(f"{path}: ")
    assert any(f"expected {word}" in message for word in expected.split("|"))
    assert any(word in message.rpartition(", found ")[2] for word in found.split("|"))
    assert "\n" not in message
    assert len(message) < len(str(path)) + 400


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        load_profile(tmp_path / "small.toml")


# ---- commands ------------------------------------------------------------------------------------

Capture = pytest.CaptureFixture[str]


def test_list(capsys: Capture) -> None:
    assert main(["device", "list"]) == 0
    heads, *rows = capsys.readouterr().out.splitlines()
    assert heads.split()[:3] == ["device", "title", "cores"]
    assert [row.split()[0] for row in rows] == NAMES
    [pixel] = [row for row in rows if row.startswith("pixel-6 ")]
    assert pixel.split()[-6:] == ["8", "1236", "30", "8590", "4600", "3.5"]


def test_list_as_json(capsys: Capture) -> None:
    assert main(["device", "list", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [device["name"] for device in found] == NAMES
    [pixel] = [device for device in found if device["name"] == "pixel-6"]
    assert (pixel["kind"], pixel["cores"], pixel["sustainable_w"]) == ("phone", 8, 3.5)
    assert pixel["int8_gops"] == pytest.approx(2 * 2.802 * 128 + 2 * 2.253 * 64 + 4 * 1.803 * 32)


def test_show(capsys: Capture) -> None:
    assert main(["device", "show", "pixel-6"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("Google Pixel 6 (Tensor gs101): a phone of 2021\n8 cores, ")
    assert "chassis warms ambient" in out
    rows = {row.split()[0]: row for row in out.splitlines() if row}
    profile = load_profile("pixel-6")
    for key, number in profile.numbers():
        assert rows[key].endswith(number.source or f"assumed: {number.assumed}")
    assert rows["clusters[0].frequencies_mhz"].split()[1:6] == ["500", "to", "2802", "17", "steps"]
    assert rows["memory.tab_mb"].split()[1:5] == ["1000", "500", "to", "2000"]


def test_show_as_json(capsys: Capture) -> None:
    assert main(["device", "show", str(SHIPPED[0]), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    profile = load_profile(NAMES[0])
    assert found["name"] == profile.name
    assert found["memory"]["ram_mb"]["value"] == profile.memory.ram_mb.value
    assert set(found["thermal"]["nodes"]) == set(profile.thermal.nodes)
    assert found["derived"]["int8_gops"] == profile.int8_gops


def test_a_wrong_device_is_one_line(capsys: Capture) -> None:
    assert main(["device", "show", "nokia"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("error: device 'nokia': expected one of ")
    assert err.count("\n") == 1


def test_a_page_for_text_does_without() -> None:
    names = zipfile.ZipFile(BytesIO(make_wheel(graphs=False))).namelist()
    assert "halfbyte/loading.py" in names
    assert not [name for name in names if name.startswith("halfbyte/device/")]
