"""Models in a browser tab: the bytes in its heap, the speed and the suggestions."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.device.test_fit_graphs import perceptron, saved
from tests.support.shapes import zeros

from halfbyte.cli import main
from halfbyte.cli.fit import _verdict
from halfbyte.core.ops.operator import OPERATORS
from halfbyte.device.fit import Fitter, Need
from halfbyte.device.graphs import GraphFitter, GraphNeed
from halfbyte.device.kernels import ROWS, arm_kernels, usual_kernels
from halfbyte.device.profile import Profile, load_profile
from halfbyte.device.quantity import Quantity
from halfbyte.device.room import Fit
from halfbyte.device.schema import read_file
from halfbyte.device.tab import WIDE_BYTES, Tab, in_tab, usual_tab
from halfbyte.device.toml_writer import to_toml
from halfbyte.download.transfer import ARRAY_BYTES, HEAP_BYTES
from halfbyte.errors import HalfbyteError
from halfbyte.onnx.files import open_onnx
from halfbyte.text.footprint import FILE, REST_BYTES, TAB_BYTES
from halfbyte.text.opening import open_model
from halfbyte.text.planning import Given, Settings, plan


def with_tab(megabytes: float, low: float = 0.0, high: float = 0.0) -> Profile:
    """A phone with these limits for a tab and an app."""
    profile = load_profile("pixel-6")
    tab = Quantity(megabytes, low or megabytes, high or megabytes, "a test")
    app = Quantity(8000, 8000, 8000, "a test")
    return replace(profile, memory=replace(profile.memory, tab_mb=tab, app_mb=app))


def fit(
    repository: Path, megabytes: float, kind: str = "Q8_0", layers: int = 0, **given: Any
) -> Fit[Need]:
    file = zeros(repository, "smollm2-135m", kind, layers)
    return Fitter(file, with_tab(megabytes), tab=True).fit("baseline", Given(**given))


@pytest.mark.parametrize("kind", ["Q4_0", "F16"])
def test_the_heap_has_the_file_once(storyteller: Path, tmp_path: Path, kind: str) -> None:
    from halfbyte.quantize import quantize_file

    path = tmp_path / "model.gguf"
    quantize_file(storyteller, {"Q4_0": "int4", "F16": "fp16"}[kind], path)
    file = open_model(path)
    memory = Fitter(file, with_tab(1000), tab=True).fit("baseline", Given()).asked.memory
    planned = plan(file, Settings(weights="packed"))
    assert memory["model's file"] == pytest.approx(path.stat().st_size, abs=4096)  # of padding
    assert memory["interpreter"] == TAB_BYTES + REST_BYTES
    for key in ("KV cache", "activations", "constants"):
        assert memory[key] == planned.memory[key]
    assert not any(n for key, n in memory.items() if key.startswith("weights"))


def test_a_tab_s_limit_decides(repository: Path) -> None:
    total = fit(repository, 1000, layers=5).asked.total
    roomy, tight = (fit(repository, total / 1e6 + off, layers=5) for off in (0.001, -0.001))
    assert (roomy.fits, tight.fits) == (True, False)
    assert (roomy.place, roomy.threads) == ("tab", 1)
    assert roomy.limit_mb.value == pytest.approx(total / 1e6 + 0.001)
    assert roomy.asked.private == total
    assert not roomy.asked.from_storage
    assert list(roomy.levels) == ["baseline"]


@pytest.mark.parametrize("addressed", [HEAP_BYTES, WIDE_BYTES])
def test_no_tab_has_more_than_is_addressed(addressed: int) -> None:
    large = in_tab(with_tab(64_000, 2000, 99_000), addressed).memory.tab_mb
    assert (large.low, large.value, large.high) == (2000, addressed / 1e6, addressed / 1e6)


@pytest.mark.long
def test_a_model_beyond_32_bits(repository: Path) -> None:
    """Its file is no array, and may be larger than one; 64 bits end at 16 GiB."""
    file = zeros(repository, "mistral-7b", "Q4_0")
    result = Fitter(file, with_tab(64_000), tab=True).fit("baseline", Given(context=4096))
    assert result.asked.memory[FILE] > ARRAY_BYTES
    assert HEAP_BYTES < result.asked.private < WIDE_BYTES
    assert result.fits
    assert "it needs 64-bit memory" in _verdict(result)
    assert "64-bit" not in _verdict(fit(repository, 1000))
    large = Fitter(zeros(repository, "mistral-7b", "F32"), with_tab(64_000), tab=True)
    assert not large.fit("baseline", Given()).fits


def test_a_graph_larger_than_an_array_fits_no_tab(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However much memory there is; smaller types do."""
    sizes = {"batch": 8, "n": 3}
    size = graph(tmp_path, 64_000, sizes).asked.memory[FILE]
    assert graph(tmp_path, 64_000, sizes).fits
    assert graph(tmp_path, 64_000, sizes).limit_mb.value == HEAP_BYTES / 1e6
    monkeypatch.setattr("halfbyte.device.room.ARRAY_BYTES", size - 1)
    result = graph(tmp_path, 64_000, sizes)
    assert (result.fits, result.asked.sure) == (False, True)
    assert result.would
    assert all(need.memory[FILE] < size for need in result.would)
    assert f"DOES NOT FIT: the file has {size / 1e6:.0f} MB; an array has" in _verdict(result)


