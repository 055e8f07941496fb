"""Tables of results that checks write into the documentation, between two comments."""

from __future__ import annotations

import datetime
import os
from collections.abc import Sequence
from pathlib import Path

from benches.figures import processor

from halfbyte.outputs import write_file

REPOSITORY = Path(__file__).parents[2]


def dated(command: str) -> str:
    """The note below a table: what wrote it, when and where."""
    today = datetime.datetime.now(datetime.UTC).date()
    return f"(`{command}`, {today}; {processor()}, {os.cpu_count()} cores.)"


def write_table(file: str, name: str, rows: Sequence[dict[str, str]], note: str) -> None:
    """Replace what is between `<!-- NAME -->` and `<!-- end NAME -->`; titles are a row's keys."""
    path = REPOSITORY / file
    titles = list(max(rows, key=len))
    lines = [titles, ["---"] * len(titles), *([row.get(t, "") for t in titles] for row in rows)]
    table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    begin, end = f"<!-- {name} -->", f"<!-- end {name} -->"
    before, _, rest = path.read_text(encoding="utf-8").partition(begin)
    _, found, after = rest.partition(end)
    if not found:
        raise SystemExit(f"{file}: expected {begin} and {end}")
    text = f"{before}{begin}\n\n{table}\n\n{note}\n\n{end}{after}"
    write_file(path, lambda output: output.write(text.encode()))
