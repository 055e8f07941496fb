"""``halfbyte run`` and ``halfbyte perplexity``: a model's text, and a text's probability."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from halfbyte.cli import graph
from halfbyte.cli.shared import (
    Commands,
    add_execution,
    add_generation,
    command,
    generation_options,
    load_model,
)
from halfbyte.errors import HalfbyteError
from halfbyte.formats.onnx import is_onnx_file
from halfbyte.model import LanguageModel
from halfbyte.profile import Profile


def add_run(commands: Commands[argparse.ArgumentParser]) -> None:
    """The command `run`."""
    parser = command(
        commands, "run", _run, "continue a text, or run an ONNX graph; statistics to stderr",
        'halfbyte run storyteller-int4.gguf "Once upon a time" -n 200 --temp 0.8 --seed 7; '
        "halfbyte run classifier.onnx --input picture.bmp",
    )  # fmt: skip
    parser.add_argument(
        "prompt", metavar="PROMPT", nargs="?", default="", help="how the text begins"
    )
    add_generation(parser)
    parser.add_argument(
        "--beams", type=int, metavar="N",
        help="beam search: the likeliest text of N followed at once; nothing is sampled",
    )  # fmt: skip
    parser.add_argument(
        "--length-penalty", type=float, default=1.0, metavar="X",
        help="more than 0 favours long texts in beam search (1)",
    )  # fmt: skip
    parser.add_argument("--profile", action="store_true", help="time, bytes and GB/s per kernel")
    add_execution(parser)
    graph.add_graph_options(parser)


def _run(options: argparse.Namespace) -> int:
    if is_onnx_file(options.model):
        return graph.run(options)
    graph.refuse_graph_options(options)
    with load_model(options) as model:
        if options.profile:
            model.profile = Profile()
        if options.beams is not None:
            return _search(model, options)
        generation = model.generation(options.prompt, **generation_options(options))
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


def _search(model: LanguageModel, options: argparse.Namespace) -> int:
    best, *_ = model.beam_search(
        options.prompt, options.beams, options.length_penalty, options.n,
        repetition_penalty=options.repetition_penalty,
        frequency_penalty=options.frequency_penalty,
        presence_penalty=options.presence_penalty,
        logit_bias=dict(options.logit_bias),
    )  # fmt: skip
    print(options.prompt + best.text)
    print(f"generated {len(best.ids)} tokens, score {best.score:.4f}", file=sys.stderr)
    return 0


def add_perplexity(commands: Commands[argparse.ArgumentParser]) -> None:
    """The command `perplexity`."""
    parser = command(
        commands, "perplexity", _perplexity, "how well a model predicts a text; lower is better",
        "halfbyte perplexity model.gguf --text book.txt",
    )  # fmt: skip
    parser.add_argument("--text", type=Path, required=True, metavar="FILE", help="UTF-8 text")
    parser.add_argument("--json", action="store_true", help="print JSON")
    add_execution(parser)


def _perplexity(options: argparse.Namespace) -> int:
    try:
        text = options.text.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise HalfbyteError(f"{options.text}: expected UTF-8 text: {error.reason}") from None
    with load_model(options) as model:
        value, tokens = model.perplexity(text), len(model.tokenizer.encode(text))
    if options.json:
        print(json.dumps({"model": str(options.model), "perplexity": value, "tokens": tokens}))
    else:
        print(f"perplexity {value:.6f} over {tokens} tokens")
    return 0
