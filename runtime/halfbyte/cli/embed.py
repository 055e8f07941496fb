"""``halfbyte embed``: vectors of texts, and the texts that answer a question best."""

from __future__ import annotations

import argparse
import io
import json
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np

from halfbyte.cli.common import Progress, add_backend, add_debug, harmless, useful_threads
from halfbyte.cli.parser import Commands, Parser, whole
from halfbyte.cli.prompts import read_text
from halfbyte.cli.replacing import add_force, is_own_json, may_replace
from halfbyte.errors import HalfbyteError
from halfbyte.formats.embedding import Pooling
from halfbyte.outputs import write_file, write_text
from halfbyte.text.encoder import TextEncoder
from halfbyte.text.encoder_loading import load_encoder
from halfbyte.weights import F32Array

_NPY = b"\x93NUMPY"


def add_embed(commands: Commands[Parser]) -> None:
    """The command `embed`."""
    parser = commands.add_parser(
        "embed",
        help="turn texts into vectors, or find those that answer a question",
        description="Turn texts, one a line, into vectors that are near for similar meanings; or "
        "list the texts that answer a question best. MODEL is an encoder (BERT, RoBERTa, "
        "DistilBERT, XLM-RoBERTa), a language model trained for vectors (Qwen3-Embedding), or a "
        "cross-encoder, which reads question and text at once.",
        examples=[
            "halfbyte embed minilm.gguf lines.txt --npy -o vectors.npy",
            "halfbyte embed e5.gguf lines.txt --prompt 'passage: ' --json",
            "halfbyte embed gte.gguf lines.txt --prompt-name query --context 512 --threads 2",
            "halfbyte embed minilm.gguf lines.txt --query 'What do cats eat?' --best 3",
            "cat lines.txt | halfbyte embed minilm.gguf --json",
        ],
    )
    parser.add_argument(
        "model", metavar="MODEL", type=Path, help="a GGUF file, or a Hugging Face folder"
    )
    parser.add_argument(
        "file", metavar="FILE", nargs="?", default="-",
        help="texts, one a line, in UTF-8; - is stdin (default)",
    )  # fmt: skip
    output = parser.add_mutually_exclusive_group()
    output.add_argument("--json", action="store_true", help="write JSON (default)")
    output.add_argument("--npy", action="store_true", help="write an array in NumPy's format")
    output.add_argument(
        "--query", metavar="TEXT", help="print the texts that answer this best, with their scores"
    )
    parser.add_argument(
        "--best", type=whole, default=10, metavar="N", help="texts to print with --query"
    )
    parser.add_argument("-o", "--output", type=Path, metavar="OUT", help="default: stdout")
    add_force(parser)
    parser.add_argument(
        "--prompt", metavar="TEXT", help="put this before each text, such as 'passage: '"
    )
    parser.add_argument(
        "--prompt-name", metavar="NAME", help="put the model's own prompt of this name before each"
    )
    parser.add_argument(
        "--context", type=whole, metavar="N",
        help="cut texts to this number of tokens (default: the model's, at most 4096)",
    )  # fmt: skip
    parser.add_argument("--threads", "-t", type=whole, metavar="N", help="threads")
    add_backend(parser)
    add_debug(parser)
    parser.set_defaults(command=_embed)


def _embed(options: argparse.Namespace) -> int:
    if options.npy and options.output is None and sys.stdout.isatty():
        raise HalfbyteError("--npy: expected -o OUT, or a pipe, found a terminal")
    if options.output is not None:
        if options.query is not None:
            raise HalfbyteError("--query: prints to the terminal: expected no -o")
        own = _is_npy if options.npy else is_own_json("model", "vectors")
        may_replace(options.output, own, force=options.force, option="-o")
    with load_encoder(
        options.model, context=options.context, backend=options.backend,
        threads=useful_threads(options.threads),
    ) as model:  # fmt: skip
        texts = read_text(options.file).splitlines()
        if not texts:
            raise HalfbyteError(f"{options.file}: expected texts, one a line, found none")
        progress = Progress()

        def show(done: int) -> None:
            progress(f"{done} of {len(texts)} texts")

        try:
            if options.query is not None:
                scores = _scores(model, options, texts, show)
            else:
                vectors = model.embed(
                    texts, prompt=options.prompt, prompt_name=options.prompt_name, progress=show
                )
        finally:
            progress.clear()
        if model.cut:
            cut = "1 text was" if model.cut == 1 else f"{model.cut} texts were"
            print(f"{cut} cut to {model.context} tokens", file=sys.stderr)
        if options.query is not None:
            for index in np.argsort(-scores, kind="stable")[: options.best].tolist():
                print(f"{scores[index]:8.4f}  {harmless(texts[index])}")
        else:
            _write(options, vectors)
    return 0


def _scores(
    model: TextEncoder, options: argparse.Namespace, texts: list[str],
    progress: Callable[[int], None],
) -> F32Array:  # fmt: skip
    """Scores of the texts: a cross-encoder's, or cosines."""
    if model.pooling is Pooling.RANK:
        if options.prompt is not None or options.prompt_name is not None:
            raise HalfbyteError(
                f"{model.path}: scores pairs of texts, which take no prompt: expected no --prompt "
                "and no --prompt-name"
            )
        return model.rerank(options.query, texts, progress=progress)
    name = "query" if "query" in model.prompts else None
    [query] = model.embed([options.query], prompt_name=name, normalize=True)
    vectors = model.embed(
        texts, prompt=options.prompt, prompt_name=options.prompt_name, normalize=True,
        progress=progress,
    )  # fmt: skip
    scores: F32Array = vectors @ query
    return scores


def _write(options: argparse.Namespace, vectors: F32Array) -> None:
    if options.npy:
        content = io.BytesIO()
        np.save(content, vectors)
        if options.output is None:
            sys.stdout.buffer.write(content.getvalue())
        else:
            write_file(options.output, lambda file: file.write(content.getbuffer()))
        return
    text = json.dumps(
        {
            "model": str(options.model), "width": vectors.shape[1],
            "vectors": [[float(f"{x:.8g}") for x in row] for row in vectors.tolist()],
        }
    )  # fmt: skip
    if options.output is None:
        print(text)
    else:
        write_text(options.output, text)


def _is_npy(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(len(_NPY)) == _NPY
