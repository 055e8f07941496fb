"""Published speeds of language models on devices, beside those that halfbyte predicts.

    python -m benches.published [--use judging] [--json FILE]

`benches/published.toml` has the figures and their sources. Others measured them, with other
programs: a prediction is of halfbyte, from a device's profile, and none of it was measured on the
device. So errors contain the difference between the programs. For each half, the medians of errors
and the share of figures in the band (10 to 90 % of draws of the profile's uncertain numbers).
"""

from __future__ import annotations

import argparse
import statistics
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from benches.figures import add_json_option, digits, markdown, pytest_json, write_json
from tools.make_model import Shape, empty_model

from halfbyte.device.fit import DRAWS, Spread
from halfbyte.device.profile import load_profile
from halfbyte.device.quantity import Draws
from halfbyte.device.speed import Processor, Speed, fast_cores
from halfbyte.text.planning import Settings, plan

ROOT = Path(__file__).parents[1]
PUBLISHED = Path(__file__).with_suffix(".toml")
USES = ("calibration", "judging")
TESTS = ("decode", "prompt")


@dataclass(frozen=True)
class Figure:
    """A published speed in tokens/s.

    Attributes
    ----------
    profile : str
        The profile of the device, or of one with the same chip: a name, or a path from the root.
    type : str
        A type of `quantize`, which for `pure` models the head has too.
    test : str
        "prompt" or "decode".
    tokens : int
        Tokens of the prompt, or in the context halfway through decoding.
    threads : int
        0: as many as halfbyte takes by default.
    use : str
        "calibration" or "judging".
    """

    device: str
    profile: str
    framework: str
    use: str
    source: str
    model: str
    type: str
    test: str
    tokens: int
    figure: float
    threads: int = 0
    pure: bool = False


@dataclass(frozen=True)
class Row:
    """A figure beside its prediction."""

    published: Figure
    predicted: Spread

    @property
    def error(self) -> float:
        """(predicted - published) / published."""
        return self.predicted.median / self.published.figure - 1

    @property
    def inside(self) -> bool:
        """Whether the figure is in the band."""
        return self.predicted.low <= self.published.figure <= self.predicted.high


def read(path: Path = PUBLISHED) -> tuple[dict[str, Shape], list[Figure]]:
    """The models and the figures of a file."""
    content = tomllib.loads(path.read_text(encoding="utf-8"))
    figures = []
    for table in content["tables"]:
        shared = {key: value for key, value in table.items() if key != "figures"}
        figures += [Figure(**{**shared, **figure}) for figure in table["figures"]]
    usual = {"context": 4096, "rope_base": 1e4}
    return {name: Shape(**{**usual, **m}) for name, m in content["models"].items()}, figures


def predict(figure: Figure, shapes: Mapping[str, Shape]) -> Row:
    """What halfbyte is predicted to reach, with weights packed; the draws are always the same."""
    place = figure.profile
    profile = load_profile(ROOT / place if place.endswith(".toml") else place)
    model = empty_model(shapes[figure.model], figure.type, pure=figure.pure)
    planned = plan(model, Settings(context=1024, weights="packed"))
    draws = Draws(np.random.default_rng(0), DRAWS)
    speed = Speed(planned, profile, draws, position=figure.tokens, prompt=figure.tokens)
    rates = Processor(profile, figure.threads or fast_cores(profile), draws).rates()
    chosen = speed.prompt if figure.test == "prompt" else speed.token
    return Row(figure, Spread.of(1 / chosen.seconds(rates)))


def summary(rows: Sequence[Row]) -> list[list[str]]:
    """For each half and test: figures, median error, median ratio, share in the band."""
    lines = []
    for use in USES:
        for test in TESTS:
            some = [r for r in rows if (r.published.use, r.published.test) == (use, test)]
            if some:
                errors = [row.error for row in some]
                inside = sum(row.inside for row in some) / len(some)
                median = statistics.median(map(abs, errors))
                lines.append(
                    [
                        use, test, str(len(some)), f"{median:.0%}",
                        f"{statistics.median(errors):+.0%}", f"{inside:.0%}",
                    ]
                )  # fmt: skip
    return lines


def cells(row: Row) -> list[str]:
    """One line of the table."""
    of, spread = row.published, row.predicted
    low, median, high = (digits(value) for value in (spread.low, spread.median, spread.high))
    threads = str(of.threads or "default")
    return [
        of.use, of.device, of.framework, of.model, of.type, threads, f"{of.test} {of.tokens}",
        median, f"{low} to {high}", f"{of.figure:g}", f"{row.error:+.0%}",
        "yes" if row.inside else "no",
    ]  # fmt: skip


HEADS = [
    "use", "device", "framework", "model", "type", "threads", "test", "predicted", "band",
    "published", "error", "inside",
]  # fmt: skip
SUMMARY = ["use", "test", "figures", "median error", "median of signed errors", "inside"]


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benches.published",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--use", choices=USES, help="only this half")
    add_json_option(parser)
    options = parser.parse_args()
    shapes, figures = read()
    rows = [predict(f, shapes) for f in figures if options.use in (None, f.use)]
    print(markdown(HEADS, [cells(row) for row in rows], left=7))
    print(f"\n{markdown(SUMMARY, summary(rows), left=2)}")
    table: list[dict[str, Any]] = [dict(zip(HEADS, cells(row), strict=True)) for row in rows]
    write_json(options.json, pytest_json([], "benches/published", rows=table))


if __name__ == "__main__":
    main()
