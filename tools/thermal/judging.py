"""Predictions of recordings compared with what was measured: errors, and how much bands cover.

Bands are the 10 % and 90 % quantiles of `DRAWS` devices. Each device has other values, drawn from
the ranges of the network, another start (body, air, power at rest) that fits the first minutes, and
a sensor that is a constant `SENSOR_K` off. When only some sensors are prescribed, these drives need
no power; the third drive, `LOAD`, is open_loop.py's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from tools.thermal.fitting import DRIVES, ZONES, Predicted, predict, sensors
from tools.thermal.open_loop import open_loop
from tools.thermal.part import Fit, drawn_of, with_fit
from tools.thermal.traces import Recording

from halfbyte.device.profile import Profile
from halfbyte.device.quantity import Draws

Floats = NDArray[np.float64]

DRAWS, SEED = 100, 0
LOAD = "load only"
JUDGED = (*DRIVES, LOAD)
SENSOR_K = {"cpu_big": 1.0, "cpu_little": 1.0, "gpu": 0.5, "chassis": 0.3, "battery": 0.15}
LEAST_S, EVERY_S = 450.0, 150.0  # of the pieces of a recording, and from one's begin to the next's
QUANTILES = (0.1, 0.5, 0.9)
COVER = 0.8


@dataclass(frozen=True)
class Result:
    """How a recording was predicted, of one drive and node, after the first minutes.

    Mean absolute errors in kelvins: of the median (`predicted`), of the first measured temperature
    (`first`), of the last of the first minutes (`held`) and of the line through these (`linear`).
    `inside` is the share of ticks in the band of 80 %; `scores` [ticks] are the distances from the
    median over the band's half width on that side.
    """

    recording: Recording
    drive: str
    node: str
    predicted: float
    first: float
    held: float
    linear: float
    inside: float
    scores: Floats


def judge(
    recording: Recording, fit: Fit | Profile, profile: Profile, drives: Sequence[str] = JUDGED
) -> list[Result]:
    """A recording's results with a fit, or with a profile that has the network.

    `profile` has the clusters and trip points for the prediction from load only.
    """
    results = []
    for drive in drives:
        random = np.random.default_rng(SEED)
        if drive == LOAD:
            whole = with_fit(profile, fit) if isinstance(fit, Fit) else fit
            predicted = open_loop(recording, whole, DRAWS, SEED)
        else:
            values = (
                fit.draw(random, DRAWS) if isinstance(fit, Fit)
                else drawn_of(fit, Draws(random, DRAWS))
            )  # fmt: skip
            predicted = predict(recording, values, drive, random)
        results += _compare(recording, drive, predicted, random)
    return results


def _compare(
    recording: Recording, drive: str, predicted: Predicted, random: np.random.Generator
) -> list[Result]:
    by_node, results = sensors(recording), []
    begin = predicted.known
    for node, course in predicted.temperatures.items():
        if node not in ZONES:
            continue
        measured = by_node[node]
        seen = course + SENSOR_K[node] * random.normal(size=course.shape[1])
        low, middle, high = np.quantile(seen, QUANTILES, axis=1)
        ticks = np.arange(len(measured))
        line = np.polyval(np.polyfit(ticks[:begin], measured[:begin], 1), ticks)
        after = measured[begin:]
        off = after - middle[begin:]
        half = np.where(off > 0, (high - middle)[begin:], (middle - low)[begin:])
        inside = (after >= low[begin:]) & (after <= high[begin:])
        results.append(
            Result(
                recording, drive, node, _mean(off), _mean(after - measured[0]),
                _mean(after - measured[begin - 1]), _mean(after - line[begin:]),
                float(inside.mean()), np.abs(off) / half,
            )
        )  # fmt: skip
    return results


def _mean(errors: Floats) -> float:
    return float(np.abs(errors).mean())


def pieces(recording: Recording) -> list[Recording]:
    """The recording, and its ends that begin every 150 s and last 450 s or longer."""
    ticks = len(recording.air_c)
    step, least = (max(1, round(s / recording.tick_s)) for s in (EVERY_S, LEAST_S))
    return [cut(recording, begin, ticks) for begin in range(0, max(1, ticks - least + 1), step)]


def cut(recording: Recording, begin: int, end: int) -> Recording:
    """The ticks from `begin` to `end`."""
    zones = {name: zone[begin:end] for name, zone in recording.zones.items()}
    return Recording(recording.path, recording.tick_s, zones, recording.air_c[begin:end])


def widened(results: Sequence[Result]) -> tuple[float, float]:
    """What the battery's and other half widths are multiplied by so that four fifths of the ticks
    are inside; each recording and piece counts as much, whatever its number of ticks."""
    battery = [result for result in results if result.node == "battery"]
    return _widened(battery), _widened([result for result in results if result.node != "battery"])


def _widened(results: Sequence[Result]) -> float:
    scores = np.concatenate([result.scores for result in results])
    weights = np.concatenate(
        [np.full(len(result.scores), 1 / len(result.scores)) for result in results]
    )
    order = np.argsort(scores)
    shares = np.cumsum(weights[order]) / weights.sum()
    return float(scores[order][np.searchsorted(shares, COVER - 1e-9)])
