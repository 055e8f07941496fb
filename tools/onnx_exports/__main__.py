"""Export architectures; the line of one that fails says why, and the others are written.

python -m tools.onnx_exports [NAME ...] -o FOLDER
"""

from __future__ import annotations

import argparse
import logging
import warnings
from pathlib import Path

from tools.onnx_exports import layers, speech, text, vision  # noqa: F401 - they register
from tools.onnx_exports.registry import MODELS, export


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.onnx_exports", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(MODELS))
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="FOLDER")
    options = parser.parse_args()
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")
    options.output.mkdir(parents=True, exist_ok=True)
    failed = 0
    for name in options.names or MODELS:
        try:
            export(name, options.output)
        except Exception as error:
            failed += 1
            lines = str(error).strip().splitlines() or [""]
            print(f"{name}: {type(error).__name__}: {lines[0]}", flush=True)
        else:
            print(f"{name}: written", flush=True)
    raise SystemExit(failed > 0)


if __name__ == "__main__":
    main()
