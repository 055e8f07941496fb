"""Fits of thermal networks: to synthetic recordings with known values, and to real ones."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from tests.device import recordings
from tests.support.tools import load_tool
from tools.thermal import fitting, judging, part
from tools.thermal.fitting import CONDUCTANCES, DRIVES, GUESS, predict
from tools.thermal.traces import Recording, read_recording

from halfbyte.device.profile import Profile, load_profile
from halfbyte.device.quantity import Draws
from halfbyte.device.simulate import simulate
from halfbyte.device.speed import Tokens
from halfbyte.errors import FormatError, HalfbyteError
from halfbyte.text.opening import open_model
from halfbyte.text.planning import Settings, plan

STRESS, EVERYDAY = "s25_stress_20251126_142908", "s25_20251126_112051"
# Others than guessed, by up to a factor of 1.6; the body and its way to the air set the scale
TRUE = GUESS * np.array([0.7, 1.4, 0.7, 1.0, 1.4, 0.8, 0.7, 1.5, 0.7, 1.2, 1.6, 1.0, 1.0])


@pytest.fixture(scope="module")
def tool(repository: Path) -> ModuleType:
    return load_tool(repository, "fit_thermal")


@pytest.fixture(scope="module")
def phone() -> Recording:
    return recordings.phone(np.random.default_rng(5), TRUE, 1500)


def test_known_values_are_recovered(tool: ModuleType, phone: Recording) -> None:
    found = tool.fit([phone])
    np.testing.assert_allclose(found.values[4:7], TRUE[4:7], rtol=0.2)
    assert np.all(found.within >= tool.APART)
    other = recordings.phone(np.random.default_rng(6), TRUE, 1500)
    for drive in DRIVES:
        course = predict(other, found.values[None], drive).temperatures
        for node in ("chassis", "battery"):
            measured = other.zones[fitting.ZONES[node]]
            assert np.abs(course[node][:, 0] - measured).mean() < 0.1, (drive, node)
            assert np.ptp(measured) > 1


def test_a_recording_with_too_little_information(tool: ModuleType) -> None:
    short = recordings.phone(np.random.default_rng(5), TRUE, 10)
    with pytest.raises(HalfbyteError, match=r"phone\.npz: expected 13 ticks or more, found 10"):
        tool.fit([short])


def test_predictions_of_the_true_network_are_exact(phone: Recording) -> None:
    """The start that the first minutes show is the guess; so all after it is the phone's."""
    for drive, driven in DRIVES.items():
        result = predict(phone, TRUE[None], drive)
        assert set(result.temperatures) == {*fitting.ZONES, "body"} - {*driven}
        assert result.known == 180
        for node, course in result.temperatures.items():
            if node in fitting.ZONES:
                measured = phone.zones[fitting.ZONES[node]]
                np.testing.assert_allclose(course[:, 0], measured, atol=0.1)


def test_later_measurements_are_not_used(phone: Recording) -> None:
    zones = {name: zone.copy() for name, zone in phone.zones.items()}
    for zone in ("CHASSIS", "BATTERY", "MODEM", "AMBIENT"):
        zones[zone][180:] = 99.0
    blind = Recording(phone.path, 1.0, zones, phone.air_c)
    for node in ("chassis", "battery"):
        seen, unseen = (
            predict(one, TRUE[None], "all sensors").temperatures[node] for one in (phone, blind)
        )
        np.testing.assert_allclose(unseen, seen, atol=0.05)


def test_the_air_is_found_in_the_first_minutes(phone: Recording) -> None:
    """A battery that cools from the beginning was warmer than the air says at rest."""
    cooling = phone.zones["BATTERY"] - 0.3 * np.arange(1500) / 180
    colder = Recording(phone.path, 1.0, {**phone.zones, "BATTERY": cooling}, phone.air_c)
    starts = [predict(one, TRUE[None], "all sensors").start for one in (phone, colder)]
    assert starts[1].air_c[0] < starts[0].air_c[0] - 0.5
    random = np.random.default_rng(2)
    drawn = predict(phone, np.repeat(TRUE[None], 400, axis=0), "all sensors", random).start
    assert 0.5 < drawn.air_c.std() < fitting.AIR_K + fitting.BODY_K
    assert abs(drawn.air_c.mean() - starts[0].air_c[0]) < 0.5


