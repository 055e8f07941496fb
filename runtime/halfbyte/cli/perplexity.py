"""``halfbyte perplexity``: how well a model predicts a text."""

from __future__ import annotations

import argparse
import json

from halfbyte.cli import prompts
from halfbyte.cli.common import add_execution, command, load_model
from halfbyte.cli.parser import Commands, Parser


def add_perplexity(commands: Commands[Parser]) -> None:
    """The command `perplexity`."""
    parser = command(
        commands, "perplexity", _perplexity, "how well a model predicts a text; lower is better",
        "halfbyte perplexity model.gguf --text book.txt",
        "halfbyte perplexity model.gguf --text book.txt --json",
    )  # fmt: skip
    parser.add_argument("--text", required=True, metavar="FILE", help="UTF-8 text; - is stdin")
    parser.add_argument("--json", action="store_true", help="print JSON")
    add_execution(parser)


def _perplexity(options: argparse.Namespace) -> int:
    text = prompts.read_text(options.text, whole=True)
    with load_model(options) as model:
        value, tokens = model.perplexity(text), len(model.tokenizer.encode(text))
    if options.json:
        print(json.dumps({"model": str(options.model), "perplexity": value, "tokens": tokens}))
    else:
        print(f"perplexity {value:.6f} over {tokens} tokens")
    return 0
