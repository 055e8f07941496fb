"""The cost model: the program's work, the roofline's time, and measured fractions."""

from __future__ import annotations

import os
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from tests.support.shapes import zeros

from halfbyte.cli import main
from halfbyte.core.backends.native import NativeExecutable
from halfbyte.device import machine, storage, timing
from halfbyte.device import measure as measuring
from halfbyte.device.cost import Cost, Rates, work_of
from halfbyte.device.kernels import Kernel, arm_kernels, kernel_of, usual_kernels
from halfbyte.device.machine import machine_profile
from halfbyte.device.measure import Measured, kernels_of
from halfbyte.device.profile import Profile, load_profile, profile_names
from halfbyte.device.quantity import Draws, Quantity
from halfbyte.device.schema import read_file
from halfbyte.device.speed import Pass, Processor, Speed, fast_cores
from halfbyte.device.toml_writer import to_toml
from halfbyte.text.planning import LEVELS, Plan, Settings, plan

TOKEN, PROMPT = {"n": 1, "position": 64, "rows": 1}, {"n": 128, "position": 0, "rows": 1}

MEASURED = Measured(
    {1: 2e10}, {1: 4e11}, 1e11, 1e-7, 3e-6, {"matmul_int8_q4_0": (0.7, 0.3, 0.8)}
)  # fmt: skip


@pytest.fixture(scope="module")
def planned(repository: Path) -> Plan:
    return plan(zeros(repository, "smollm2-135m", "Q4_0"), Settings(512, weights="packed"))


def rates(**changes: float) -> Rates:
    values = {
        "int8": 1e12,
        "float32": 1e11,
        "memory": 1e10,
        "cores": 1.0,
        "launch": 0.0,
        "call": 0.0,
    }
    return Rates(**{k: np.array([v]) for k, v in (values | changes).items()})


def test_work_follows_from_shapes(planned: Plan) -> None:
    dim, hidden, kv, layers, vocabulary = 576, 1536, 192, 30, 49152
    weights = layers * (2 * dim * dim + 2 * dim * kv + 3 * dim * hidden)
    for registers in (TOKEN, PROMPT):
        work = work_of(planned.program, registers, planned.to_pack)
        products = work["matmul_int8_q4_0"]
        assert products.calls == 7 * layers
        assert products.operations == 2 * registers["n"] * weights
        assert products.held == weights * 18 // 32
        assert work["matmul_int8_q8_0"].operations == 2 * dim * vocabulary  # the head, one row
        assert work["attention_f16"].calls == layers


def test_roofline(planned: Plan) -> None:
    """Twice the bandwidth halves the time of memory-bound kernels only; so does twice the peak."""
    kernels = dict.fromkeys(
        usual_kernels(), Kernel("int8", *[Quantity(1.0, 1.0, 1.0, "a test")] * 3)
    )
    token, prompt = (
        Cost(planned.program, r, kernels, to_pack=planned.to_pack) for r in (TOKEN, PROMPT)
    )
    slow, fast = rates(memory=1e9), rates(memory=2e9)
    assert token.seconds(slow)[0] == pytest.approx(2 * token.seconds(fast)[0], rel=0.02)
    weak, strong = (rates(int8=x, memory=1e13) for x in (1e10, 2e10))
    assert prompt.seconds(weak)[0] == pytest.approx(2 * prompt.seconds(strong)[0])
    work = token.work.values()
    calls, held = sum(w.calls for w in work), sum(w.held for w in work)
    overhead = token.seconds(rates(memory=1e15, int8=1e18, launch=1e-3, call=0.5))[0]
    assert overhead == pytest.approx(0.5 + 1e-3 * calls, rel=1e-3)
    assert token.bytes_read == held
    cached = Cost(planned.program, TOKEN, kernels, to_pack=planned.to_pack, cached=True)
    assert cached.seconds(rates(int8=1e18))[0] < 1e-6


def test_unmeasured_kinds_use_similar_kinds() -> None:
    usual = usual_kernels()
    assert kernel_of("matmul_int8_q5_k", {}) == usual["matmul_int8_q4_k"]
    assert kernel_of("matmul_int8_q5_k_rows", {}) == usual["matmul_int8_q4_k_rows"]
    assert kernel_of("silu", {}) == usual["swiglu_quantize"]
    assert kernel_of("something_new", {}) == usual["rms_norm_quantize"]
    mine = replace(usual["matmul_f16"], arithmetic="int8")
    assert kernel_of("matmul_f16", {"matmul_f16": mine}) == mine


