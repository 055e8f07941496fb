"""Pacing of real runs, by the sensors of a folder and on a plant of one node."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from tests.support.shapes import zeros

from halfbyte.cli import main
from halfbyte.device import sensors
from halfbyte.device.live import Clock, Pacer, live_board
from halfbyte.device.nearest import hottest
from halfbyte.device.profile import load_profile
from halfbyte.device.sensors import Files, thermal_zones
from halfbyte.device.speed import Tokens
from halfbyte.errors import HalfbyteError
from halfbyte.text.planning import Settings, plan

LIMIT = 70.0
TOKEN_S = 0.02  # of a cool plant


def zone(folder: Path, number: int, kind: str, temp: str, **trips: int) -> None:
    path = folder / f"class/thermal/thermal_zone{number}"
    path.mkdir(parents=True)
    (path / "type").write_text(f"{kind}\n")
    (path / "temp").write_text(f"{temp}\n")
    for index, (name, celsius) in enumerate(trips.items()):
        (path / f"trip_point_{index}_type").write_text(f"{name}\n")
        (path / f"trip_point_{index}_temp").write_text(f"{celsius * 1000}\n")


def test_fans_slow_nothing_below_their_full_speed(tmp_path: Path) -> None:
    """A Raspberry Pi 5, whose fan begins at 50 °C."""
    path = tmp_path / "class/thermal/thermal_zone0"
    zone(tmp_path, 0, "cpu-thermal", "48000", critical=110)
    for index, celsius in enumerate((75, 50, 60), start=1):
        (path / f"trip_point_{index}_type").write_text("active\n")
        (path / f"trip_point_{index}_temp").write_text(f"{celsius}000\n")
    assert [z.limit_c for z in thermal_zones(Files(tmp_path))] == [75.0]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A laptop: a processor, a battery without limits, and sensors that have no reading."""
    folder = tmp_path / "sys"
    zone(folder, 10, "skin", "41000", critical=95, passive=46, hot=60)
    zone(folder, 2, "x86_pkg_temp", "58500", critical=100, passive=80)
    zone(folder, 3, "battery", "31000")
    zone(folder, 4, "modem", "-274000", passive=60)
    zone(folder, 5, "wifi", "N/A", passive=60)
    return folder


def test_the_zone_that_is_nearest_to_its_limit(folder: Path) -> None:
    zones = thermal_zones(Files(folder))
    assert [(z.name, z.limit_c) for z in zones] == [
        ("x86_pkg_temp", 80.0), ("battery", None), ("skin", 46.0),
    ]  # fmt: skip
    assert hottest(zones)[0].name == "skin"
    assert hottest(zones) == (zones[2], 46.0)
    assert hottest(zones, 65.0) == (zones[0], 65.0)
    assert zones[0].celsius() == 58.5
    (folder / "class/thermal/thermal_zone2/temp").unlink()
    assert zones[0].celsius() is None


def test_machines_without_sensors(tmp_path: Path, folder: Path) -> None:
    with pytest.raises(HalfbyteError, match="expected a sensor with a temp"):
        hottest(thermal_zones(Files(tmp_path / "none")))
    zones = [z for z in thermal_zones(Files(folder)) if z.name == "battery"]
    with pytest.raises(HalfbyteError, match="none among battery; give one, such as --pace-at 65"):
        hottest(zones)


class Plant:
    """A machine that slows down at its limit, and is fast again a while after."""

    def __init__(self, rise: float, tau: float) -> None:
        self.seconds, self.celsius, self.rest = 0.0, 35.0, 35.0
        self._rise, self._tau, self._slower = rise, tau, 1.0

    def advance(self, seconds: float, busy: float = 0.0) -> None:
        goal = self.rest + self._rise * busy
        self.celsius += (goal - self.celsius) * (1 - math.exp(-seconds / self._tau))
        self.seconds += seconds

    def tokens(self, until: float) -> Iterator[float]:
        """The time of each token; a slow one takes less power."""
        while self.seconds < until:
            hot = self.celsius > LIMIT
            self._slower = min(max(self._slower * (1.15 if hot else 0.97), 1.0), 6.0)
            self.advance(TOKEN_S * self._slower, 1 / self._slower)
            yield self.seconds


