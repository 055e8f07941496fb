"""``halfbyte info`` and ``halfbyte bench``: what is in a model, and how fast it runs."""

from __future__ import annotations

import argparse
import json

from halfbyte import bench, describe
from halfbyte.cli.shared import Commands, command
from halfbyte.formats.onnx import is_onnx_file


def add_info(commands: Commands[argparse.ArgumentParser]) -> None:
    """The command `info`."""
    parser = command(
        commands, "info", _info, "show what is in a model, and the memory that it takes",
        "halfbyte info model.gguf --context 2048",
    )  # fmt: skip
    parser.add_argument(
        "--program",
        action="store_true",
        help="also print the program, as captured and after passes",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")


def _info(options: argparse.Namespace) -> int:
    if is_onnx_file(options.model):
        from halfbyte import describe_graph

        print(describe_graph.describe(options.model, as_json=options.json))
        return 0
    text = describe.describe(
        options.model, options.tokenizer, options.context, options.cache,
        program=options.program, as_json=options.json,
    )  # fmt: skip
    print(text)
    return 0


def _numbers(text: str) -> list[int]:
    try:
        values = [int(part) for part in text.split(",") if part]
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r}: expected numbers such as 128,512") from None
    if any(value < 1 for value in values):
        raise argparse.ArgumentTypeError(f"{text!r}: expected numbers of 1 or more")
    return values


def add_bench(commands: Commands[argparse.ArgumentParser]) -> None:
    """The command `bench`."""
    parser = command(
        commands, "bench", _bench, "measure prompt (pp) and decode (tg) speed in tokens/s",
        "halfbyte bench model.gguf -p 128,512 -n 64 -t 1,2",
    )  # fmt: skip
    parser.add_argument(
        "-p", type=_numbers, default=[128, 512], metavar="N,...", help="prompt lengths"
    )
    parser.add_argument("-n", type=_numbers, default=[64], metavar="N,...", help="tokens to decode")
    parser.add_argument(
        "-t", "--threads", type=_numbers, default=[1], metavar="N,...", help="thread counts"
    )
    parser.add_argument("-r", type=int, default=5, metavar="N", help="repetitions")
    parser.add_argument(
        "--backend", default="native", help="native, native-avx2, native-scalar or numpy"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")


def _bench(options: argparse.Namespace) -> int:
    report = bench.measure(
        options.model, options.tokenizer, prompts=options.p, decodes=options.n,
        threads=options.threads, repetitions=options.r, backend=options.backend,
        context=options.context, cache=options.cache,
    )  # fmt: skip
    print(json.dumps(report.as_json(), indent=1) if options.json else report.table())
    return 0
