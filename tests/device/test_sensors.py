"""Sensors of faked machines: files as /sys has them, and commands that print what was recorded."""

from __future__ import annotations

import io
import json
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.device.devices import program
from tests.support.shapes import zeros
from tests.text.chat.models import sentencepiece

from halfbyte.cli import main
from halfbyte.device import reports, sensors
from halfbyte.device.commands import MAX_BYTES, output_of
from halfbyte.device.live import Backoff, Clock, Pacer, live_board
from halfbyte.device.nearest import Nearest
from halfbyte.device.profile import load_profile
from halfbyte.device.reports import Pressure, Report, TermuxBattery
from halfbyte.device.sensors import Files, Recorded, Zone, batteries, clocks, thermal_zones
from halfbyte.device.speed import Tokens
from halfbyte.errors import HalfbyteError
from halfbyte.text.planning import Settings, plan

ZONE, POLICY = "class/thermal/thermal_zone0", "devices/system/cpu/cpufreq/policy0"
BATTERY = "class/power_supply/BAT0"

# Termux:API's answer as its documentation has it, here of a phone in use
STATUS = {
    "present": True, "technology": "Li-ion", "health": "GOOD", "plugged": "UNPLUGGED",
    "status": "DISCHARGING", "temperature": 31.4, "voltage": 4000, "current": -820000,
    "percentage": 85,
}  # fmt: skip
PMSET = """Note: No thermal warning level has been recorded
2026-11-27 10:00:00 +0100 CPU Power notify
\tCPU_Scheduler_Limit \t= 100
\tCPU_Available_CPUs \t= 8
\tCPU_Speed_Limit \t= 62
"""


class Said(Report):
    """A report whose text the test sets."""

    def __init__(self, text: str = "") -> None:
        super().__init__(("none",), 0.0)
        self.said = text

    def text(self) -> str:
        return self.said


@pytest.mark.parametrize(
    ("text", "celsius"),
    [
        ("41500", 41.5), ("-3000", -3.0), ("41", 41.0), ("415", None), ("1500", None),
        ("0", None), ("-274000", None), ("500000", None), ("", None), ("N/A", None),
        ("4 1", None), ("9" * 40, None), ("\u0664\u0661", None),
    ],
)  # fmt: skip
def test_units_of_zones(text: str, celsius: float | None) -> None:
    assert Zone("one", ZONE, None, Recorded({f"{ZONE}/temp": text})).celsius() == celsius


def test_recorded_files_are_found_as_those_of_a_folder(tmp_path: Path) -> None:
    texts = {
        "class/thermal/thermal_zone10/type": "b", "class/thermal/thermal_zone10/temp": "50000",
        f"{ZONE}/type": "\x1b[31m", f"{ZONE}/temp": "45000",
        f"{ZONE}/trip_point_0_type": "passive", f"{ZONE}/trip_point_0_temp": "80000",
        "class/thermal/cooling_device0/type": "fan",
    }  # fmt: skip
    for path, text in texts.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(f"{text}\n")
    for files in (Files(tmp_path), Recorded(texts)):
        found = [(z.name, z.limit_c, z.celsius()) for z in thermal_zones(files)]
        assert found == [("thermal_zone0", 80.0, 45.0), ("b", None, 50.0)]


def test_zones_that_vanish_and_those_that_become_the_nearest() -> None:
    texts = {}
    for number, (temp, limit) in enumerate([("50000", "60000"), ("70000", "95000")]):
        zone = f"class/thermal/thermal_zone{number}"
        texts |= {f"{zone}/type": f"z{number}", f"{zone}/temp": temp}
        texts |= {f"{zone}/trip_point_0_type": "passive", f"{zone}/trip_point_0_temp": limit}
    now = [0.0]
    nearest = Nearest(thermal_zones(Recorded(texts)), now=lambda: now[0])
    assert (nearest.sensor.name, nearest.limit_c, nearest.celsius()) == ("z0", 60.0, 50.0)
    texts["class/thermal/thermal_zone1/temp"] = "90000"
    assert nearest.celsius() == 50.0
    now[0] = Nearest.AGAIN_S
    assert (nearest.celsius(), nearest.sensor.name) == (55.0, "z1")  # 5 K below its own limit
    del texts["class/thermal/thermal_zone1/temp"]
    assert (nearest.celsius(), nearest.sensor.name) == (50.0, "z0")
    texts.clear()
    assert nearest.celsius() is None


