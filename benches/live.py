"""A real run beside a synthetic heater, with and without pacing.

    python -m benches.live MODEL [--seconds 90] [--json FILE]

This machine's heat is simulated: a thread measures the processor time that the run takes, warms a
node by it, writes its temperature into a folder as Linux has it, and above the limit stops the run
for part of the time, as a hot processor's clock does. Only the heat is not real. On Linux.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from benches.figures import add_json_option, digits, markdown, pytest_json, write_json

import halfbyte
from halfbyte.cli.pace import MARGIN_K
from halfbyte.device.live import Pacer, live_board
from halfbyte.device.machine import profile_of_this_machine
from halfbyte.device.nearest import Nearest
from halfbyte.device.sensors import Files, thermal_zones
from halfbyte.device.speed import Tokens
from halfbyte.text.planning import Settings, plan

REST_C, LIMIT_C, RISE_K, TAU_S = 35.0, 70.0, 60.0, 15.0
THREADS, CONTEXT, STEP_S = 2, 512, 0.1
ZONE = "class/thermal/thermal_zone0"
TICK = 1 / os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 0.01


def generate(path: str, folder: str, seconds: float, *, paced: bool) -> list[float]:
    """The times at which tokens were ready."""
    with halfbyte.load(path, threads=THREADS, context=CONTEXT) as model:
        nearest = Nearest(thermal_zones(Files(Path(folder))))
        task = Tokens(plan(model.file, Settings(context=CONTEXT)))
        profile = profile_of_this_machine()
        board = live_board(profile, task, min(THREADS, profile.cores), nearest.limit_c - MARGIN_K)
        end = time.monotonic() + seconds

        def tokens() -> Iterator[float]:
            while time.monotonic() < end:
                if model.position >= CONTEXT - 1:
                    model.reset()
                model.feed([300])
                yield time.monotonic()

        return list(Pacer(board, nearest.celsius).paced(tokens()) if paced else tokens())


def heated(command: list[str], folder: Path) -> tuple[list[float], float]:
    """The run's result, and the hottest temperature, with the heater beside it."""
    celsius, hottest_c, slow = REST_C, REST_C, 0.0
    temp = folder / ZONE / "temp"
    temp.write_text(f"{celsius * 1000:.0f}\n")
    output = folder / "times.json"
    with output.open("w", encoding="ascii") as file:
        child = subprocess.Popen(command, stdout=file)
    spent, last = 0.0, time.monotonic()
    while child.poll() is None:
        if slow:
            child.send_signal(signal.SIGSTOP)
            time.sleep(STEP_S * slow)
            child.send_signal(signal.SIGCONT)
        time.sleep(STEP_S * (1 - slow))
        try:
            fields = Path(f"/proc/{child.pid}/stat").read_text("ascii").rsplit(")", 1)[1].split()
        except OSError:
            break
        now, total = time.monotonic(), (int(fields[11]) + int(fields[12])) * TICK
        load = (total - spent) / (now - last) / THREADS
        goal = REST_C + RISE_K * load
        celsius += (goal - celsius) * (1 - math.exp(-(now - last) / TAU_S))
        slow = min(max(slow + (0.1 if celsius > LIMIT_C else -0.02), 0.0), 0.8)
        spent, last, hottest_c = total, now, max(hottest_c, celsius)
        temp.write_text(f"{celsius * 1000:.0f}\n")
    if child.wait():
        raise SystemExit(f"benches.live: the run failed with exit code {child.returncode}")
    return json.loads(output.read_text("ascii")), hottest_c


def measure(path: Path, seconds: float) -> list[dict[str, Any]]:
    """A row without pacing and one with it: what followed the first third of the time."""
    rows = []
    with tempfile.TemporaryDirectory() as name:
        zone = Path(name, ZONE)
        zone.mkdir(parents=True)
        for file, text in (
            ("type", "heater"), ("trip_point_0_type", "passive"),
            ("trip_point_0_temp", f"{LIMIT_C * 1000:.0f}"),
        ):  # fmt: skip
            (zone / file).write_text(f"{text}\n")
        for way in ("free", "paced"):
            words = ["--child", str(path), name, str(seconds), way]
            times, celsius = heated([sys.executable, "-m", "benches.live", *words], Path(name))
            settled = np.array([t for t in times if t > times[0] + seconds / 3])
            low, middle, high = np.percentile(np.diff(settled), (10, 50, 90))
            rows.append({
                "way": way, "speed": len(settled) / (settled[-1] - settled[0]),
                "spread": (high - low) / middle, "slowest": float(np.diff(settled).max()),
                "celsius": celsius,
            })  # fmt: skip
    return rows


def table(rows: list[dict[str, Any]]) -> str:
    """Tokens/s, the spread of times between tokens, the longest of them, and the hottest."""
    header = ["pacing", "tokens/s", "spread", "longest wait ms", "hottest °C"]
    return markdown(header, [
        [
            "no" if row["way"] == "free" else "yes", digits(row["speed"]),
            f"{row['spread']:.0%}", digits(1000 * row["slowest"]), f"{row['celsius']:.1f}",
        ]
        for row in rows
    ])  # fmt: skip


def main() -> None:
    """Print the table."""
    if sys.argv[1:2] == ["--child"]:
        path, folder, seconds, way = sys.argv[2:]
        print(json.dumps(generate(path, folder, float(seconds), paced=way == "paced")))
        return
    parser = argparse.ArgumentParser(
        prog="python -m benches.live", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("model", type=Path)
    parser.add_argument("--seconds", type=float, default=90.0, help="default: %(default)s")
    add_json_option(parser)
    options = parser.parse_args()
    rows = measure(options.model, options.seconds)
    print(table(rows))
    write_json(options.json, pytest_json([], "benches/live", rows=rows))


if __name__ == "__main__":
    main()
