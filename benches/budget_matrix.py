"""Whether memory budgets hold: models of many architectures and types, each with several budgets.

    python -m benches.budget_matrix [-m NAME,...] [--budgets 3] [--json FILE]

Budgets lie between the least that a model accepts and what it takes with all weights packed. A
process of each fills the context, scores it and generates a text; with the least budget there is
also one of `halfbyte run`. The peak is the resident memory of the whole process: interpreter, NumPy
and mapped pages count. Encoders turn texts of their whole length into vectors. Graphs have no
budget, and are compared with what `halfbyte fit` says of them. The exit code is 1 if any took more.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benches import budgets, random_encoders
from benches.budget_models import MODELS, write
from benches.figures import add_json_option, markdown, pytest_json, write_json
from tools.onnx_models import make, save

from halfbyte.device.graphs import GraphPlanner
from halfbyte.onnx.files import open_onnx
from halfbyte.text import footprint
from halfbyte.text.opening import open_model
from halfbyte.text.planning import Settings, plan

GRAPHS = ("bert-small", "gpt2-small", "minilm", "mobilenet-v2", "resnet-34")
_COMMAND = """
import sys
from halfbyte.cli import main
from halfbyte.text import footprint
code = main(sys.argv[1:])
print(footprint.peak_bytes() if not code else -1, file=sys.stderr)
"""
_ENCODE = """
import sys
import halfbyte
from halfbyte.text import footprint
path, budget, *texts = sys.argv[1:]
with halfbyte.load_encoder(path, memory_budget=int(budget), threads=2) as model:
    model.embed(texts)
print(footprint.peak_bytes(), file=sys.stderr)
"""


def peak_of(*words: str, code: str = _COMMAND) -> int:
    """The peak bytes of one of halfbyte's commands, or of a program with these arguments."""
    command = [sys.executable, "-c", code, *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    peak = done.stderr.split()[-1:] or ["-1"]
    if done.returncode or not peak[0].isdigit():
        raise SystemExit(f"halfbyte {' '.join(words)}:\n{done.stderr}")
    return int(peak[0])


def of_model(path: Path, name: str, kind: str, steps: int) -> Iterator[dict[str, Any]]:
    """A row for each budget of a language model, and one of the command."""
    budgets_ = budgets.budgets(path, steps)
    for row in budgets.measure(path, steps, 1):
        yield {"way": "library", **row, "model": name, "type": kind}
    least = ["--memory-budget", str(budgets_[0]), "--context", str(budgets.CONTEXT)]
    peak = peak_of("run", str(path), "once upon a time", "-n", "16", "--seed", "1", *least)
    yield {"model": name, "type": kind, "way": "command", "budget": budgets_[0], "peak": peak}


def of_encoder(path: Path, name: str, steps: int) -> Iterator[dict[str, Any]]:
    """A row for each budget of an encoder."""
    file = open_model(path)
    least, most = (
        plan(file, Settings(weights=weights), encodes=True).total
        for weights in ("streamed", "packed")
    )
    texts = [" ".join(random_encoders.WORDS[: random_encoders.CONTEXT]), "w1 w2"] * 4
    for step in range(steps):
        budget = least + (most - least) * step // max(steps - 1, 1)
        peak = peak_of(str(path), str(budget), *texts, code=_ENCODE)
        yield {"model": name, "type": "Q8_0", "way": "library", "budget": budget, "peak": peak}


def of_graph(path: Path, name: str) -> dict[str, Any]:
    """A row of a graph: what it is planned to take with its whole file, which is mapped, and what
    `halfbyte run` of it took."""
    planner = GraphPlanner(open_onnx(path))
    plan_ = planner.plan({})
    planned = sum(footprint.in_app(plan_.memory).values()) + plan_.file
    planner.close()
    peak = peak_of("run", str(path), "--runs", "3")
    return {"model": name, "type": "ONNX", "way": "graph", "budget": planned, "peak": peak}


def rows_of(folder: Path, names: list[str], steps: int) -> Iterator[dict[str, Any]]:
    """All rows; each model's file is removed after its last."""
    path = folder / "model.gguf"
    for name, kind in MODELS:
        if name in names:
            yield from of_model(write(path, name, kind), name, kind, steps)
    for name in random_encoders.CONFIGS:
        if name in names:
            yield from of_encoder(random_encoders.write(path, name), name, steps)
    for name in GRAPHS:
        if name in names:
            save(make(name), folder / "graph.onnx")
            yield of_graph(folder / "graph.onnx", name)


def table(rows: list[dict[str, Any]]) -> str:
    """Megabytes, and the share of the budget that was taken."""
    return markdown(
        ["model", "type", "by", "budget MB", "peak MB", "of it"],
        [
            [
                row["model"], row["type"], row["way"], f"{row['budget'] / 1e6:.1f}",
                f"{row['peak'] / 1e6:.1f}", f"{row['peak'] / row['budget']:.1%}",
            ]
            for row in rows
        ],
    )  # fmt: skip


def main() -> int:
    """Print the table; 1 if a budget was exceeded."""
    known = [*dict(MODELS), *random_encoders.CONFIGS, *GRAPHS]
    parser = argparse.ArgumentParser(
        prog="python -m benches.budget_matrix", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("-m", "--models", help=f"some of: {', '.join(known)}")
    parser.add_argument("--budgets", type=int, default=3, help="of each (default: %(default)s)")
    add_json_option(parser)
    options = parser.parse_args()
    names = options.models.split(",") if options.models else known
    if unknown := [name for name in names if name not in known]:
        parser.error(f"{unknown[0]}: expected some of {', '.join(known)}")
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for row in rows_of(Path(folder), names, options.budgets):
            rows.append(row)
            print(table([row]).splitlines()[-1], file=sys.stderr, flush=True)
    print(table(rows))
    write_json(options.json, pytest_json([], "benches/budget_matrix", rows=rows))
    shares = [row["peak"] / row["budget"] for row in rows]
    exceeded = [row for row in rows if row["peak"] > row["budget"]]
    print(
        f"{len(rows)} runs: {statistics.median(shares):.1%} of the budget (median), at most "
        f"{max(shares):.1%}; exceeded: {len(exceeded)}"
    )
    return bool(exceeded)


if __name__ == "__main__":
    raise SystemExit(main())
