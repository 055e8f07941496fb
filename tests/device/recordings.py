"""Synthetic recordings of a phone with known parameters, in the format of the files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tools.thermal import fitting
from tools.thermal.traces import Recording

Floats = NDArray[np.float64]

ZONES = ("CPU_BIG", "CPU_LITTLE", "GPU", "BATTERY", "MODEM", "CHASSIS", "AMBIENT")
COLUMNS = ("t_predict", "zone_id", "temp_pred", "T0", "T_ambient", "power_w")
FIRST_STAMP = 1_764_000_000.0


def chips(rng: np.random.Generator, ticks: int) -> dict[str, Floats]:
    """Loads that start and end at different times on each chip, in air of 25 degrees."""
    at = np.arange(ticks)
    zones = {}
    for zone, warmest in (("CPU_BIG", 45), ("CPU_LITTLE", 60), ("GPU", 20), ("MODEM", 25)):
        loads = rng.random(ticks // 100 + 1)[at // 100] * (rng.random(ticks // 400 + 1)[at // 400])
        smooth = np.convolve(loads, np.exp(-np.arange(60) / 8) / 8)[:ticks]
        zones[zone] = 26.0 + warmest * smooth
    return zones


def phone(rng: np.random.Generator, values: Floats, ticks: int, air_c: float = 25.0) -> Recording:
    """The exact temperatures of a phone with the parameters `values` (as in fitting.GUESS)."""
    zones = {**chips(rng, ticks), "CHASSIS": np.full(ticks, 26.5), "BATTERY": np.full(ticks, 26.2)}
    air = np.full(ticks, air_c)
    recording = Recording(Path("phone.npz"), 1.0, zones, air)
    result = fitting.predict(recording, values[None], air_c)[:, 0]
    zones |= {"CHASSIS": result[:, 0], "BATTERY": result[:, 1], "AMBIENT": air}
    return recording


def arrays(recording: Recording) -> dict[str, NDArray[Any]]:
    """The arrays of a file."""
    count, ticks = len(ZONES), len(recording.air_c)
    rows = np.zeros((ticks, count, len(COLUMNS)), np.float32)
    rows[:, :, 0] = (FIRST_STAMP + recording.tick_s * np.arange(ticks))[:, None]
    rows[:, :, 1] = np.arange(count)
    rows[:, :, 3] = np.stack([recording.zones[zone] for zone in ZONES], axis=1)
    rows[:, :, 4] = recording.air_c[:, None]
    return {
        "predictions": rows.reshape(-1, len(COLUMNS)),
        "column_names": np.array(COLUMNS),
        "zone_names": np.array(ZONES),
    }


def save(path: Path, content: dict[str, NDArray[Any]]) -> Path:
    """Write an .npz as recorders do."""
    np.savez_compressed(path, **content)  # type: ignore[arg-type]
    return path