def test_clocks() -> None:
    texts = {
        f"{POLICY}/related_cpus": "0 1 2 3 99999 x", f"{POLICY}/cpuinfo_max_freq": "1803000",
        f"{POLICY}/scaling_max_freq": "1197000", f"{POLICY}/scaling_cur_freq": "1024000",
        f"{POLICY}/scaling_available_frequencies": "1803000 300000 300000 -5 many",
        "devices/system/cpu/cpufreq/policy4/cpuinfo_max_freq": "",
    }  # fmt: skip
    [clock] = clocks(Recorded(texts))
    assert (clock.cores, clock.highest_mhz) == ([0, 1, 2, 3], 1803.0)
    assert clock.frequencies_mhz == [300.0, 1803.0]
    assert clock.now_mhz() == 1024.0
    assert clock.allowed() == pytest.approx(1197 / 1803)
    texts[f"{POLICY}/scaling_max_freq"] = "<unknown>"
    assert clock.allowed() is None


@pytest.mark.parametrize(
    ("current", "voltage", "watts"),
    [
        ("-820000", "4000000", 3.28), ("820", "4000", 3.28), ("820000", "4000", 3.28),
        ("0", "4000000", None), ("820000", "", None), ("820000", "4", None),
        ("9" * 15, "4000000", None),
    ],
)  # fmt: skip
def test_units_of_batteries(current: str, voltage: str, watts: float | None) -> None:
    texts = {
        f"{BATTERY}/type": "Battery", f"{BATTERY}/status": "Discharging",
        f"{BATTERY}/current_now": current, f"{BATTERY}/voltage_now": voltage,
        f"{BATTERY}/temp": "314", f"{BATTERY}/charge_full_design": "4000000",
        "class/power_supply/mouse/type": "Battery", "class/power_supply/mouse/scope": "Device",
        "class/power_supply/AC/type": "Mains",
    }  # fmt: skip
    [battery] = batteries(Recorded(texts))
    assert battery.watts() == (None if watts is None else pytest.approx(watts))
    assert battery.celsius() == 31.4
    texts[f"{BATTERY}/status"] = "Charging"
    assert battery.watts() is None
    texts[f"{BATTERY}/voltage_min_design"] = "3850000"
    assert battery.watt_hours() == pytest.approx(15.4)


def test_a_battery_that_says_its_power() -> None:
    texts = {f"{BATTERY}/type": "Battery", f"{BATTERY}/status": "Discharging"}
    texts[f"{BATTERY}/power_now"] = "12500000"
    assert batteries(Recorded(texts))[0].watts() == 12.5


@pytest.mark.parametrize(
    ("text", "celsius", "watts"),
    [
        (json.dumps(STATUS), 31.4, 3.28),
        (json.dumps({**STATUS, "temperature": "22.3", "current": -820}), 22.3, 3.28),
        (json.dumps({**STATUS, "status": "CHARGING"}), 31.4, None),
        (json.dumps({**STATUS, "temperature": "NaN", "voltage": None}), None, None),
        (json.dumps({**STATUS, "temperature": 1e9, "voltage": "1e999"}), None, None),
        (json.dumps({**STATUS, "temperature": [31], "current": {}}), None, None),
        ("Termux:API is not installed", None, None), ("[" * 9000, None, None), ("[]", None, None),
        ("", None, None), ('{"temperature": ' + "9" * 5000 + "}", None, None),
    ],
)  # fmt: skip
def test_what_termux_says(text: str, celsius: float | None, watts: float | None) -> None:
    battery = TermuxBattery(Said(text))
    assert battery.celsius() == celsius
    assert battery.watts() == (None if watts is None else pytest.approx(watts))


