"""Write runtime/halfbyte/data/grids.bin, the grids of IQ1, IQ2 and IQ3, from PyPI's `gguf`.

    python tools/make_grids.py [-o FILE]

See `halfbyte.weights.grids` for the layout: one bit for every vector that a grid could have.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import gguf
import numpy as np

from halfbyte.weights.grids import FILE, GRIDS


def bitmap(name: str, digits: int, base: int) -> bytes:
    """A grid as bits; its vectors are in the order of the bits."""
    quant: Any = getattr(gguf.quants, name)
    quant.init_grid()
    grid = np.asarray(quant.grid).reshape(-1, digits)
    entries = np.searchsorted(np.array(quant.grid_map), grid)
    numbers = entries @ base ** np.arange(digits)
    if not (np.diff(numbers) > 0).all():
        raise SystemExit(f"make_grids: {name}: expected vectors in the order of their numbers")
    bits = np.zeros(base**digits, np.uint8)
    bits[numbers] = 1
    return np.packbits(bits, bitorder="little").tobytes()


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description="Write the grids of IQ1, IQ2 and IQ3.")
    parser.add_argument("-o", "--output", type=Path, default=FILE, metavar="FILE")
    options = parser.parse_args()
    options.output.write_bytes(b"".join(bitmap(*grid) for grid in GRIDS))


if __name__ == "__main__":
    main()
