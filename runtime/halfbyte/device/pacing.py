"""The governor `pacing`: tokens or runs at an even pace that the device can keep up.

Linux's governors let a device run as fast as it can until it is hot, then slow it down step by
step. This governor starts with a pace that can be kept: a model that is simpler than the device (a
single node, of the profile without ranges) predicts by how much a pace will warm the controlled
node. The individual device differs from the model by a line, T = rest + scale x rise, from the
modelled rise to the sensor's temperature. A Kalman filter learns both numbers, slowly, since a
wrong heat capacity looks like a wrong resistance until a device has been warm for a while. The pace
is the one whose rise ends at the target.

Of the operating points that reach the pace, the one that warms least per token or run is chosen
(`operating_points`); each token or run waits until its turn. If less work is asked for than the
pace, an operating point for that work suffices.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from halfbyte.device.cost import F64
from halfbyte.device.governors import PERIOD_S, Board, Observation, Orders
from halfbyte.device.operating_points import efficient_points, lumped, network_of
from halfbyte.device.quantity import Draws

_OVER = 2.0  # kelvins by which the target falls for each kelvin too hot
_MEASURED_S = 10.0  # time constant of learning the device's speed
_ACTIVE_S = 120.0  # time constant of learning the share of working time


@dataclass(frozen=True)
class Tuning:
    """Parameters, tuned on devices other than those of the comparison."""

    margin_k: float = 0.3  # distance of the target below the control temperature
    horizon_s: float = 1200.0  # time in which the target is reached
    rest_k: float = 1.0  # standard deviation of rest from the first temperature
    scale: float = 0.15  # standard deviation of scale from 1
    noise_k: float = 0.3  # constant part of the sensor's deviation from the line
    noise_share: float = 0.5  # its part in proportion to the modelled rise
    together_s: float = 60.0  # time for which a deviation stays the same
    drift_k: float = 1.0  # drift of rest in an hour
    drift_scale: float = 0.1  # drift of scale in an hour
    smooth_s: float = 60.0  # time constant of the pace
    spare: float = 0.02  # by how much an operating point is faster than the pace
    slowest: float = 0.05  # the slowest pace, as a fraction of the fastest


class Pacing:
    """Keeps one pace for all tokens or runs, which changes slowly."""

    def __init__(self, board: Board, tuning: Tuning | None = None) -> None:
        self.board, self._tuning = board, tuning or Tuning()
        draws, known = board.draws, lumped(board.profile)
        self._points = efficient_points(board.task, known, board.threads, 0, self._tuning.horizon_s)
        network = network_of(known, Draws(None, draws))
        self._next, self._later = network.stepper(PERIOD_S), network.stepper(self._tuning.horizon_s)
        self._modelled = np.zeros((draws, 1))
        self._line: Line | None = None
        self._slower, self._active = np.ones((2, draws))
        self._pace = np.ones(draws)
        self._measured = np.zeros(draws, bool)
        self._chosen = np.zeros(draws, np.intp)

    def decide(self, seen: Observation) -> Orders:
        """The operating point for the pace that can be kept."""
        points, tuning = self._points, self._tuning
        now = seen.temperatures[:, self.board.node]
        begins = self._line is None
        line = self._line = self._line or Line(now, tuning)
        self._learn(seen, now, line)
        unit_s = points.unit_s * (1 + tuning.spare)
        fastest = np.minimum(1 / unit_s, self._kelvins(now, line)[:, None] / points.kelvin_s)
        wanted = np.maximum(fastest.max(axis=1), tuning.slowest / unit_s[0])
        if begins:
            self._pace = wanted
        self._pace *= (wanted / self._pace) ** (PERIOD_S / tuning.smooth_s)
        asked = np.minimum(self._pace, self.board.per_s * self._slower)
        late = unit_s > (1 + 1e-6) / asked[:, None]
        self._chosen = np.maximum((~late).sum(axis=1) - 1, 0)
        waits = self._pace * unit_s[0] < 1 - 1e-6  # otherwise it runs at full speed
        return Orders(
            list(points.steps[:, self._chosen]), points.threads[self._chosen],
            np.where(waits, self._slower / self._pace, 0.0),
        )  # fmt: skip

    def pause(self, seconds: float) -> None:
        """Let the model cool while nothing runs for so long."""
        network = network_of(lumped(self.board.profile), Draws(None, self.board.draws))
        self._modelled = network.stepper(seconds).step(self._modelled, 0.0, 0.0)

    def _kelvins(self, now: F64, line: Line) -> F64:
        """Kelvins of modelled rise that work may still add to the node up to the horizon."""
        over = np.maximum(now - self.board.control_c, 0)
        target = self.board.control_c - self._tuning.margin_k - _OVER * over
        left = self._later.step(self._modelled, 0.0, 0.0)[:, 0]
        rise: F64 = ((target - line.rest) / line.scale - left) / self._active
        return rise

    def _learn(self, seen: Observation, now: F64, line: Line) -> None:
        """Learn from the last period."""
        watts = self._points.watts[self._chosen] * seen.busy[:, None]
        self._modelled = self._next.step(self._modelled, watts, 0.0)
        line.learn(self._modelled[:, 0], now)
        known = seen.unit_s > 0
        measured = np.where(known, seen.unit_s, 1) / self._points.unit_s[self._chosen]
        follow = np.where(known & self._measured, PERIOD_S / _MEASURED_S, known)
        self._slower = self._slower + follow * (measured - self._slower)
        self._measured |= known
        working = np.maximum(seen.working, 0.1)
        self._active = self._active + PERIOD_S / _ACTIVE_S * (working - self._active)


class Line:
    """T = rest + scale x rise, learnt by a Kalman filter."""

    def __init__(self, first: F64, tuning: Tuning) -> None:
        self.rest, self.scale, self._tuning = first, np.ones_like(first), tuning
        self._a = np.full_like(first, tuning.rest_k**2)  # variances of both, and their covariance
        self._b = np.zeros_like(first)
        self._c = np.full_like(first, tuning.scale**2)

    def learn(self, rise: F64, now: F64) -> None:
        """Update both numbers from a modelled rise and the temperature at that time."""
        tuning = self._tuning
        self._a = self._a + tuning.drift_k**2 * PERIOD_S / 3600
        self._c = self._c + tuning.drift_scale**2 * PERIOD_S / 3600
        noise = (tuning.noise_k + tuning.noise_share * rise) ** 2 * tuning.together_s / PERIOD_S
        with_rest, with_scale = self._a + self._b * rise, self._b + self._c * rise
        whole = with_rest + with_scale * rise + noise
        error = now - self.rest - self.scale * rise
        self.rest = self.rest + with_rest / whole * error
        self.scale = np.maximum(self.scale + with_scale / whole * error, 0.2)
        self._a, self._b, self._c = (
            self._a - with_rest**2 / whole, self._b - with_rest * with_scale / whole,
            self._c - with_scale**2 / whole,
        )  # fmt: skip
