"""The sensor that is nearest to the temperature from which its device is slowed."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from halfbyte.device.sensors import Sensor
from halfbyte.errors import HalfbyteError


def hottest(sensors: Sequence[Sensor], target_c: float | None = None) -> tuple[Sensor, float]:
    """The sensor that is nearest to its limit, and that limit; `target_c` is one for all of them.

    Raises
    ------
    HalfbyteError
        None has a temperature, or none says a limit and `target_c` is None.
    """
    if not sensors:
        raise HalfbyteError(
            "expected a sensor with a temperature (a thermal zone or battery in /sys, or "
            "termux-battery-status), found none"
        )
    found = _nearest(sensors, target_c)
    if found is None:
        names = ", ".join(sensor.name for sensor in sensors)
        raise HalfbyteError(
            "expected a sensor that says from which temperature its device is slowed, found none "
            f"among {names}; give one, such as --pace-at 65"
        )
    return found[1:]


def _nearest(
    sensors: Sequence[Sensor], target_c: float | None
) -> tuple[float, Sensor, float] | None:
    """Kelvins below the limit, of the sensor with the fewest, that sensor and the limit."""
    limited = [
        (limit - celsius, sensor, limit)
        for sensor in sensors
        if (limit := target_c if target_c is not None else sensor.limit_c) is not None
        and (celsius := sensor.celsius()) is not None
    ]
    return min(limited, key=lambda one: one[0], default=None)


class Nearest:
    """The sensor nearest to its limit, chosen again when it vanishes, and now and then.

    Temperatures are in terms of the first one's limit: so many kelvins below it as the nearest
    sensor is below its own.

    Raises
    ------
    HalfbyteError
        As :func:`hottest`.
    """

    AGAIN_S = 10.0

    def __init__(
        self, sensors: Sequence[Sensor], target_c: float | None = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:  # fmt: skip
        self._sensors, self._target, self._now = sensors, target_c, now
        self.sensor, self.limit_c = hottest(sensors, target_c)
        self._limit, self._chosen = self.limit_c, now()

    def celsius(self) -> float | None:
        """The temperature now; None if no sensor has one."""
        celsius = self.sensor.celsius()
        if celsius is None or self._now() - self._chosen >= self.AGAIN_S:
            found = _nearest(self._sensors, self._target)
            self._chosen = self._now()
            if found is None:
                return None
            below, self.sensor, self._limit = found
            return self.limit_c - below
        return self.limit_c - (self._limit - celsius)
