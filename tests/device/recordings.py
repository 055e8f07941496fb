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
# Where fitting.predict begins without knowing better
BATTERY, REST_W = 26.2, 0.8


def dies(rng: np.random.Generator, ticks: int) -> Floats:
    """Temperatures [ticks, 2]: idle for four minutes, then loads that start and end."""
    at, columns = np.arange(ticks), []
    for warmest in (45, 60):
        loads = rng.random(ticks // 100 + 1)[at // 100] * (rng.random(ticks // 400 + 1)[at // 400])
        loads[:240] = 0.01
        smooth = np.convolve(loads, np.exp(-np.arange(60) / 4) / 4)[:ticks]
        columns.append(28.0 + warmest * smooth)
    return np.stack(columns, axis=1)


def phone(rng: np.random.Generator, values: Floats, ticks: int, tick_s: float = 1.0) -> Recording:
    """The exact temperatures of a phone with the parameters `values` (as in fitting.GUESS)."""
    network = fitting.network(values[None])
    air = BATTERY - REST_W / network.to_ambient[0, network.nodes.index("body")]
    driven, course = network.driven(fitting.DIES, tick_s), dies(rng, ticks)
    power = np.zeros((ticks, 1, len(driven.free)))
    power[:, :, driven.free.index("chassis")] = REST_W
    start = {"gpu": 28.0, "chassis": 27.5, "battery": BATTERY, "body": BATTERY}
    first = np.array([[start[name] for name in driven.free]])
    free = dict(zip(driven.free, driven.run(first, course, air, power)[:, 0].T, strict=True))
    zones = {
        "CPU_BIG": course[:, 0], "CPU_LITTLE": course[:, 1], "GPU": free["gpu"],
        "BATTERY": free["battery"], "MODEM": free["gpu"] + 0.5, "CHASSIS": free["chassis"],
        "AMBIENT": np.full(ticks, air),
    }  # fmt: skip
    return Recording(Path("phone.npz"), tick_s, zones, zones["AMBIENT"])


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
