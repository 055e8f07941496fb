"""Published speeds of language models on devices, beside those that halfbyte predicts.

    python -m benches.published [--use judging] [--json FILE]

`benches/published.toml` has the figures and their sources. Others measured them, with other
programs: a prediction is of halfbyte, from a device's profile, and none of it was measured on the
device. So errors contain the difference between the programs. For each use, the medians of errors,
the share of figures in the band (10 to 90 % of draws of the profile's uncertain numbers) and how
wide that is: the median of its upper end over its lower one.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from benches.figures import add_json_option, digits, markdown, pytest_json, write_json
from benches.popular.configs import CONFIGS
from tools.make_model import Shape, empty_model

from halfbyte.device.profile import Cluster, Profile, load_profile
from halfbyte.device.quantity import Draws, Quantity, Steps
from halfbyte.device.room import DRAWS, Spread
from halfbyte.device.smaller import in_type
from halfbyte.device.speed import Processor, Speed, fast_cores
from halfbyte.formats.model_file import ModelFile
from halfbyte.text.outline import read_outline
from halfbyte.text.planning import Settings, plan

PUBLISHED = Path(__file__).with_suffix(".toml")
# Operators that other programs hand out to their threads, for each instruction of halfbyte: ggml's
# graph has about 31 barriers in a layer of a Llama, where halfbyte has 15 instructions.
OPERATORS = 2.0
USES = ("calibration", "judging")
TESTS = ("decode", "prompt")


@dataclass(frozen=True)
class Figure:
    """A published speed in tokens/s.

    Attributes
    ----------
    profile : str
        The profile of the device, or of one with the same chip: shipped, or one of `devices`.
    type : str
        A type of `quantize`, which for `pure` models the head has too.
    test : str
        "prompt" or "decode".
    tokens : int
        Tokens of the prompt, or in the context halfway through decoding.
    use : str
        "calibration": values and ranges come from it. "judging": neither.
    threads : int
        0: as many as halfbyte takes by default.
    """

    device: str
    profile: str
    framework: str
    source: str
    model: str
    type: str
    test: str
    tokens: int
    figure: float
    use: str
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

    @property
    def width(self) -> float:
        """The band's upper end over its lower one."""
        return self.predicted.high / self.predicted.low


@dataclass(frozen=True)
class Published:
    """The content of a file of figures."""

    figures: list[Figure]
    models: Mapping[str, Mapping[str, Any]]
    devices: Mapping[str, Mapping[str, Any]]

    def model(self, name: str, type: str, pure: bool) -> ModelFile:
        """A model in a type of `quantize`: of a shape, or of a config.json with other numbers."""
        entry = self.models[name]
        if "config" not in entry:
            shape = Shape(**{"context": 4096, "rope_base": 1e4, **entry})
            return empty_model(shape, type, pure=pure)
        with tempfile.TemporaryDirectory() as folder:
            config = {**CONFIGS[entry["config"]], **entry}
            Path(folder, "config.json").write_text(json.dumps(config), encoding="utf-8")
            return in_type(read_outline(Path(folder)), type)

    def profile(self, name: str) -> Profile:
        """A shipped profile, or one like it with other cores and memory."""
        if name not in self.devices:
            return load_profile(name)
        entry = self.devices[name]
        like = load_profile(entry["like"])
        known = {cluster.name: cluster for cluster in like.clusters}
        clusters = tuple(
            _cluster(known[of], f"cluster-{index}", count, mhz, entry["origin"], *times)
            for index, (count, mhz, of, *times) in enumerate(entry["cores"])
        )
        numbers = {key: _quantity(**value) for key, value in entry.items() if key in _MEMORY}
        return replace(like, clusters=clusters, memory=replace(like.memory, **numbers))


_MEMORY = ("bandwidth_gb_s", "core_bandwidth_gb_s", "cache_mb")
_PIPES = ("int8_ops_per_cycle", "float32_ops_per_cycle")


def _quantity(value: float, range: Sequence[float], **origin: str) -> Quantity:
    return Quantity(value, *range, **origin)


def _times(number: Quantity, times: float) -> Quantity:
    value, low, high = (times * part for part in (number.value, number.low, number.high))
    return replace(number, value=value, low=low, high=high)


def _cluster(
    like: Cluster, name: str, count: int, mhz: float, origin: str, times: float = 1
) -> Cluster:
    """So many cores at a frequency, of the same kind as others, with so many times their pipes."""
    pipes = {key: _times(getattr(like, key), times) for key in _PIPES}
    return replace(
        like,
        **pipes,
        name=name,
        cores=Quantity(count, count, count, origin),
        frequencies_mhz=Steps((mhz,), origin),
        voltages_mv=Steps(like.voltages_mv.values[-1:], origin),
    )


def read(path: Path = PUBLISHED) -> Published:
    """The figures of a file, with their models and devices."""
    content = tomllib.loads(path.read_text(encoding="utf-8"))
    figures = []
    for table in content["tables"]:
        shared = {key: value for key, value in table.items() if key != "figures"}
        figures += [Figure(**{**shared, **figure}) for figure in table["figures"]]
    return Published(figures, content["models"], content["devices"])


def predict(figure: Figure, published: Published) -> Row:
    """What halfbyte is predicted to reach, with weights packed; the draws are always the same."""
    profile = published.profile(figure.profile)
    model = published.model(figure.model, figure.type, figure.pure)
    planned = plan(model, Settings(context=1024, weights="packed"))
    draws = Draws(np.random.default_rng(0), DRAWS)
    speed = Speed(planned, profile, draws, position=figure.tokens, prompt=figure.tokens)
    rates = Processor(profile, figure.threads or fast_cores(profile), draws).rates()
    launch, meeting = OPERATORS * rates.launch, OPERATORS * rates.meeting
    rates = replace(rates, launch=launch, meeting=meeting)
    chosen = speed.prompt if figure.test == "prompt" else speed.token
    return Row(figure, Spread.of(1 / chosen.seconds(rates)))


def summary(rows: Sequence[Row]) -> list[list[str]]:
    """For each use and test: figures, median errors, share in the band, its median width."""
    lines = []
    for use in USES:
        for test in TESTS:
            some = [r for r in rows if (r.published.use, r.published.test) == (use, test)]
            if some:
                errors = [row.error for row in some]
                inside = sum(row.inside for row in some) / len(some)
                median = statistics.median(map(abs, errors))
                width = statistics.median(row.width for row in some)
                lines.append(
                    [
                        use, test, str(len(some)), f"{median:.0%}",
                        f"{statistics.median(errors):+.0%}", f"{inside:.0%}", f"{width:.2f}",
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
SUMMARY = [
    "use", "test", "figures", "median error", "median of signed errors", "inside", "width",
]  # fmt: skip


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benches.published",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--use", choices=USES, help="only these")
    add_json_option(parser)
    options = parser.parse_args()
    published = read()
    rows = [predict(f, published) for f in published.figures if options.use in (None, f.use)]
    print(markdown(HEADS, [cells(row) for row in rows], left=7))
    print(f"\n{markdown(SUMMARY, summary(rows), left=2)}")
    table: list[dict[str, Any]] = [dict(zip(HEADS, cells(row), strict=True)) for row in rows]
    write_json(options.json, pytest_json([], "benches/published", rows=table))


if __name__ == "__main__":
    main()