def test_cores_and_frequencies() -> None:
    profile = load_profile("pixel-6")
    assert fast_cores(profile) == 4  # two X1, two A76; four A55 are too slow
    one, four = (Processor(profile, n, Draws()) for n in (1, 4))
    fastest = profile.clusters[0]
    peak = fastest.frequencies_mhz.values[-1] * 1e6 * fastest.int8_ops_per_cycle.value
    assert one.rates().int8[0] == pytest.approx(peak)
    assert one.rates().memory[0] == profile.memory.core_bandwidth_gb_s.value * 1e9
    every = Processor(profile, profile.cores, Draws()).rates().memory[0]
    assert every == pytest.approx(profile.memory.bandwidth_gb_s.value * 1e9)
    assert 2 * one.rates().memory[0] > four.rates().memory[0] < every
    half = [np.array([c.highest / 2]) for c in one.used]
    assert one.rates(half).int8[0] == pytest.approx(peak / 2)
    assert one.rates(half).launch[0] == pytest.approx(2 * one.rates().launch[0])


def test_cores_wait_for_the_last_chunk() -> None:
    """Half a chunk of the slowest core: nothing on one core, more where cores differ."""

    def waiting(name: str, threads: int) -> float:
        return float(np.max(Processor(load_profile(name), threads, Draws()).rates().waiting))

    assert waiting("raspberry-pi-5", 1) == 0
    assert waiting("raspberry-pi-5", 2) == pytest.approx((2 - 1) / (2 * 4 * 2))
    assert waiting("raspberry-pi-5", 4) == pytest.approx((4 - 1) / (2 * 4 * 4))
    assert waiting("oneplus-12", 4) > waiting("raspberry-pi-5", 4)  # an X4 and three A720


def test_threads_meet_for_each_instruction() -> None:
    """Each doubling takes the same time; one thread meets no other."""
    profile = load_profile("raspberry-pi-5")
    one, two, four = (
        float(Processor(profile, n, Draws()).rates().meeting[0]) * 1e6 for n in (1, 2, 4)
    )
    assert one == 0
    assert four == pytest.approx(2 * two)
    assert 0.4 < two < 3.6


def test_cores_share_the_memory() -> None:
    """Each adds less than the one before, and those with fewer pipes less; all take all of it."""
    profile = load_profile("oneplus-12")
    read = [
        float(Processor(profile, n, Draws()).rates().memory[0]) for n in range(1, profile.cores + 1)
    ]
    added = [after - before for before, after in pairwise([0.0, *read])]
    assert added == sorted(added, reverse=True)
    assert added[-1] > 0
    assert read[0] == profile.memory.core_bandwidth_gb_s.value * 1e9
    assert read[-1] == pytest.approx(profile.memory.bandwidth_gb_s.value * 1e9)
    big, little = profile.clusters[0], profile.clusters[-1]
    alone = [replace(profile, clusters=(big, one)) for one in (replace(big, name="x"), little)]
    both, mixed = (Processor(p, 2, Draws()).rates().memory[0] for p in alone)
    assert mixed < both


def test_one_core_does_what_is_too_small_to_divide(planned: Plan) -> None:
    """Norms of a token; not those of a prompt, and no products."""
    profile = load_profile("raspberry-pi-5")
    speed = Speed(planned, profile, Draws())
    norms, product = "rms_norm_quantize", "matmul_int8_q4_0"

    def seconds(part: Pass, threads: int, kind: str) -> float:
        rates = Processor(profile, threads, Draws()).rates()
        rates = replace(rates, launch=np.zeros(1), meeting=np.zeros(1))
        return float(dict(part.cost.by_kind(rates))[kind][0])

    assert seconds(speed.token, 4, norms) >= seconds(speed.token, 1, norms)
    assert seconds(speed.prompt, 4, norms) < 0.3 * seconds(speed.prompt, 1, norms)
    assert seconds(speed.token, 4, product) < seconds(speed.token, 1, product)


@pytest.mark.parametrize("name", ["oneplus-12", "raspberry-pi-5"])
def test_speed_rises_with_each_limit(name: str, planned: Plan) -> None:
    """Faster memory, more operations, more of the same cores: never slower."""
    profile, draws = load_profile(name), Draws()

    def speeds(of: Profile, threads: int) -> list[float]:
        speed, rates = Speed(planned, of, draws), Processor(of, threads, draws).rates()
        return [1 / float(part.seconds(rates)[0]) for part in (speed.token, speed.prompt)]

    def faster(quantity: Quantity) -> Quantity:
        return replace(quantity, value=1.2 * quantity.value)

    base = speeds(profile, 4)
    memory = replace(profile.memory, bandwidth_gb_s=faster(profile.memory.bandwidth_gb_s))
    clusters = tuple(
        replace(c, int8_ops_per_cycle=faster(c.int8_ops_per_cycle)) for c in profile.clusters
    )
    for other in (replace(profile, memory=memory), replace(profile, clusters=clusters)):
        assert all(new >= old for new, old in zip(speeds(other, 4), base, strict=True))
    prompts = [speeds(profile, threads)[1] for threads in (1, 2, 4)]
    assert prompts == sorted(prompts)
    usual = speeds(replace(profile, instructions=None), 4)
    assert base[1] < 0.7 * usual[1]  # as Arm's cores are further from their peak


