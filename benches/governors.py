"""Pacing beside Linux's governors, on simulated phones.

    python -m benches.governors MODEL [--json FILE]

A thousand devices of each of three phones decode a model for ten minutes in air of 25 degrees; all
governors have the same devices. The `Tuning` of pacing was chosen on `TUNED_ON`, not on `PHONES`:
among the settings with a spread of at most a fifth of the power allocator's, the fastest. The power
allocator is Linux's, with its default constants, and once without its integral, which sums only
temperatures above the target.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
from benches.figures import add_json_option, digits, markdown, pytest_json, write_json

from halfbyte.device.cost import F64
from halfbyte.device.governors import Board, Governor, PowerAllocator
from halfbyte.device.pacing import Pacing, Tuning
from halfbyte.device.profile import load_profile
from halfbyte.device.simulate import GOVERNORS, simulate
from halfbyte.device.speed import Tokens
from halfbyte.device.summary import band, quantities
from halfbyte.text.opening import open_model
from halfbyte.text.planning import LEVELS, Plan, plan

PHONES = ("pixel-6", "galaxy-s25", "oneplus-12")
TUNED_ON = ("iphone-16-pro", "macbook-air-m1")
AMBIENT = 25.0


class NoIntegral(PowerAllocator):
    """The power allocator with k_i = 0."""

    INTEGRAL = 0.0


COMPARED: dict[str, Callable[[Board], Governor]] = {
    **GOVERNORS, "power-allocator, k_i = 0": NoIntegral,
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benches.governors",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("model", type=Path, help="of about a billion weights in int4")
    parser.add_argument("--devices", default=",".join(PHONES), help="default: %(default)s")
    parser.add_argument("--draws", type=int, default=1000)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--ambient", type=float, default=AMBIENT)
    parser.add_argument("--seed", type=int, default=2026)
    parser.add_argument("--tuning", type=json.loads, default={}, help="of pacing, as JSON")
    add_json_option(parser)
    options = parser.parse_args()
    COMPARED["pacing"] = lambda board: Pacing(board, Tuning(**options.tuning))
    planned = plan(open_model(options.model), LEVELS["baseline"])
    rows = []
    for name in options.devices.split(","):
        rows += compare(planned, name, options)
    heads = ["device", "governor", "first minute", "sustained", "spread", "node C", "J/token"]
    print(markdown(heads, rows, left=2))
    figures = [dict(zip(heads, row, strict=True)) for row in rows]
    write_json(options.json, pytest_json([], "benches/governors", rows=figures))


def compare(planned: Plan, name: str, options: argparse.Namespace) -> list[list[str]]:
    """One row per governor: medians, and the values below which 10 and 90 % of devices are."""
    profile, rows = load_profile(name), []
    node = profile.thermal.allocator.node
    for governor, make in COMPARED.items():
        s = simulate(
            Tokens(planned), profile, governor=make, minutes=options.minutes,
            ambient=options.ambient, draws=options.draws, seed=options.seed,
        )  # fmt: skip
        results = quantities(s)
        rows.append(
            [
                name, governor, shown(results["first_minute_tokens_s"]),
                shown(results["sustained_tokens_s"]), shown(100 * results["token_spread"], " %"),
                shown(s.temperatures[node][-1].astype(np.float64)),
                shown(results["joules_per_token"]),
            ]
        )  # fmt: skip
    return rows


def shown(values: F64, unit: str = "") -> str:
    """The median and the range."""
    each = band(values)
    low, median, high = (digits(float(value)) for value in (each.low, each.median, each.high))
    return f"{median}{unit} ({low} to {high})"


if __name__ == "__main__":
    main()