@pytest.mark.long
def test_each_suggestion_fits(repository: Path) -> None:
    result = fit(repository, 255)
    assert not result.fits
    assert all(need.fits for need in result.would)
    words = [need.settings for need in result.would]
    (context,) = [int(w.split()[1]) for w in words if w.startswith("--context") and " " in w][:1]
    assert fit(repository, 255, context=context).fits
    assert not fit(repository, 255, context=context + 64).fits
    assert fit(repository, 255, cache="q8_0").fits == ("--cache q8_0" in words)
    assert any(w.endswith("--int4") for w in words)
    assert words[-1] == "--context 1024 --cache smallest --batch 16"
    least = fit(repository, 255, context=1024, cache="smallest", batch=16).asked
    assert result.would[-1].memory == least.memory
    assert not any("--weights" in w or "--level" in w for w in words)


def test_a_smaller_type_is_a_smaller_file(repository: Path) -> None:
    result = fit(repository, 330, "F16", context=512)
    by_words = {need.settings.split()[-1]: need for need in result.would}
    real = fit(repository, 330, "Q8_0", context=512)
    assert by_words["--int8"].memory["model's file"] == pytest.approx(
        real.asked.memory["model's file"], rel=0.001
    )


@pytest.mark.parametrize("weights", ["mapped", "streamed"])
def test_mapped_and_streamed_weights_are_refused_in_a_tab(repository: Path, weights: str) -> None:
    fitter = Fitter(zeros(repository, "smollm2-135m", "Q4_0"), with_tab(500), tab=True)
    with pytest.raises(HalfbyteError, match=f"weights '{weights}' in a tab: expected 'packed'"):
        fitter.fit("baseline", Given(weights=weights))
    level = {"mapped": "basic", "streamed": "extreme"}[weights]
    with pytest.raises(HalfbyteError, match=f"weights '{weights}' in a tab"):
        fitter.fit(level, Given())
    assert fitter.fit(level, Given(weights="packed", context=64)).fits


def test_a_tab_is_slower_than_one_core_of_an_app(repository: Path) -> None:
    """According to interleaved measurements: 3 to 10 times for prompts, less for decoding."""
    file = zeros(repository, "smollm2-135m", "Q4_0")
    tab, app = (
        Fitter(file, with_tab(1000), 1, tab=tab).fit("baseline", Given()).asked
        for tab in (True, False)
    )
    assert 3 < app.prompt.median / tab.prompt.median < 10
    assert 1.2 < app.decode.median / tab.decode.median < 5
    assert tab.decode.high / tab.decode.low > app.decode.high / app.decode.low


def test_every_kind_was_measured_in_a_tab(tmp_path: Path) -> None:
    """Kernels for weights in file order are the exception: a tab always packs."""
    kinds = {kind for kind in usual_kernels() if kind in OPERATORS or not kind.endswith(ROWS)}
    assert usual_tab().kernels.keys() == kinds
    path = tmp_path / "tab.toml"
    path.write_text(to_toml(usual_tab()))
    assert to_toml(read_file(Tab, path)) == to_toml(usual_tab())


