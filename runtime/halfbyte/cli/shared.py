"""What commands have in common: a model, how it runs, and what a user can mend in one line."""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import cast

from halfbyte.errors import HalfbyteError
from halfbyte.generate import Options
from halfbyte.loading import load
from halfbyte.model import LanguageModel
from halfbyte.planning import CACHES, LEVELS, WEIGHTS, Given

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
    parser.add_argument(
        "model", metavar="MODEL", type=Path, help="a model file, or a Hugging Face folder"
    )
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
        "--weights", choices=WEIGHTS, default="auto",
        help="packed: laid out anew in memory, for speed; mapped: pages that the system may drop; "
        "streamed: read from storage for every token (default: packed where there is room)",
    )  # fmt: skip
    parser.add_argument(
        "--level", choices=LEVELS,
        help="settings that need less and less memory; see `halfbyte fit`",
    )  # fmt: skip
    parser.add_argument(
        "--memory-budget", type=size, metavar="SIZE",
        help="refuse to take more memory than this, such as 256MB; weights are streamed where "
        "they do not fit",
    )  # fmt: skip


def load_model(options: argparse.Namespace) -> LanguageModel:
    """The model that the options of `command` and `add_execution` ask for."""
    return load(
        options.model,
        tokenizer=options.tokenizer,
        backend=options.backend,
        threads=options.threads,
        level=options.level,
        memory_budget=options.memory_budget,
        **given_settings(options),
    )


def given_settings(options: argparse.Namespace) -> Given:
    """Settings that were given; those left out are the level's, or the default."""
    given = {key: getattr(options, key, None) for key in Given.__annotations__}
    given["passes"] = False if getattr(options, "passes", "on") == "off" else None
    return cast(Given, {key: value for key, value in given.items() if value not in (None, "auto")})


_UNITS = {"": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30}


def size(text: str) -> int:
    """Bytes of a size such as 256MB, 1.5GB, 512MiB or 1000000."""
    match = re.fullmatch(r"\s*(\d{1,15}(?:\.\d{1,9})?)\s*([A-Za-z]*)\s*", text)
    if not match or match[2].upper() not in _UNITS:
        raise argparse.ArgumentTypeError(f"{text!r}: expected a size such as 256MB or 1.5GiB")
    return round(float(match[1]) * _UNITS[match[2].upper()])


def add_generation(parser: argparse.ArgumentParser) -> None:
    """Options that say how a text is generated."""
    add = parser.add_argument
    add("-n", type=int, default=256, metavar="N", help="most tokens to generate")
    add("--temp", type=float, default=0.8, metavar="T", help="temperature; 0 is greedy")
    add("--top-k", type=int, default=0, metavar="K", help="sample from the K likeliest (0: all)")
    add(
        "--top-p", type=float, default=1.0, metavar="P",
        help="sample from the likeliest with probability P",
    )  # fmt: skip
    add(
        "--min-p", type=float, default=0.0, metavar="P",
        help="sample from those at least P times as likely as the likeliest",
    )  # fmt: skip
    add(
        "--repetition-penalty", type=float, default=1.0, metavar="X",
        help="more than 1 avoids tokens of the prompt and the text",
    )  # fmt: skip
    add(
        "--frequency-penalty", type=float, default=0.0, metavar="X",
        help="taken from a token's logit each time that it comes",
    )  # fmt: skip
    add(
        "--presence-penalty", type=float, default=0.0, metavar="X",
        help="taken from a token's logit once it came",
    )  # fmt: skip
    add(
        "--logit-bias", type=_bias, action="append", default=[], metavar="TOKEN=X",
        help="add X to a token's logit; -inf bans it; may be repeated",
    )  # fmt: skip
    add(
        "--stop", action="append", default=[], metavar="TEXT",
        help="where this comes, the text ends; may be repeated",
    )  # fmt: skip
    add("--seed", type=int, metavar="N", help="the same seed gives the same text")


def generation_options(options: argparse.Namespace) -> Options:
    """What `add_generation` asked for."""
    return Options(
        max_tokens=options.n,
        temperature=options.temp,
        top_k=options.top_k,
        top_p=options.top_p,
        min_p=options.min_p,
        repetition_penalty=options.repetition_penalty,
        frequency_penalty=options.frequency_penalty,
        presence_penalty=options.presence_penalty,
        logit_bias=dict(options.logit_bias),
        stop=options.stop,
        seed=options.seed,
    )


def _bias(text: str) -> tuple[int, float]:
    token, _, value = text.partition("=")
    try:
        return int(token), float(value)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r}: expected a token's id, as in 17=-1.5"
        ) from None


class Progress:
    """What is done now, on a line that is written over; nothing where stderr is no terminal."""

    def __init__(self) -> None:
        self._wide = 0

    def __call__(self, text: str) -> None:
        if sys.stderr.isatty():
            self.clear()
            self._wide = len(text)
            print(text, end="", file=sys.stderr, flush=True)

    def clear(self) -> None:
        """Remove the line, before something else is printed."""
        if self._wide:
            print(f"\r{'':{self._wide}}\r", end="", file=sys.stderr, flush=True)
            self._wide = 0
