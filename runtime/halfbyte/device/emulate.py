"""A device that is simulated while time passes: what `simulate` predicts, along with real work.

`web.feel` paces a text with it. The device has the likeliest numbers of its profile, which may be
faster than most of its kind, so that its speed is scaled to theirs; and the governor of `simulate`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from math import inf

import numpy as np

from halfbyte.device.cost import F64
from halfbyte.device.governors import PowerAllocator
from halfbyte.device.profile import Profile
from halfbyte.device.quantity import Draws
from halfbyte.device.speed import Task
from halfbyte.device.stepping import Batteries, Device, Run

STEP_S = 0.5
_ROUNDING = 1e-9  # seconds


class Work(IntEnum):
    """What a device does: it reads a prompt, writes an answer without a pause, or rests."""

    PROMPT = 0
    ANSWER = 1
    REST = 2


@dataclass(frozen=True)
class State:
    """A device now.

    `seconds` since the start, temperatures of its nodes in `celsius`, the frequency of its fastest
    cluster in `megahertz`, `charge` of the battery from 1 to 0 (None without one), whether it is
    `on`, tokens per second of an answer, and their share `kept` of a cold device's.
    """

    seconds: float
    celsius: Mapping[str, float]
    megahertz: float
    charge: float | None
    on: bool
    speed: float
    kept: float


class _Asked:
    """What is asked for in one step: seconds of each kind of work."""

    name, prompts, per_s = "live", True, inf

    def __init__(self) -> None:
        self.seconds = np.zeros(len(Work))

    def advance(self, seconds: F64, prompt_s: F64, unit_s: F64) -> tuple[F64, F64]:
        """The work of these seconds; a device that is off does none."""
        spent = self.seconds[:2, None] * (seconds > 0)
        self.seconds[:] = 0
        return spent / np.stack([prompt_s, unit_s]), spent


class Emulation:
    """One device, cold at first, for which time passes in `go_on`.

    Parameters
    ----------
    threads : int
        Cores that may compute.
    cold_s : float, optional
        Seconds of a token of an answer on a cold device; by default as its numbers say.
    """

    def __init__(
        self, task: Task, profile: Profile, threads: int, cold_s: float | None = None
    ) -> None:
        self.profile, self._asked, self._seconds = profile, _Asked(), 0.0
        self._scale = 1.0
        air = np.asarray(profile.thermal.ambient_c.value)
        device = Device(
            task, profile, self._asked, threads, Draws(), air, STEP_S, Batteries()
        )  # fmt: skip
        self._run = Run(device, PowerAllocator(device.board))
        self._decide()
        if cold_s is not None:
            self._scale = cold_s / self._unit_s
            self._decide()
        self._cold_s = self._unit_s

    def _decide(self) -> None:
        run = self._run
        run.decide()
        prompt, unit = run.device.seconds(run.at, run.orders)
        self._prompt_s, self._unit_s = self._scale * float(prompt[0]), self._scale * float(unit[0])

    def go_on(self, seconds: float, work: Work) -> None:
        """Let time pass in which the device does one kind of work."""
        while seconds > 0:
            asked = self._asked.seconds
            part = min(seconds, STEP_S - asked.sum())
            asked[work] += part
            seconds -= part
            self._seconds += part
            if asked.sum() >= STEP_S - _ROUNDING:
                self._run.advance()
                self._decide()

    @property
    def prompt_s(self) -> float:
        """Seconds of reading a token of a prompt."""
        return self._prompt_s if self.on else inf

    @property
    def token_s(self) -> float:
        """Seconds of a token of an answer; infinite once heat or an empty battery has switched the
        device off."""
        return self._unit_s if self.on else inf

    @property
    def on(self) -> bool:
        """Whether it is on."""
        return bool(self._run.device.on[0])

    @property
    def state(self) -> State:
        """What it is like now."""
        run, device = self._run, self._run.device
        nodes, temperatures = self.profile.thermal.nodes, device.temperatures[0].tolist()
        hertz = max(supply.hertz[at[0]] for supply, at in zip(device.supplies, run.at, strict=True))
        charge = device.charge
        return State(
            seconds=self._seconds, celsius=dict(zip(nodes, temperatures, strict=True)),
            megahertz=hertz / 1e6,
            charge=None if charge is None else float(charge[0]), on=self.on,
            speed=1 / self.token_s, kept=self._cold_s / self.token_s,
        )  # fmt: skip
