"""Memory budgets: what a model takes of each, and how fast it is then.

    python -m benches.budgets MODEL... [--steps 8] [--rounds 3] [--json FILE]

Budgets lie between the least that a model accepts and what it takes with all weights packed. Each
runs in a process of its own, which fills the context, scores it and generates a text; budgets take
turns. The peak is the resident memory of that process; the exit code is 1 if any exceeds its
budget.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from benches.figures import add_json_option, digits, markdown, pytest_json, write_json

import halfbyte
from halfbyte.core.passes.stream_weights import streamed_bytes
from halfbyte.text import footprint
from halfbyte.text.opening import open_model
from halfbyte.text.planning import Settings, plan, plan_within

CONTEXT = 256
TOKENS = 24


def budgets(path: Path, steps: int) -> list[int]:
    """From the least to all weights, in equal steps."""
    file = open_model(path)
    least, most = (
        plan(file, Settings(CONTEXT, weights=weights)).total for weights in ("streamed", "packed")
    )
    return [least + (most - least) * step // max(steps - 1, 1) for step in range(steps)]


def use(path: str, budget: int) -> dict[str, float]:
    """What a process took that may take `budget` bytes, and its tokens/s."""
    with halfbyte.load(path, context=CONTEXT, memory_budget=budget) as model:
        ids = [3 + i % 90 for i in range(CONTEXT)]
        model.token_losses(ids)
        model.reset()
        model.feed(ids[:-TOKENS], rows=2)
        seconds = []
        for token in ids[-TOKENS:]:
            start = time.perf_counter()
            model.feed([token])
            seconds.append(time.perf_counter() - start)
        model.generate("Once upon a time", max_tokens=4, seed=1, top_p=0.9, repetition_penalty=1.1)
    return {"peak": footprint.peak_bytes(), "speed": 1 / statistics.median(seconds)}


def measure(path: Path, steps: int, rounds: int) -> list[dict[str, Any]]:
    """A row for each budget, from the medians of the rounds."""
    limits = budgets(path, steps)
    runs: dict[int, list[dict[str, float]]] = {budget: [] for budget in limits}
    for _ in range(rounds):
        for budget, found in runs.items():
            command = [sys.executable, "-m", "benches.budgets", "--use", str(path), str(budget)]
            done = subprocess.run(command, check=True, capture_output=True, text=True)
            found.append(json.loads(done.stdout))
    file = open_model(path)
    return [
        {
            "model": path.name, "budget": budget, "peak": max(one["peak"] for one in found),
            "speed": statistics.median(one["speed"] for one in found),
            "read": streamed_bytes(plan_within(file, Settings(CONTEXT), budget).program),
        }
        for budget, found in runs.items()
    ]  # fmt: skip


def table(rows: list[dict[str, Any]]) -> str:
    """Megabytes, and tokens/s."""
    header = ["model", "budget MB", "peak MB", "read per token MB", "tokens/s"]
    cells = [
        [
            row["model"], *(f"{row[key] / 1e6:.1f}" for key in ("budget", "peak", "read")),
            digits(row["speed"]),
        ]
        for row in rows
    ]  # fmt: skip
    return markdown(header, cells)


def main() -> int:
    """Print the table; 1 if a budget was exceeded."""
    if sys.argv[1:2] == ["--use"]:
        print(json.dumps(use(sys.argv[2], int(sys.argv[3]))))
        return 0
    parser = argparse.ArgumentParser(
        prog="python -m benches.budgets", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("models", type=Path, nargs="+", metavar="MODEL")
    parser.add_argument("--steps", type=int, default=8, help="budgets (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="of each (default: %(default)s)")
    add_json_option(parser)
    options = parser.parse_args()
    rows = []
    for path in options.models:
        rows += measure(path, options.steps, options.rounds)
    print(table(rows))
    write_json(options.json, pytest_json([], "benches/budgets", rows=rows))
    exceeded = [row for row in rows if row["peak"] > row["budget"]]
    for row in exceeded:
        print(f"EXCEEDED: {row['model']} took {row['peak']:,} bytes of {row['budget']:,}")
    return bool(exceeded)


if __name__ == "__main__":
    raise SystemExit(main())