def test_arm_scales_products_only() -> None:
    usual, scaled = usual_kernels(), arm_kernels("i8mm")
    assert "rms_norm" not in scaled
    assert "matmul_panels" not in scaled
    kind = "matmul_int8_q4_0"
    assert scaled[kind].prompt.value < 0.5 * usual[kind].prompt.value
    assert scaled[f"{kind}_rows"].memory == usual[f"{kind}_rows"].memory
    assert not arm_kernels(None)
    assert load_profile("pixel-6").fractions == arm_kernels("dotprod")
    mine = replace(usual[kind], arithmetic="float32")
    profile = replace(load_profile("pixel-6"), kernels={kind: mine})
    assert profile.fractions[kind] == mine


def test_multiples_of_a_factor_are_off_together() -> None:
    """So that a mixture of types of weights is as uncertain as one type."""
    one, other = (arm_kernels("dotprod")[f"matmul_int8_{t}"].prompt for t in ("q4_0", "q6_k"))
    assert one.value != other.value
    draws = Draws(np.random.default_rng(0), 4000)
    drawn = draws(one)
    np.testing.assert_allclose(draws(other) / other.value, drawn / one.value)
    assert one.low <= drawn.min() < drawn.max() <= one.high
    low, median, high = np.percentile(drawn / one.value, (10, 50, 90))
    assert (low * high, median) == pytest.approx((1, 1), rel=0.03)
    assert 1.5 < high < 1.7  # what docs/device.md says of pairs that were never seen
    assert list(Draws()(one)) == [pytest.approx(one.value)]
    assert not np.array_equal(Draws(np.random.default_rng(1), 4000)(one), drawn)
    apart = draws(arm_kernels("dotprod")["matmul_int8_q4_0"].token)
    assert abs(np.corrcoef(apart, drawn)[0, 1]) < 0.1


def test_draws_are_within_their_ranges(planned: Plan) -> None:
    profile = load_profile("pixel-6")
    draws = Draws(np.random.default_rng(0), 100)
    speed, cpu = Speed(planned, profile, draws), Processor(profile, 4, draws)
    seconds = speed.token.seconds(cpu.rates())
    assert seconds.shape == (100,)
    assert len(set(seconds)) == 100
    middle = Speed(planned, profile, Draws()).token.seconds(Processor(profile, 4, Draws()).rates())
    assert seconds.min() < middle[0] < seconds.max()


def test_streamed_weights_are_bound_by_storage(planned: Plan) -> None:
    profile = load_profile("pixel-6")
    storage = profile.memory.storage_gb_s.value * 1e9
    cpu = Processor(profile, 4, Draws())
    speed = Speed(planned, profile, Draws(), from_storage=True)
    assert speed.token.seconds(cpu.rates())[0] == pytest.approx(
        speed.token.cost.weight_bytes / storage
    )


@pytest.mark.parametrize("name", profile_names())
def test_every_device_has_a_plausible_speed(name: str, repository: Path) -> None:
    """A 135M model in int4 decodes faster than a token in three seconds, slower than memory."""
    profile = load_profile(name)
    planned = plan(zeros(repository, "smollm2-135m", "Q4_0"), LEVELS["baseline"])
    cpu = Processor(profile, fast_cores(profile), Draws())
    speed = Speed(planned, profile, Draws())
    per_second = 1 / speed.token.seconds(cpu.rates())[0]
    assert 0.3 < per_second < profile.memory.bandwidth_gb_s.value * 1e9 / 76e6


def test_measured_fractions_predict_what_was_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """Predictions equal the times that were measured, for each kind."""
    monkeypatch.setattr(measuring, "TYPES", ("Q4_0", "F32"))
    monkeypatch.setattr(timing, "_LARGE", timing._SMALL)
    monkeypatch.setattr(timing, "_IN_MEMORY", timing._IN_CACHE)
    monkeypatch.setattr(timing, "_PASSES", 3)
    steps: list[str] = []
    result = measuring.measure(1, steps.append)
    assert steps == ["storage, memory and dot product", "Q4_0", "F32", "graphs"]
    timed = timing._time_decoder(timing._SMALL, "Q4_0", "packed", (PROMPT,))[0]
    mine = kernels_of(result, "a test")
    assert {"matmul_int8_q4_0", "matmul_int8_q4_0_rows", "matmul_f32"} <= set(mine)
    graphs = {"matmul_panels", "matmul_quantized", "attention", "conv2d", "move", "numpy"}
    assert graphs <= set(mine)
    assert set(mine) <= set(usual_kernels())  # which the shipped file has too
    work, fraction = timed.work["matmul_int8_q4_0"], mine["matmul_int8_q4_0"].prompt.value
    predicted = work.operations / (fraction * result.int8[1])
    assert 0.25 < predicted / timed.seconds["matmul_int8_q4_0"] < 4  # whatever else runs