@pytest.mark.parametrize(
    ("level", "power", "allowed"),
    [
        ("com.apple.system.thermalpressurelevel 0\n", "", 1.0),
        ("com.apple.system.thermalpressurelevel 2\n", "", 0.6),
        ("com.apple.system.thermalpressurelevel 9\n", "", 0.1),
        ("com.apple.system.thermalpressurelevel 0\n", PMSET, 0.62),
        ("", PMSET, 0.62), ("", "\tCPU_Speed_Limit \t= 999", 1.0),
        ("com.apple.system.thermalpressurelevel 12345\n", "CPU_Speed_Limit = -1", None),
        ("notifyutil: unknown", "Note: No CPU power status has been recorded", None),
    ],
)  # fmt: skip
def test_what_macos_says(level: str, power: str, allowed: float | None) -> None:
    assert Pressure(Said(level), Said(power)).allowed() == allowed


def test_outputs_without_end_are_stopped(tmp_path: Path) -> None:
    start = time.monotonic()
    assert output_of([program(tmp_path, "forever", "sleep 60 & sleep 60")], 0.2).code is None
    assert time.monotonic() - start < 30
    long = output_of([program(tmp_path, "long", "yes")], 30.0)
    assert (long.code, len(long.text)) == (None, MAX_BYTES)
    failed = output_of([program(tmp_path, "failed", "echo sorry >&2; exit 3")], 30.0)
    assert (failed.text, failed.code) == ("sorry\n", 3)
    assert output_of([str(tmp_path / "none")], 1.0).code is None


def test_reports_are_read_again_in_the_background(tmp_path: Path) -> None:
    path = tmp_path / "said"
    path.write_text("one")
    report = Report([program(tmp_path, "say", f"cat {path}")], 0.0)
    assert report.text() == "one"
    path.write_text("two")
    deadline = time.monotonic() + 30
    while report.text() != "two":
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert Report([program(tmp_path, "fail", "echo no; exit 1")], 0.0).text() == ""


class Slowing:
    """What a system allows in each period."""

    name = "test"

    def __init__(self, allowed: Callable[[], float | None]) -> None:
        self.allowed = allowed


def test_the_pace_falls_while_the_machine_is_slowed() -> None:
    allowed: list[float | None] = [0.7]
    backoff = Backoff([Slowing(lambda: allowed[0])])
    backoff.decide()
    assert backoff.pace == 1.0  # a user's limit
    allowed[0] = 0.5
    paces = [(backoff.decide(), backoff.pace)[1] for _ in range(30)]
    assert paces[0] == 0.85
    assert paces[-1] == 0.05
    allowed[0] = None
    backoff.decide()
    assert backoff.pace == pytest.approx(0.07)
    allowed[0] = 0.7
    for _ in range(50):
        backoff.decide()
    assert backoff.pace == 1.0


