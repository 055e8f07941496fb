"""``halfbyte tokenize``: the tokens of a text."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from halfbyte.cli import prompts
from halfbyte.cli.common import add_debug
from halfbyte.cli.parser import Commands, Parser
from halfbyte.columns import table
from halfbyte.errors import HalfbyteError, printable
from halfbyte.text.tokenizers import load_tokenizer


def add_tokenize(commands: Commands[Parser]) -> None:
    """The command `tokenize`."""
    parser = commands.add_parser(
        "tokenize",
        help="show the tokens of a text",
        description="Show the tokens of a text: the id of each, its spelling in the vocabulary, "
        "and the characters of the text that it stands for.",
        examples=[
            'halfbyte tokenize model.gguf "Once upon a time"',
            "halfbyte tokenize tokenizer.json --file book.txt --count",
            "halfbyte tokenize model.gguf '<s>Once' --no-special --parse-special --json",
        ],
    )
    parser.add_argument(
        "model", metavar="MODEL", type=Path,
        help="a model, a tokenizer.json or a tokenizer.model",
    )  # fmt: skip
    prompts.add_text(parser, "TEXT", "the text to tokenize")
    parser.add_argument("--count", action="store_true", help="print only the number of tokens")
    parser.add_argument(
        "--no-special", action="store_true",
        help="do not add the special tokens that the model expects around a text",
    )  # fmt: skip
    parser.add_argument(
        "--parse-special", action="store_true",
        help="parse special tokens in the text, such as <s>, as tokens and not as text",
    )  # fmt: skip
    parser.add_argument("--json", action="store_true", help="print JSON")
    add_debug(parser)
    parser.set_defaults(command=_tokenize)


def _tokenize(options: argparse.Namespace) -> int:
    text = prompts.given_text(options)
    if text is None:
        raise HalfbyteError("tokenize: expected a text, --file FILE or a pipe, found none")
    tokenizer = load_tokenizer(options.model)
    ids, places = tokenizer.encode_with_offsets(
        text, add_special_tokens=not options.no_special, parse_special=options.parse_special
    )
    spelled = tokenizer.vocabulary.tokens
    tokens: list[dict[str, Any]] = [
        {"id": token, "piece": spelled[token], "text": text[start:end], "start": start, "end": end}
        for token, (start, end) in zip(ids, places, strict=True)
    ]
    if options.json:
        counts = {
            "count": len(ids),
            "characters": len(text),
            "bytes": len(text.encode(errors="replace")),
        }
        print(json.dumps(counts if options.count else {**counts, "ids": ids, "tokens": tokens}))
    elif options.count:
        print(len(ids))
    else:
        rows = [[str(t["id"]), printable(t["piece"]), repr(t["text"])] for t in tokens]
        print("\n".join(table(["id", "piece", "text"], rows, left=3)))
        print(f"{len(ids)} tokens of {len(text)} characters")
    return 0