@pytest.mark.parametrize(("rise", "tau"), [(60.0, 60.0), (90.0, 100.0)])
def test_tokens_are_even_and_the_machine_is_not_slowed(
    repository: Path, rise: float, tau: float
) -> None:
    task = Tokens(plan(zeros(repository, "smollm2-135m", "Q4_0", 3), Settings(context=256)))
    board = live_board(load_profile("macbook-air-m1"), task, 2, LIMIT - 2)

    def run(*, paced: bool) -> tuple[float, float, float]:
        """Spread of times between tokens, tokens/s, and the hottest, after four minutes."""
        plant = Plant(rise, tau)
        pacer = Pacer(
            board, lambda: round(plant.celsius), Clock(lambda: plant.seconds, plant.advance)
        )
        tokens = plant.tokens(420)
        seen = [(t, plant.celsius) for t in (pacer.paced(tokens) if paced else tokens)]
        times, celsius = np.array([one for one in seen if one[0] > 240]).T
        low, middle, high = np.percentile(np.diff(times), (10, 50, 90))
        return (high - low) / middle, len(times) / 180, celsius.max()

    free, even = run(paced=False), run(paced=True)
    assert free[2] > LIMIT
    assert even[2] < LIMIT
    assert even[0] < free[0] / 3
    assert even[1] > 0.8 * free[1]


def test_a_cool_machine_is_not_paced(repository: Path) -> None:
    task = Tokens(plan(zeros(repository, "smollm2-135m", "Q4_0", 3), Settings(context=256)))
    board = live_board(load_profile("macbook-air-m1"), task, 2, LIMIT)
    plant = Plant(15.0, 60.0)
    pacer = Pacer(board, lambda: plant.celsius, Clock(lambda: plant.seconds, plant.advance))
    assert sum(1 for _ in pacer.paced(plant.tokens(120))) > 0.9 * 120 / TOKEN_S


def test_a_sensor_that_vanishes_keeps_the_pace(repository: Path) -> None:
    task = Tokens(plan(zeros(repository, "smollm2-135m", "Q4_0", 3), Settings(context=256)))
    board = live_board(load_profile("macbook-air-m1"), task, 2, LIMIT)
    plant = Plant(15.0, 60.0)
    pacer = Pacer(board, lambda: None, Clock(lambda: plant.seconds, plant.advance))
    assert len(list(pacer.paced(plant.tokens(5)))) >= 5 / TOKEN_S
    assert pacer.waited_s == 0


def test_on_the_command_line(
    storyteller: Path, folder: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str], tmp_path: Path,
) -> None:  # fmt: skip
    monkeypatch.setattr(sensors, "SYS", Files(folder))
    words = ["run", str(storyteller), "Once", "-n", "6", "--temp", "0"]
    assert main(words) == 0
    text = capsys.readouterr().out
    assert main([*words, "--pace"]) == 0
    captured = capsys.readouterr()
    assert captured.out == text
    assert "paced by skin, whose limit is 46 °C: waited " in captured.err
    assert main([*words, "--pace-at", "70", "--json"]) == 0
    assert "paced by x86_pkg_temp, whose limit is 70 °C" in capsys.readouterr().err
    for more, message in (
        (["--pace-at", "500"], "--pace-at 500: expected 20 to 120 degrees Celsius"),
        (["--pace", "--beams", "2"], "--pace: --beams chooses all of a text at its end"),
    ):
        assert main([*words[:3], *more]) == 2
        assert message in capsys.readouterr().err
    monkeypatch.setattr(sensors, "SYS", Files(tmp_path / "none"))
    assert main([*words, "--pace"]) == 2
    assert "expected a sensor with a temperature" in capsys.readouterr().err
