"""Run models of full size in halfbyte and ONNX Runtime, and print their differences.

    python -m tools.onnx_models.validate [NAME ...] [--backend BACKEND]

Each model is written into a temporary folder. GPT-2 reads a prompt, and then a token after a past
of random keys and values. A row shows the output with the largest error relative to its largest
number.
"""

from __future__ import annotations

import argparse
import gc
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tools.onnx_models import CONFIGS, make, save

from halfbyte.errors import HalfbyteError
from halfbyte.evaluation import Evaluation, evaluate
from halfbyte.evaluation.rows import table

TEXT = [{"batch": 2, "sequence": 64}]
IMAGES = [{"batch": 2}]
WITH_PAST = [{"batch": 1, "sequence": 64}, {"batch": 1, "sequence": 1, "past_sequence": 100}]
FULL = {
    "minilm": TEXT, "mobilenet-v2": IMAGES, "resnet-34": IMAGES, "bert-base": TEXT,
    "bert-large": TEXT, "gpt2": WITH_PAST, "gpt2-medium": WITH_PAST,
}  # fmt: skip
HEADS = ["model", "inputs", "furthest output", "outputs", "max abs", "largest", "of it", ""]


def sizes_of(name: str) -> list[dict[str, int]]:
    """Sizes of the runs: those of the full model, or of its family."""
    family = name.split("-")[0]
    return FULL.get(name) or next(s for full, s in FULL.items() if full.split("-")[0] == family)


def compared(name: str, backend: str) -> Iterator[list[str]]:
    """A row for each set of sizes."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"{name}.onnx"
        save(make(name), path)
        for sizes in sizes_of(name):
            result = evaluate(
                Evaluation(
                    path, "validate", reference="onnxruntime", backend=backend, threads=(1,),
                    sizes=sizes,
                )
            )  # fmt: skip
            outputs: list[dict[str, Any]] = result.data["outputs"]
            share, worst = max(
                ((float(o["max_abs_error"]) / float(o["largest"] or 1), o) for o in outputs),
                key=lambda pair: pair[0],
            )
            shown = " ".join(f"{key}={size}" for key, size in sizes.items())
            yield [
                name, shown, worst["name"], str(len(outputs)), f"{worst['max_abs_error']:.1e}",
                f"{worst['largest']:.3g}", f"{share:.1e}", "pass" if result.passed else "FAIL",
            ]  # fmt: skip
            gc.collect()


def main() -> int:
    """The command line; 1 where an output is beyond the tolerances of `halfbyte eval`."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.onnx_models.validate", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(CONFIGS)}")
    parser.add_argument("--backend", default="native")
    given = parser.parse_args()
    if unknown := set(given.names) - set(CONFIGS):
        parser.error(f"expected models out of {', '.join(CONFIGS)}; found {', '.join(unknown)}")
    rows = []
    for name in given.names or FULL:
        print(f"{name} ...", file=sys.stderr)
        try:
            rows += compared(name, given.backend)
        except (HalfbyteError, OSError, ValueError) as error:
            raise SystemExit(f"{name}: {error}") from None
    print("\n".join(table(HEADS, rows, 3)))
    return int(any(row[-1] == "FAIL" for row in rows))


if __name__ == "__main__":
    sys.exit(main())
