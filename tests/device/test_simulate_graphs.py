"""Graphs that run repeatedly: the speed of `fit`, energy per run, cameras, NumPy."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from math import inf
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from tests.device.devices import AIR, IDLE, RESISTANCE, cluster, exactly, one_node
from tests.device.test_fit import with_app
from tests.device.test_fit_graphs import DEEP, WIDE, perceptron, saved
from tests.device.test_simulate_command import Run, run, write_phone
from tests.onnx.graphs import Net
from tests.support.sampled import often
from tools.onnx_models.builder import FLOAT

from halfbyte.device import plot
from halfbyte.device.governors import Board, Governor
from halfbyte.device.graphs import GraphFitter, GraphPlan, GraphPlanner, Runs
from halfbyte.device.operating_points import efficient_points
from halfbyte.device.pacing import Pacing
from halfbyte.device.profile import Profile, load_profile
from halfbyte.device.quantity import Draws, Steps
from halfbyte.device.simulate import GOVERNORS, simulate
from halfbyte.device.speed import Processor
from halfbyte.device.summary import bands, quantities
from halfbyte.device.workload import CHAT, CONTINUOUS, Turn, Workload, load_workload
from halfbyte.errors import HalfbyteError
from halfbyte.onnx.files import open_onnx

__all__ = ["run"]  # a fixture

LIMITING = [name for name in GOVERNORS if name != "none"]
BURSTS = Workload("bursts", (Turn(0, 2000, 3.0, 400.0), Turn(0, 500, 1.0)))


def planned(tmp_path: Path, model: onnx.ModelProto, **sizes: int) -> GraphPlan:
    return GraphPlanner(open_onnx(saved(tmp_path, model))).plan(sizes)


def in_numpy(rows: int) -> onnx.ModelProto:
    """A product that NumPy computes, with weights that it reads from the file."""
    net = Net()
    x = net.input("x", onnx.TensorProto.DOUBLE, [rows, 512])
    return net.proto(net.node("MatMul", x, net.array(np.ones((512, 1024)), np.float64)))


@pytest.fixture(scope="module")
def task(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    """Two products of 64 rows, and rows of a table."""
    return Runs(planned(tmp_path_factory.mktemp("graph"), perceptron(), batch=64))


def uncached(profile: Profile, memory_pj: float = 0.0) -> Profile:
    """A device that reads all weights from memory, at this many picojoules per byte."""
    memory = replace(profile.memory, cache_mb=exactly(0.001))
    power = replace(profile.power, memory_pj_per_byte=exactly(memory_pj))
    return replace(profile, memory=memory, power=power)


# ---- the speed of `fit` --------------------------------------------------------------------------


@pytest.mark.parametrize("make", [perceptron, lambda: in_numpy(4)])
@pytest.mark.parametrize("threads", [None, 1, 3])
@pytest.mark.parametrize("name", ["pixel-6", "raspberry-pi-5"])
def test_a_cool_device_has_the_speed_of_fit(
    name: str, threads: int | None, make: Any, tmp_path: Path
) -> None:
    """With the same draws, runs/s in the first minute have the same value and range."""
    profile, model = load_profile(name), open_onnx(saved(tmp_path, make()))
    sizes = {"batch": 8} if make is perceptron else {}
    expected = GraphFitter(model, profile, threads).fit(sizes).asked.runs
    assert expected is not None
    task = Runs(GraphPlanner(model).plan(sizes))
    s = simulate(task, profile, governor="none", minutes=1, threads=threads)
    result = np.percentile(quantities(s)["first_minute_runs_s"], (10, 50, 90))
    np.testing.assert_allclose(
        result, (expected.low, expected.median, expected.high), rtol=1e-9
    )  # fmt: skip
    assert s.unit == "run"


def test_dropped_pages_are_read_in_every_run(tmp_path: Path) -> None:
    plan = planned(tmp_path, in_numpy(1))
    profile, size = load_profile("pixel-6"), 8 * 512 * 1024
    slow = replace(profile, memory=replace(profile.memory, storage_gb_s=exactly(0.01)))
    for governor in GOVERNORS:
        s = simulate(Runs(plan, from_storage=True), slow, governor=governor, minutes=1, draws=3)
        np.testing.assert_allclose(quantities(s)["sustained_runs_s"], 0.01e9 / size, rtol=0.001)
    mapped = simulate(Runs(plan), slow, governor="none", minutes=1, draws=3)
    assert quantities(mapped)["sustained_runs_s"].min() > 10 * 0.01e9 / size
    assert s.watts.max() < mapped.watts.min()  # cores wait for storage


def test_more_rows_take_longer(tmp_path: Path, task: Runs) -> None:
    slower = Runs(planned(tmp_path, perceptron(), batch=640))
    few, many = (
        quantities(simulate(one, load_profile("pixel-6"), governor="none", minutes=0.5, draws=5))
        for one in (task, slower)
    )
    ratio = few["first_minute_runs_s"] / many["first_minute_runs_s"]
    assert (ratio > 2).all()
    assert (ratio < 10.1).all()


# ---- energy --------------------------------------------------------------------------------------


@pytest.mark.parametrize("governor", often(GOVERNORS, ["pacing"]))
@pytest.mark.parametrize("workload", [CONTINUOUS, BURSTS])
def test_energy_is_conserved(governor: str, workload: Workload, task: Runs) -> None:
    s = simulate(
        task, load_profile("galaxy-s25"), workload, governor, minutes=5, draws=20, ambient=35
    )
    assert (s.taken_j > 20).all()  # without a governor it is off in seconds
    np.testing.assert_allclose(s.stored_j + s.given_j, s.taken_j, rtol=1e-9)


def test_energy_of_a_run_follows_from_its_time_and_bytes(task: Runs) -> None:
    """A core takes 2 W, the rest 0.5 W, and each byte of the weights 200 pJ."""
    profile = uncached(one_node(resistance=0.1), 200.0)
    assert profile.battery is not None
    battery = replace(profile.battery, capacity_wh=exactly(10))
    profile = replace(profile, battery=battery)
    result = quantities(simulate(task, profile, governor="none", minutes=1, draws=4))
    read = 200e-12 * 4 * (2 * WIDE * DEEP + WIDE + DEEP + DEEP)  # biases, and a row of the table
    np.testing.assert_allclose(
        result["joules_per_run"], (2 + IDLE) / result["sustained_runs_s"] + read, rtol=1e-9
    )
    free = quantities(simulate(task, uncached(profile), governor="none", minutes=1, draws=4))
    np.testing.assert_allclose(result["joules_per_run"] - free["joules_per_run"], read, rtol=1e-6)
    assert (read > 0.05 * result["joules_per_run"]).all()
    np.testing.assert_allclose(result["runs_per_percent"] * result["joules_per_run"], 36 * 10)


# ---- rates and bursts ----------------------------------------------------------------------------


def test_a_camera_limits_the_rate_of_runs(task: Runs) -> None:
    """Cores wait between runs: 2 W for the time that a run computes."""
    profile = one_node(resistance=0.1)
    full = quantities(simulate(task, profile, governor="none", minutes=1, draws=5))
    each = 1 / full["sustained_runs_s"]
    assert (each < 1 / 30).all()
    s = simulate(task, profile, load_workload("30/s", "run"), "none", minutes=2, draws=5)
    result = quantities(s)
    np.testing.assert_allclose(result["sustained_runs_s"], 30, rtol=1e-9)
    np.testing.assert_allclose(result["watts"], IDLE + 2 * 30 * each, rtol=1e-9)
    np.testing.assert_allclose(result["run_spread"], 0, atol=1e-9)
    fast = simulate(task, profile, load_workload("1e6/s", "run"), "none", minutes=1, draws=5)
    np.testing.assert_allclose(quantities(fast)["sustained_runs_s"], full["sustained_runs_s"])


def test_pacing_chooses_frequencies_for_the_rate_of_a_camera(task: Runs) -> None:
    """Frequencies are lower than without the rate, and no run is lost."""

    def unpaced(board: Board) -> Governor:
        return Pacing(replace(board, per_s=inf))

    camera, profile = load_workload("30/s", "run"), load_profile("pixel-6")
    told, other, linux = (
        simulate(task, profile, camera, governor, minutes=3, draws=20)
        for governor in ("pacing", unpaced, "power-allocator")
    )
    for s in (told, other, linux):
        np.testing.assert_allclose(quantities(s)["sustained_runs_s"], 30, rtol=1e-6)
    joules = [quantities(s)["joules_per_run"] for s in (told, other, linux)]
    assert (joules[0] < 0.95 * joules[1]).all()
    assert (joules[1] < joules[2]).all()
    assert (told.megahertz["x1"] < 0.8 * other.megahertz["x1"]).all()
    unasked = quantities(simulate(task, profile, governor="pacing", minutes=3, draws=20))
    assert (unasked["sustained_runs_s"] > 300).all()


def test_bursts_take_time(task: Runs) -> None:
    profile = one_node(resistance=0.1)
    speed = quantities(simulate(task, profile, governor="none", minutes=1, draws=2))
    s = simulate(task, profile, BURSTS, "none", minutes=10, draws=2)
    whole = 2000 / np.minimum(speed["sustained_runs_s"], 400) + 3
    whole += 500 / speed["sustained_runs_s"] + 1
    np.testing.assert_allclose(s.units.sum(axis=0) / 2500, 600 / whole, atol=1)
    np.testing.assert_allclose(s.spent.sum(axis=0), (whole - 4) * 600 / whole, rtol=0.05)


# ---- heat ----------------------------------------------------------------------------------------


@pytest.mark.long  # as of texts, in test_simulate.py
@pytest.mark.parametrize("governor", LIMITING)
def test_governors_hold_the_control_temperature(governor: str, task: Runs) -> None:
    s = simulate(task, one_node(control=40), governor=governor, minutes=40, draws=3)
    soc = s.temperatures["soc"][s.seconds > 1500]
    assert soc.max() < 41.5
    assert soc.mean() > 36
    assert governor == "pacing" or (quantities(s)["throttle_s"] < 600).all()


@pytest.mark.long
def test_a_known_device_is_paced_from_its_first_run(task: Runs) -> None:
    core = replace(cluster(), voltages_mv=Steps(tuple(600.0 + 40 * i for i in range(16))))
    s = simulate(task, one_node([core], control=37), governor="pacing", minutes=60, draws=4)
    np.testing.assert_allclose(s.watts[-1], (37 - 0.3 - AIR) / RESISTANCE, rtol=0.05)
    steps = np.abs(np.diff(s.speed, axis=0)) / s.speed[1:]
    assert steps[1:].max() < 0.02


def test_numpy_computes_on_one_core(tmp_path: Path, task: Runs) -> None:
    """More cores make kernels faster, but not NumPy: pacing uses one core for it."""
    profile = load_profile("pixel-6")
    single = Runs(planned(tmp_path, in_numpy(256)))
    node = list(profile.thermal.nodes).index(profile.thermal.allocator.node)
    assert efficient_points(single, profile, 4, node, 1200.0).threads.max() == 1
    assert efficient_points(task, profile, 4, node, 1200.0).threads.max() > 1
    one, two = (
        single.passes(profile, Draws())[0].seconds(Processor(profile, n, Draws()).rates())[0]
        for n in (1, 2)
    )
    assert one == pytest.approx(two, rel=1e-12)


# ---- its own time --------------------------------------------------------------------------------


@pytest.mark.parametrize("governor", often(GOVERNORS, ["pacing"]))
def test_thousands_of_runs_per_second_are_simulated_quickly(governor: str, tmp_path: Path) -> None:
    net = Net()
    tiny = Runs(planned(tmp_path, net.proto(net.node("Relu", net.input("x", FLOAT, [1, 8])))))
    begin = time.process_time()
    s = simulate(tiny, load_profile("galaxy-s25"), governor=governor, draws=200)
    assert time.process_time() - begin < 20
    assert np.median(quantities(s)["first_minute_runs_s"]) > 5000


# ---- the command ---------------------------------------------------------------------------------


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return saved(tmp_path, perceptron())


def test_text_output(run: Run, path: Path) -> None:
    code, out, _ = run("--device", "pixel-6", "--size", "batch=4", model=path)
    lines = out.splitlines()
    assert code == 0
    assert lines[0].startswith("graph.onnx on Google Pixel 6 (Tensor gs101): 4 threads, power-")
    assert lines[1] == f"a run: x [4, {DEEP}], ids [1]"
    for words in ("whole device, for a run", "spread of runs' times", "first minute "):
        assert any(line.startswith(words) for line in lines), words
    assert "speed runs/s" in out
    assert "token" not in out


def test_json_output(run: Run, path: Path) -> None:
    words = ("--device", "galaxy-s25", "--workload", "30/s", "--governor", "pacing", "--json")
    code, out, _ = run(*words, model=path)
    result = json.loads(out)
    assert code == 0
    assert (result["unit"], result["workload"]) == ("run", "30/s")
    assert result["inputs"] == {"x": [1, DEEP], "ids": [1]}
    assert result["summary"]["sustained_runs_s"]["median"] == pytest.approx(30, rel=1e-3)
    assert {"runs", "joules_per_run", "run_spread", "runs_per_percent"} <= set(result["summary"])
    assert result["series"]["speed"]["unit"] == "runs/s"
    assert "token" not in out


def test_the_plot_shows_runs(task: Runs) -> None:
    s = simulate(task, load_profile("pixel-6"), minutes=0.1, draws=2)
    assert plot.draw(s).axes[0].get_ylabel() == "runs/s"
    assert bands(s)["runs"].median > 0


def test_a_graph_that_does_not_fit(run: Run, path: Path, tmp_path: Path) -> None:
    code, out, error = run("--device", str(write_phone(tmp_path, 1)), model=path)
    assert (code, out) == (1, "")
    assert f"{path}: expected to need at most 1 MB, which an app on phone may take" in error
    assert "`halfbyte fit` says what would fit" in error
    path = saved(tmp_path, in_numpy(1))
    asked = GraphFitter(open_onnx(path), with_app(4000)).fit({}).asked
    tight = write_phone(tmp_path, asked.private / 1e6 + 0.5)
    code, out, _ = run("--device", str(tight), model=path)
    assert code == 0
    assert "MB: weights are read from storage in every run" in out.splitlines()[0]


def test_user_errors(run: Run, path: Path, storyteller: Path, task: Runs) -> None:
    for model, words, expected in (
        (path, ("--workload", "chat"), "'chat': expected continuous, a rate such as 30/s"),
        (path, ("--size", "rows=2"), "size 'rows': expected one of ['batch', 'n']"),
        (path, ("--level", "basic"), "--level is for language models; this is an ONNX graph"),
        (path, ("--weights", "mapped"), "--weights is for language models"),
        (path, ("--context", "64"), "--context is for language models"),
        (path, ("--cache", "f16"), "--cache is for language models"),
        (storyteller, ("--size", "batch=2"), "--size is for ONNX graphs; this is a language model"),
    ):
        code, _, error = run("--device", "pixel-6", *words, model=model)
        assert code == 2
        assert expected in error
    with pytest.raises(HalfbyteError, match="workload chat: runs have no prompts"):
        simulate(task, load_profile("pixel-6"), CHAT)
