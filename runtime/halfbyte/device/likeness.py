"""Numbers of one device that are assumed of another."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, TypeVar

from halfbyte.device.quantity import Quantity, Steps

T = TypeVar("T")

_UNSURE, _UNSURE_K = 0.2, 0.9  # range of what is said exactly of the other device


def assumed(value: T, name: str, key: str = "") -> T:
    """The same numbers, assumed of another device because this one has them."""
    result: Any = value
    match value:
        case Quantity():
            low, high = value.low, value.high
            if low == high and key != "cores":
                more = _UNSURE_K if key.endswith("_c") else _UNSURE * abs(value.value)
                low, high = value.value - more, value.value + more
                high = min(high, 1.0) if key == "floor" else high
            result = Quantity(value.value, low, high, assumed=f"as {name}: {_origin(value)}")
        case Steps():
            result = replace(value, source="", assumed=f"as {name}: {_origin(value)}")
        case tuple():
            result = tuple(assumed(item, name) for item in value)
        case Mapping():
            result = {key: assumed(item, name) for key, item in value.items()}
        case _ if dataclasses.is_dataclass(value) and not isinstance(value, type):
            names = [field.name for field in dataclasses.fields(value)]
            result = replace(value, **{n: assumed(getattr(value, n), name, n) for n in names})
    return result  # type: ignore[no-any-return]


def _origin(value: Quantity | Steps) -> str:
    return value.source or value.assumed


def scaled(value: Quantity, share: float) -> Quantity:
    middle, low, high = (float(f"{n * share:.3g}") for n in (value.value, value.low, value.high))
    return Quantity(middle, low, high, assumed=f"{value.assumed}, in proportion to the memory")
