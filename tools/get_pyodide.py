"""Download a Pyodide distribution into a cache folder, and print its path.

python tools/get_pyodide.py [-o FOLDER]
"""

from __future__ import annotations

import argparse
from pathlib import Path

from halfbyte.errors import HalfbyteError
from halfbyte.web.pyodide import cache_folder, get_pyodide


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description="Fetch a Pyodide distribution into a cache.")
    parser.add_argument("-o", "--output", type=Path, default=cache_folder(), metavar="FOLDER")
    try:
        print(get_pyodide(parser.parse_args().output))
    except HalfbyteError as error:
        raise SystemExit(f"get_pyodide: {error}") from None


if __name__ == "__main__":
    main()
