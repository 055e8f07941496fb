"""Draw the output of `halfbyte demo` as an SVG of a terminal, for the README.

python tools/draw_demo.py      writes docs/demo.svg
"""

from __future__ import annotations

import subprocess
import sys
import textwrap
from html import escape
from pathlib import Path

TARGET = Path(__file__).resolve().parents[1] / "docs/demo.svg"
COLUMNS, LINE, CHARACTER, MARGIN = 92, 20, 8.43, 20
BACKGROUND, TEXT, DIM, PROMPT = "#16181d", "#e6e6e6", "#8b93a1", "#7fd1b9"


def lines() -> list[tuple[str, str]]:
    """The wrapped lines that the demo prints, each with its color."""
    command = [sys.executable, "-m", "halfbyte", "demo"]
    done = subprocess.run(
        command, check=True, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    drawn = [("$ make demo", PROMPT)]
    for line in done.stdout.strip().splitlines():
        colour = PROMPT if line.startswith("$") else DIM if "tokens/s" in line else TEXT
        drawn += [(part, colour) for part in textwrap.wrap(line, COLUMNS) or [""]]
    return drawn


def svg(drawn: list[tuple[str, str]]) -> str:
    """A picture of a terminal with these lines."""
    width = round(COLUMNS * CHARACTER + 2 * MARGIN)
    height = LINE * len(drawn) + 2 * MARGIN
    texts = "\n".join(
        f'<text x="{MARGIN}" y="{MARGIN + LINE * i + 14}" fill="{colour}">{escape(line)}</text>'
        for i, (line, colour) in enumerate(drawn)
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
        f'height="{height}" font-family="ui-monospace, Menlo, Consolas, monospace" '
        f'font-size="14" xml:space="preserve">\n'
        f'<rect width="{width}" height="{height}" rx="8" fill="{BACKGROUND}"/>\n{texts}\n</svg>\n'
    )


if __name__ == "__main__":
    TARGET.write_text(svg(lines()), encoding="utf-8")
    print(f"wrote {TARGET}")
