"""What a simulation comes to: a few numbers, each for every draw, and their ranges."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from halfbyte.device.cost import F64
from halfbyte.device.recording import Simulation

MINUTE_S = 60.0
WARM_UP_S = 60.0  # after which the times of units are compared
FIRST_S, SLOW = 10.0, 0.95  # slower than so much of the first seconds is throttled
LAST = 0.2  # of the time that is spent: the sustained speed is that of its end


Floats = npt.NDArray[np.floating[Any]]


@dataclass(frozen=True)
class Band:
    """What a tenth, half and nine tenths of the draws do not exceed."""

    low: F64
    median: F64
    high: F64


def band(values: Floats) -> Band:
    """Over the last axis, the draws'; each is the value of a draw, so it may be infinite."""
    low, median, high = np.quantile(values, (0.1, 0.5, 0.9), axis=-1, method="inverted_cdf")
    return Band(low, median, high)


def bands(simulation: Simulation) -> dict[str, Band]:
    """The ranges of `quantities`."""
    return {name: band(values) for name, values in quantities(simulation).items()}


def quantities(s: Simulation) -> dict[str, F64]:
    """By name [draws]; infinite where something never comes, NaN where it is of nothing.

    Units of work are tokens, or runs: `runs` and `run` below in place of `tokens` and `token`.
    ``first_minute_tokens_s`` and ``sustained_tokens_s`` are speeds of the time spent on them, in
    the first minute and in the last fifth of it (0 for a device that is off at the end); ``kept``
    is the ratio. ``throttle_s`` is when they first are slower than 95 % of the first 10 s.
    ``joules_per_token`` counts all that the device takes, screen and pauses too; so does
    ``tokens_per_percent`` of the battery. ``token_spread`` is the time between tokens after the
    first minute: 90 % less 10 %, over the median.
    """
    units, spent = s.units.sum(axis=0), np.cumsum(s.spent, axis=0)
    early = s.seconds <= max(MINUTE_S, s.seconds[0])
    first = _ratio(s.units[early].sum(axis=0), s.spent[early].sum(axis=0))
    sustained = np.where(s.on[-1], _last(s, spent), 0.0)
    found = {
        f"first_minute_{s.unit}s_s": first,
        f"sustained_{s.unit}s_s": sustained,
        "kept": _ratio(sustained, first),
        "throttle_s": _throttle(s, spent),
        f"{s.unit}s": units,
        "watts": s.taken_j / s.seconds[-1],
        f"joules_per_{s.unit}": _ratio(s.taken_j, units),
        f"{s.unit}_spread": _spread(s),
    }
    if s.profile.battery is not None and s.charge is not None:
        found[f"{s.unit}s_per_percent"] = _ratio(units, 100.0 - s.charge[-1])
    return found


def _ratio(a: F64, b: F64) -> F64:
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(a / b)


def _last(s: Simulation, spent: F64) -> F64:
    """Speed of the last fifth of the time that is spent."""
    total, units = spent[-1], np.cumsum(s.units, axis=0)
    begin = (1 - LAST) * total
    before = [np.interp(*at) for at in zip(begin, spent.T, units.T, strict=True)]
    return _ratio(units[-1] - before, LAST * total)


def _throttle(s: Simulation, spent: F64) -> F64:
    """The end of the first sample that is slow."""
    early = spent <= np.maximum(FIRST_S, np.min(np.where(spent > 0, spent, np.inf), 0))
    units, seconds = ((values * early).sum(axis=0) for values in (s.units, s.spent))
    slow = ~early & (s.speed < SLOW * _ratio(units, seconds))
    return np.where(slow.any(axis=0), s.seconds[np.argmax(slow, axis=0)], np.inf)


def _spread(s: Simulation) -> F64:
    """By units, so that slow ones do not count more than others."""
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
