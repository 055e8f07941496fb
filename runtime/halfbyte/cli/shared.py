"""What commands have in common: a model, how it runs, and what a user can mend in one line."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable
from pathlib import Path

from halfbyte import packing
from halfbyte.errors import HalfbyteError
from halfbyte.loading import CACHES, load
from halfbyte.model import LanguageModel

BAD_INPUT, INTERRUPTED = 2, 130

Commands = argparse._SubParsersAction  # argparse names its type privately


def guarded(command: Callable[[], int], *, debug: bool) -> int:
    """Run a command; what a user can mend becomes one line on stderr, not a traceback."""
    try:
        code = command()
        sys.stdout.flush()  # here, where a reader that has gone is no error
    except KeyboardInterrupt:
        print("\ninterrupted", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        # The reader has gone: nothing is left to say, and Python must not say it at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (HalfbyteError, OSError) as error:
        if debug:
            raise
        print(f"error: {error}", file=sys.stderr)
        return BAD_INPUT
    return code


def command(
    commands: Commands[argparse.ArgumentParser],
    name: str,
    run: Callable[[argparse.Namespace], int],
    text: str,
    example: str,
) -> argparse.ArgumentParser:
    """A command on one model, with the options that all of them share."""
    parser = commands.add_parser(
        name,
        help=text,
        description=text[0].upper() + text[1:] + ".",
        epilog=f"example: {example}",
    )
    parser.add_argument("model", metavar="MODEL", type=Path, help="a GGUF or llama2.c file")
    parser.add_argument("--tokenizer", type=Path, help="a llama2.c model's tokenizer file")
    parser.add_argument(
        "--context", type=int, help="tokens the KV cache holds (default: the model's, at most 4096)"
    )
    parser.add_argument(
        "--cache", choices=CACHES, default="auto",
        help="numbers of the KV cache (default: f32 for models in F32, f16 for others)",
    )  # fmt: skip
    parser.add_argument("--debug", action="store_true", help="show a traceback on errors")
    parser.set_defaults(command=run)
    return parser


def add_execution(parser: argparse.ArgumentParser) -> None:
    """Options that say how a model runs."""
    parser.add_argument("--threads", "-t", type=int, help="threads (default: one per fast core)")
    parser.add_argument(
        "--backend", default="native", help="native, native-avx2, native-scalar or numpy"
    )
    parser.add_argument(
        "--passes", choices=("on", "off"), default="on",
        help="off runs the program as captured, with float activations",
    )  # fmt: skip
    parser.add_argument(
        "--activations", choices=("int8", "float"), default="int8",
        help="what quantized weights are multiplied with",
    )  # fmt: skip
    parser.add_argument(
        "--pack", choices=packing.CHOICES, default="auto",
        help="auto lays weights out anew in memory for speed where there is room; never leaves "
        "them mapped, as pages that the system may drop",
    )  # fmt: skip


def load_model(options: argparse.Namespace) -> LanguageModel:
    """The model that the options of `command` and `add_execution` ask for."""
    return load(
        options.model,
        tokenizer=options.tokenizer,
        context=options.context,
        backend=options.backend,
        threads=options.threads,
        passes=options.passes == "on",
        activations=options.activations,
        cache=options.cache,
        pack=options.pack,
    )
