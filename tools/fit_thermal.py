"""Fit a phone's thermal couplings to recordings of its temperatures, and check them on others.

    python tools/fit_thermal.py s25_stress.npz                      prints values with ranges
    python tools/fit_thermal.py s25_stress.npz -o part.toml         writes part of a device profile
    python tools/fit_thermal.py s25_stress.npz --evaluate s25.npz   predicts another recording

A recording has temperatures of the chips, the chassis and the battery, but no watts;
tools/thermal/fitting.py describes the model and which of its values can be known. Chips have the
measured temperatures; chassis and battery are computed over a whole file from its first tick on.
The fit minimizes squared differences over the logarithms of the values. Differences count in full
up to 0.3 K and less beyond, since other things warm a phone at times; those within a minute count
as one, since they are alike. Guesses from published constants restrain values that recordings do
not determine. The air of a fitted recording is fitted as well, around the recorder's estimate,
since it was not measured. That of an evaluated recording is the estimate of its first tick, and
nothing else is taken from it.

Ranges come from leaving out each sixth of the recordings in turn, whose errors are then those of a
prediction ("left out" below); they are two standard errors of the jackknife.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares

from halfbyte.errors import HalfbyteError, OutputError
from halfbyte.outputs import write_text

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # when run as a script

from tools.thermal import fitting
from tools.thermal.fitting import BATTERY_J_K, CAPACITIES, CHIPS, CONDUCTANCES, GUESS
from tools.thermal.traces import Recording, read_recording

Floats = NDArray[np.float64]

FULL_K = 0.3  # differences up to here count in full
ALIKE_S = 60.0  # differences within this time count as one
GUESS_WITHIN = 1.5  # standard deviation of a value's logarithm around its guess
AIR_WITHIN_K = 3.0  # that of the air's temperature around the recorder's estimate
BLOCKS = 6
NUDGE = 1e-6  # of a parameter, for derivatives
_CHIP = (  # from a die with its package only to everything attached to it
    '{ value = 10, range = [2, 40], assumed = "the recordings hold no watts" }'
)


@dataclass(frozen=True)
class Fit:
    """`values` as in GUESS with `low` and `high`, and mean errors in kelvins of the two measured
    nodes in blocks that were left out [BLOCKS, 2]; without blocks, both are empty."""

    values: Floats
    low: Floats
    high: Floats
    left_out: Floats


def differences(recordings: Sequence[Recording], points: Floats) -> Floats:
    """Predicted minus measured, [points, ticks of all, 2], of chassis and battery.

    A point [draws, as in GUESS, then recordings] has logarithms of values, and the differences of
    the air's temperatures from the recorders' estimates.
    """
    count, each = len(GUESS), []
    for i, recording in enumerate(recordings):
        air = recording.air_c[0] + points[:, count + i]
        predicted = fitting.predict(recording, np.exp(points[:, :count]), air)[:, :, :2]
        battery = fitting.between_readings(recording)
        measured = np.stack([recording.zones["CHASSIS"], battery], axis=1)
        each.append(predicted - measured[:, None])
    return np.asarray(np.concatenate(each).swapaxes(0, 1))


def find(recordings: Sequence[Recording], counts: NDArray[np.bool_], start: Floats) -> Floats:
    """The best point, starting at `start`, for the ticks that count."""
    middle = np.concatenate([np.log(GUESS), np.zeros(len(recordings))])
    within = np.concatenate([np.full(len(GUESS), GUESS_WITHIN), [AIR_WITHIN_K] * len(recordings)])
    one = np.sqrt(np.concatenate([np.full(len(r.air_c), r.tick_s / ALIKE_S) for r in recordings]))

    def residuals(points: Floats) -> Floats:
        ratio = differences(recordings, points) / FULL_K
        softened = ratio * np.sqrt(2 / (1 + np.sqrt(1 + ratio**2)))
        weighed = (softened * one[:, None])[:, counts]
        return np.concatenate([weighed.reshape(len(points), -1), (points - middle) / within], 1)

    def derivatives(point: Floats) -> Floats:
        nudged = np.vstack([point, point + NUDGE * np.eye(len(point))])
        values = residuals(nudged)  # all at once
        return np.asarray((values[1:] - values[0]).T / NUDGE)

    solution = least_squares(lambda p: residuals(p[None])[0], start, jac=derivatives, max_nfev=200)
    return np.asarray(solution.x, np.float64)


def fit(recordings: Sequence[Recording], blocks: int = BLOCKS) -> Fit:
    """Fit values and, with 2 blocks or more, their ranges.

    Raises
    ------
    HalfbyteError
        There are fewer ticks than values.
    """
    ticks = sum(len(recording.air_c) for recording in recordings)
    if ticks < len(GUESS):
        names = ", ".join(str(recording.path) for recording in recordings)
        raise HalfbyteError(f"{names}: expected {len(GUESS)} ticks or more, found {ticks}")
    guess = np.concatenate([np.log(GUESS), np.zeros(len(recordings))])
    best = find(recordings, np.ones(ticks, bool), guess)
    values = np.exp(best[: len(GUESS)])
    if blocks < 2:
        return Fit(values, values, values, np.empty((0, 2)))
    others, left_out = [], []
    for part in np.array_split(np.arange(ticks), blocks):
        counts = np.ones(ticks, bool)
        counts[part] = False
        point = find(recordings, counts, best)
        others.append(point[: len(GUESS)])
        left_out.append(np.abs(differences(recordings, point[None])[0, part]).mean(axis=0))
    spread = 2 * np.std(others, axis=0) * np.sqrt(blocks - 1)
    return Fit(values, values * np.exp(-spread), values * np.exp(spread), np.array(left_out))


def profile_part(fitted: Fit, recordings: Sequence[Recording]) -> str:
    """TOML tables that replace a device's nodes and links.

    Capacities of chips are assumed: a profile needs them, and recordings do not determine them.
    """
    names = ", ".join(r.path.name.encode("utf-8", "replace").decode() for r in recordings)
    source = json.dumps(f"fitted to {names} by tools/fit_thermal.py", ensure_ascii=False)
    scale = (
        "the recordings hold no watts: the published 75 J/K of the battery sets the scale of every "
        "heat capacity and resistance here"
    )
    load = fitted.values[-1], fitted.low[-1], fitted.high[-1]
    lines = [
        "# In place of all [thermal.nodes] and [[thermal.links]] of a profile.",
        f"# Battery's heat under load: {load[0]:.3g} W (from {load[1]:.3g} to {load[2]:.3g}) where "
        f"the small cores are {fitting.LOAD_K:g} K warmer than the GPU, by the square of that.",
        "[thermal.nodes.battery]",
        f"heat_capacity_j_k = {{ value = {BATTERY_J_K:g}, range = [50, 100], "
        f"assumed = {json.dumps(scale)} }}",
    ]

    def quantity(i: int, inverse: bool) -> str:
        value, *ends = (
            1 / v[i] if inverse else v[i] for v in (fitted.values, fitted.low, fitted.high)
        )
        low, high = sorted(ends)
        return f"{{ value = {value:.4g}, range = [{low:.4g}, {high:.4g}], source = {source} }}"

    for name in CHIPS:
        lines += ["", f"[thermal.nodes.{name}]", f"heat_capacity_j_k = {_CHIP}"]
    for i, name in enumerate(CAPACITIES):
        lines += ["", f"[thermal.nodes.{name}]", f"heat_capacity_j_k = {quantity(i, False)}"]
    for i, (a, b) in enumerate(CONDUCTANCES, len(CAPACITIES)):
        lines += ["", "[[thermal.links]]", f'between = ["{a}", "{b}"]']
        lines += [f"resistance_k_w = {quantity(i, True)}"]
    return "\n".join(lines) + "\n"


def summary(fitted: Fit) -> str:
    """The fit as text."""
    names = [f"{name}, J/K" for name in CAPACITIES]
    names += [f"{a} - {b}, W/K" for a, b in CONDUCTANCES]
    names += [f"battery under load, W at {fitting.LOAD_K:g} K"]
    rows = zip(names, fitted.values, fitted.low, fitted.high, strict=True)
    lines = [f"{name:32}{value:10.4g}   {low:.3g} to {high:.3g}" for name, value, low, high in rows]
    lines += ["", "left out, mean error in K    " + "   ".join(fitting.MEASURED)]
    for i, (chassis, battery) in enumerate(fitted.left_out):
        lines.append(f"  {i + 1} of {len(fitted.left_out)}{chassis:28.2f}{battery:10.2f}")
    return "\n".join(lines)


def run(options: argparse.Namespace) -> None:
    """Run the command; raises `HalfbyteError`."""
    recordings = [read_recording(path) for path in options.files]
    others = [read_recording(path) for path in options.evaluate]
    if options.output and (options.output.is_dir() or not options.output.parent.is_dir()):
        raise OutputError(f"{options.output}: cannot be written: expected a file in a folder "
                          "that exists")  # fmt: skip
    if options.output and options.output.resolve() in {
        path.resolve() for path in (*options.files, *options.evaluate)
    }:
        raise OutputError(f"{options.output}: is a recording; choose another output")
    fitted = fit(recordings)
    print(summary(fitted))
    for recording in others:
        print(f"\n{recording.path.name}: mean error in K     predicted   first one held")
        for zone, (ours, holding) in fitting.errors(recording, fitted.values).items():
            print(f"  {zone:40}{ours:8.2f}{holding:17.2f}")
    if options.output:
        write_text(options.output, profile_part(fitted, recordings).rstrip())


def main(arguments: Sequence[str] | None = None) -> None:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    paths: dict[str, Any] = {"nargs": "+", "type": Path, "metavar": "FILE"}
    add = parser.add_argument
    add("files", help="recordings to fit to", **paths)
    add("--evaluate", default=[], help="recordings to predict, none of those fitted to", **paths)
    add("-o", "--output", type=Path, metavar="OUT.toml", help="the part of a profile to write")
    options = parser.parse_args(arguments)
    if both := {path.resolve() for path in options.files} & {
        path.resolve() for path in options.evaluate
    }:
        parser.error(f"{both.pop()}: fitted to and evaluated: errors would flatter")
    try:
        run(options)
    except HalfbyteError as error:
        print(f"fit_thermal: {error}", file=sys.stderr)
        raise SystemExit(2) from None


if __name__ == "__main__":
    main()
