"""Fits of thermal couplings: to synthetic recordings with known couplings, and to real ones."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from scipy.integrate import solve_ivp
from tests.device import recordings
from tests.support.tools import load_tool
from tools.thermal import fitting
from tools.thermal.traces import Recording, read_recording

from halfbyte.device.profile import load_profile
from halfbyte.device.simulate import simulate
from halfbyte.device.speed import Tokens
from halfbyte.device.summary import bands
from halfbyte.errors import FormatError, HalfbyteError
from halfbyte.text.opening import open_model
from halfbyte.text.planning import Settings, plan

STRESS, EVERYDAY = "s25_stress_20251126_142908", "s25_20251126_112051"
# Others than guessed, by up to a factor of two
TRUE = fitting.GUESS * np.array([0.8, 1.9, 0.6, 1.5, 0.7, 1.4, 1.8, 0.6, 1.6, 1.3, 2.0])


@pytest.fixture(scope="module")
def tool(repository: Path) -> ModuleType:
    return load_tool(repository, "fit_thermal")


@pytest.fixture(scope="module")
def phone() -> Recording:
    return recordings.phone(np.random.default_rng(5), TRUE, 4000)


def test_known_couplings_are_recovered(tool: ModuleType, phone: Recording) -> None:
    result = tool.fit([phone], blocks=0).values
    np.testing.assert_allclose(result, TRUE, rtol=0.05)


def test_a_recording_with_too_little_information(tool: ModuleType) -> None:
    short = recordings.phone(np.random.default_rng(5), TRUE, 10)
    with pytest.raises(HalfbyteError, match=r"phone\.npz: expected 11 ticks or more, found 10"):
        tool.fit([short])


def test_air_temperature_is_fitted(tool: ModuleType) -> None:
    """Recordings of two phones are fitted together; one recorder is off by 2 K."""
    rng = np.random.default_rng(6)
    both = [recordings.phone(rng, TRUE, 3000, air) for air in (25.0, 23.0)]
    both[1] = Recording(both[1].path, both[1].tick_s, both[1].zones, both[1].air_c + 2)
    np.testing.assert_allclose(tool.fit(both, blocks=0).values, TRUE, rtol=0.08)


@pytest.mark.long
def test_ranges_contain_the_true_values(tool: ModuleType, phone: Recording) -> None:
    """Sensors round to tenths of a degree, and the battery is read every 30 s."""
    rng = np.random.default_rng(7)
    zones = {name: np.round(zone + rng.normal(0, 0.05, len(zone)), 1)
             for name, zone in phone.zones.items()}  # fmt: skip
    zones["BATTERY"] = zones["BATTERY"][np.arange(4000) // 30 * 30]
    result = tool.fit([Recording(phone.path, 1.0, zones, phone.air_c)])
    assert np.all((result.low < result.values) & (result.values < result.high))
    inside = (result.low < TRUE) & (result.high > TRUE)
    assert inside.sum() >= 9, (result.low / TRUE, result.high / TRUE)  # of 11, at two deviations
    assert np.all(result.high < 1.5 * result.low)
    assert result.left_out.shape == (6, 2)
    assert np.all(result.left_out < 0.3)


def test_prediction_solves_the_equations(phone: Recording) -> None:
    """The equations in the module's docstring, solved by SciPy's integrator."""
    ticks, air = 150, 25.0
    busiest = int((phone.zones["CPU_LITTLE"] - phone.zones["GPU"])[100:-100].argmax()) + 50
    zones = {name: zone[busiest : busiest + ticks] for name, zone in phone.zones.items()}
    short = Recording(phone.path, 0.5, zones, phone.air_c[:ticks])
    result = fitting.predict(short, TRUE[None], air)[:, 0]
    chips = np.stack([zones[name] for name in ("CPU_BIG", "CPU_LITTLE", "GPU", "MODEM")])
    chassis_j_k, body_j_k, *from_chips = TRUE[:6]
    to_battery, chassis_body, battery_body, to_air, load_w = TRUE[6:]

    def slopes(t: float, now: Any) -> list[float]:
        chassis, battery, body = now
        warm = [float(np.interp(t / 0.5, range(ticks), chip)) for chip in chips]
        begun = min(int(t / 0.5), ticks - 1)  # power holds over a tick
        load = load_w * (max(zones["CPU_LITTLE"][begun] - zones["GPU"][begun], 0) / 50) ** 2
        inwards = sum(g * (chip - chassis) for g, chip in zip(from_chips, warm, strict=True))
        across = to_battery * (chassis - battery), chassis_body * (chassis - body)
        third = battery_body * (battery - body)
        return [
            (inwards - across[0] - across[1]) / chassis_j_k,
            (across[0] - third + load) / 75.0,
            (across[1] + third + to_air * (air - body)) / body_j_k,
        ]

    at = 0.5 * np.arange(ticks)
    solved = solve_ivp(slopes, (0, at[-1]), result[0], t_eval=at, max_step=0.1)
    np.testing.assert_allclose(result, solved.y.T, atol=2e-3)
    assert np.ptp(result[:, 1]) > 0.4


def test_body_starts_at_the_temperature_of_the_battery(phone: Recording) -> None:
    course = fitting.predict(phone, TRUE[None], 25.0)[:, 0]
    slope = np.abs(np.diff(course[:, 1]))
    assert slope[0] < 0.01 * slope.max()
    assert (course[0, 0], course[0, 1]) == (26.5, 26.2)


def test_later_measurements_are_not_used(phone: Recording) -> None:
    blind = {name: zone if name in fitting.CHIPS.values() else np.full_like(zone, zone[0])
             for name, zone in phone.zones.items()}  # fmt: skip
    air = np.full_like(phone.air_c, phone.air_c[0])
    blind["AMBIENT"] = air
    seen = fitting.predict(phone, TRUE[None], phone.air_c[0])
    result = fitting.predict(Recording(phone.path, 1.0, blind, air), TRUE[None], air[0])
    np.testing.assert_array_equal(result, seen)


def test_steps_of_a_sensor_are_smoothed() -> None:
    ticks = np.arange(900)
    slow = 20 + 5 * np.sin(ticks / 300)
    slow[:300] = slow[300]  # constant at first: this long step is not smoothed
    air = np.full(900, 20.0)
    stairs = Recording(Path("a"), 1.0, {"BATTERY": slow[ticks // 30 * 30]}, air)
    result = fitting.between_readings(stairs)
    assert np.abs(result - slow)[:870].max() < 0.05
    assert np.abs(stairs.zones["BATTERY"] - slow).max() > 0.4


def test_errors_of_the_model_and_of_a_constant(phone: Recording) -> None:
    result = fitting.errors(phone, TRUE)
    for zone, (ours, holding) in result.items():
        assert ours < 1e-9
        assert holding == pytest.approx(np.abs(phone.zones[zone] - phone.zones[zone][0]).mean())
    assert list(result) == ["CHASSIS", "BATTERY"]


def test_a_recording_without_a_zone_is_refused(phone: Recording) -> None:
    zones = {name: zone for name, zone in phone.zones.items() if name != "MODEM"}
    with pytest.raises(FormatError, match=r"phone.npz: expected a zone MODEM, found CPU_BIG, "):
        fitting.predict(Recording(phone.path, 1.0, zones, phone.air_c), TRUE[None], 25.0)


def command(repository: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, str(repository / "tools/fit_thermal.py"), *map(str, arguments)]
    return subprocess.run(line, capture_output=True, text=True, check=False)


def test_command(repository: Path, tmp_path: Path) -> None:
    rng = np.random.default_rng(9)
    first, second = (
        recordings.save(tmp_path / name, recordings.arrays(recordings.phone(rng, TRUE, 900)))
        for name in ("first.npz", "second.npz")
    )
    part = tmp_path / "part.toml"
    done = command(repository, first, "--evaluate", second, "-o", part)
    assert done.returncode == 0, done.stderr
    assert "second.npz" in done.stdout
    assert "left out" in done.stdout
    thermal = tomllib.loads(part.read_text())["thermal"]
    assert thermal["nodes"]["battery"]["heat_capacity_j_k"]["value"] == fitting.BATTERY_J_K
    assert "assumed" in thermal["nodes"]["battery"]["heat_capacity_j_k"]
    assert [tuple(link["between"]) for link in thermal["links"]] == list(fitting.CONDUCTANCES)
    for each in (*thermal["links"], thermal["nodes"]["chassis"], thermal["nodes"]["body"]):
        number = each.get("resistance_k_w") or each["heat_capacity_j_k"]
        assert number["range"][0] <= number["value"] <= number["range"][1]
        assert "first.npz" in number["source"]
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "first.npz", "part.toml", "second.npz",
    ]  # fmt: skip
    simulates(part.read_text(encoding="utf-8"), repository, tmp_path)


def simulates(part: str, repository: Path, folder: Path) -> None:
    """A profile with these nodes and links is loaded, and warms up."""
    source = repository / "runtime/halfbyte/device/profiles/galaxy-s25.toml"
    tables = re.split(r"^(?=\[)", source.read_text(encoding="utf-8"), flags=re.MULTILINE)
    kept = [t for t in tables if not t.startswith(("[thermal.nodes.", "[[thermal.links]]"))]
    path = folder / "galaxy-s25.toml"
    path.write_text("".join([*kept, part]), encoding="utf-8")
    profile = load_profile(path)
    assert set(fitting.CHIPS) < set(profile.thermal.nodes)
    model = folder / "model.gguf"
    load_tool(repository, "make_model").make_model(model, "tiny", "Q8_0")
    warm = simulate(Tokens(plan(open_model(model), Settings())), profile, minutes=1, draws=4)
    assert bands(warm)["tokens"].median > 0


def test_command_refuses(
    tool: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good = recordings.save(
        tmp_path / "a.npz",
        recordings.arrays(recordings.phone(np.random.default_rng(1), TRUE, 100)),
    )
    bad = tmp_path / "bad.npz"
    bad.write_bytes(b"no npz")
    for arguments, sentence in (
        ((bad,), "bad.npz: cannot be read: not NumPy arrays"),
        ((tmp_path / "none.npz",), "none.npz: cannot be read: No such file"),
        ((good, "--evaluate", good), "errors would flatter"),
        ((good, "-o", good), "is a recording; choose another output"),
        ((good, "-o", tmp_path), "cannot be written: expected a file in a folder"),
        ((good, "-o", tmp_path / "none/a.toml"), "cannot be written: expected a file in a folder"),
    ):
        with pytest.raises(SystemExit, match="2"):
            tool.main([*map(str, arguments)])
        assert sentence in capsys.readouterr().err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.npz", "bad.npz"]


@pytest.mark.long
@pytest.mark.data
def test_stress_predicts_another_day(tool: ModuleType, data: Path) -> None:
    """Fitted to the stress recording only; docs/device.md says how the model was chosen."""
    stress, everyday = (read_recording(data / f"thermal/{name}.npz") for name in (STRESS, EVERYDAY))
    values = tool.fit([stress], blocks=0).values
    result = fitting.errors(everyday, values)
    assert result["CHASSIS"][0] <= 1.0
    assert result["BATTERY"][0] <= 0.8
    for ours, holding in result.values():
        assert ours < holding
    assert all(ours < holding / 10 for ours, holding in fitting.errors(stress, values).values())
