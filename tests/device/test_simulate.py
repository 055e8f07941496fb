"""Simulations: energy closes, heat is the closed form's, speed falls as it must; the command."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any, BinaryIO, cast

import numpy as np
import pytest
from tests.device.devices import (
    AIR,
    CAPACITY,
    IDLE,
    RESISTANCE,
    cluster,
    exactly,
    one_node,
    small_plan,
)

from halfbyte.cli import main
from halfbyte.device.profile import load_profile
from halfbyte.device.recording import Simulation
from halfbyte.device.simulate import GOVERNORS, simulate
from halfbyte.device.speed import Draws
from halfbyte.device.summary import band, bands, quantities
from halfbyte.device.workload import CHAT, CONTINUOUS, Turn, Workload
from halfbyte.errors import HalfbyteError
from halfbyte.planning import Plan

LIMITING = [name for name in GOVERNORS if name != "none"]
PHONES = ("pixel-6", "galaxy-s25", "fairphone-4")


@pytest.fixture(scope="module")
def planned(storyteller: Path) -> Plan:
    return small_plan(storyteller)


# ---- physics -------------------------------------------------------------------------------------


@pytest.mark.parametrize("governor", GOVERNORS)
@pytest.mark.parametrize("workload", [CONTINUOUS, CHAT])
def test_energy_closes(governor: str, workload: Workload, planned: Plan) -> None:
    s = simulate(
        planned, load_profile("galaxy-s25"), workload, governor, minutes=5, draws=20, ambient=35
    )
    assert (s.taken_j > 100).all()
    np.testing.assert_allclose(s.stored_j + s.given_j, s.taken_j, rtol=1e-9)
    lengths = np.diff(s.seconds, prepend=0.0)
    np.testing.assert_allclose((s.watts * lengths[:, None]).sum(axis=0), s.taken_j, rtol=1e-9)


def test_one_node_warms_as_its_closed_form(planned: Plan) -> None:
    """2 W and what is idle: T = air + P R - 2 W R exp(-t / RC)."""
    s = simulate(planned, one_node(), governor="none", minutes=10, draws=3)
    expected = AIR + RESISTANCE * (IDLE + 2 * (1 - np.exp(-s.seconds / (RESISTANCE * CAPACITY))))
    np.testing.assert_allclose(s.temperatures["soc"], expected[:, None].repeat(3, 1), rtol=1e-6)
    np.testing.assert_allclose(s.watts, 2 + IDLE, rtol=1e-12)


def test_leakage_is_added_at_the_temperature_that_is_reached(planned: Plan) -> None:
    leaking = cluster(leakage_w=exactly(0.2), leakage_doubling_k=exactly(20))
    s = simulate(planned, one_node([leaking]), governor="none", minutes=60, draws=1)
    at, watts = float(s.temperatures["soc"][-1, 0]), float(s.watts[-1, 0])
    assert watts == pytest.approx(2 + IDLE + 0.2 * 2 ** ((at - 25) / 20), rel=1e-5)
    assert at == pytest.approx(AIR + RESISTANCE * watts, rel=1e-4)
    assert watts > 2.9


def test_the_step_does_not_matter_at_constant_power(planned: Plan) -> None:
    found = [
        simulate(planned, one_node(), governor="none", minutes=4, draws=3, step=step)
        for step in (1.0, 0.5, 0.125)
    ]
    for other in found[1:]:
        np.testing.assert_allclose(other.taken_j, found[0].taken_j, rtol=1e-9)
        np.testing.assert_allclose(other.given_j, found[0].given_j, rtol=1e-9)
        np.testing.assert_allclose(
            other.tokens.sum(axis=0), found[0].tokens.sum(axis=0), rtol=1e-9
        )  # fmt: skip


def test_with_leakage_the_step_matters_little(planned: Plan) -> None:
    def heat(step: float) -> Any:
        profile = load_profile("pixel-6")
        s = simulate(planned, profile, governor="none", minutes=4, draws=20, step=step)
        return s.given_j[~s.overheated]

    errors = [np.abs(heat(step) / heat(0.0625) - 1).max() for step in (1.0, 0.5, 0.25)]
    assert errors[1] < 2e-3
    assert errors[0] > 1.5 * errors[1] > 2.2 * errors[2]  # of first order


@pytest.mark.parametrize("governor", GOVERNORS)
@pytest.mark.parametrize("name", PHONES)
def test_hotter_air_never_gives_more_tokens(governor: str, name: str, planned: Plan) -> None:
    tokens = [
        simulate(
            planned, load_profile(name), governor=governor, minutes=10, ambient=ambient, draws=30
        ).tokens.sum(axis=0)
        for ambient in (5.0, 20.0, 35.0, 50.0)
    ]
    # steps of frequency and temperature decide by less than a hundredth
    some = 1e-9 if governor == "none" else 0.01
    for cooler, hotter in pairwise(tokens):
        assert (hotter <= cooler * (1 + some)).all()
    assert governor == "none" or np.median(tokens[-1]) < 0.7 * np.median(tokens[0])


# ---- draws ---------------------------------------------------------------------------------------


def test_the_same_seed_gives_the_same_devices(planned: Plan) -> None:
    def run(seed: int) -> Simulation:
        return simulate(planned, load_profile("pixel-6"), minutes=1, draws=5, seed=seed)

    first, again, other = run(3), run(3), run(4)
    np.testing.assert_array_equal(first.tokens, again.tokens)
    np.testing.assert_array_equal(first.watts, again.watts)
    assert (first.watts != other.watts).any()


class Replayed:
    """A generator that gives draw `at` alone of what was drawn, in the same order."""

    def __init__(self, drawn: list[Any], at: int) -> None:
        self._drawn, self._at = iter(drawn), at

    def triangular(self, low: float, mode: float, high: float, count: int) -> Any:
        return next(self._drawn)[self._at : self._at + 1]


class Recorded(Replayed):
    """A generator that keeps what it gives."""

    def __init__(self) -> None:
        self.drawn: list[Any] = []
        self._random = np.random.default_rng(5)

    def triangular(self, low: float, mode: float, high: float, count: int) -> Any:
        self.drawn.append(self._random.triangular(low, mode, high, count))
        return self.drawn[-1]


@pytest.mark.parametrize("governor", GOVERNORS)
def test_all_draws_at_once_are_each_by_itself(governor: str, planned: Plan) -> None:
    def run(random: Any, count: int) -> Simulation:
        return simulate(
            planned, load_profile("galaxy-s25"), CHAT, governor, minutes=3, ambient=40,
            draws=Draws(cast(np.random.Generator, random), count),
        )  # fmt: skip

    recorded = Recorded()
    together = run(recorded, 3)
    for draw in range(3):
        alone = run(Replayed(recorded.drawn, draw), 1)
        np.testing.assert_allclose(alone.tokens[:, 0], together.tokens[:, draw], rtol=1e-9)
        np.testing.assert_allclose(alone.watts[:, 0], together.watts[:, draw], rtol=1e-9)


# ---- throttling, switching off -------------------------------------------------------------------


@pytest.mark.parametrize("governor", GOVERNORS)
def test_what_cannot_overheat_never_throttles(governor: str, planned: Plan) -> None:
    s = simulate(planned, one_node(resistance=0.1), governor=governor, minutes=5, draws=5)
    found = quantities(s)
    assert np.isinf(found["throttle_s"]).all()
    np.testing.assert_allclose(found["kept"], 1, rtol=1e-9)
    np.testing.assert_allclose(found["token_spread"], 0, atol=1e-9)
    full = simulate(planned, one_node(resistance=0.1), governor="none", minutes=5, draws=5)
    np.testing.assert_allclose(s.tokens, full.tokens, rtol=1e-9)


@pytest.mark.parametrize("governor", LIMITING)
def test_governors_hold_the_control_temperature(governor: str, planned: Plan) -> None:
    """2.5 W would be 50 degrees; at 40 it is 1.5 W, 1 of them of the core."""
    s = simulate(planned, one_node(control=40), governor=governor, minutes=40, draws=3)
    late = s.seconds > 1500
    soc = s.temperatures["soc"][late]
    assert soc.max() < 41.5
    assert soc.mean() > 36
    assert governor == "pacing" or (quantities(s)["throttle_s"] < 600).all()


def test_a_die_that_runs_away_switches_the_device_off(planned: Plan) -> None:
    leaking = cluster(leakage_w=exactly(1.0), leakage_doubling_k=exactly(10))
    s = simulate(planned, one_node([leaking]), governor="none", minutes=30, draws=2)
    assert s.overheated.all()
    off = np.argmax(~s.on[:, 0])
    assert 60 < s.seconds[off] < 600
    assert s.tokens[off:].max() == s.watts[off:].max() == s.speed[off:].max() == 0
    assert 105 < s.temperatures["soc"].max() < 125
    assert s.temperatures["soc"][-1, 0] < 40  # it cools
    found = quantities(s)
    assert found["sustained_tokens_s"].max() == 0
    assert found["throttle_s"].max() <= s.seconds[off]
    np.testing.assert_allclose(s.stored_j + s.given_j, s.taken_j, rtol=1e-9)


def test_a_battery_drains_by_what_is_taken(planned: Plan) -> None:
    profile = one_node(resistance=1.0)
    assert profile.battery is not None
    small = replace(profile, battery=replace(profile.battery, capacity_wh=exactly(2.5 / 6)))
    s = simulate(planned, small, governor="none", minutes=15, draws=2)  # 2.5 W empty it in 10
    assert s.charge is not None
    np.testing.assert_allclose(s.charge[s.seconds == 300], 50, rtol=1e-9, atol=0.1)
    off = float(s.seconds[np.argmax(~s.on[:, 0])])
    assert off == pytest.approx(600, abs=1)
    assert s.charge[-1].max() == 0
    assert not s.overheated.any()
    mains = simulate(planned, replace(small, battery=None), governor="none", draws=2)
    assert mains.charge is None
    assert "tokens_per_percent" not in quantities(mains)


# ---- what is reported ----------------------------------------------------------------------------


def made(speeds: Any, busy: Any = 1.0) -> Simulation:
    """A sample a second at these tokens/s, of one draw."""
    count = len(speeds)
    answering = np.broadcast_to(np.asarray(busy, float), count)[:, None] * np.ones((1, 1))
    flat = np.ones((count, 1))
    return Simulation(
        one_node(), "m", "none", "x", 25.0, 1, 0, np.arange(1.0, count + 1),
        np.asarray(speeds, float)[:, None] * answering, answering, 2 * flat, flat > 0,
        {"soc": flat.astype(np.float32)}, {"cores": flat.astype(np.float32)},
        100 - np.cumsum(flat, axis=0) / 10, np.full(1, 2.0 * count), flat[0], flat[0],
        flat[0] < 0,
    )  # fmt: skip


def test_what_a_simulation_comes_to() -> None:
    s = made([20] * 60 + [18] * 60 + [10] * 80)
    found = {name: float(values[0]) for name, values in quantities(s).items()}
    assert found["first_minute_tokens_s"] == 20
    assert found["sustained_tokens_s"] == 10
    assert found["kept"] == 0.5
    assert found["throttle_s"] == 61
    assert found["tokens"] == 1200 + 1080 + 800
    assert found["joules_per_token"] == pytest.approx(400 / 3080)
    assert found["watts"] == 2
    assert found["tokens_per_percent"] == pytest.approx(3080 / 20)
    # after a minute 1080 tokens of 1/18 s and 800 of 1/10 s
    assert found["token_spread"] == pytest.approx((1 / 10 - 1 / 18) / (1 / 18))


def test_pauses_do_not_count_as_slow() -> None:
    busy = np.tile([1.0] * 10 + [0.0] * 10, 10)
    s = made(np.full(200, 20.0), busy)
    found = quantities(s)
    assert found["sustained_tokens_s"][0] == pytest.approx(20)
    assert np.isinf(found["throttle_s"][0])
    np.testing.assert_allclose(s.speed, 20)
    assert found["token_spread"][0] == 0
    slow = made(np.where(np.arange(200) < 160, 20.0, 10.0), busy)
    assert quantities(slow)["throttle_s"][0] == 161


def test_a_band_is_of_values_that_occur() -> None:
    found = band(np.array([3.0, 1.0, np.inf, 2.0, np.inf]))
    assert (found.low, found.median, found.high) == (1, 3, np.inf)


def test_turns_take_their_time(planned: Plan) -> None:
    profile = one_node(resistance=0.1)
    speed = simulate(planned, profile, governor="none", minutes=1, draws=2).tokens.sum(axis=0) / 60
    turns = Workload("x", (Turn(0, 1000, 7.0),))
    s = simulate(planned, profile, turns, "none", minutes=30, draws=2)
    whole = 1800 / (1000 / speed + 7)
    assert (np.abs(s.tokens.sum(axis=0) / 1000 - whole) < 1).all()
    np.testing.assert_allclose(s.tokens.sum(axis=0) / s.answering.sum(axis=0), speed, rtol=1e-9)
    slower = simulate(
        planned, profile, Workload("x", (Turn(50_000, 1000, 7.0),)), "none", minutes=30, draws=2
    )
    assert (slower.tokens.sum(axis=0) < s.tokens.sum(axis=0)).all()


def test_a_long_time_is_told_in_fewer_samples(planned: Plan) -> None:
    s = simulate(planned, one_node(), governor="none", minutes=35, draws=1)
    assert len(s.seconds) == 1050
    assert s.seconds[-1] == 2100
    np.testing.assert_allclose(s.watts, 2.5, rtol=1e-12)
    np.testing.assert_allclose(s.answering[:-1], 2.0, rtol=1e-9)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"governor": "fan"}, "governor 'fan': expected one of none, step-wise"),
        ({"minutes": 0}, "minutes 0: expected 0.00833"),
        ({"minutes": float("nan")}, "minutes nan: expected"),
        ({"minutes": 601}, "minutes 601: expected .* to 600"),
        ({"ambient": 90.0}, "ambient 90: expected -30 to 80"),
        ({"threads": 9}, "threads 9: expected 1 to 8"),
        ({"threads": 0}, "threads 0: expected 1 to 8"),
        ({"draws": 0}, "draws 0: expected 1 to 10000"),
        ({"step": 0.3}, "step of 0.3 s: expected 1 s or a whole part of it"),
        ({"step": 0.0}, "step of 0.0 s"),
    ],
)
def test_numbers_out_of_bounds(changes: dict[str, Any], message: str, planned: Plan) -> None:
    with pytest.raises(HalfbyteError, match=message):
        simulate(planned, load_profile("pixel-6"), **changes)


# ---- the command ---------------------------------------------------------------------------------

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(storyteller: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    """The command on the storyteller: exit code, stdout, stderr."""

    def command(*words: str, model: Path = storyteller) -> tuple[int, str, str]:
        short = ("--minutes", "1", "--draws", "5")
        code = main(["simulate", str(model), *short, *words])
        out = capsys.readouterr()
        return code, out.out, out.err

    return command


def test_the_command_for_people(run: Run) -> None:
    code, out, _ = run("--device", "pixel-6", "--ambient", "30", "--minutes", "2")
    lines = out.splitlines()
    assert code == 0
    assert lines[0].startswith("storyteller.bin on Google Pixel 6 (Tensor gs101): 4 threads, power")
    assert "air of 30 C; 5 draws" in lines[0]
    assert any(line.startswith("sustained (last fifth)") for line in lines)
    assert [line.split()[0] for line in lines[-3:]] == ["min", "1", "2"]
    assert "warning" not in out


def test_the_command_for_programs(run: Run) -> None:
    code, out, _ = run("--device", "galaxy-s25", "--workload", "chat", "--json", "--seed", "4")
    found = json.loads(out)
    assert code == 0
    assert (found["device"], found["governor"], found["seed"]) == (
        "galaxy-s25", "power-allocator", 4,
    )  # fmt: skip
    assert found["ambient_c"] == 25
    assert found["summary"]["throttle_s"]["high"] is None
    assert found["summary"]["sustained_tokens_s"]["median"] > 0
    series = found["series"]
    assert {"speed", "power", "battery", "chassis", "oryon-prime"} <= set(series)
    assert len(series["speed"]["median"]) == len(found["seconds"]) == 120
    assert series["chassis"]["unit"] == "C"


@pytest.mark.parametrize(
    ("suffix", "begin"), [(".png", b"\x89PNG"), (".svg", b"<?xml"), (".PDF", b"%PDF")]
)
def test_a_plot(suffix: str, begin: bytes, run: Run, tmp_path: Path) -> None:
    path = tmp_path / f"picture{suffix}"
    path.write_bytes(b"before")
    assert run("--device", "raspberry-pi-4", "--plot", str(path))[0] == 0
    assert path.read_bytes().startswith(begin)
    assert path.stat().st_size > 10_000
    assert list(tmp_path.iterdir()) == [path]


def test_a_plot_that_cannot_be_is_refused_before_anything_runs(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none(*_: Any, **__: Any) -> Any:
        raise AssertionError("it ran")

    monkeypatch.setattr("halfbyte.cli.simulate.simulate", none)
    code, _, error = run("--device", "pixel-6", "--plot", str(tmp_path / "a.jpeg"))
    assert (code, error) == (
        2, f"error: {tmp_path}/a.jpeg: expected a name in .svg, .png, .pdf, found .jpeg\n",
    )  # fmt: skip
    assert "found no suffix" in run("--device", "pixel-6", "--plot", str(tmp_path / "a"))[2]
    code, _, error = run("--device", "pixel-6", "--plot", str(tmp_path / "no" / "a.svg"))
    assert (code, error) == (
        2, f"error: {tmp_path}/no/a.svg: cannot be written: no folder {tmp_path}/no\n",
    )  # fmt: skip
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    code, _, error = run("--device", "pixel-6", "--plot", str(tmp_path / "a.svg"))
    assert code == 2
    assert error == "error: a plot needs matplotlib: pip install 'halfbyte[plot]'\n"


def test_a_plot_that_breaks_off_leaves_what_was_there(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from matplotlib.figure import Figure

    def breaks(self: Figure, file: BinaryIO, **_: Any) -> None:
        file.write(b"part")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Figure, "savefig", breaks)
    path = tmp_path / "a.svg"
    path.write_bytes(b"before")
    code, _, error = run("--device", "pixel-6", "--plot", str(path))
    assert (code, error) == (2, f"error: {path}: cannot be written: No space left on device\n")
    assert path.read_bytes() == b"before"
    assert list(tmp_path.iterdir()) == [path]


def test_nothing_of_matplotlib_is_imported_without_a_plot(storyteller: Path) -> None:
    import subprocess

    code = (
        "import sys; from halfbyte.cli import main; main(['simulate', sys.argv[1], '--device', "
        "'pixel-6', '--minutes', '0.1', '--draws', '2']); assert 'matplotlib' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code, str(storyteller)], check=True, timeout=120)


def write_phone(folder: Path, app_mb: float) -> Path:
    """The Pixel 6 with so much memory for an app."""
    from halfbyte.device.writer import to_toml

    phone = load_profile("pixel-6")
    memory = replace(phone.memory, app_mb=exactly(float(app_mb)))
    path = folder / "phone.toml"
    path.write_text(to_toml(replace(phone, name="phone", memory=memory)))
    return path


def test_a_model_that_does_not_fit(run: Run, storyteller: Path, tmp_path: Path) -> None:
    code, out, error = run("--device", str(write_phone(tmp_path, 1)))
    assert code == 2
    assert out == ""
    assert f"error: {storyteller}: expected to need at most 1 MB, which an app on phone" in error
    assert "MB at level extreme" in error
    needs = small_plan(storyteller).total / 1e6
    options = ("--context", "256", "--cache", "f32")
    code, out, _ = run("--device", str(write_phone(tmp_path, needs + 100)), *options)
    assert (code, "warning" in out) == (0, False)


def test_a_model_that_fits_at_another_level(
    run: Run, storyteller: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from halfbyte.formats import open_model
    from halfbyte.planning import LEVELS, plan

    file = open_model(storyteller)
    totals = {name: plan(file, LEVELS[name]).total / 1e6 for name in LEVELS}
    room = (totals["extreme"] + min(totals[n] for n in LEVELS if n != "extreme")) / 2
    code, out, _ = run("--device", str(write_phone(tmp_path, room)))
    assert code == 0
    assert f"warning: it needs {totals['baseline']:.0f} MB, and an app on phone may take" in out
    assert "--level extreme needs" in out.splitlines()[0]
    found = json.loads(run("--device", str(write_phone(tmp_path, room)), "--json")[1])
    assert found["warning"].startswith("warning")


def test_an_onnx_graph_is_refused(run: Run, tmp_path: Path) -> None:
    from onnx import TensorProto, helper

    value = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1])
    graph = helper.make_graph([helper.make_node("Neg", ["x"], ["y"])], "g", [value], [
        helper.make_tensor_value_info("y", TensorProto.FLOAT, [1])])  # fmt: skip
    path = tmp_path / "a.onnx"
    path.write_bytes(helper.make_model(graph).SerializeToString())
    code, _, error = run("--device", "pixel-6", model=path)
    assert (code, error) == (
        2,
        f"error: {path}: expected a language model (GGUF, Hugging Face), found an ONNX graph, "
        "which is not simulated\n",
    )


def test_other_bad_input(run: Run) -> None:
    assert "expected one of android-go-2gb" in run("--device", "pixel-60")[2]
    assert "expected continuous, chat, or a" in run("--device", "pixel-6", "--workload", "x")[2]
    assert "ambient nan: expected" in run("--device", "pixel-6", "--ambient", "nan")[2]
    assert run("--device", "pixel-6", "--minutes", "1e9")[0] == 2


def test_bands_are_of_all_quantities(planned: Plan) -> None:
    s = simulate(planned, load_profile("pixel-6"), minutes=0.5, draws=20)
    found, values = bands(s), quantities(s)
    assert set(found) == set(values)
    for name, one in found.items():
        assert one.low <= one.median <= one.high, name
