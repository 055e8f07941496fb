"""A tab of a browser in place of an app: WebAssembly on one thread, and a heap that holds all."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Annotated

from halfbyte.device import schema
from halfbyte.device.kernels import Kernel
from halfbyte.device.profile import Overhead, Profile
from halfbyte.device.quantity import Quantity
from halfbyte.device.schema import named, number
from halfbyte.download.transfer import HEAP_BYTES

_MEASURED = Path(__file__).with_name("tab.toml")

_Times = Annotated[Quantity, number(1e-2, 1e3)]


@dataclass(frozen=True)
class Tab:
    """What runs in a tab, measured against the limits of the machine that it runs on.

    `launch` and `call` are overheads in those of the same machine outside the browser; fractions of
    kernels are of the machine's own peaks and bandwidth.
    """

    launch: _Times
    call: _Times
    kernels: Annotated[Mapping[str, Kernel], named(Kernel, 1, 256)]


@cache
def usual_tab() -> Tab:
    """What was measured in Chromium on a processor of servers, with ranges for other devices."""
    return schema.read_file(Tab, _MEASURED)


def in_tab(profile: Profile) -> Profile:
    """A device as programs in a tab of its browser find it.

    A tab gets at most what WebAssembly addresses with 32 bits, whatever the device has.
    """
    tab, memory, overhead = usual_tab(), profile.memory, profile.overhead
    return replace(
        profile,
        memory=replace(memory, tab_mb=_bounded(memory.tab_mb, HEAP_BYTES / 1e6)),
        overhead=Overhead(
            _product(overhead.launch_us, tab.launch), _product(overhead.call_us, tab.call)
        ),
        kernels=tab.kernels,
    )


def _bounded(quantity: Quantity, most: float) -> Quantity:
    values = {key: min(getattr(quantity, key), most) for key in ("value", "low", "high")}
    return replace(quantity, **values)


def _product(a: Quantity, b: Quantity) -> Quantity:
    return replace(a, value=a.value * b.value, low=a.low * b.low, high=a.high * b.high)
