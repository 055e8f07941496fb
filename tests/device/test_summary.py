"""The summary of a simulation: speeds, spreads and ranges."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.device.devices import one_node, small_plan

from halfbyte.device.profile import load_profile
from halfbyte.device.recording import Simulation
from halfbyte.device.simulate import simulate
from halfbyte.device.speed import Tokens
from halfbyte.device.summary import band, bands, quantities


def simulated(speeds: Any, busy: Any = 1.0, unit: str = "token") -> Simulation:
    """One draw, with a sample per second of these tokens/s (or runs/s)."""
    count = len(speeds)
    answering = np.broadcast_to(np.asarray(busy, float), count)[:, None] * np.ones((1, 1))
    flat = np.ones((count, 1))
    return Simulation(
        one_node(), "m", unit, "none", "x", 25.0, 1, 0, np.arange(1.0, count + 1),
        np.asarray(speeds, float)[:, None] * answering, answering, 2 * flat, flat > 0,
        {"soc": flat.astype(np.float32)}, {"cores": flat.astype(np.float32)},
        100 - np.cumsum(flat, axis=0) / 10, 100 * flat[0], np.full(1, 2.0 * count), flat[0],
        flat[0], flat[0] < 0,
    )  # fmt: skip


def test_summary_of_a_simulation() -> None:
    s = simulated([20] * 60 + [18] * 60 + [10] * 80)
    result = {name: float(values[0]) for name, values in quantities(s).items()}
    assert result["first_minute_tokens_s"] == 20
    assert result["sustained_tokens_s"] == 10
    assert result["kept"] == 0.5
    assert result["throttle_s"] == 61
    assert result["tokens"] == 1200 + 1080 + 800
    assert result["joules_per_token"] == pytest.approx(400 / 3080)
    assert result["watts"] == 2
    assert result["tokens_per_percent"] == pytest.approx(3080 / 20)
    # after a minute 1080 tokens of 1/18 s and 800 of 1/10 s
    assert result["token_spread"] == pytest.approx((1 / 10 - 1 / 18) / (1 / 18))


def test_pauses_do_not_count_as_slow() -> None:
    busy = np.tile([1.0] * 10 + [0.0] * 10, 10)
    s = simulated(np.full(200, 20.0), busy)
    result = quantities(s)
    assert result["sustained_tokens_s"][0] == pytest.approx(20)
    assert np.isinf(result["throttle_s"][0])
    np.testing.assert_allclose(s.speed, 20)
    assert result["token_spread"][0] == 0
    slow = simulated(np.where(np.arange(200) < 160, 20.0, 10.0), busy)
    assert quantities(slow)["throttle_s"][0] == 161


def test_bands_consist_of_values_that_occur() -> None:
    result = band(np.array([3.0, 1.0, np.inf, 2.0, np.inf]))
    assert (result.low, result.median, result.high) == (1, 3, np.inf)


def test_all_quantities_have_bands(storyteller: Path) -> None:
    task = Tokens(small_plan(storyteller))
    s = simulate(task, load_profile("pixel-6"), minutes=0.5, draws=20)
    result, values = bands(s), quantities(s)
    assert set(result) == set(values)
    for name, one in result.items():
        assert one.low <= one.median <= one.high, name
