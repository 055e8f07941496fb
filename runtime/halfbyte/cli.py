"""The command line: ``halfbyte run | info | perplexity | bench | demo | web | pull | quantize``."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from halfbyte import __version__, bench, demo, describe, packing
from halfbyte.download.hub import pull
from halfbyte.errors import HalfbyteError
from halfbyte.generate import begin
from halfbyte.loading import CACHES, load
from halfbyte.model import LanguageModel
from halfbyte.profile import Profile

BAD_INPUT, INTERRUPTED = 2, 130


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


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="halfbyte",
        description="Run small language models from GGUF files and Hugging Face folders.",
        epilog="A first try: `halfbyte demo`. Make a model small: `halfbyte quantize --help`.",
    )
    parser.add_argument("--version", action="version", version=f"halfbyte {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    _add_run(commands)
    _add_info(commands)
    _add_perplexity(commands)
    _add_bench(commands)
    demonstration = commands.add_parser(
        "demo", help="quantize the shipped storyteller to int4 and let it tell a story"
    )
    demonstration.add_argument("--seed", type=int, default=7, help="another seed, another story")
    demonstration.add_argument("--debug", action="store_true", help="show a traceback on errors")
    demonstration.set_defaults(command=lambda options: demo.run(options.seed))
    _add_web(commands)
    _add_pull(commands)
    commands.add_parser("quantize", help="make a model small: int4, int8, fp16, bf16")
    return parser


def _add_pull(commands: Commands[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "pull",
        help="fetch a model from the Hugging Face hub; its path to stdout",
        description="Fetch a model from the Hugging Face hub into its cache: what halfbyte needs "
        "of it. Prints the path, which the other commands take.",
        epilog="example: halfbyte pull HuggingFaceTB/SmolLM2-135M-Instruct",
    )
    parser.add_argument("model", metavar="REPO[:FILE]", help="a repository, or one GGUF file in it")
    parser.add_argument("--revision", metavar="REV", help="a branch, a tag or a commit")
    parser.add_argument("--debug", action="store_true", help="show a traceback on errors")
    parser.set_defaults(command=_pull)


def _pull(options: argparse.Namespace) -> int:
    print(pull(options.model, options.revision))
    return 0


def _add_web(commands: Commands[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "web",
        help="serve the page that runs a model in the browser, or export it",
        description="Serve the page that runs halfbyte in a browser tab, on 127.0.0.1; or write it "
        "as static files for any host. Pyodide is fetched into a cache the first time.",
        epilog="example: halfbyte web model-int4.gguf --port 8000",
    )
    parser.add_argument(
        "model", nargs="?", type=Path, metavar="MODEL",
        help="the model that the page loads (default: the storyteller in int4)",
    )  # fmt: skip
    parser.add_argument("--port", type=int, default=8000, metavar="N", help="default 8000; 0: any")
    parser.add_argument(
        "--export", type=Path, metavar="DIR", help="write static files into a new folder instead"
    )
    parser.add_argument("--debug", action="store_true", help="show a traceback on errors")
    parser.set_defaults(command=_web)


def _web(options: argparse.Namespace) -> int:
    from halfbyte.web.server import serve
    from halfbyte.web.site import make_site

    site = make_site(options.model)
    if options.export is None:
        serve(site, options.port)
    else:
        site.export(options.export)
        print(f"{options.export}: {len(site.files)} files, {site.size / 1e6:.1f} MB")
    return 0


Commands = argparse._SubParsersAction  # argparse names its type privately


def _command(
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


def _add_execution(parser: argparse.ArgumentParser) -> None:
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


def _load(options: argparse.Namespace) -> LanguageModel:
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


def _add_run(commands: Commands[argparse.ArgumentParser]) -> None:
    parser = _command(
        commands, "run", _run, "continue a text; text to stdout, statistics to stderr",
        'halfbyte run storyteller-int4.gguf "Once upon a time" -n 200 --temp 0.8 --seed 7',
    )  # fmt: skip
    parser.add_argument(
        "prompt", metavar="PROMPT", nargs="?", default="", help="how the text begins"
    )
    parser.add_argument("-n", type=int, default=256, metavar="N", help="most tokens to generate")
    parser.add_argument(
        "--temp", type=float, default=0.8, metavar="T", help="temperature; 0 is greedy"
    )
    parser.add_argument(
        "--top-k", type=int, default=0, metavar="K", help="sample from the K likeliest (0: all)"
    )
    parser.add_argument(
        "--top-p",
        type=float,
        default=1.0,
        metavar="P",
        help="sample from the likeliest with probability P",
    )
    parser.add_argument("--seed", type=int, help="the same seed gives the same text")
    parser.add_argument("--profile", action="store_true", help="time, bytes and GB/s per kernel")
    _add_execution(parser)


def _run(options: argparse.Namespace) -> int:
    with _load(options) as model:
        if options.profile:
            model.profile = Profile()
        generation = begin(
            model, options.prompt, options.n, options.temp, options.top_k, options.top_p,
            options.seed,
        )  # fmt: skip
        sys.stdout.write(options.prompt)
        try:
            for piece in generation:
                sys.stdout.write(piece)
                sys.stdout.flush()
        finally:  # what follows, an error too, begins on a line of its own
            sys.stdout.write("\n")
            sys.stdout.flush()
        print(
            f"prompt {len(generation.prompt_ids)} tokens, {generation.prompt_speed:.0f} tokens/s; "
            f"generated {len(generation.ids)} tokens, {generation.decode_speed:.0f} tokens/s "
            f"({model.executable.backend}, {model.executable.threads} threads)",
            file=sys.stderr,
        )
        if model.profile:
            print(model.profile.table(), file=sys.stderr)
    return 0


def _add_info(commands: Commands[argparse.ArgumentParser]) -> None:
    parser = _command(
        commands, "info", _info, "show metadata, tensors, bits per weight and planned memory",
        "halfbyte info model.gguf --context 2048",
    )  # fmt: skip
    parser.add_argument(
        "--program",
        action="store_true",
        help="also print the program, as captured and after passes",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")


def _info(options: argparse.Namespace) -> int:
    text = describe.describe(
        options.model, options.tokenizer, options.context, options.cache,
        program=options.program, as_json=options.json,
    )  # fmt: skip
    print(text)
    return 0


def _add_perplexity(commands: Commands[argparse.ArgumentParser]) -> None:
    parser = _command(
        commands, "perplexity", _perplexity, "how well a model predicts a text; lower is better",
        "halfbyte perplexity model.gguf --text book.txt",
    )  # fmt: skip
    parser.add_argument("--text", type=Path, required=True, metavar="FILE", help="UTF-8 text")
    parser.add_argument("--json", action="store_true", help="print JSON")
    _add_execution(parser)


def _perplexity(options: argparse.Namespace) -> int:
    try:
        text = options.text.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise HalfbyteError(f"{options.text}: expected UTF-8 text: {error.reason}") from None
    with _load(options) as model:
        value, tokens = model.perplexity(text), len(model.tokenizer.encode(text))
    if options.json:
        print(json.dumps({"model": str(options.model), "perplexity": value, "tokens": tokens}))
    else:
        print(f"perplexity {value:.6f} over {tokens} tokens")
    return 0


def _numbers(text: str) -> list[int]:
    try:
        values = [int(part) for part in text.split(",") if part]
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r}: expected numbers such as 128,512") from None
    if any(value < 1 for value in values):
        raise argparse.ArgumentTypeError(f"{text!r}: expected numbers of 1 or more")
    return values


def _add_bench(commands: Commands[argparse.ArgumentParser]) -> None:
    parser = _command(
        commands, "bench", _bench, "measure prompt (pp) and decode (tg) speed in tokens/s",
        "halfbyte bench model.gguf -p 128,512 -n 64 -t 1,2",
    )  # fmt: skip
    parser.add_argument(
        "-p", type=_numbers, default=[128, 512], metavar="N,...", help="prompt lengths"
    )
    parser.add_argument("-n", type=_numbers, default=[64], metavar="N,...", help="tokens to decode")
    parser.add_argument(
        "-t", "--threads", type=_numbers, default=[1], metavar="N,...", help="thread counts"
    )
    parser.add_argument("-r", type=int, default=5, metavar="N", help="repetitions")
    parser.add_argument(
        "--backend", default="native", help="native, native-avx2, native-scalar or numpy"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")


def _bench(options: argparse.Namespace) -> int:
    report = bench.measure(
        options.model, options.tokenizer, prompts=options.p, decodes=options.n,
        threads=options.threads, repetitions=options.r, backend=options.backend,
        context=options.context, cache=options.cache,
    )  # fmt: skip
    print(json.dumps(report.as_json(), indent=1) if options.json else report.table())
    return 0
