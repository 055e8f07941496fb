"""What a worker does with a part, and what has to be the same there as where the run began."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

import halfbyte
from halfbyte.core.backends import available
from halfbyte.quantize.engines.packing import Packed, packed, unpacked
from halfbyte.quantize.tuning.blas import processor, single_threaded

_kept: dict[str, Callable[[Any], Any]] = {}  # by key, what was unpacked last


def conditions() -> dict[str, str]:
    """What a result depends on besides the part: sums are rounded in another order otherwise."""
    return {
        "halfbyte": halfbyte.__version__,
        "NumPy": np.__version__,
        "the kernels": available()[0],
        "NumPy's products for": processor(),
    }


def difference(expected: Mapping[str, str], found: Mapping[str, str]) -> str | None:
    """The first of the conditions that differs, as an error says it; None if all are the same."""
    for name, value in expected.items():
        if found.get(name) != value:
            return f"expected {name} {value}, as where the run began, found {found.get(name)}"
    return None


def run(expected: Mapping[str, str], key: str, work: Packed, part: Packed) -> Packed | str:
    """A part's result, or why this worker must not compute it; `key` is the work's own."""
    why = difference(expected, conditions())
    if why is not None:
        return why
    if key not in _kept:
        _kept.clear()
        _kept[key] = unpacked(work)
    with single_threaded():
        return packed(_kept[key](unpacked(part)))
