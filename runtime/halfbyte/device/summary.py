"""The summary of a simulation: a few numbers, each for every draw, and their ranges."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from halfbyte.device.cost import F64
from halfbyte.device.recording import Simulation

MINUTE_S = 60.0
WARM_UP_S = 60.0  # after which the times of units are compared
FIRST_S, SLOW = 10.0, 0.95  # below this share of the speed of the first seconds: throttled
LAST = 0.2  # the sustained speed is that of the last fifth of the working time

Floats = npt.NDArray[np.floating[Any]]


@dataclass(frozen=True)
class Band:
    """The 10 %, 50 % and 90 % quantiles of draws."""

    low: F64
    median: F64
    high: F64


def band(values: Floats) -> Band:
    """Quantiles over the last axis, of draws; each is the value of a draw and may be infinite."""
    low, median, high = np.quantile(values, (0.1, 0.5, 0.9), axis=-1, method="inverted_cdf")
    return Band(low, median, high)


def bands(simulation: Simulation) -> dict[str, Band]:
    """The quantiles of `quantities`."""
    return {name: band(values) for name, values in quantities(simulation).items()}


def quantities(s: Simulation) -> dict[str, F64]:
    """Quantities [draws] by name; infinite if an event never happens, NaN if undefined.

    The unit of work is a token, or a run: names have ``runs`` and ``run`` for ``tokens`` and
    ``token`` then. ``first_minute_tokens_s`` and ``sustained_tokens_s`` are speeds in the first
    minute and in the last fifth of the working time (0 for a device that is off at the end);
    ``kept`` is their ratio. ``throttle_s`` is the time of the first sample below 95 % of the speed
    of the first 10 s. ``joules_per_token`` and ``tokens_per_percent`` (of the battery) count all
    energy, also of the screen and of pauses. ``token_spread`` is the spread of the time between
    tokens after the first minute: the 90 % quantile less the 10 % quantile, over the median.
    """
    units, spent = s.units.sum(axis=0), np.cumsum(s.spent, axis=0)
    early = s.seconds <= max(MINUTE_S, s.seconds[0])
    first = _ratio(s.units[early].sum(axis=0), s.spent[early].sum(axis=0))
    sustained = np.where(s.on[-1], _last(s, spent), 0.0)
    by_name = {
        f"first_minute_{s.unit}s_s": first,
        f"sustained_{s.unit}s_s": sustained,
        "kept": _ratio(sustained, first),
        "throttle_s": _throttle(s, spent),
        f"{s.unit}s": units,
        "watts": s.taken_j / s.seconds[-1],
        f"joules_per_{s.unit}": _ratio(s.taken_j, units),
        f"{s.unit}_spread": _spread(s),
    }
    if s.full is not None and s.charge is not None:
        by_name[f"{s.unit}s_per_percent"] = _ratio(units, s.full - s.charge[-1])
    return by_name


def _ratio(a: F64, b: F64) -> F64:
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(a / b)


def _last(s: Simulation, spent: F64) -> F64:
    """The speed of the last fifth of the working time."""
    total, units = spent[-1], np.cumsum(s.units, axis=0)
    begin = (1 - LAST) * total
    before = [np.interp(*at) for at in zip(begin, spent.T, units.T, strict=True)]
    return _ratio(units[-1] - before, LAST * total)


def _throttle(s: Simulation, spent: F64) -> F64:
    """The end of the first throttled sample."""
    early = spent <= np.maximum(FIRST_S, np.min(np.where(spent > 0, spent, np.inf), 0))
    units, seconds = ((values * early).sum(axis=0) for values in (s.units, s.spent))
    slow = ~early & (s.speed < SLOW * _ratio(units, seconds))
    return np.where(slow.any(axis=0), s.seconds[np.argmax(slow, axis=0)], np.inf)


def _spread(s: Simulation) -> F64:
    """The spread of times, weighted by units, so that slow samples do not count more."""
    late = s.seconds > (WARM_UP_S if s.seconds[-1] > WARM_UP_S else 0)
    units, seconds = s.units[late], s.spent[late]
    each = np.divide(seconds, units, out=np.full_like(units, np.inf), where=units > 0)
    order = np.argsort(each, axis=0)
    each, units = (np.take_along_axis(values, order, axis=0) for values in (each, units))
    counted = np.cumsum(units, axis=0)
    low, median, high = (
        np.take_along_axis(each, np.argmax(counted >= q * counted[-1], axis=0)[None], axis=0)[0]
        for q in (0.1, 0.5, 0.9)
    )
    came = counted[-1] > 0
    with np.errstate(invalid="ignore"):
        return np.where(came, (high - low) / median, np.inf)
