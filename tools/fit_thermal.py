"""Fit a phone's thermal network to recordings of its temperatures, and judge it on others.

    python tools/fit_thermal.py a.npz b.npz                     fits, and judges each by the rest
    python tools/fit_thermal.py a.npz b.npz -o part.toml        writes part of a device profile
    python tools/fit_thermal.py a.npz --evaluate c.npz          predicts other recordings
    python tools/fit_thermal.py --profile phone.toml --evaluate c.npz   by a profile's network

A recording has temperatures, but no watts; tools/thermal/fitting.py describes the network and which
of its values can be known. The fit minimizes squared differences, of the prediction by all sensors
and of the prediction by those of the CPUs alone, over the logarithms of the values. Differences
count in full up to `COUNTED_K` and less beyond, since other things warm a phone at times; those
within a minute count as one, since they are alike. Guesses restrain values that recordings do not
determine. The body's and the air's temperature of each recording follow from its first minutes.

Predictions are judged after these minutes, three times: with all sensors prescribed, with those of
the CPUs, and from load only with the power of --device. Beside them: holding the first temperature
and the last of the first minutes, and the line through these. Each recording is predicted by a fit
to the others; a single one by fits to its halves, each predicting the other. Ranges are the
differences that phones have from day to day and the uncertainty of the fit, multiplied by what
makes four fifths of the ticks of these predictions, and of their parts, lie within 10 to 90 %.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares

from halfbyte.device.profile import Profile, load_profile
from halfbyte.errors import HalfbyteError, OutputError
from halfbyte.outputs import write_text

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # when run as a script

from tools.thermal.fitting import (
    ALIKE_S,
    CAPACITIES,
    CONDUCTANCES,
    DRIVES,
    GUESS,
    WITHIN,
    predict,
    sensors,
)
from tools.thermal.judging import Result, cut, judge, pieces, widened
from tools.thermal.part import Fit, toml
from tools.thermal.traces import Recording, read_recording

Floats = NDArray[np.float64]

COUNTED_K = {"gpu": 1.0, "chassis": 0.5, "battery": 0.3}
APART = 0.05  # standard deviation of values from day to day: another case, hand, table
ROUNDS = 3  # of widening ranges
NUDGE = 1e-5  # of a parameter, for derivatives
DEVICE = "galaxy-s25"


@dataclass(frozen=True)
class Crossed:
    """Results of recordings, and of pieces that are not whole, each with what was fitted to."""

    fitted_to: str
    result: Result
    whole: bool


def differences(recordings: Sequence[Recording], points: Floats) -> Floats:
    """Softened and weighed differences [points, those of all recordings, drives and nodes] of
    `points` [points, as in GUESS], logarithms of values."""
    each = []
    for recording in recordings:
        measured = sensors(recording)
        for drive in DRIVES:
            found = predict(recording, np.exp(points), drive).temperatures
            for node in (name for name in COUNTED_K if name in found):
                ratio = (found[node] - measured[node][:, None]) / COUNTED_K[node]
                softened = ratio * np.sqrt(2 / (1 + np.sqrt(1 + ratio**2)))
                each.append(softened.T * np.sqrt(recording.tick_s / ALIKE_S))
    return np.concatenate(each, axis=1)


def fit(recordings: Sequence[Recording]) -> Fit:
    """Fit values to recordings.

    Raises
    ------
    HalfbyteError
        There are fewer ticks than values.
    """
    ticks = sum(len(recording.air_c) for recording in recordings)
    if ticks < len(GUESS):
        names = ", ".join(str(recording.path) for recording in recordings)
        raise HalfbyteError(f"{names}: expected {len(GUESS)} ticks or more, found {ticks}")
    middle = np.log(GUESS)

    def residuals(points: Floats) -> Floats:
        return np.concatenate([differences(recordings, points), (points - middle) / WITHIN], axis=1)

    def derivatives(point: Floats) -> Floats:
        values = residuals(np.vstack([point, point + NUDGE * np.eye(len(point))]))  # all at once
        return np.asarray((values[1:] - values[0]).T / NUDGE)

    solution = least_squares(
        lambda point: residuals(point[None])[0], middle, jac=derivatives, ftol=1e-6, max_nfev=60
    )
    alone = 1 / np.sqrt((solution.jac**2).sum(axis=0))
    return Fit(np.exp(solution.x), np.hypot(alone, APART))


def folds(recordings: Sequence[Recording]) -> Iterator[tuple[list[Recording], Recording]]:
    """What to fit to, and what to predict: each recording by the others, one by its halves."""
    if len(recordings) == 1:
        whole, ticks = recordings[0], len(recordings[0].air_c)
        halves = cut(whole, 0, ticks // 2), cut(whole, ticks // 2, ticks)
        yield from (([halves[0]], halves[1]), ([halves[1]], halves[0]))
        return
    for one in recordings:
        yield [other for other in recordings if other is not one], one


def crossed(fits: Sequence[tuple[Fit, str, Recording]], profile: Profile) -> list[Crossed]:
    """All results of recordings and their pieces."""
    return [
        Crossed(name, result, piece is recording or len(piece.air_c) == len(recording.air_c))
        for fitted, name, recording in fits
        for piece in pieces(recording)
        for result in judge(piece, fitted, profile)
    ]


def cover(recordings: Sequence[Recording], profile: Profile) -> list[tuple[Fit, str, Recording]]:
    """Fits to the others of each recording, with ranges that cover four fifths of it."""
    fits = [(fit(others), _names(others), one) for others, one in folds(recordings)]
    for _ in range(ROUNDS):  # parts of a band do not widen with the ranges, so that one is too few
        results = [
            result
            for fitted, _, one in fits
            for piece in pieces(one)
            for result in judge(piece, fitted, profile, list(DRIVES))
        ]
        battery, rest = widened(results)
        fits = [
            (replace(f, widen=(f.widen[0] * battery, f.widen[1] * rest)), name, one)
            for f, name, one in fits
        ]
    return fits


def _names(recordings: Sequence[Recording]) -> str:
    return ", ".join(recording.path.stem for recording in recordings)


def summary(fitted: Fit) -> str:
    """The values as text."""
    names = [f"{name}, J/K" for name in CAPACITIES]
    names += [f"{a} - {b}, W/K" for a, b in CONDUCTANCES] + ["at rest, W"]
    rows = zip(names, fitted.values, fitted.ranges, strict=True)
    return "\n".join(
        f"{name:32}{value:10.4g}   +- {100 * part:.0f} %" for name, value, part in rows
    )


def table(results: Sequence[Crossed]) -> str:
    """Mean errors of whole recordings in kelvins, as Markdown."""
    lines = [
        "| fitted to | recording | driven by | sensor | predicted | first held | held after 3 min "
        "| linear | inside |",
        "|---|---|---|---|--:|--:|--:|--:|--:|",
    ]
    for one in results:
        if one.whole:
            r = one.result
            errors = " | ".join(f"{e:.2f}" for e in (r.predicted, r.first, r.held, r.linear))
            lines.append(f"| {one.fitted_to} | {r.recording.path.stem} | {r.drive} | {r.node} "
                         f"| {errors} | {100 * r.inside:.0f} % |")  # fmt: skip
    return "\n".join(lines)


def coverage(results: Sequence[Crossed]) -> str:
    """Of all recordings and pieces: the share of ticks inside, and how often holding is beaten."""
    lines = ["| driven by | sensor | median error | beats holding | inside |",
             "|---|---|--:|--:|--:|"]  # fmt: skip
    for drive, node in dict.fromkeys((one.result.drive, one.result.node) for one in results):
        own = [
            one.result for one in results if (one.result.drive, one.result.node) == (drive, node)
        ]
        beats = sum(r.predicted < min(r.first, r.held) for r in own)
        inside = 100 * float(np.mean([r.inside for r in own]))
        lines.append(f"| {drive} | {node} | {np.median([r.predicted for r in own]):.2f} "
                     f"| {beats} of {len(own)} | {inside:.0f} % |")  # fmt: skip
    every = 100 * float(np.mean([one.result.inside for one in results]))
    return "\n".join([*lines, f"| all | all | | | {every:.0f} % |"])


def run(options: argparse.Namespace) -> None:
    """Run the command; raises `HalfbyteError`."""
    recordings = [read_recording(path) for path in options.files]
    others = [read_recording(path) for path in options.evaluate]
    _check_output(options)
    profile = load_profile(options.device)
    if options.profile:
        judged: Fit | Profile = load_profile(options.profile)
    else:
        fits = cover(recordings, profile)
        judged = replace(fit(recordings), widen=fits[0][0].widen)
        print(f"{summary(judged)}\n")
        results = crossed(fits, profile)
        print(f"{table(results)}\n\nwith the pieces:\n\n{coverage(results)}")
        if options.output:
            write_text(options.output, toml(judged, recordings).rstrip())
    name = options.profile or _names(recordings)
    found = [
        Crossed(name, result, True)
        for one in others
        for result in judge(one, judged, profile if isinstance(judged, Fit) else judged)
    ]  # fmt: skip
    if found:
        print(f"\n{table(found)}\n\n{coverage(found)}")


def _check_output(options: argparse.Namespace) -> None:
    out: Path | None = options.output
    if out and (out.is_dir() or not out.parent.is_dir()):
        raise OutputError(f"{out}: cannot be written: expected a file in a folder that exists")
    if out and out.resolve() in {p.resolve() for p in (*options.files, *options.evaluate)}:
        raise OutputError(f"{out}: is a recording; choose another output")


def main(arguments: Sequence[str] | None = None) -> None:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    paths: dict[str, Any] = {"type": Path, "metavar": "FILE"}
    add = parser.add_argument
    add("files", nargs="*", help="recordings to fit to", **paths)
    add("--evaluate", nargs="+", default=[], help="recordings to predict", **paths)
    add("--profile", metavar="NAME", help="judge this profile's network, and fit none")
    add("--device", default=DEVICE, metavar="NAME", help="whose power heats (%(default)s)")
    add("-o", "--output", type=Path, metavar="OUT.toml", help="the part of a profile to write")
    options = parser.parse_args(arguments)
    if bool(options.files) == bool(options.profile):
        parser.error("expected recordings to fit to, or --profile")
    if options.profile and not options.evaluate:
        parser.error("--profile: expected recordings after --evaluate")
    if options.profile and options.output:
        parser.error("--profile: nothing is fitted that --output could write")
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
