"""What the command lines of the trainings share; needs Python only."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any


def parser(
    description: str, minutes: float, batch: int, rate: float, work: Path
) -> argparse.ArgumentParser:
    """The command line that both trainings share."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--minutes", type=float, default=minutes, help=f"time to train (default {minutes:g})")
    add("--batch", type=int, default=batch, help=f"rows of a whole context (default {batch})")
    add("--rate", type=float, default=rate, help=f"highest learning rate ({rate:g})")
    add("--seed", type=int, default=0, help="of the initial weights")
    add("--threads", type=int, default=2, help="of PyTorch (default 2)")
    add("--work", type=Path, default=work, help="folder of the checkpoint")
    add("--out", type=Path, help="write all files here, not into the repository")
    add("--export", action="store_true", help="write files from the checkpoint")
    return parser


def write(path: Path, data: bytes) -> None:
    """Write to a temporary file, then rename."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(path.name + ".partial")
    partial.write_bytes(data)
    partial.replace(path)
    print(f"wrote {path} ({len(data):,} bytes)", flush=True)


def log_lines(record: dict[str, Any]) -> list[str]:
    """About a dozen lines of a log, with its last."""
    log: list[str] = record["log"]
    every = max(1, len(log) // 12)
    title = "Training log (loss is the mean since the line before):"
    return [title, "", *log[:-1:every], *log[-1:]]
