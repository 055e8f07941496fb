"""The command line: ``halfbyte run | chat | info | perplexity | bench | eval | fit |
device | simulate | demo | web | pull | quantize``.

One file per group of commands; each adds its own to the parser.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence

from halfbyte import __version__, demo
from halfbyte.cli import chat, device, evaluate, fit, inspect, pull, simulate, text, web
from halfbyte.cli.shared import Commands, guarded

__all__ = ["guarded", "main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code: 2 for input that cannot be used."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if words[:1] == ["quantize"]:
        from halfbyte.quantize.cli import main as quantize

        code: int = quantize(words[1:])
        return code
    options = _parser().parse_args(words)
    command: Callable[[argparse.Namespace], int] = options.command
    return guarded(lambda: command(options), debug=options.debug)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="halfbyte",
        description="Run small language models from GGUF files and Hugging Face folders.",
        epilog="A first try: `halfbyte demo`. Make a model small: `halfbyte quantize --help`.",
    )
    parser.add_argument("--version", action="version", version=f"halfbyte {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    text.add_run(commands)
    chat.add_chat(commands)
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


def _add_demo(commands: Commands[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "demo", help="quantize the shipped storyteller to int4 and let it tell a story"
    )
    parser.add_argument("--seed", type=int, default=7, help="another seed, another story")
    parser.add_argument("--debug", action="store_true", help="show a traceback on errors")
    parser.set_defaults(command=lambda options: demo.run(options.seed))
