"""Recordings of a phone's temperatures, in the format of the S25+ recordings (s25_*.npz).

A recording is an npz of three arrays. `predictions` [rows, columns], floats, has a row per zone and
tick. The zones of a tick are in the order of `zone_names`; the first and last tick may be partial.
These columns (`column_names`) are used: `zone_id` (the index of a zone), `T0` (its temperature at
that tick, Celsius), `T_ambient`, and `t_predict` (seconds, so coarse in float32 that only a whole
file determines the length of a tick). `temp_actual` is T0 a minute later, `temp_pred` the forecast
of another model; power was not recorded. `T_ambient` is the recorder's estimate from the battery's
temperature: it follows the phone, even to 37 degrees in a cold room, so it is near the air's
temperature only while the phone rests.

Files are not trusted; see `formats.npz`.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from halfbyte.errors import FormatError
from halfbyte.formats.npz import read_npz

MAX_BYTES = 64 << 20  # of an array: 88 hours in float32
COLDEST, HOTTEST = -60.0, 200.0  # temperatures that a phone's sensor may report
LONGEST_TICK_S = 60.0
ARRAYS = ("predictions", "column_names", "zone_names")
COLUMNS = ("t_predict", "zone_id", "T0", "T_ambient")

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Recording:
    """Temperatures [ticks] by zone, named as in the file ("CPU_BIG", ...).

    `tick_s` is the length of a tick in seconds, `air_c` [ticks] the recorder's estimate of the air.
    """

    path: Path
    tick_s: float
    zones: dict[str, Floats]
    air_c: Floats


def read_recording(path: Path) -> Recording:
    """Read the complete ticks of a file; raises `FormatError` for an invalid one."""
    arrays = read_npz(path, ARRAYS, MAX_BYTES)
    rows, columns = arrays["predictions"], _names(path, arrays["column_names"], "column_names")
    zones = _names(path, arrays["zone_names"], "zone_names")
    if rows.ndim != 2 or rows.dtype.kind != "f" or rows.shape[1] != len(columns):
        raise FormatError(
            f"{path}: predictions: expected floats [rows, {len(columns)}], "
            f"found {rows.dtype} {list(rows.shape)}"
        )
    if missing := [name for name in COLUMNS if name not in columns]:
        raise FormatError(f"{path}: column_names: expected {', '.join(missing)} among {columns}")
    ticks = _whole_ticks(path, rows[:, [columns.index(name) for name in COLUMNS]], zones)
    temperatures = ticks[:, :, 2:]
    if np.any((temperatures < COLDEST) | (temperatures > HOTTEST)):
        worst = float(temperatures.flat[np.abs(temperatures - 70).argmax()])
        raise FormatError(
            f"{path}: expected temperatures from {COLDEST:g} to {HOTTEST:g} C, found {worst:g}"
        )
    by_zone = {name: ticks[:, i, 2].copy() for i, name in enumerate(zones)}
    return Recording(path, _tick_seconds(path, ticks[:, 0, 0]), by_zone, ticks[:, 0, 3].copy())


def _names(path: Path, array: NDArray[np.generic], what: str) -> list[str]:
    names = [str(name) for name in array.tolist()] if array.ndim == 1 else []
    if array.dtype.kind != "U" or not names or len(set(names)) != len(names):
        raise FormatError(
            f"{path}: {what}: expected a list of different names, "
            f"found {array.dtype} {list(array.shape)}"
        )
    return names


def _whole_ticks(path: Path, rows: NDArray[np.generic], zones: list[str]) -> Floats:
    """[ticks, zones, COLUMNS], without partial ticks at the beginning and the end."""
    with np.errstate(invalid="ignore"):  # any bytes are valid floats, also signalling NaNs
        count, values = len(zones), rows.astype(np.float64)
    if not np.isfinite(values).all():
        row, column = np.argwhere(~np.isfinite(values))[0]
        raise FormatError(
            f"{path}: row {row}: {COLUMNS[column]}: expected a finite number, "
            f"found {values[row, column]}"
        )
    first = np.flatnonzero(values[:, 1] == 0)
    begin = int(first[0]) if len(first) else len(values)
    ticks = (len(values) - begin) // count
    if begin >= count or ticks < 2:
        raise FormatError(f"{path}: expected two ticks or more of {count} zones, "
                          f"found {len(values)} rows, zone 0 after {begin}")  # fmt: skip
    expected = (np.arange(len(values)) - begin) % count
    if np.any(wrong := values[:, 1] != expected):
        row = int(wrong.argmax())
        raise FormatError(f"{path}: row {row}: expected zone {expected[row]} in its turn, "
                          f"found {values[row, 1]:g}")  # fmt: skip
    return values[begin : begin + ticks * count].reshape(ticks, count, len(COLUMNS))


def _tick_seconds(path: Path, stamps: Floats) -> float:
    """The tick from the first to the last change of the stamps; 1 s with fewer than two changes.

    Between two changes no more time may be missing than the longest tick, at the median tick.
    """
    changes = np.flatnonzero(np.diff(stamps)) + 1
    if len(changes) < 2:
        return 1.0
    between = stamps[changes[-1]] - stamps[changes[0]]
    tick = float(between / (changes[-1] - changes[0]))
    if not 0 < tick <= LONGEST_TICK_S:
        raise FormatError(f"{path}: t_predict: expected ticks of up to {LONGEST_TICK_S:g} s, "
                          f"found {tick:g}")  # fmt: skip
    seconds, ticks = np.diff(stamps[changes]), np.diff(changes)
    missing = seconds - np.median(seconds / ticks) * ticks
    if (most := missing[at := int(missing.argmax())]) > LONGEST_TICK_S:
        raise FormatError(f"{path}: t_predict: expected ticks without a gap, found {most:.0f} s "
                          f"missing between ticks {changes[at]} and {changes[at + 1]}")  # fmt: skip
    return tick
