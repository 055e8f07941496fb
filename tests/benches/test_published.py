"""The table of published speeds: figures with sources, uses that are never mixed, predictions."""

from __future__ import annotations

import math
import statistics
from pathlib import Path

import pytest
from benches import published
from benches.published import Figure, Row, Spread

from halfbyte.device import kernels
from halfbyte.device.profile import load_profile
from halfbyte.device.schema import read_file
from halfbyte.quantize.presets import presets

PUBLISHED = published.read()
FIGURES = PUBLISHED.figures
BY_USE = {use: [f for f in FIGURES if f.use == use] for use in published.USES}


@pytest.mark.parametrize("figure", FIGURES, ids=lambda f: f"{f.device}-{f.model}-{f.test}")
def test_each_figure_has_a_source_and_can_be_predicted(figure: Figure) -> None:
    assert figure.source.startswith("https://")
    assert figure.use in published.USES
    assert figure.test in published.TESTS
    assert figure.model in PUBLISHED.models
    assert figure.type in presets()
    assert 0 < figure.figure < 1e5
    assert 0 < figure.tokens < 1024  # the context that is planned
    assert figure.threads <= PUBLISHED.profile(figure.profile).cores


def test_uses_are_not_mixed() -> None:
    assert min(map(len, BY_USE.values())) >= 24
    pairs = {use: {(f.device, f.framework) for f in some} for use, some in BY_USE.items()}
    assert len(pairs["judging"]) >= 5
    assert sum(map(len, pairs.values())) == len(set.union(*pairs.values()))
    for some in BY_USE.values():
        assert {f.test for f in some} == set(published.TESTS)


def test_devices_like_others_differ_in_cores_and_memory_alone() -> None:
    pi, rk = load_profile("raspberry-pi-5"), PUBLISHED.profile("rk3588")
    (cluster,) = rk.clusters
    assert (cluster.cores.value, cluster.frequencies_mhz.values) == (4, (2352,))
    assert cluster.int8_ops_per_cycle == pi.clusters[0].int8_ops_per_cycle
    assert rk.memory.bandwidth_gb_s.value == 24.7 != pi.memory.bandwidth_gb_s.value
    assert (rk.overhead, rk.memory.ram_mb) == (pi.overhead, pi.memory.ram_mb)


def test_scales_come_from_the_calibration() -> None:
    scales = read_file(kernels.Scales, Path(kernels.__file__).with_name("arm.toml")).scales
    assert set(scales) == {*kernels.INSTRUCTIONS, "float"}
    calibrated = {f.device for f in BY_USE["calibration"]}
    for scale in scales.values():
        for quantity in (scale.prompt, scale.token, scale.memory):
            assert quantity.low < quantity.value < quantity.high
            assert quantity.low * quantity.high == pytest.approx(quantity.value**2, rel=0.02)
            if quantity.source:
                named = {f.device for f in FIGURES if f.device in quantity.source}
                assert named
                assert named <= calibrated


def test_prompts_are_calibrated_to_the_median_device_and_framework() -> None:
    """For each kind of instructions, of all figures that calibrate."""
    errors: dict[str, dict[tuple[str, str], list[float]]] = {}
    inside = []
    for figure in (f for f in BY_USE["calibration"] if f.test == "prompt"):
        row = published.predict(figure, PUBLISHED)
        of_kind = errors.setdefault(str(PUBLISHED.profile(figure.profile).instructions), {})
        of_kind.setdefault((figure.device, figure.framework), []).append(math.log1p(row.error))
        inside.append(row.inside)
    assert set(errors) == set(kernels.INSTRUCTIONS)
    for of_kind in errors.values():
        assert abs(statistics.median(map(statistics.median, of_kind.values()))) < 0.1
    assert statistics.mean(inside) >= 0.75


def test_cores_of_a_device_may_have_more_pipes() -> None:
    spark, oneplus = PUBLISHED.profile("nvidia-gb10"), load_profile("oneplus-12")
    fast, slow = spark.clusters
    for key in ("int8_ops_per_cycle", "float32_ops_per_cycle"):
        assert getattr(fast, key).value == 1.5 * getattr(oneplus.clusters[0], key).value
        assert getattr(slow, key) == getattr(oneplus.clusters[1], key)


def test_summary_of_a_use_does_not_depend_on_others() -> None:
    def row(use: str, figure: float) -> Row:
        table = {"device": "d", "profile": "p", "framework": "f", "source": "s", "model": "m"}
        of = Figure(**table, type="Q4_0", test="decode", tokens=1, use=use, figure=figure)
        return Row(of, Spread(10.0, 8.0, 12.0))

    calibration = [row("calibration", 8.0), row("calibration", 20.0), row("calibration", 12.5)]
    lines = published.summary([*calibration, row("judging", 1.0)])
    assert lines[:1] == published.summary(calibration)
    assert lines[0] == ["calibration", "decode", "3", "25%", "-20%", "33%", "1.50"]
    assert lines[1] == ["judging", "decode", "1", "900%", "+900%", "0%", "1.50"]