def test_times_without_a_clock_in_c(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a tab, the time in which Python calls single instructions does not count."""
    token = {"n": 1, "position": 256, "rows": 1}
    (clocked,) = timing._time_decoder(timing._SMALL, "Q4_0", "packed", (token,))
    monkeypatch.setattr(NativeExecutable, "has_clock", False)
    (result,) = timing._time_decoder(timing._SMALL, "Q4_0", "packed", (token,))
    assert result.work == clocked.work
    ratio = sum(result.seconds.values()) / sum(clocked.seconds.values())
    assert 0.5 < ratio < 1.6  # with it, 2 and more


def test_profile_of_this_machine_is_read_back(tmp_path: Path) -> None:
    measured = Measured(
        {1: 2e10, 2: 3e10}, {1: 4e11, 2: 7e11}, 1e11, 1e-7, 3e-6,
        {"matmul_int8_q4_0": (0.7, 0.3, 0.8), "rms_norm": (0.2, 0.1, 1.0)},
    )  # fmt: skip
    output = machine_profile(measured)
    path = tmp_path / "this-machine.toml"
    path.write_text(to_toml(output), encoding="utf-8")
    assert read_file(type(output), path) == output
    assert output.int8_gops == pytest.approx(700, rel=1e-3)
    assert output.memory.bandwidth_gb_s.value == 30
    assert output.memory.storage_gb_s.assumed
    measured.storage = 5e8
    assert machine_profile(measured).memory.storage_gb_s.value == 0.5
    measured.cache = 1 << 24
    assert machine_profile(measured).memory.cache_mb.value == 16.777216
    assert output.kernels["matmul_int8_q4_0"].prompt.value == 0.7
    assert output.kernels["rms_norm"].arithmetic == "float32"


def test_storage_is_measured_without_a_trace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(storage, "_SIZE", 8 << 20)
    if hasattr(os, "posix_fadvise"):
        assert 1e6 < (storage.storage_speed(tmp_path) or 0) < 1e12
    assert storage.storage_speed(tmp_path / "missing") is None
    monkeypatch.delattr(os, "posix_fadvise", raising=False)
    assert storage.storage_speed(tmp_path) is None
    assert list(tmp_path.iterdir()) == []


def test_measure_on_the_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.setattr(measuring, "measure", lambda threads, step: MEASURED)
    assert main(["device", "measure"]) == 0
    assert "this-machine.toml" in capsys.readouterr().out
    assert main(["device", "show", "this-machine"]) == 0
    assert "halfbyte device measure, 20" in capsys.readouterr().out
    assert [p.name for p in (tmp_path / "halfbyte/devices").iterdir()] == ["this-machine.toml"]
    assert main(["device", "measure"]) == 0  # its own is replaced
    assert "wrote" in capsys.readouterr().out
    for words in (["--name", "../evil"], ["--threads", "0"]):
        assert main(["device", "measure", *words]) == 2
        assert "expected" in capsys.readouterr().err


def test_measure_does_not_replace_other_profiles(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """This is checked before measuring; unreadable files are not replaced either."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.setattr(measuring, "measure", lambda threads, step: MEASURED)
    path = tmp_path / "halfbyte/devices/my-pc.toml"
    path.parent.mkdir(parents=True)
    shipped = Path(machine.__file__).parent / "profiles/pixel-6.toml"
    written = shipped.read_text(encoding="utf-8").replace('"pixel-6"', '"my-pc"')
    for text in (written, "name = 'my"):
        path.write_text(text, encoding="utf-8")
        assert main(["device", "measure", "--name", "my-pc"]) == 2
        error = capsys.readouterr().err
        assert "my-pc.toml: exists already" in error
        assert "expected another --name, or --force to replace it" in error
        assert path.read_text(encoding="utf-8") == text
    assert main(["device", "measure", "--name", "my-pc", "--force"]) == 0
    assert machine.is_measured(load_profile("my-pc"))


def test_medians_of_passes() -> None:
    """Each fraction is a median of its own; kinds and limits are those of the last pass."""
    fractions = [(0.3, 0.5, 0.9), (0.1, 0.6, 0.7), (0.2, 0.4, 0.8)]
    passes = [
        Measured({1: float(number)}, {1: 1.0}, kernels={"matmul_f32": one})
        for number, one in enumerate(fractions)
    ]
    output = measuring.medians(passes)
    assert output.kernels == {"matmul_f32": (0.2, 0.5, 0.8)}
    assert output.bandwidth == {1: 2.0}
