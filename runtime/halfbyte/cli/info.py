"""``halfbyte info``: what is in a model, and the memory that it takes."""

from __future__ import annotations

import argparse

from halfbyte.cli.common import command
from halfbyte.cli.parser import Commands, Parser
from halfbyte.onnx.files import is_onnx_file
from halfbyte.text import describe


def add_info(commands: Commands[Parser]) -> None:
    """The command `info`."""
    parser = command(
        commands, "info", _info, "show what is in a model, and the memory that it takes",
        "halfbyte info model.gguf --context 2048 --cache q8_0",
        "halfbyte info model.gguf --program",
        "halfbyte info classifier.onnx --json",
    )  # fmt: skip
    parser.add_argument(
        "--program",
        action="store_true",
        help="also print the program, as captured and after the passes",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")


def _info(options: argparse.Namespace) -> int:
    if is_onnx_file(options.model):
        from halfbyte.onnx import describe as describe_graph

        print(describe_graph.describe(options.model, as_json=options.json))
        return 0
    text = describe.describe(
        options.model, options.tokenizer, options.context, options.cache,
        program=options.program, as_json=options.json,
    )  # fmt: skip
    print(text)
    return 0
