"""Options and output that several commands share."""

from __future__ import annotations

import argparse
import inspect
import os
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TextIO, cast

from halfbyte.cli.parser import Commands, Parser, number, whole
from halfbyte.core.backends.cores import default_threads
from halfbyte.core.backends.threads import MAX_THREADS
from halfbyte.errors import HalfbyteError
from halfbyte.text.generate import Options
from halfbyte.text.loading import load
from halfbyte.text.model import LanguageModel
from halfbyte.text.planning import CACHES, LEVELS, WEIGHTS, Given
from halfbyte.text.sampling import Sampler

# Control characters in a model's text must not reach the terminal.
_CONTROLS = {code: "\ufffd" for code in (*range(32), *range(127, 160)) if chr(code) not in "\n\t"}


def command(
    commands: Commands[Parser],
    name: str,
    run: Callable[[argparse.Namespace], int],
    text: str,
    *examples: str,
) -> Parser:
    """Add a command on one model, with the options that all such commands share."""
    parser = commands.add_parser(
        name, help=text, description=text[0].upper() + text[1:] + ".", examples=examples
    )
    parser.add_argument(
        "model", metavar="MODEL", type=Path, help="a model file, or a Hugging Face folder"
    )
    parser.add_argument(
        "--tokenizer", type=Path, metavar="FILE", help="a llama2.c model's tokenizer file"
    )
    parser.add_argument(
        "--context", type=whole, metavar="N",
        help="tokens the KV cache holds (default: the model's, at most 4096)",
    )  # fmt: skip
    parser.add_argument(
        "--cache", choices=CACHES, default="auto",
        help="type of the KV cache (default: f32 for models in F32, f16 for others)",
    )  # fmt: skip
    add_debug(parser)
    parser.set_defaults(command=run)
    return parser


def add_debug(parser: argparse.ArgumentParser) -> None:
    """Add the option `--debug`, which all commands have."""
    parser.add_argument("--debug", action="store_true", help="show a traceback on errors")


def add_execution(parser: argparse.ArgumentParser) -> None:
    """Add options for how a model runs."""
    parser.add_argument(
        "--threads", "-t", type=whole, metavar="N",
        help=f"threads (default: one per fast core, {default_threads()} here)",
    )  # fmt: skip
    add_backend(parser)
    parser.add_argument(
        "--passes", choices=("on", "off"), default="on",
        help="off: run the program as captured, with float activations",
    )  # fmt: skip
    parser.add_argument(
        "--activations", choices=("int8", "float"), default="int8",
        help="type of the activations that quantized weights are multiplied with",
    )  # fmt: skip
    parser.add_argument(
        "--weights", choices=WEIGHTS, default="auto",
        help="packed: rearranged in memory, for speed; mapped: in pages that the system may drop; "
        "streamed: read from storage for every token (default: packed if they fit into memory)",
    )  # fmt: skip
    parser.add_argument(
        "--level", choices=LEVELS,
        help="presets that need less and less memory; see `halfbyte fit`",
    )  # fmt: skip
    add_lora(parser)
    parser.add_argument(
        "--memory-budget", type=size, metavar="SIZE",
        help="use at most this much memory, such as 256MB: weights that do not fit are streamed",
    )  # fmt: skip


def add_lora(parser: argparse._ActionsContainer, use: str = "and how much of it to use") -> None:
    """Add the option `--lora`."""
    parser.add_argument(
        "--lora", type=adapter, action="append", default=[], metavar="FILE[=SCALE]",
        help=f"an adapter of the model, in GGUF or a folder of PEFT, {use} (SCALE: 1 by default); "
        "may be repeated",
    )  # fmt: skip


def adapter(text: str) -> tuple[Path, float]:
    """The file and the scale of an adapter: FILE or FILE=SCALE."""
    file, equals, scale = text.rpartition("=")
    try:
        return (Path(file), float(scale)) if equals else (Path(text), 1.0)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r}: expected a file and a number, as in pirate.gguf=0.5"
        ) from None


def add_backend(parser: argparse._ActionsContainer) -> None:
    """Add the option `--backend`."""
    parser.add_argument(
        "--backend", default="native", metavar="NAME",
        help="what computes: native, native-avx2, native-scalar or numpy",
    )  # fmt: skip


def load_model(options: argparse.Namespace) -> LanguageModel:
    """Load the model as the options of `command` and `add_execution` say."""
    return load(
        options.model,
        tokenizer=options.tokenizer,
        backend=options.backend,
        threads=useful_threads(options.threads),
        level=options.level,
        memory_budget=options.memory_budget,
        **given_settings(options),
    )


def cores() -> int:
    """Cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def useful_threads(threads: int | None) -> int | None:
    """The given number of threads, reduced to the number of cores with a warning."""
    if threads is not None and not 1 <= threads <= MAX_THREADS:
        raise HalfbyteError(f"--threads {threads}: expected 1 to {MAX_THREADS}")
    if threads is None or threads <= cores():
        return threads
    print(
        f"--threads {threads}: this machine has {cores()} cores, and more threads only wait for "
        f"each other: {cores()} are used",
        file=sys.stderr,
    )
    return cores()


def check_threads(threads: Sequence[int]) -> None:
    """Refuse to measure more than four threads per core."""
    for count in threads:
        if count > 4 * cores():
            raise HalfbyteError(
                f"--threads {count}: this machine has {cores()} cores: expected at most "
                f"{4 * cores()}"
            )


def given_settings(options: argparse.Namespace) -> Given:
    """The settings that were given; others are the level's, or the defaults."""
    values = {key: getattr(options, key, None) for key in Given.__annotations__}
    values["lora"] = dict(getattr(options, "lora", ())) or None
    values["passes"] = False if getattr(options, "passes", "on") == "off" else None
    return cast(Given, {key: value for key, value in values.items() if value not in (None, "auto")})


