"""The parser of ``halfbyte``, and what calls its commands."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path

from halfbyte import __version__
from halfbyte.cli import (
    chat,
    demo,
    device,
    evaluate,
    fit,
    inspect,
    prompts,
    pull,
    simulate,
    text,
    tokenize,
    web,
)
from halfbyte.cli.parser import Commands, Parser, whole
from halfbyte.cli.shared import add_debug, of_options
from halfbyte.errors import HalfbyteError


def run(words: Sequence[str]) -> int:
    """Run one command; returns the exit code."""
    parser = make_parser()
    if not words:
        parser.print_help()
        return 0
    options, more = parser.parse_known_args(words)
    prompts.take_words(words[0], options, more)
    command: Callable[[argparse.Namespace], int] = options.command
    if isinstance(getattr(options, "model", None), Path):
        options.model = pull.located(options.model)
    try:
        return command(options)
    except HalfbyteError as error:
        error.args = (of_options(str(error)),)
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
    text.add_run(commands)
    chat.add_chat(commands)
    tokenize.add_tokenize(commands)
    inspect.add_info(commands)
    text.add_perplexity(commands)
    inspect.add_bench(commands)
    evaluate.add_eval(commands)
    fit.add_fit(commands)
    device.add_device(commands)
    simulate.add_simulate(commands)
    _add_demo(commands)
    web.add_web(commands)
    pull.add_pull(commands)
    commands.add_parser("quantize", help="make a model small: int4, int8, fp16, bf16")
    return parser


def _add_demo(commands: Commands[Parser]) -> None:
    text = "quantize the shipped storyteller to int4 and let it tell a story"
    parser = commands.add_parser("demo", help=text, examples=["halfbyte demo --seed 3"])
    parser.add_argument(
        "--seed", type=whole, metavar="N", default=7, help="another seed, another story"
    )
    add_debug(parser)
    parser.set_defaults(command=lambda options: demo.run(options.seed))
