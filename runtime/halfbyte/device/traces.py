"""Recordings of a phone's temperatures, in the format of the S25+ recordings (s25_*.npz).

An npz of three arrays. `predictions` [rows, columns], floats, has a row a zone and tick, and the
zones of a tick in the order of `zone_names`, from wherever a recorder began to wherever it ended.
Of its columns (`column_names`) these count: `zone_id` (the index of a zone), `T0` (its temperature
at that tick, Celsius), `T_ambient`, and `t_predict` (seconds, so coarse in float32 that it tells
the length of a tick only over a whole file). `temp_actual` is T0 a minute later, `temp_pred` the
forecast of another model, and power was not recorded. `T_ambient` is an estimate of that recorder,
made from the battery's temperature: it follows the phone, even to 37 degrees in a cold room, so it
says something of the air only while the phone rests.

A file is data from elsewhere: nothing in it is executed or unpickled, and sizes are compared with
the bytes that are there before memory is taken.
"""

from __future__ import annotations

import struct
import tokenize
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from halfbyte.errors import FormatError

MOST_BYTES = 64 << 20  # of an array: 88 hours in float32
COLDEST, HOTTEST = -60.0, 200.0  # that a phone's sensor may say
LONGEST_TICK_S = 60.0
ARRAYS = ("predictions", "column_names", "zone_names")
COLUMNS = ("t_predict", "zone_id", "T0", "T_ambient")
# What zipfile and NumPy's reader of headers raise on bytes that are none of theirs
DAMAGED = (
    *(ValueError, EOFError, KeyError, RuntimeError, NotImplementedError, MemoryError),
    *(TypeError, SyntaxError, tokenize.TokenError, zipfile.BadZipFile, zlib.error, struct.error),
)

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Recording:
    """Temperatures [ticks] by zone (as in the file: "CPU_BIG", ...), one tick after the other.

    `tick_s` is the length of a tick in seconds, `air_c` [ticks] the recorder's estimate.
    """

    path: Path
    tick_s: float
    zones: dict[str, Floats]
    air_c: Floats


def read_recording(path: Path) -> Recording:
    """Of the whole ticks of a file; raises `FormatError` with what was expected and found."""
    try:
        arrays = _read_arrays(path)
    except FormatError:
        raise
    except OSError as error:
        raise FormatError(f"{path}: cannot be read: {error.strerror or error}") from error
    except DAMAGED as error:
        raise FormatError(f"{path}: expected an npz of plain arrays: {error}") from error
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


def _read_arrays(path: Path) -> dict[str, NDArray[np.generic]]:
    with zipfile.ZipFile(path) as archive:
        members = {info.filename: info for info in archive.infolist()}
        if missing := [name for name in ARRAYS if f"{name}.npy" not in members]:
            raise FormatError(f"{path}: expected the arrays {', '.join(ARRAYS)}, "
                              f"found none named {', '.join(missing)}")  # fmt: skip
        for name in ARRAYS:
            info = members[f"{name}.npy"]
            with archive.open(info) as file:
                version = npy.read_magic(file)
                if version != (1, 0):
                    raise FormatError(f"{path}: {name}: expected npy 1.0, found {version}")
                shape, _, dtype = npy.read_array_header_1_0(file)
                size = dtype.itemsize
                for length in shape:
                    size *= length
            if dtype.hasobject:
                raise FormatError(f"{path}: {name}: expected numbers or names, found objects")
            if size > MOST_BYTES or size > info.file_size:
                raise FormatError(f"{path}: {name}: expected at most {MOST_BYTES} bytes, and as "
                                  f"many as there are, found {list(shape)} of {dtype}")  # fmt: skip
    with np.load(path, allow_pickle=False) as arrays:
        return {name: arrays[name] for name in ARRAYS}


def _names(path: Path, found: NDArray[np.generic], what: str) -> list[str]:
    names = [str(name) for name in found.tolist()] if found.ndim == 1 else []
    if found.dtype.kind != "U" or not names or len(set(names)) != len(names):
        raise FormatError(
            f"{path}: {what}: expected a list of different names, "
            f"found {found.dtype} {list(found.shape)}"
        )
    return names


def _whole_ticks(path: Path, rows: NDArray[np.generic], zones: list[str]) -> Floats:
    """[ticks, zones, COLUMNS], without a beginning and an end that lack zones."""
    with np.errstate(invalid="ignore"):  # any bytes are floats
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
    """From the first change of the stamps to the last; a second where they tell too little."""
    changes = np.flatnonzero(np.diff(stamps)) + 1
    if len(changes) < 2:
        return 1.0
    between = stamps[changes[-1]] - stamps[changes[0]]
    tick = float(between / (changes[-1] - changes[0]))
    if not 0 < tick <= LONGEST_TICK_S:
        raise FormatError(f"{path}: t_predict: expected ticks of up to {LONGEST_TICK_S:g} s, "
                          f"found {tick:g}")  # fmt: skip
    return tick
