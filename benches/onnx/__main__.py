"""Speed beside ONNX Runtime on the same models, in one process, taking turns.

    python -m benches.onnx [-m minilm] [-p fp32,int8] [-t 1,2] [--json NEW.json]
    python -m benches.onnx --json NEW.json --compare OLD.json

Models are all-MiniLM-L6-v2 with pooling in the graph, and MobileNetV2 and ResNet-34 with random
weights, all written by tools/onnx_models. Files in int8 and int4 are "own" (each engine runs the
file of its own quantizer: `quantize` here, onnxruntime.quantization there, which writes dynamic
int8 or MatMulNBits with 4 bits), or one quantizer's file runs in both. Images run from ONNX
Runtime's static int8 (QDQ).

A test is a batch of texts and their length in tokens ("32 x 128"), or an image. A round gives each
engine a turn of 0.2 s, whose figure is the median of its runs. The table shows medians of the
rounds, and the median of the rounds' ratios, above 1 where halfbyte is faster. The cosine is that
of the worst of 32 sentences (4 images) to the outputs in float32. Loading lasts from opening the
file to the first output of a text of 16 tokens or an image.
"""

from __future__ import annotations

import argparse
import sys
from importlib.metadata import version
from pathlib import Path

from benches import comparison
from benches.arguments import Some, counts
from benches.figures import add_json_option, pytest_json, write_json
from benches.onnx import table
from benches.onnx.files import MODELS, PRECISIONS, Contest, contests
from benches.onnx.measure import Plan, Results, measure

WHOSE = ("own", "onnxruntime", "halfbyte")


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benches.onnx", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    names = {"-m": ("--models", MODELS), "-p": ("--precisions", PRECISIONS)}
    for short, (long, known) in names.items():
        parser.add_argument(
            short, long, type=Some(known), default=list(known), help=f"from {', '.join(known)}"
        )
    parser.add_argument(
        "-f", "--files", type=Some(WHOSE), default=["own", "onnxruntime"],
        help=f"whose quantizer wrote MiniLM's files: {', '.join(WHOSE)} (default: the first two)",
    )  # fmt: skip
    parser.add_argument(
        "--attention", choices=("int8", "floats"),
        help="numbers of halfbyte's attention between int8 products (default: as the file says)",
    )  # fmt: skip
    parser.add_argument("-t", "--threads", type=counts, default=[1, 2], help="(default 1,2)")
    parser.add_argument("-b", "--batches", type=counts, default=[1, 32], help="(default 1,32)")
    parser.add_argument("-n", "--lengths", type=counts, default=[16, 128], help="(default 16,128)")
    parser.add_argument("-r", "--rounds", type=int, default=7, help="(default 7)")
    add_json_option(parser)
    parser.add_argument("--compare", type=Path, metavar="OLD.json", help="compare with this file")
    options = parser.parse_args()
    if options.rounds < 1:
        parser.error(f"argument -r: expected 1 or more, found {options.rounds}")
    return options


def _contests(options: argparse.Namespace) -> list[Contest]:
    int8 = None if options.attention is None else options.attention == "int8"
    return contests(options.models, options.precisions, options.files, int8_attention=int8)


def main() -> None:
    """Measure, print, write."""
    options = parse()
    old = comparison.read(options.compare) if options.compare else None
    plan = Plan(options.rounds, options.threads, options.batches, options.lengths)
    results = Results()
    for contest in _contests(options):
        measured = measure(contest, plan)
        results.runs += measured.runs
        results.loads += measured.loads
    print(f"{table.runs(results.runs)}\n\nLoading:\n\n{table.loads(results.loads)}")
    content = pytest_json(
        [*results.runs, *results.loads], "benches/onnx",
        versions={"onnxruntime": f"ONNX Runtime {version('onnxruntime')}"},
    )  # fmt: skip
    write_json(options.json, content)
    if old:
        print(f"\nCompared with {options.compare}:\n")
        print(comparison.report(old, content, colours=sys.stdout.isatty()))


if __name__ == "__main__":
    main()
