"""Draw the layers of the packages, as the import contracts in pyproject.toml have them.

python tools/layers.py        writes docs/layers.svg
"""

from __future__ import annotations

import textwrap
import tomllib
from html import escape
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
TARGET = ROOT / "docs/layers.svg"
WIDTH, GAP, MARGIN, LINE, HEAD = 190, 16, 20, 18, 34
CHARACTERS = 24  # of a line in a box
BACKGROUND, FRAME, FILL, TEXT, DIM = "#ffffff", "#8aa0b0", "#eef3f6", "#1d2a33", "#5b6b77"


def contracts(pyproject: str) -> dict[str, list[str]]:
    """Layers of each package, the topmost first, from the text of a pyproject.toml."""
    tool: dict[str, Any] = tomllib.loads(pyproject)["tool"]["importlinter"]
    return {
        package: contract["layers"]
        for contract in tool["contracts"]
        if contract["type"] == "layers"
        for package in contract["containers"]
    }


def svg(layers: dict[str, list[str]]) -> str:
    """A column for each package, with a box for each of its layers."""
    columns = [column(name, boxes, i) for i, (name, boxes) in enumerate(layers.items())]
    width = 2 * MARGIN + len(columns) * (WIDTH + GAP) - GAP
    height = max(bottom for _, bottom in columns) + MARGIN
    body = "\n".join(text for text, _ in columns)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
        f'height="{height}" font-family="ui-monospace, Menlo, Consolas, monospace" '
        f'font-size="12">\n<rect width="{width}" height="{height}" rx="8" fill="{BACKGROUND}"/>\n'
        f"{body}\n</svg>\n"
    )


def column(package: str, layers: list[str], index: int) -> tuple[str, int]:
    """A package's elements, and where the last of them ends."""
    x, y = MARGIN + index * (WIDTH + GAP), MARGIN + HEAD
    parts = [f'<text x="{x}" y="{MARGIN + 14}" font-weight="bold" fill="{DIM}">{package}</text>']
    for layer in layers:
        lines = textwrap.wrap(layer.replace(" | ", " · "), CHARACTERS)
        height = len(lines) * LINE + 10
        parts.append(
            f'<rect x="{x}" y="{y}" width="{WIDTH}" height="{height}" rx="4" fill="{FILL}" '
            f'stroke="{FRAME}"/>'
        )
        for number, line in enumerate(lines):
            at = f'x="{x + WIDTH // 2}" y="{y + 18 + number * LINE}"'
            parts.append(f'<text {at} text-anchor="middle" fill="{TEXT}">{escape(line)}</text>')
        y += height + 6
    return "\n".join(parts), y - 6


if __name__ == "__main__":
    pyproject = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    TARGET.write_text(svg(contracts(pyproject)), encoding="utf-8")
    print(f"wrote {TARGET}")