def test_steps_of_a_sensor_are_smoothed() -> None:
    ticks = np.arange(900)
    slow = 20 + 5 * np.sin(ticks / 300)
    slow[:300] = slow[300]  # constant at first: this long step is not smoothed
    air = np.full(900, 20.0)
    stairs = Recording(Path("a"), 1.0, {"BATTERY": slow[ticks // 30 * 30]}, air)
    result = fitting.between_readings(stairs)
    assert np.abs(result - slow)[:870].max() < 0.05
    assert np.abs(stairs.zones["BATTERY"] - slow).max() > 0.4


def test_a_recording_without_a_zone_is_refused(phone: Recording) -> None:
    zones = {name: zone for name, zone in phone.zones.items() if name != "GPU"}
    with pytest.raises(FormatError, match=r"phone.npz: expected a zone GPU, found CPU_BIG, "):
        predict(Recording(phone.path, 1.0, zones, phone.air_c), TRUE[None], "all sensors")


# ---- judging -------------------------------------------------------------------------------------


def results_of(phone: Recording, values: np.ndarray) -> dict[tuple[str, str], judging.Result]:
    made = part.Fit(values, np.full(len(values), 0.05))
    found = judging.judge(phone, made, load_profile("galaxy-s25"), list(DRIVES))
    return {(result.drive, result.node): result for result in found}


def test_errors_and_bands_of_a_known_phone(phone: Recording) -> None:
    right, wrong = (results_of(phone, values) for values in (TRUE, GUESS))
    assert set(right) == {
        ("all sensors", "chassis"), ("all sensors", "battery"), ("CPU sensors", "gpu"),
        ("CPU sensors", "chassis"), ("CPU sensors", "battery"),
    }  # fmt: skip
    for key, result in right.items():
        measured = phone.zones[fitting.ZONES[key[1]]]
        assert result.first == pytest.approx(np.abs(measured[180:] - measured[0]).mean())
        assert result.held == pytest.approx(np.abs(measured[180:] - measured[179]).mean())
        assert result.predicted < 0.3
        assert result.inside > 0.9
        inside = (result.scores <= 1).mean()
        assert result.inside == pytest.approx(inside)
    off, known = (sum(r.predicted for r in found.values()) for found in (wrong, right))
    assert off > 3 * known


def test_ranges_are_widened_until_four_fifths_are_inside(phone: Recording) -> None:
    result = results_of(phone, TRUE)["all sensors", "battery"]
    one = replace(result, scores=np.arange(1.0, 101))
    two = replace(result, node="gpu", scores=np.arange(1.0, 11) / 10)
    assert judging.widened([one, two]) == (80, 0.8)


def test_pieces_are_the_ends_of_a_recording(phone: Recording) -> None:
    lengths = [len(piece.air_c) for piece in judging.pieces(phone)]
    assert lengths == [1500, 1350, 1200, 1050, 900, 750, 600, 450]


def test_load_is_where_the_cores_are_warmer_than_the_package() -> None:
    from tools.thermal import open_loop

    recording = recordings.phone(np.random.default_rng(3), TRUE, 900)
    on = open_loop.loaded(recording, "cpu_little")
    assert not on[:240].any()
    assert 0.05 < on.mean() < 0.9
    profile = part.with_fit(load_profile("galaxy-s25"), part.Fit(TRUE, np.full(13, 0.01)))
    course = open_loop.open_loop(recording, profile, 5, 0).temperatures
    assert np.ptp(course["cpu_little"][:200, 0]) < 3
    assert course["cpu_little"][on].mean() > course["cpu_little"][~on].mean() + 10


# ---- the command ---------------------------------------------------------------------------------


Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def command(tool: ModuleType, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run the command; returns exit code, stdout and stderr."""

    def run(*arguments: object) -> tuple[int, str, str]:
        code = 0
        try:
            tool.main([str(argument) for argument in arguments])
        except SystemExit as end:
            code = int(end.code or 0)
        out = capsys.readouterr()
        return code, out.out, out.err

    return run


def test_command(command: Run, repository: Path, tmp_path: Path) -> None:
    rng = np.random.default_rng(9)
    first, second = (
        recordings.save(tmp_path / name, recordings.arrays(recordings.phone(rng, TRUE, 500)))
        for name in ("first.npz", "second.npz")
    )
    out = tmp_path / "part.toml"
    code, shown, error = command(first, "--evaluate", second, "-o", out)
    assert code == 0, error
    for drive in judging.JUDGED:
        assert f"| first | second | {drive} | battery |" in shown
    assert "| all | all | | | " in shown
    text = out.read_text(encoding="utf-8")
    assert text.count("fitted to first.npz by tools/fit_thermal.py") == 12
    phone = pasted(text, repository, tmp_path, "galaxy-s25")
    assert [link.between for link in phone.thermal.links] == list(CONDUCTANCES)
    pasted(text, repository, tmp_path, "pixel-6")
    code, shown, error = command("--profile", tmp_path / "galaxy-s25.toml", "--evaluate", second)
    assert code == 0, error
    assert "galaxy-s25.toml | second | load only | cpu_little |" in shown
    model = tmp_path / "model.gguf"
    load_tool(repository, "make_model").make_model(model, "tiny", "Q8_0")
    warm = simulate(Tokens(plan(open_model(model), Settings())), phone, minutes=5, draws=50)
    assert not warm.overheated.any()


def pasted(text: str, repository: Path, folder: Path, name: str) -> Profile:
    """A shipped profile with these nodes and links instead of its own."""
    source = repository / f"runtime/halfbyte/device/profiles/{name}.toml"
    tables = re.split(r"^(?=\[)", source.read_text(encoding="utf-8"), flags=re.MULTILINE)
    kept = [t for t in tables if not t.startswith(("[thermal.nodes.", "[[thermal.links]]"))]
    path = folder / f"{name}.toml"
    path.write_text("".join([*kept, text]), encoding="utf-8")
    return load_profile(path)


def test_command_refuses(command: Run, tmp_path: Path) -> None:
    good = recordings.save(
        tmp_path / "a.npz",
        recordings.arrays(recordings.phone(np.random.default_rng(1), TRUE, 300)),
    )
    bad = tmp_path / "bad.npz"
    bad.write_bytes(b"no npz")
    for arguments, sentence in (
        ((bad,), "bad.npz: cannot be read: not NumPy arrays"),
        ((tmp_path / "none.npz",), "none.npz: cannot be read: No such file"),
        ((good, "--evaluate", good), "errors would flatter"),
        ((good, "-o", good), "is a recording; choose another output"),
        ((good, "-o", tmp_path), "cannot be written: expected a file in a folder"),
        ((), "expected recordings to fit to, or --profile"),
        (("--profile", "pixel-6"), "expected recordings after --evaluate"),
        (("--profile", "pixel-6", "--evaluate", good), "pixel-6: expected the nodes cpu_big, "),
    ):
        code, _, error = command(*arguments)
        assert code == 2, error
        assert sentence in error
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.npz", "bad.npz"]


# ---- the recordings of a phone -------------------------------------------------------------------


@pytest.fixture(scope="module")
def real(data: Path) -> dict[str, Recording]:
    return {n: read_recording(data / f"thermal/{n}.npz") for n in (STRESS, EVERYDAY)}


@pytest.mark.long
@pytest.mark.data
@pytest.mark.parametrize("fitted", [STRESS, EVERYDAY])
def test_each_recording_predicts_the_other(
    fitted: str, tool: ModuleType, real: dict[str, Recording]
) -> None:
    """Better than holding and lines, driven three ways."""
    other = next(recording for name, recording in real.items() if name != fitted)
    found = judging.judge(other, tool.fit([real[fitted]]), load_profile("galaxy-s25"))
    assert {result.drive for result in found} == set(judging.JUDGED)
    for result in found:
        best = min(result.first, result.held, result.linear)
        assert result.predicted < best, (result.drive, result.node)


@pytest.mark.data
def test_the_shipped_network_is_this_fit(tool: ModuleType, real: dict[str, Recording]) -> None:
    profile = load_profile("galaxy-s25")
    shipped = part.drawn_of(profile, Draws())[0]
    np.testing.assert_allclose(tool.fit(list(real.values())).values, shipped, rtol=0.03)


@pytest.mark.data
def test_bands_of_the_shipped_network_cover(real: dict[str, Recording]) -> None:
    profile = load_profile("galaxy-s25")
    found = [r for one in real.values() for r in judging.judge(one, profile, profile)]
    assert 0.7 < np.mean([result.inside for result in found]) < 0.95


@pytest.mark.data
def test_dies_are_hot_within_seconds_of_a_cold_load(
    real: dict[str, Recording], storyteller: Path
) -> None:
    stress = real[STRESS].zones["CPU_LITTLE"]
    begin = int(np.flatnonzero(np.diff(stress) > 40)[0])
    task = Tokens(plan(open_model(storyteller), Settings()))
    profile = load_profile("galaxy-s25")
    air = stress[begin] - 5  # screen and radio keep the package so much warmer
    warm = simulate(task, profile, ambient=air, minutes=1, threads=8)
    little = np.median(warm.temperatures["cpu_little"], axis=1)
    for seconds in (2, 5, 10):
        simulated = float(little[warm.seconds == seconds][0])
        assert simulated == pytest.approx(stress[begin + seconds], abs=8), seconds
