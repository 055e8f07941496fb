"""Measured figures: medians and ratios, and the JSON files that benches write with `--json`.

A file is in pytest-benchmark's format. Beside its entries stand the command, the processor, the
versions of the peers, and in `rows` figures that are not times. `benches.report` reads such files.
An entry with a yardstick has the yardstick's times too, and the process of each round.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import re
import shlex
import statistics
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benches.samples import NOISY, variation
from pytest_benchmark.stats import Stats

from halfbyte.core.backends.libraries import instruction_sets
from halfbyte.outputs import write_text

Content = dict[str, Any]
NOT_SHOWN = ("--json", "--compare")  # with a value; options that change no figure
# Engines that are not halfbyte's: shown beside it, and never judged
PEERS = (
    "gguf", "ik_llama.cpp", "litert", "llama.cpp", "onnxruntime", "onnxruntime-web", "openvino",
    "pytorch", "pytorch-compiled", "tokenizers", "transformers.js", "wllama-2", "wllama-3",
)  # fmt: skip
ROUNDS = ("unit", "yardstick", "beside", "passes")  # of a series, in a file


@dataclass
class Series:
    """Seconds that one engine takes for one thing (a token, a start), one value per round.

    Attributes
    ----------
    unit
        "s", or "B": the values are bytes.
    source
        The bench, such as "benches/products"; empty for that of the file.
    yardstick, beside
        What was timed beside each round, and its seconds; see `benches.yardstick`.
    passes
        The process of each round, by number.
    """

    model: str
    engine: str
    test: str  # "pp128", "tg64", "load", ...
    threads: int = 1
    seconds: list[float] = field(default_factory=list)
    more: dict[str, Any] = field(default_factory=dict)
    unit: str = "s"
    source: str = ""
    yardstick: str = ""
    beside: list[float] = field(default_factory=list)
    passes: list[int] = field(default_factory=list)

    @property
    def name(self) -> str:
        """Of the entry in a file, without its source."""
        return f"{self.test}[{self.model}-{self.engine}-{self.threads}]"

    @property
    def ratios(self) -> list[float]:
        """The values by those of the yardstick; the values themselves if there is none."""
        if not self.beside:
            return self.seconds
        return [value / beside for value, beside in zip(self.seconds, self.beside, strict=True)]

    @property
    def by_pass(self) -> list[list[float]]:
        """The ratios of each process."""
        numbers = self.passes or [0] * len(self.seconds)
        return [
            [ratio for ratio, its in zip(self.ratios, numbers, strict=True) if its == number]
            for number in dict.fromkeys(numbers)
        ]

    @property
    def noisy(self) -> bool:
        """Whether the values vary too much to be judged."""
        return variation(self.ratios) > NOISY

    @property
    def median(self) -> float:
        """Median of the seconds."""
        return statistics.median(self.seconds)

    @property
    def speed(self) -> float:
        """Median of tokens/s."""
        return 1 / self.median

    def times_as_fast_as(self, other: Series) -> float:
        """Median of the rounds' ratios, which a noisy machine changes least."""
        pairs = zip(self.seconds, other.seconds, strict=False)
        return statistics.median(theirs / ours for ours, theirs in pairs)


def counterpart(group: Iterable[Series]) -> Series | None:
    """Of the engines of one test, that of halfbyte which peers are compared with: the first.

    Encoders of llama.cpp's that search are compared with the one that searches.
    """
    ours = [one for one in group if one.engine not in PEERS and one.seconds]
    alike = [one for one in ours if one.engine == "search" and one.more.get("searches")]
    return next(iter([*alike, *ours]), None)


# ---- tables --------------------------------------------------------------------------------------


