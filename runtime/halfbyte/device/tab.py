"""Profiles of a browser tab instead of an app: WebAssembly on one thread, and a page's memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from math import exp, hypot, log
from pathlib import Path
from typing import Annotated

from halfbyte.core.backends.instance import MAX_PAGES, PAGE
from halfbyte.device import schema
from halfbyte.device.kernels import Kernel
from halfbyte.device.profile import Overhead, Profile
from halfbyte.device.quantity import Multiple, Quantity
from halfbyte.device.schema import named, number

WIDE_BYTES = PAGE * MAX_PAGES["i64"][0]  # of WebAssembly's memory with 64 bits
_MEASURED = Path(__file__).with_name("tab.toml")

_Times = Annotated[Quantity, number(1e-2, 1e3)]


@dataclass(frozen=True)
class Tab:
    """The speed of a tab, relative to the limits of the machine that it runs on.

    `launch` and `call` are factors on the overheads of the same machine outside the browser;
    fractions of kernels are of the machine's peaks and bandwidth.
    """

    launch: _Times
    call: _Times
    kernels: Annotated[Mapping[str, Kernel], named(Kernel, 1, 256)]


@cache
def usual_tab() -> Tab:
    """Measured in Chromium on a server processor, with ranges for other devices.

    What another browser or processor makes of WebAssembly, it makes of all kernels.
    """
    tab = schema.read_file(Tab, _MEASURED)
    return replace(tab, kernels={kind: _together(kernel) for kind, kernel in tab.kernels.items()})


def _together(kernel: Kernel) -> Kernel:
    """The kernel, whose fractions are as much off as all others of the same relative range."""
    parts = []
    for q in (kernel.prompt, kernel.token, kernel.memory):
        factor = Quantity(1, round(q.low / q.value, 1), round(q.high / q.value, 1))
        parts.append(replace(Multiple.of(factor, q.value), source=q.source, assumed=q.assumed))
    return Kernel(kernel.arithmetic, *parts)


def in_tab(profile: Profile, addressed: int = WIDE_BYTES) -> Profile:
    """The profile of a device as seen from a browser tab, which addresses so many bytes.

    What is uncertain of the device's own kernels is uncertain in its tab too.
    """
    tab, memory, overhead = usual_tab(), profile.memory, profile.overhead
    own = profile.fractions
    return replace(
        profile,
        memory=replace(memory, tab_mb=_bounded(memory.tab_mb, addressed / 1e6)),
        overhead=Overhead(
            _product(overhead.launch_us, tab.launch), _product(overhead.call_us, tab.call)
        ),
        kernels={kind: _no_surer(kernel, own.get(kind)) for kind, kernel in tab.kernels.items()},
    )


def _no_surer(tab: Kernel, own: Kernel | None) -> Kernel:
    """The tab's kernel, with ranges that have those of factors on the device's own besides.

    Both errors are independent, so the squares of their logarithms add up.
    """
    if own is None:
        return tab
    parts = []
    for name in ("prompt", "token", "memory"):
        here, there = getattr(tab, name), getattr(own, name)
        if isinstance(here, Multiple) and isinstance(there, Multiple):
            low, high = (
                hypot(log(getattr(here.factor, end)), log(getattr(there, end) / there.value))
                for end in ("low", "high")
            )
            wide = Multiple.of(Quantity(1, exp(-low), exp(high)), here.times)
            here = replace(wide, source=here.source, assumed=here.assumed)
        parts.append(here)
    return Kernel(tab.arithmetic, *parts)


def _bounded(quantity: Quantity, limit: float) -> Quantity:
    values = {key: min(getattr(quantity, key), limit) for key in ("value", "low", "high")}
    return replace(quantity, **values)


def _product(a: Quantity, b: Quantity) -> Quantity:
    return replace(a, value=a.value * b.value, low=a.low * b.low, high=a.high * b.high)