def test_native_measurements_are_not_used_for_tabs() -> None:
    profile = load_profile("pixel-6")
    measured = replace(profile, kernels=usual_kernels())
    result = in_tab(measured)
    assert result.kernels == usual_tab().kernels
    ratio = result.overhead.call_us.value / profile.overhead.call_us.value
    assert ratio == pytest.approx(usual_tab().call.value)


def test_a_tab_is_no_surer_than_an_app() -> None:
    """Factors on what Arm's cores reach belong to the device, so its tab has their ranges too."""
    app = load_profile("pixel-6")
    tab = in_tab(app)
    scaled = arm_kernels(app.instructions)
    factors = [kind for kind in tab.kernels if kind in scaled]
    assert "matmul_int8_q4_0" in factors
    for kind in factors:
        for part in ("prompt", "token", "memory"):
            here, there = getattr(tab.kernels[kind], part), getattr(app.fractions[kind], part)
            assert here.value == getattr(usual_tab().kernels[kind], part).value
            assert here.low / here.value < there.low / there.value
            assert here.high / here.value > there.high / there.value


def graph(tmp_path: Path, megabytes: float, sizes: Mapping[str, int]) -> Fit[GraphNeed]:
    model = open_onnx(saved(tmp_path, perceptron()))
    return GraphFitter(model, with_tab(megabytes), tab=True).fit(sizes)


def test_a_graph_needs_its_file_and_packed_weights(tmp_path: Path) -> None:
    sizes = {"batch": 8, "n": 3}
    result = graph(tmp_path, 1000, sizes)
    memory, size = result.asked.memory, (tmp_path / "graph.onnx").stat().st_size
    assert memory["model's file"] == pytest.approx(size, rel=0.01)
    assert memory["weights (packed)"] >= 4 * 2 * 512 * 256
    assert "weights (mapped)" not in memory
    assert result.asked.private == result.asked.total
    assert (result.place, result.threads, result.levels) == ("tab", 1, {})
    total = result.asked.total / 1e6
    assert graph(tmp_path, total + 0.001, sizes).fits
    tight = graph(tmp_path, total - 0.001, sizes)
    assert not tight.fits
    words = [need.settings for need in tight.would]
    assert any(w.startswith("--size batch=") for w in words)
    assert any(w.endswith("--int4") for w in words)
    assert all(need.fits for need in tight.would)
    half = next(need for need in tight.would if need.settings.endswith("--fp16"))
    saved_bytes = memory["model's file"] - half.memory["model's file"]
    assert saved_bytes == 2 * (2 * 512 * 256 + 1000 * 256)


def test_command(storyteller: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["fit", str(storyteller), "--device", "android-go-2gb", "--tab"]
    assert main(command) == 0
    out = capsys.readouterr().out
    assert "a tab may take 350 MB (200 to 500; WebAssembly/design issue 1397" in out
    assert "on one core, while the device is cool" in out
    assert main([*command, "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert (data["place"], data["fits"]) == ("tab", True)
    assert data["asked"]["total"] == sum(data["asked"]["memory"].values())
    for options, words in (
        (["--level", "extreme"], "weights 'streamed' in a tab: expected 'packed'"),
        (["--threads", "2"], "--threads 2: a tab computes on one thread"),
    ):
        assert main([*command, *options]) == 2
        assert words in capsys.readouterr().err
    text = Path(load_profile.__code__.co_filename).parent / "profiles/pixel-6.toml"
    tiny = tmp_path / "tiny.toml"
    lines = text.read_text().replace('"pixel-6"', '"tiny"').splitlines()
    limit = 'tab_mb = { value = 20, range = [18, 22], assumed = "a watch" }'
    tiny.write_text("\n".join(limit if x.startswith("tab_mb") else x for x in lines))
    assert main(["fit", str(storyteller), "--device", str(tiny), "--tab"]) == 1
    assert "DOES NOT FIT" in capsys.readouterr().out
    path = saved(tmp_path, perceptron())
    assert main(["fit", str(path), "--device", "pixel-6", "--tab", "--size", "batch=4"]) == 0
    assert "a tab may take 1000 MB" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        main(["fit", "--help"])
    assert "--tab" in capsys.readouterr().out
