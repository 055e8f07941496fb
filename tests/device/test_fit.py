"""Whether a model fits: the bytes, the exit codes and the suggestions."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.support.shapes import zeros

from halfbyte.cli import main
from halfbyte.device.fit import Fitter, Need
from halfbyte.device.profile import Profile, load_profile
from halfbyte.device.quantity import Quantity
from halfbyte.device.room import Fit
from halfbyte.device.smaller import smaller_types
from halfbyte.errors import HalfbyteError
from halfbyte.text import footprint
from halfbyte.text.planning import LEVELS, Given, plan

FEW = 5  # layers, where their number does not matter


def with_app(megabytes: float, low: float = 0.0, high: float = 0.0) -> Profile:
    profile = load_profile("pixel-6")
    limit = Quantity(megabytes, low or megabytes, high or megabytes, "a test")
    return replace(profile, memory=replace(profile.memory, app_mb=limit))


def watch(folder: Path, megabytes: int) -> Path:
    """The file of a profile with this limit for an app."""
    path = folder / "watch.toml"
    text = (Path(load_profile.__code__.co_filename).parent / "profiles/pixel-6.toml").read_text()
    start = text.index("app_mb = ")
    end = text.index("\n", start)
    span = f"[{0.9 * megabytes}, {1.1 * megabytes}]"
    limit = f'app_mb = {{ value = {megabytes}, range = {span}, assumed = "a watch" }}'
    path.write_text(text[:start].replace('"pixel-6"', '"watch"') + limit + text[end:])
    return path


def fit(
    repository: Path, megabytes: float, level: str = "baseline", layers: int = 0, **given: Any
) -> Fit[Need]:
    file = zeros(repository, "smollm2-135m", "Q8_0", layers)
    return Fitter(file, with_app(megabytes)).fit(level, Given(**given))


def test_bytes_are_those_of_the_plan(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the interpreter of the device, which has not imported what this one has."""
    monkeypatch.setattr(footprint, "_at_import", 0)
    expected = plan(zeros(repository, "smollm2-135m", "Q8_0", FEW), LEVELS["baseline"])
    monkeypatch.setattr(footprint, "_at_import", 900_000_000)
    result = fit(repository, 1000, layers=FEW)
    assert result.asked.memory == expected.memory
    assert result.asked.total == result.asked.private == expected.total
    assert fit(repository, result.asked.total / 1e6 + 0.001, layers=FEW).fits
    assert not fit(repository, result.asked.total / 1e6 - 0.001, layers=FEW).fits


def test_pages_that_the_system_may_drop_do_not_count(repository: Path) -> None:
    result = fit(repository, 150, level="basic", context=512)
    assert result.fits
    assert result.asked.total > 150e6 > result.asked.private
    assert result.asked.from_storage  # since pages that do not fit are read repeatedly
    roomy = fit(repository, 1000, level="basic", context=512)
    assert not roomy.asked.from_storage
    assert roomy.asked.decode.median > 5 * result.asked.decode.median


def test_each_suggestion_fits(repository: Path) -> None:
    result = fit(repository, 280)
    assert not result.fits
    assert all(need.fits for need in result.would)
    words = [need.settings for need in result.would]
    (context,) = [int(w.split()[1]) for w in words if w.startswith("--context")]
    assert context % 64 == 0
    assert fit(repository, 280, context=context).fits
    assert not fit(repository, 280, context=context + 64).fits
    assert any(w.startswith("quantize") and w.endswith("--int4") for w in words)
    assert {"--weights mapped", "--level extreme"} <= set(words)


def test_smaller_types_have_the_sizes_of_quantized_files(repository: Path) -> None:
    output = dict(smaller_types(zeros(repository, "smollm2-135m", "F16")))
    for words, file in output.items():
        kind = {"--int8": "Q8_0", "--int4": "Q4_0"}.get(words.split()[-1], "Q4_K_M")
        real = zeros(repository, "smollm2-135m", kind)
        assert {n: t.format for n, t in file.tensors.items()} == {
            n: t.format for n, t in real.tensors.items()
        }
    assert len(output) == 3
    assert not dict(smaller_types(zeros(repository, "smollm2-135m", "Q4_0")))


def test_unknown_sizes_are_reported(repository: Path) -> None:
    file = zeros(repository, "smollm2-135m", "Q4_0", FEW)
    total = plan(file, LEVELS["baseline"]).total / 1e6
    for low, high, sure in ((total - 1, total + 9, False), (total + 1, total + 9, True)):
        asked = Fitter(file, with_app(total + 5, low, high)).fit("baseline", Given()).asked
        assert asked.fits
        assert asked.sure == sure


def test_a_model_that_cannot_fit(repository: Path) -> None:
    result = fit(repository, 30, layers=FEW)
    assert not result.fits
    assert result.would == []


@pytest.mark.long
def test_a_shorter_context_is_tried_with_smaller_levels(repository: Path) -> None:
    """This is tried if no level fits with its own context."""
    least = min(need.private for need in fit(repository, 1000).levels.values()) / 1e6
    result = fit(repository, least - 2)
    assert not any(need.fits for need in result.levels.values())
    last = result.would[-1].settings.split()
    assert (last[0], last[2]) == ("--level", "--context")
    again = fit(repository, least - 2, level=last[1], context=int(last[3]))
    assert again.fits
    assert again.asked.memory == result.would[-1].memory


@pytest.mark.parametrize("threads", [0, -1, 9])
def test_more_cores_than_the_device_has(threads: int, repository: Path) -> None:
    file = zeros(repository, "smollm2-135m", "Q4_0")
    with pytest.raises(HalfbyteError, match=f"threads {threads}: expected 1 to 8"):
        Fitter(file, load_profile("pixel-6"), threads)


def test_exit_codes_and_json(
    storyteller: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["fit", str(storyteller), "--device"]
    assert main([*command, "pixel-6"]) == 0
    assert "fits: with" in capsys.readouterr().out
    small = watch(tmp_path, 20)
    assert main([*command, str(small)]) == 1
    out = capsys.readouterr().out
    assert "DOES NOT FIT" in out
    assert "an app may take 20 MB (18 to 22; assumed: a watch)" in out
    assert main([*command, str(small), "--json"]) == 1
    data = json.loads(capsys.readouterr().out)
    assert data["fits"] is False
    assert data["asked"]["total"] == sum(data["asked"]["memory"].values())
    assert set(data["levels"]) == set(LEVELS)
    assert main([*command, "nokia-3310"]) == 2
    assert "expected one of ['macbook-air-m1'" in capsys.readouterr().err
