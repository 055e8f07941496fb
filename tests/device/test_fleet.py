"""Fleets: each device as it would be simulated by itself, and what is drawn."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from halfbyte.cli import main
from halfbyte.device import fleet as fleets
from halfbyte.device.candidates import Candidate, Choices, candidates
from halfbyte.device.comparison import Conditions
from halfbyte.device.fleet import Exposure, Fleet, load_fleet, on_fleet, simulated
from halfbyte.device.profile import Profile
from halfbyte.device.quantity import Draws, Quantity
from halfbyte.device.room import Room
from halfbyte.device.summary import quantities
from halfbyte.errors import ProfileError

CONDITIONS = Conditions(minutes=3, seed=5)
TEXT = """\
devices = 400
air_c = { value = 22, range = [2, 38], assumed = "a test" }
battery_percent = { value = 65, range = [5, 100], assumed = "a test" }
battery_years = { value = 1.5, range = [0, 5], assumed = "a test" }
battery_loss_per_year = { value = 0.07, range = [0.03, 0.12], assumed = "a test" }
[[device]]
name = "pixel-6"
share = 0.4
[[device]]
name = "galaxy-s25"
share = 0.6
"""


@pytest.fixture
def candidate(storyteller: Path) -> Candidate:
    (only,) = candidates([storyteller], ["int8"], Choices())
    return only


@pytest.fixture
def phones(tmp_path: Path) -> tuple[Fleet, list[Profile]]:
    (tmp_path / "fleet.toml").write_text(TEXT)
    return load_fleet(tmp_path / "fleet.toml")


def exactly(value: float) -> Quantity:
    return Quantity(value, value, value, "a test")


@dataclass(frozen=True)
class One(Draws):
    """The numbers of one of `among` devices."""

    among: int = 1
    index: int = 0

    def drawn(self, quantity: Quantity) -> npt.NDArray[np.float64]:
        return quantity.draw(self.random, self.among)[[self.index]]


def test_devices_are_those_that_are_simulated_alone(
    candidate: Candidate, phones: tuple[Fleet, list[Profile]]
) -> None:
    fleet, profiles = phones
    count = 50
    for profile in profiles:
        room = Room(profile, None, 0, tab=False)

        def of(draws: Draws, room: Room = room) -> Iterator[npt.NDArray[np.float64]]:
            exposure = Exposure.drawn(fleet, room, draws)
            s = simulated(candidate, room, exposure, draws, CONDITIONS)
            yield s.speed[-1]
            yield from quantities(s).values()

        every = list(of(Draws(np.random.default_rng(7), count)))
        for index in (0, 17, 49):
            single = of(One(np.random.default_rng(7), 1, count, index))
            for whole, alone in zip(every, single, strict=True):
                np.testing.assert_allclose(whole[index], alone[0], rtol=1e-9)


def test_portions_make_the_same_fleet_for_a_seed(
    candidate: Candidate, phones: tuple[Fleet, list[Profile]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fleets, "_AT_ONCE", 90)
    done: list[int] = []
    result = on_fleet(candidate, *phones, CONDITIONS, done.append)
    assert sum(done) == result.total.devices == 400
    assert [group.devices for group in result.groups] == [160, 240]
    assert result == on_fleet(candidate, *phones, CONDITIONS)
    assert result != on_fleet(candidate, *phones, replace(CONDITIONS, seed=6))
    assert sum(result.counts) == pytest.approx(400, abs=20)
    hot = result.total.hot
    assert hot is not None
    assert result.edges[0] <= hot.p5 < hot.p50 < hot.p95 <= result.edges[-1]


def test_hot_air_slows_devices(candidate: Candidate, phones: tuple[Fleet, list[Profile]]) -> None:
    fleet, profiles = phones
    cold, hot = (
        on_fleet(candidate, replace(fleet, air_c=exactly(celsius)), profiles, CONDITIONS).total
        for celsius in (5.0, 38.0)
    )
    assert cold.hot is not None
    assert hot.hot is not None
    assert hot.hot.p50 < 0.8 * cold.hot.p50
    assert hot.throttles > cold.throttles


def test_old_and_empty_batteries(candidate: Candidate, phones: tuple[Fleet, list[Profile]]) -> None:
    fleet, profiles = phones
    loss = exactly(0.1)
    full = replace(fleet, battery_percent=exactly(100), battery_loss_per_year=loss)
    full, old = (replace(full, battery_years=exactly(years)) for years in (0, 4))
    new_of, old_of = (on_fleet(candidate, f, profiles, CONDITIONS).total for f in (full, old))
    assert new_of.percent is not None
    assert old_of.percent is not None
    assert old_of.percent.p50 == pytest.approx(new_of.percent.p50 / 0.6, rel=1e-6)
    assert new_of.empties == old_of.empties == 0
    nearly = replace(old, battery_percent=exactly(1))
    assert on_fleet(candidate, nearly, profiles, replace(CONDITIONS, minutes=10)).total.empties > 0


def test_limits_of_memory_are_drawn(
    candidate: Candidate, phones: tuple[Fleet, list[Profile]]
) -> None:
    """A quarter of a triangle's devices lies below the middle of its rising half's range."""
    fleet, (profile, _) = phones
    need = candidate.memory(Room(profile, None, 0, tab=False)).private / 1e6
    limit = Quantity(need * 1.2, need * 0.8, need * 1.6, "a test")
    small = replace(profile, memory=replace(profile.memory, app_mb=limit))
    only = replace(fleet, device=(replace(fleet.device[0], share=1.0),), devices=4000)
    result = on_fleet(candidate, only, [small], replace(CONDITIONS, minutes=0.2))
    assert result.total.fits == pytest.approx(1 - 0.5 * 0.5**2, abs=0.03)


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        ("share = 0.4", "share = 0.3", "add up to 1"),
        ("share = 0.4", "share = -0.4", "from 0 to 1"),
        ('"galaxy-s25"', '"pixel-6"', "another device"),
        ('"galaxy-s25"', '"galaxy25"', "'galaxy-s25'"),
        ("devices = 400", "devices = 0", "1 to 1e+06"),
        ("devices = 400", "devices = 40000000", "1 to 1e+06"),
        ("value = 22", "value = 220", "from -30 to 80"),
        ("range = [0, 5]", "range = [2, 5]", "a range around 1.5"),
        ('battery_percent = { value = 65, range = [5, 100], assumed = "a test" }\n', "",
         "battery_percent"),
        (TEXT[TEXT.index("[[device]]") :], "", "device"),
        (TEXT[TEXT.index("[[device]]") :], "device = []", "1 to 256 tables"),
        ("devices = 400", "devices 400", "TOML"),
    ],
)  # fmt: skip
def test_files_that_describe_no_fleet(before: str, after: str, words: str, tmp_path: Path) -> None:
    assert before in TEXT
    (tmp_path / "fleet.toml").write_text(TEXT.replace(before, after))
    with pytest.raises(ProfileError) as refused:
        load_fleet(tmp_path / "fleet.toml")
    assert words in str(refused.value)


def test_a_device_and_its_own_file_are_the_same(repository: Path, tmp_path: Path) -> None:
    own = tmp_path / "pixel-6.toml"
    shutil.copy(repository / "runtime/halfbyte/device/profiles/pixel-6.toml", own)
    (tmp_path / "fleet.toml").write_text(TEXT.replace('"galaxy-s25"', json.dumps(str(own))))
    with pytest.raises(ProfileError, match=r"device\[1\].name: expected another device"):
        load_fleet(tmp_path / "fleet.toml")


def test_the_example_is_a_fleet(repository: Path) -> None:
    fleet, profiles = load_fleet(repository / "docs/fleet.toml")
    assert sum(fleet.counts()) == fleet.devices == 100_000
    assert all(profile.battery for profile in profiles)


def test_the_command_shows_fleets(
    storyteller: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "fleet.toml").write_text(TEXT.replace("400", "40"))
    page = tmp_path / "r.html"
    call = ["compare", str(storyteller), "--fleet", str(tmp_path / "fleet.toml"), "--minutes", "1"]
    assert main([*call, "--html", str(page)]) == 0
    out = capsys.readouterr().out
    assert "40 devices" in out.replace(" on 40", " 40")
    assert "galaxy-s25" in out
    assert "<rect" in page.read_text("utf-8")
    assert main([*call, "--json"]) == 0
    (fleet,) = json.loads(capsys.readouterr().out)["fleet"]
    assert [group["devices"] for group in fleet["groups"]] == [16, 24]
    assert main([*call, "--csv"]) == 0
    assert capsys.readouterr().out.splitlines()[1].split(",")[2:5] == ["all", "40", "1"]


def test_processes_share_a_fleet(
    candidate: Candidate, phones: tuple[Fleet, list[Profile]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fleets, "_AT_ONCE", 90)
    done: list[int] = []
    shared = on_fleet(candidate, *phones, CONDITIONS, done.append, processes=3)
    assert sorted(done) == [60, 70, 90, 90, 90]
    assert shared == on_fleet(candidate, *phones, CONDITIONS)
