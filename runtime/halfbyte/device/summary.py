"""What a simulation comes to: a few numbers, each for every draw, and their ranges."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from halfbyte.device.cost import F64
from halfbyte.device.recording import Simulation

MINUTE_S = 60.0
WARM_UP_S = 60.0  # after which the times of tokens are compared
FIRST_S, SLOW = 10.0, 0.95  # slower than so much of the first seconds is throttled
LAST = 0.2  # of the time that answers: the sustained speed is that of its end


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

    ``first_minute_tokens_s`` and ``sustained_tokens_s`` are speeds of the time that answers, in the
    first minute and in the last fifth of it (0 for a device that is off at the end); ``kept`` is
    the ratio. ``throttle_s`` is when an answer first is slower than 95 % of the first 10 s.
    ``joules_per_token`` counts all that the device takes, screen and pauses too; so does
    ``tokens_per_percent`` of the battery. ``token_spread`` is the time between tokens after the
    first minute: 90 % less 10 %, over the median.
    """
    tokens, answered = s.tokens.sum(axis=0), np.cumsum(s.answering, axis=0)
    early = s.seconds <= max(MINUTE_S, s.seconds[0])
    first = _ratio(s.tokens[early].sum(axis=0), s.answering[early].sum(axis=0))
    sustained = np.where(s.on[-1], _last(s, answered), 0.0)
    found = {
        "first_minute_tokens_s": first,
        "sustained_tokens_s": sustained,
        "kept": _ratio(sustained, first),
        "throttle_s": _throttle(s, answered),
        "tokens": tokens,
        "watts": s.taken_j / s.seconds[-1],
        "joules_per_token": _ratio(s.taken_j, tokens),
        "token_spread": _spread(s),
    }
    if s.profile.battery is not None and s.charge is not None:
        found["tokens_per_percent"] = _ratio(tokens, 100.0 - s.charge[-1])
    return found


def _ratio(a: F64, b: F64) -> F64:
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(a / b)


def _last(s: Simulation, answered: F64) -> F64:
    """Speed of the last fifth of the time that answers."""
    total, tokens = answered[-1], np.cumsum(s.tokens, axis=0)
    begin = (1 - LAST) * total
    before = [np.interp(*at) for at in zip(begin, answered.T, tokens.T, strict=True)]
    return _ratio(tokens[-1] - before, LAST * total)


def _throttle(s: Simulation, answered: F64) -> F64:
    """The end of the first sample that is slow."""
    early = answered <= np.maximum(FIRST_S, np.min(np.where(answered > 0, answered, np.inf), 0))
    tokens, seconds = ((values * early).sum(axis=0) for values in (s.tokens, s.answering))
    slow = ~early & (s.speed < SLOW * _ratio(tokens, seconds))
    return np.where(slow.any(axis=0), s.seconds[np.argmax(slow, axis=0)], np.inf)


def _spread(s: Simulation) -> F64:
    """By tokens, so that slow ones do not count more than others."""
    late = s.seconds > (WARM_UP_S if s.seconds[-1] > WARM_UP_S else 0)
    tokens, seconds = s.tokens[late], s.answering[late]
    each = np.divide(seconds, tokens, out=np.full_like(tokens, np.inf), where=tokens > 0)
    order = np.argsort(each, axis=0)
    each, tokens = (np.take_along_axis(values, order, axis=0) for values in (each, tokens))
    counted = np.cumsum(tokens, axis=0)
    low, median, high = (
        np.take_along_axis(each, np.argmax(counted >= q * counted[-1], axis=0)[None], axis=0)[0]
        for q in (0.1, 0.5, 0.9)
    )
    came = counted[-1] > 0
    with np.errstate(invalid="ignore"):
        return np.where(came, (high - low) / median, np.inf)