def digits(value: float) -> str:
    """Three significant digits, no exponent."""
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def markdown(header: Sequence[str], rows: Sequence[Sequence[str]], left: int = 1) -> str:
    """An aligned Markdown table; the first `left` columns hold text, the others numbers."""
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
    lines = []
    for row in (header, *rows):
        cells = [
            cell.ljust(width) if index < left else cell.rjust(width)
            for index, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append(f"| {' | '.join(cells)} |")
    rule = ["-" * (w + 2) if i < left else "-" * (w + 1) + ":" for i, w in enumerate(widths)]
    lines.insert(1, f"|{'|'.join(rule)}|")
    return "\n".join(lines)


# ---- files ---------------------------------------------------------------------------------------


def pytest_json(
    series: Sequence[Series],
    source: str,
    *,
    rows: Sequence[dict[str, Any]] = (),
    versions: dict[str, str] | None = None,
    **machine: Any,
) -> Content:
    """All figures of a bench as pytest-benchmark's format.

    `source` is the bench ("benches/peers"), `versions` those of its peers, and `machine` what it
    measured of this machine. Numbers have six significant digits.
    """
    content = {
        "command": command_of(source, sys.argv[1:]),
        "versions": versions or {},
        "machine_info": {**machine_info(), **machine},
        "commit_info": {},
        "benchmarks": entries(series, source),
        "rows": list(rows),
        "datetime": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "version": "5.3.1",
    }
    return _rounded(content)  # type: ignore[no-any-return]


def command_of(source: str, arguments: Sequence[str]) -> str:
    """How to run a bench again, without the options that name files of figures."""
    left, shown = list(arguments), []
    while left:
        word = left.pop(0)
        if word in NOT_SHOWN:
            left = left[1:]
        elif not word.startswith(tuple(f"{option}=" for option in NOT_SHOWN)):
            shown.append(word)
    return shlex.join(["python", "-m", source.replace("/", "."), *shown])


def series_of(content: Content) -> list[Series]:
    """The series that a file was written from."""
    return [
        Series(
            **entry["params"], seconds=entry["stats"]["data"], more=entry["extra_info"],
            source=entry["fullname"].split("::")[0], **entry.get("rounds", {}),
        )
        for entry in content["benchmarks"]
    ]  # fmt: skip


def add_json_option(parser: argparse.ArgumentParser) -> None:
    """The option that all benches have."""
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures here")


def write_json(path: Path | None, content: Content) -> None:
    """Write a file with one line per entry; None writes nothing."""
    if path is None:
        return
    fields = []
    for key, value in content.items():
        text = json.dumps(value)
        if isinstance(value, list) and value:
            text = "[\n  " + ",\n  ".join(map(json.dumps, value)) + "\n ]"
        fields.append(f" {json.dumps(key)}: {text}")
    write_text(path, "{\n" + ",\n".join(fields) + "\n}")


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.6g}")
    if isinstance(value, dict):
        return {key: _rounded(item) for key, item in value.items()}
    return [_rounded(item) for item in value] if isinstance(value, list) else value


def entries(series: Iterable[Series], source: str = "") -> list[dict[str, Any]]:
    """The series as a file has them."""
    return [_entry(s, source) for s in series]


def _entry(series: Series, source: str) -> dict[str, Any]:
    s, data = series, series.seconds
    stats: Any = Stats()  # type: ignore[no-untyped-call]
    for value in data:
        stats.update(value)
    summary = stats.as_dict() if data else {}
    entry = {
        "group": f"{s.model} {s.test}",
        "name": s.name,
        "fullname": f"{s.source or source}::{s.name}",
        "params": {"model": s.model, "engine": s.engine, "test": s.test, "threads": s.threads},
        "param": f"{s.model}-{s.engine}-{s.threads}",
        "extra_info": s.more,
        "stats": {**summary, "iterations": 1, "data": data},
    }
    rounds = {key: getattr(s, key) for key in ROUNDS if getattr(s, key)}
    return {**entry, "rounds": rounds} if rounds.keys() - {"unit"} or s.unit != "s" else entry


# ---- this machine --------------------------------------------------------------------------------


def machine_info() -> dict[str, Any]:
    """What is known of this machine before anything is measured."""
    return {
        "node": "", "processor": processor(), "machine": platform.machine(),
        "system": platform.system(), "release": platform.release(),
        "python_version": platform.python_version(), "cpu": {"count": os.cpu_count()},
        "instruction_sets": instruction_sets(),
    }  # fmt: skip


def processor() -> str:
    """The processor's name, with AMD's generation, which virtual machines leave out of it."""
    if platform.system() == "Darwin":
        command = ["sysctl", "-n", "machdep.cpu.brand_string"]
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return platform.processor()
    fields = dict(re.findall(r"^([^\t:]+?)\s*: (.*)$", text, re.MULTILINE))
    name = fields.get("model name", platform.processor() or platform.machine()).strip()
    if fields.get("vendor_id") != "AuthenticAMD":
        return name
    zen = zen_generation(int(fields["cpu family"]), int(fields["model"]))
    return f"{name} (Zen {zen})" if zen else name


def zen_generation(family: int, model: int) -> int | None:
    """AMD's generation by CPUID's family and model, as in Linux's arch/x86/kernel/cpu/amd.c."""
    if family == 0x17:
        return 2 if model >= 0x30 else 1
    if family == 0x19:
        return 4 if 0x10 <= model < 0x20 or 0x60 <= model < 0x80 or model >= 0xA0 else 3
    return 5 if family == 0x1A else None


def machine(content: Content) -> str:
    """The processor's name."""
    return str(content["machine_info"]["processor"])


def date(content: Content) -> str:
    """The day of a run."""
    return str(content["datetime"])[:10]
