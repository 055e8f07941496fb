"""Simulates the speed of a model on a device over time, while the device warms up and slows down.

All draws of a profile's uncertain numbers are simulated at once. In each `step`, the workload
advances as fast as the frequencies allow, its power warms the nodes, and once per period the
governor decides. A device begins as warm as its screen and radio keep it. A device that heat or an
empty battery has switched off stays off.

Energy is conserved: the energy taken (`taken_j`) is the energy stored plus that given to the air.
Losses in the battery and in regulators are left out. Work is counted in units: a language model's
tokens or a graph's runs. A full context is assumed to be emptied at no cost: the speed is that of
its middle throughout.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf

import numpy as np

from halfbyte.device.cost import F64
from halfbyte.device.electricity import by_cluster
from halfbyte.device.governors import (
    PERIOD_S,
    Board,
    Governor,
    PowerAllocator,
    StepWise,
    Unlimited,
)  # fmt: skip
from halfbyte.device.pacing import Pacing
from halfbyte.device.profile import Profile
from halfbyte.device.quantity import Draws
from halfbyte.device.recording import MAX_SAMPLES, Recorder, Simulation
from halfbyte.device.speed import Task, fast_cores
from halfbyte.device.stepping import Batteries, Device, Run
from halfbyte.device.workload import CONTINUOUS, Progress, Workload
from halfbyte.errors import HalfbyteError

Maker = Callable[[Board], Governor]
GOVERNORS: dict[str, Maker] = {
    "none": Unlimited, "step-wise": StepWise, "power-allocator": PowerAllocator,
    "pacing": Pacing,
}  # fmt: skip
STEP_S = 0.5
MAX_MINUTES, MAX_DRAWS = 600.0, 10_000
AIR_C = (-30.0, 80.0)


def simulate(
    task: Task,
    profile: Profile,
    workload: Workload = CONTINUOUS,
    governor: str | Maker = "power-allocator",
    *,
    minutes: float = 10.0,
    ambient: float | F64 | None = None,
    threads: int | None = None,
    draws: int | Draws = 200,
    seed: int = 0,
    step: float = STEP_S,
    model: str = "",
    batteries: Batteries | None = None,
    samples: int = MAX_SAMPLES,
) -> Simulation:
    """A model's speed on a device over time.

    Parameters
    ----------
    task : Task
        The work: :class:`~halfbyte.device.speed.Tokens` of a plan, or
        :class:`~halfbyte.device.graphs.Runs`.
    governor : str or callable
        A name in `GOVERNORS`, or a function that creates a governor for a board.
    ambient : float or float64 [draws], optional
        Temperature of the air in degrees Celsius; the profile's by default.
    threads : int, optional
        Cores that may compute; one per fast core by default.
    draws : int or Draws
        Devices whose numbers are drawn from the profile's ranges with `seed`.
    step : float
        Length of a step in seconds; a governor's period is a whole number of steps.
    model : str
        The model's name in the result.
    batteries : Batteries, optional
        State of the batteries; new and full by default.
    samples : int
        The most samples that are recorded.

    Raises
    ------
    HalfbyteError
        A number is out of its bounds, there is no such governor, or a workload has prompts and
        the task does not.
    """
    air = np.asarray(profile.thermal.ambient_c.value if ambient is None else ambient)
    threads = fast_cores(profile) if threads is None else threads
    _check(governor, minutes, air, threads, profile.cores, draws, seed, step)
    if isinstance(draws, int):
        draws = Draws(np.random.default_rng(seed), draws)
    demand = Progress(workload, draws.count)
    device = Device(task, profile, demand, threads, draws, air, step, batteries or Batteries())
    name, make = (governor, GOVERNORS[governor]) if isinstance(governor, str) else ("", governor)
    run = Run(device, make(device.board))
    recorder = _record(run, profile, max(1, round(minutes * 60 / step)), samples)
    return recorder.result(
        model=model, unit=task.unit, governor=name or "own", workload=workload.name,
        ambient=float(air.mean()), threads=threads, seed=seed, taken_j=device.taken_j,
        stored_j=device.stored_j, given_j=device.given_j, overheated=device.hot,
    )  # fmt: skip


def _check(
    governor: str | Maker, minutes: float, air: F64, threads: int, cores: int,
    draws: int | Draws, seed: int, step: float,
) -> None:  # fmt: skip
    if isinstance(governor, str) and governor not in GOVERNORS:
        raise HalfbyteError(f"governor {governor!r}: expected one of {', '.join(GOVERNORS)}")
    periods = PERIOD_S / step if step > 0 else inf
    if not 1 <= periods < inf or abs(periods - round(periods)) > 1e-9:
        raise HalfbyteError(f"step of {step} s: expected {PERIOD_S:g} s or a whole part of it")
    for celsius in (air.min(), air.max()):
        check_bounds(minutes, celsius, draws if isinstance(draws, int) else draws.count, seed, step)
    _bounded("threads", threads, 1, cores)


def check_bounds(
    minutes: float, ambient: float | None, draws: int, seed: int, step: float = STEP_S
) -> None:
    """Raise `HalfbyteError` for numbers that `simulate` does not take."""
    _bounded("minutes", minutes, step / 60, MAX_MINUTES)
    if ambient is not None:
        _bounded("ambient", ambient, *AIR_C)
    _bounded("draws", draws, 1, MAX_DRAWS)
    if seed < 0:
        raise HalfbyteError(f"seed {seed}: expected 0 or more")


def _bounded(name: str, value: float, minimum: float, maximum: float) -> None:
    if not minimum <= value <= maximum:
        raise HalfbyteError(f"{name} {value:g}: expected {minimum:g} to {maximum:g}")


def _record(run: Run, profile: Profile, steps: int, samples: int) -> Recorder:
    """Simulate all steps."""
    device = run.device
    recorder = Recorder(
        profile, steps, device.step, device.draws, device.supplies, device.charge, samples
    )  # fmt: skip
    for index in range(steps):
        run.decide()
        done, watts = run.advance()
        recorder.add(index, done.units, done.spent, watts)
        if recorder.due(index):
            counts = by_cluster(run.orders.threads, device.supplies)
            recorder.record(
                index, device.temperatures, run.at, counts, device.charge, device.on
            )  # fmt: skip
    return recorder
