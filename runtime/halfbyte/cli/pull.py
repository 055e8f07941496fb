"""``halfbyte pull``."""

from __future__ import annotations

import argparse

from halfbyte.cli.shared import Commands
from halfbyte.download.hub import pull


def add_pull(commands: Commands[argparse.ArgumentParser]) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "pull",
        help="fetch a model from the Hugging Face hub; its path to stdout",
        description="Fetch a model from the Hugging Face hub into its cache: what halfbyte needs "
        "of it. Prints the path, which the other commands take.",
        epilog="example: halfbyte pull HuggingFaceTB/SmolLM2-135M-Instruct",
    )
    parser.add_argument("model", metavar="REPO[:FILE]", help="a repository, or a GGUF file in it")
    parser.add_argument("--revision", metavar="REV", help="a branch, a tag or a commit")
    parser.add_argument("--debug", action="store_true", help="show a traceback on errors")
    parser.set_defaults(command=_pull)


def _pull(options: argparse.Namespace) -> int:
    print(pull(options.model, options.revision))
    return 0
