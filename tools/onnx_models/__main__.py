"""Write a model in ONNX.

    python -m tools.onnx_models NAME -o FILE [-s FIELD=VALUE ...]

Fields are those of the model's configuration: opset=13, folded=true, pooled=false, gelu=op ...
Weights of more than 2 GB are stored beside the file, in FILE.data.
"""

from __future__ import annotations

import argparse
import ast
from pathlib import Path
from typing import Any

from tools.onnx_models import CONFIGS, make, save


def setting(text: str) -> tuple[str, Any]:
    """ "opset=13" as a name and a value: a number, a truth value, or else text."""
    name, sign, value = text.partition("=")
    if not sign:
        raise argparse.ArgumentTypeError(f"expected FIELD=VALUE, found {text!r}")
    try:
        return name, ast.literal_eval(value.title() if value in ("true", "false") else value)
    except (SyntaxError, ValueError):
        return name, value


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.onnx_models", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("name", choices=CONFIGS, metavar="NAME", help=", ".join(CONFIGS))
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="FILE")
    parser.add_argument(
        "-s", "--set", type=setting, action="append", default=[], metavar="FIELD=VALUE"
    )
    options = parser.parse_args()
    try:
        save(make(options.name, **dict(options.set)), options.output)
    except (OSError, ValueError) as error:
        raise SystemExit(f"{options.name}: {error}") from None


if __name__ == "__main__":
    main()
