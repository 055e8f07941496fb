"""The parser of ``halfbyte``: puts the commands of all modules together and calls one."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path

from halfbyte import __version__
from halfbyte.cli.bench import add_bench
from halfbyte.cli.chat import add_chat
from halfbyte.cli.common import name_options
from halfbyte.cli.compare import add_compare
from halfbyte.cli.demo import add_demo
from halfbyte.cli.device import add_device
from halfbyte.cli.embed import add_embed
from halfbyte.cli.evaluate import add_eval
from halfbyte.cli.fit import add_fit
from halfbyte.cli.info import add_info
from halfbyte.cli.parser import Parser
from halfbyte.cli.perplexity import add_perplexity
from halfbyte.cli.prompts import take_remaining
from halfbyte.cli.pull import add_pull, located
from halfbyte.cli.run import add_run
from halfbyte.cli.simulate import add_simulate
from halfbyte.cli.tokenize import add_tokenize
from halfbyte.cli.web import add_web
from halfbyte.errors import HalfbyteError


def run_command(arguments: Sequence[str]) -> int:
    """Run one command; returns the exit code."""
    parser = make_parser()
    if not arguments:
        parser.print_help()
        return 0
    options, remaining = parser.parse_known_args(arguments)
    take_remaining(arguments[0], options, remaining)
    command: Callable[[argparse.Namespace], int] = options.command
    if isinstance(getattr(options, "model", None), Path):
        options.model = located(options.model)
    try:
        return command(options)
    except HalfbyteError as error:
        error.args = (name_options(str(error)),)
        raise


def make_parser() -> Parser:
    """All commands and their options."""
    parser = Parser(
        prog="halfbyte",
        description="Run small language models from GGUF files and Hugging Face folders.",
        examples=["halfbyte demo", "halfbyte --version", "halfbyte quantize --help"],
    )
    parser.add_argument("--version", action="version", version=f"halfbyte {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    add_run(commands)
    add_chat(commands)
    add_embed(commands)
    add_tokenize(commands)
    add_info(commands)
    add_perplexity(commands)
    add_bench(commands)
    add_eval(commands)
    add_fit(commands)
    add_device(commands)
    add_simulate(commands)
    add_compare(commands)
    add_demo(commands)
    add_web(commands)
    add_pull(commands)
    commands.add_parser("quantize", help="make a model small: int4, int8, fp16, bf16")
    return parser