def test_tokens_of_a_slowed_machine() -> None:
    """Pressure while more than 12 tokens a second are written: it settles about there."""
    seconds, times = [0.0], [0.0]

    def advance(by: float) -> None:
        seconds[0] += by

    def allowed() -> float:
        return 0.9 if len([t for t in times if t > seconds[0] - 5]) > 60 else 1.0

    pacer = Pacer(
        None, lambda: None, Clock(lambda: seconds[0], advance), [Slowing(allowed)], lambda: 3.5
    )

    def tokens() -> Iterator[None]:
        while seconds[0] < 300:
            advance(0.05)
            times.append(seconds[0])
            yield

    for _ in pacer.paced(tokens()):
        pass
    late = [t for t in times if t > 100]
    assert 9 < len(late) / 200 < 14
    assert pacer.battery_w == 3.5


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A machine without files below /sys, and with no programs but those that a test writes."""
    monkeypatch.setattr(sensors, "SYS", Files(tmp_path / "sys"))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    return tmp_path / "bin"


def test_a_phone_that_only_says_its_battery(
    storyteller: Path, bare: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    program(bare, "termux-battery-status", f"echo '{json.dumps(STATUS)}'")
    assert main(["run", str(storyteller), "Once", "-n", "4", "--pace"]) == 0
    assert "paced by battery, whose limit is 40 °C" in capsys.readouterr().err
    [sensor] = reports.here().sensors
    assert sensor.celsius() == 31.4
    program(bare, "termux-battery-status", "yes")
    assert main(["run", str(storyteller), "Once", "-n", "4", "--pace"]) == 2
    assert "expected a sensor with a temperature" in capsys.readouterr().err


def test_a_mac(storyteller: Path, bare: Path, capsys: pytest.CaptureFixture[str]) -> None:
    program(bare, "notifyutil", 'echo "$2 0"')
    assert main(["run", str(storyteller), "Once", "-n", "4", "--pace"]) == 0
    assert "paced by macOS's thermal pressure: waited 0.0 s" in capsys.readouterr().err
    assert main(["run", str(storyteller), "Once", "-n", "4", "--pace-at", "60"]) == 2
    assert "expected a sensor with a temperature" in capsys.readouterr().err


def test_zones_count_before_batteries(bare: Path, tmp_path: Path) -> None:
    folder = tmp_path / "sys" / BATTERY
    folder.mkdir(parents=True)
    for name, text in (("type", "Battery"), ("temp", "390"), ("status", "Full")):
        (folder / name).write_text(text)
    assert [sensor.name for sensor in reports.here().sensors] == ["BAT0"]
    zone = tmp_path / "sys" / ZONE
    zone.mkdir(parents=True)
    for name, text in (
        ("type", "cpu"), ("temp", "50000"), ("trip_point_0_type", "passive"),
        ("trip_point_0_temp", "90000"),
    ):  # fmt: skip
        (zone / name).write_text(text)
    assert [sensor.name for sensor in reports.here().sensors] == ["cpu"]
    assert reports.here().watts() is None


def test_nothing_to_pace_by() -> None:
    with pytest.raises(HalfbyteError, match="expected a sensor with a temperature"):
        Nearest([])


def test_a_paced_chat(
    bare: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = sentencepiece(tmp_path / "instruct.gguf")
    words = ["chat", str(path), "--temp", "0", "-n", "5"]

    def answers(*more: str) -> str:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"Why?\nAnd then?\n")))
        assert main([*words, *more]) == 0
        return capsys.readouterr().out

    program(bare, "notifyutil", 'echo "$2 0"')
    assert answers("--pace") == answers()
    assert main([*words, "--pace-at", "7"]) == 2
    assert "--pace-at 7: expected 20 to 120" in capsys.readouterr().err
    (bare / "notifyutil").unlink()
    assert main([*words, "--pace"]) == 2
    assert "expected a sensor with a temperature" in capsys.readouterr().err


def test_pauses_between_texts_cool_the_model(repository: Path) -> None:
    """After an hour the governor allows the speed of a cold machine again."""
    task = Tokens(plan(zeros(repository, "smollm2-135m", "Q4_0", 3), Settings(context=256)))
    board = live_board(load_profile("macbook-air-m1"), task, 2, 60.0)
    seconds = [0.0]

    def advance(by: float) -> None:
        seconds[0] += by

    def text(until: float) -> Iterator[float]:
        while seconds[0] < until:
            advance(0.01)
            yield seconds[0]

    pacer = Pacer(board, lambda: 58.0, Clock(lambda: seconds[0], advance))
    hot = len(list(pacer.paced(text(300.0))))
    modelled = float(pacer._governor._modelled[0, 0])
    advance(3600.0)
    next(iter(pacer.paced(text(4000.0))))
    assert float(pacer._governor._modelled[0, 0]) < 0.05 * modelled
    assert hot > 0
