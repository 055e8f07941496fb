"""``halfbyte bench``: how fast a model runs."""

from __future__ import annotations

import argparse
import json

from halfbyte.cli.common import add_backend, add_lora, check_threads, command
from halfbyte.cli.parser import Commands, Parser, counts, whole
from halfbyte.text import bench


def add_bench(commands: Commands[Parser]) -> None:
    """The command `bench`."""
    parser = command(
        commands, "bench", _bench, "measure prompt (pp) and decode (tg) speed in tokens/s",
        "halfbyte bench model.gguf -p 128,512 -n 64 -t 1,2",
        "halfbyte bench model.gguf -r 9 --backend native-avx2 --json",
        "halfbyte bench model.gguf --lora pirate.gguf",
    )  # fmt: skip
    parser.add_argument(
        "-p", type=counts, default=[128, 512], metavar="N,...", help="prompt lengths"
    )
    parser.add_argument("-n", type=counts, default=[64], metavar="N,...", help="tokens to decode")
    parser.add_argument(
        "-t", "--threads", type=counts, default=[1], metavar="N,...", help="thread counts"
    )
    parser.add_argument("-r", type=whole, default=5, metavar="N", help="repetitions")
    add_backend(parser)
    add_lora(parser)
    parser.add_argument("--json", action="store_true", help="print JSON")


def _bench(options: argparse.Namespace) -> int:
    check_threads(options.threads)
    report = bench.measure(
        options.model, options.tokenizer, prompts=options.p, decodes=options.n,
        threads=options.threads, repetitions=options.r, backend=options.backend,
        context=options.context, cache=options.cache, lora=dict(options.lora),
    )  # fmt: skip
    print(json.dumps(report.as_json(), indent=1) if options.json else report.table())
    return 0
