"""``python -m benches.governors MODEL``: pacing beside Linux's governors, on simulated phones.

A thousand devices of each of three phones decode a model for ten minutes in air of 25 degrees; all
governors have the same devices. `Tuning` of pacing was chosen on `TUNED_ON` (of what leaves a
spread of at most a fifth of the power allocator's, the fastest), not on `PHONES`. The power
allocator is Linux's with its default constants, and without its integral, which sums what is too
hot but not what is too cool.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
from benches.figures import digits, markdown

from halfbyte.device.cost import F64
from halfbyte.device.governors import Board, Governor, PowerAllocator
from halfbyte.device.pacing import Pacing, Tuning
from halfbyte.device.profile import load_profile
from halfbyte.device.simulate import GOVERNORS, simulate
from halfbyte.device.speed import Tokens
from halfbyte.device.summary import band, quantities
from halfbyte.formats import open_model
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
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=Path, help="of about a billion weights in int4")
    parser.add_argument("--devices", default=",".join(PHONES), help="default: %(default)s")
    parser.add_argument("--draws", type=int, default=1000)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--ambient", type=float, default=AMBIENT)
    parser.add_argument("--seed", type=int, default=2026)
    parser.add_argument("--tuning", type=json.loads, default={}, help="of pacing, as JSON")
    options = parser.parse_args()
    COMPARED["pacing"] = lambda board: Pacing(board, Tuning(**options.tuning))
    planned = plan(open_model(options.model), LEVELS["baseline"])
    rows = []
    for name in options.devices.split(","):
        rows += compare(planned, name, options)
    heads = ["device", "governor", "first minute", "sustained", "spread", "node C", "J/token"]
    print(markdown(heads, rows, left=2))


def compare(planned: Plan, name: str, options: argparse.Namespace) -> list[list[str]]:
    """A row a governor: medians, and what a tenth and nine tenths do not exceed."""
    profile, rows = load_profile(name), []
    node = profile.thermal.allocator.node
    for governor, make in COMPARED.items():
        s = simulate(
            Tokens(planned), profile, governor=make, minutes=options.minutes,
            ambient=options.ambient, draws=options.draws, seed=options.seed,
        )  # fmt: skip
        found = quantities(s)
        rows.append(
            [
                name, governor, shown(found["first_minute_tokens_s"]),
                shown(found["sustained_tokens_s"]), shown(100 * found["token_spread"], " %"),
                shown(s.temperatures[node][-1].astype(np.float64)),
                shown(found["joules_per_token"]),
            ]
        )  # fmt: skip
    return rows


def shown(values: F64, unit: str = "") -> str:
    """The median and the range."""
    found = band(values)
    low, median, high = (digits(float(value)) for value in (found.low, found.median, found.high))
    return f"{median}{unit} ({low} to {high})"


if __name__ == "__main__":
    main()
