"""A file from which an interrupted run goes on: what it has learned, and its best result so far."""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any
from zipfile import BadZipFile, ZipFile

import numpy as np
import numpy.typing as npt

from halfbyte.errors import OutputError
from halfbyte.outputs import write_file

Array = npt.NDArray[Any]


def check_of(settings: Mapping[str, Any], *arrays: Array) -> int:
    """A number that tells runs apart."""
    check = zlib.crc32(json.dumps(dict(settings)).encode())
    for array in arrays:
        check = zlib.crc32(np.ascontiguousarray(array).data, check)
    return check


def refuse_others(path: Path) -> None:
    """Raise `OutputError` for what is no checkpoint: a run would replace and then remove it."""
    if not path.exists():
        return
    with suppress(OSError, BadZipFile), ZipFile(path) as saved:
        if {"check.npy", "numbers.npy"} <= {*saved.namelist()}:
            return
    raise OutputError(
        f"{path}: exists already, and is no checkpoint of tuning, which would replace it: expected "
        "another output, or this file elsewhere"
    )


def write(
    path: Path, check: int, numbers: tuple[float, ...], states: Mapping[str, Array],
    best: Mapping[str, Array],
) -> None:  # fmt: skip
    """Write a checkpoint; raises `OutputError`, and leaves the one before then."""
    arrays: dict[str, Any] = {f"state/{name}": x for name, x in states.items()}
    arrays |= {f"best/{name}": x for name, x in best.items()}
    arrays |= {"check": np.array(check, np.int64), "numbers": np.array(numbers, np.float64)}
    write_file(path, lambda file: np.savez(file, **arrays))


def read(
    path: Path, check: int, states: Mapping[str, Array]
) -> tuple[list[float], dict[str, Array]] | None:
    """Fill `states`; returns numbers and the best result, None where another run wrote the file."""
    try:
        with np.load(path, allow_pickle=False) as saved:
            if int(saved["check"]) != check:
                return None
            found = {name: saved[f"state/{name}"] for name in states}
            names = (n.removeprefix("best/") for n in saved.files if n.startswith("best/"))
            best = {name: saved[f"best/{name}"] for name in names}
            numbers = saved["numbers"].tolist()
    except (OSError, ValueError, KeyError, EOFError, BadZipFile):
        return None
    for name, x in states.items():
        x[...] = found[name]
    return numbers, best