_UNITS = {"": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30}


def size(text: str) -> int:
    """Bytes of a size such as 256MB, 1.5GB, 512MiB or 1000000."""
    match = re.fullmatch(r"\s*(\d{1,15}(?:\.\d{1,9})?)\s*([A-Za-z]*)\s*", text)
    if not match or match[2].upper() not in _UNITS:
        raise argparse.ArgumentTypeError(f"{text!r}: expected a size such as 256MB or 1.5GiB")
    return round(float(match[1]) * _UNITS[match[2].upper()])


# Arguments of the Python interface, which error messages name, and the options that set them.
ARGUMENTS = {
    "ambient": "--ambient", "minutes": "--minutes", "prompt": "--prompt", "type": "--type",
    "batch": "--batch", "cache": "--cache", "context": "--context", "draws": "--draws",
    "frequency_penalty": "--frequency-penalty", "length_penalty": "--length-penalty",
    "level": "--level", "logit_bias": "--logit-bias", "lora": "--lora", "max_tokens": "-n",
    "memory_budget": "--memory-budget", "min_p": "--min-p", "num_beams": "--beams",
    "presence_penalty": "--presence-penalty", "repetition_penalty": "--repetition-penalty",
    "seed": "--seed", "stop": "--stop", "temperature": "--temp", "threads": "--threads",
    "top_k": "--top-k", "top_p": "--top-p", "weights": "--weights",
}  # fmt: skip


def name_options(message: str) -> str:
    """Replace the argument's name that begins a message with the option's."""
    name = re.match(r"\w+(?= [^ ]+: |: )", message)
    return ARGUMENTS[name[0]] + message[name.end() :] if name and name[0] in ARGUMENTS else message


def add_generation(parser: argparse.ArgumentParser, max_tokens: int) -> None:
    """Add options for generating a text; those that are not given are None."""
    add = parser.add_argument
    add(
        "-n", type=whole, metavar="N",
        help=f"maximum number of tokens to generate; -1: until the end (default: {max_tokens})",
    )  # fmt: skip
    parser.set_defaults(max_tokens=max_tokens)

    def sampling(name: str, kind: Callable[[str], Any], metavar: str, text: str) -> None:
        argument = {"temp": "temperature"}.get(name, name.replace("-", "_"))
        value = inspect.signature(Sampler).parameters[argument].default
        add(f"--{name}", type=kind, metavar=metavar, help=f"{text} (default: {value})")

    sampling("temp", number, "T", "temperature; 0: always the likeliest token")
    sampling("top-k", whole, "K", "sample from the K likeliest tokens; 0: from all")
    sampling("top-p", number, "P", "sample from the likeliest tokens with total probability P")
    sampling("min-p", number, "P", "sample from tokens at least P times as likely as the likeliest")
    sampling(
        "repetition-penalty", number, "X", "more than 1 avoids tokens of the prompt and the text"
    )
    sampling("frequency-penalty", number, "X", "subtract X from a token's logit per occurrence")
    sampling("presence-penalty", number, "X", "subtract X from the logits of tokens that occurred")
    add(
        "--logit-bias", type=_bias, action="append", default=[], metavar="TOKEN=X",
        help="add X to a token's logit; -inf bans it; may be repeated",
    )  # fmt: skip
    add(
        "--stop", action="append", default=[], metavar="TEXT",
        help="end the text where TEXT occurs; may be repeated",
    )  # fmt: skip
    add("--seed", type=whole, metavar="N", help="the same seed gives the same text")


def max_tokens(options: argparse.Namespace) -> int:
    """The maximum number of tokens to generate."""
    if options.n is None:
        return int(options.max_tokens)
    return sys.maxsize if options.n == -1 else int(options.n)


ADJUSTMENTS = ("repetition_penalty", "frequency_penalty", "presence_penalty")
SAMPLING = ("temp", "top_k", "top_p", "min_p", "seed")


def adjustments(options: argparse.Namespace) -> dict[str, Any]:
    """The penalties and biases that were given."""
    values = {name: getattr(options, name) for name in ADJUSTMENTS}
    values["logit_bias"] = dict(options.logit_bias) or None
    return {name: value for name, value in values.items() if value is not None}


def generation_options(options: argparse.Namespace) -> Options:
    """The options of `add_generation`, as arguments of the Python interface."""
    values = {name: getattr(options, name) for name in SAMPLING}
    values["temperature"] = values.pop("temp")
    values = {name: value for name, value in values.items() if value is not None}
    return cast(
        Options,
        {
            **values, **adjustments(options),
            "max_tokens": max_tokens(options), "stop": options.stop,
        },
    )  # fmt: skip


def _bias(text: str) -> tuple[int, float]:
    token, _, value = text.partition("=")
    try:
        return int(token), float(value)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r}: expected a token's id, as in 17=-1.5"
        ) from None


# ---- the terminal --------------------------------------------------------------------------------


def has_colours(stream: TextIO) -> bool:
    """Whether to write colours to a stream: on a terminal, unless NO_COLOR is set."""
    return stream.isatty() and not os.environ.get("NO_COLOR")


def harmless(text: str) -> str:
    """A model's text as printed: on a terminal, without control characters."""
    return text.translate(_CONTROLS) if sys.stdout.isatty() else text


def ask(question: str) -> bool:
    """Ask at the terminal; False without one."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return False
    print(f"{question} [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")


class Progress:
    """Shows the current task on a line that is overwritten; nothing if stderr is not a terminal."""

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
