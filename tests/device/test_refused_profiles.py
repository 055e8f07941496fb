"""Profiles that are refused, and the error messages."""

from __future__ import annotations

import copy
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.device.profile_tables import Table, drop, guess, put, small, value

from halfbyte.device import profile as profiles
from halfbyte.device.profile import load_profile
from halfbyte.device.quantity import Steps
from halfbyte.device.schema import Where, read_table
from halfbyte.errors import HalfbyteError, ProfileError

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


def test_the_small_profile_is_valid() -> None:
    profile = read_table(profiles.Profile, small(), Where("small"))
    assert profile.clusters[0].frequencies_mhz == Steps((600, 1200), "a data sheet")
    assert profile.thermal.links[1].between == ("case", "ambient")
    assert profile.battery is not None
    table = small()
    del table["battery"], table["thermal"]["trips"]
    without = read_table(profiles.Profile, table, Where("small"))
    assert (without.battery, without.thermal.trips) == (None, ())


@pytest.mark.parametrize(("change", "key", "expected", "result"), REFUSED)
def test_errors_name_the_entry(
    change: Callable[[Table], None], key: str, expected: str, result: str,
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """The message has the file, the key, what was expected and what was found."""
    table = small()
    change(table)
    path = tmp_path / "small.toml"
    path.write_text("")
    monkeypatch.setattr(tomllib, "loads", lambda _: table)
    with pytest.raises(ProfileError) as caught:
        load_profile(path)
    message = str(caught.value)
    place, _, rest = message.partition(": expected ")
    wanted, _, got = rest.rpartition(", found ")
    assert place.startswith(f"{path}: ")
    assert place.endswith(key)
    assert expected in wanted
    assert result in got
    assert message.isprintable()
    assert len(message) < len(str(path)) + 400
    assert isinstance(caught.value, HalfbyteError)


@pytest.mark.parametrize(
    ("data", "expected", "result"),
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
def test_invalid_toml(data: bytes, expected: str, result: str, tmp_path: Path) -> None:
    path = tmp_path / "small.toml"
    path.write_bytes(data)
    with pytest.raises(ProfileError) as caught:
        load_profile(path)
    message = str(caught.value)
    assert message.startswith(f"{path}: ")
    assert any(f"expected {word}" in message for word in expected.split("|"))
    assert any(word in message.rpartition(", found ")[2] for word in result.split("|"))
    assert "\n" not in message
    assert len(message) < len(str(path)) + 400


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        load_profile(tmp_path / "small.toml")
