"""``halfbyte eval``: compares a model with a reference."""

from __future__ import annotations

import argparse
import json
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from halfbyte.cli.common import Progress, add_backend, add_debug, check_threads, has_colours
from halfbyte.cli.parser import Commands, Parser, counts, named_size, number, whole
from halfbyte.cli.replacing import add_force, is_own_json, may_replace
from halfbyte.errors import HalfbyteError
from halfbyte.text.planning import CACHES

if TYPE_CHECKING:
    from halfbyte.evaluation import Evaluation
    from halfbyte.evaluation.suite import Entry
    from halfbyte.evaluation.tolerances import Rule

WORKLOADS = ("validate", "trace", "bench", "run")
REFERENCES = ("numpy", "onnxruntime", "torch", "none")
FAILED = 1

_EXAMPLES = (
    "halfbyte eval model.onnx --workload validate --reference onnxruntime --size batch=2",
    "halfbyte eval model.gguf --workload trace --stop-on-first-mismatch --passes off",
    "halfbyte eval model.onnx --workload trace --forced --dump-dir values/ --input inputs.npz",
    "halfbyte eval model.onnx --workload bench --threads 1,2 --repetitions 9",
    "halfbyte eval model.gguf --workload bench -p 128 -n 32 --backend native --cache f16",
    "halfbyte eval resnet.onnx --workload run --trace trace.json --seed 3",
    'halfbyte eval model.gguf --prompt "Once upon a time" --context 512 --rtol 1e-4 --atol 1e-6',
    "halfbyte eval stories.bin --tokenizer tokenizer.bin --min-cosine 0.999",
    "halfbyte eval --suite models.toml --tolerances rules.toml --json report.json",
)
_EPILOG = """\
The exit code is 1 if a value differs by more than its tolerance, 2 for input that cannot be used.
"""


def add_eval(commands: Commands[Parser]) -> None:
    """The command `eval`."""
    parser = commands.add_parser(
        "eval",
        help="compare a model with a reference: outputs, intermediate values, speed",
        description="Compare a model with a reference: its outputs (validate), every intermediate "
        "value (trace) or its speed (bench); or run it and show where its time goes (run).",
        examples=_EXAMPLES,
        epilog=_EPILOG,
    )
    add = parser.add_argument
    add(
        "model", metavar="MODEL", nargs="?", type=Path,
        help="an ONNX file, or a language model: a file or a Hugging Face folder",
    )  # fmt: skip
    add("--suite", type=Path, metavar="FILE", help="evaluate all models in a TOML file instead")
    add("--workload", "-w", choices=WORKLOADS, default="validate", help="see above")
    add("--reference", choices=REFERENCES, help="the reference (default: the workload's own)")
    add("--threads", "-t", type=counts, default=(), metavar="N,...", help="thread counts")
    add_backend(parser)
    add(
        "--passes", choices=("on", "off"), default="on",
        help="off: run graphs unfused, and language models as captured",
    )  # fmt: skip
    _add_inputs(parser)
    _add_workloads(parser)
    _add_reports(parser)
    parser.set_defaults(command=_evaluate)


def _add_inputs(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument_group("inputs").add_argument
    add("--input", type=Path, metavar="FILE", help="an .npz of inputs by name, or of tokens `ids`")
    add("--seed", type=whole, default=0, metavar="N", help="seed of random inputs")
    add(
        "--size", type=named_size, action="append", default=[], metavar="NAME=N",
        help="value of an open dimension of a graph, as in batch=32; may be repeated",
    )  # fmt: skip
    add("--prompt", default="Once upon a time", metavar="TEXT", help="a language model's prompt")
    add("--tokenizer", type=Path, metavar="FILE", help="a llama2.c model's tokenizer file")
    add("--context", type=whole, metavar="N", help="tokens the KV cache holds")
    add("--cache", choices=CACHES, default="auto", help="type of the KV cache")


def _add_workloads(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument_group("options of one workload").add_argument
    add(
        "--stop-on-first-mismatch",
        action="store_true",
        help="trace: stop at the first difference",
    )
    add(
        "--forced", action=argparse.BooleanOptionalAction,
        help="trace: run each instruction on NumPy's inputs (the default for language models)",
    )  # fmt: skip
    add("-p", type=counts, default=(128,), metavar="N,...", help="bench: prompt lengths")
    add("-n", type=counts, default=(32,), metavar="N,...", help="bench: tokens to decode")
    add("--repetitions", "-r", type=_count, default=5, metavar="N", help="bench and run: runs")
    add("--trace", type=Path, metavar="FILE", help="run: write a Chrome trace")


def _add_reports(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument_group("tolerances and reports").add_argument
    add("--tolerances", type=Path, metavar="FILE", help="a TOML file of rules")
    for name in ("rtol", "atol", "min-cosine"):
        add(f"--{name}", type=number, metavar="X", help="overrides all rules")
    add("--json", type=Path, metavar="FILE", help="write everything as JSON")
    add(
        "--dump-dir", type=Path, metavar="DIR",
        help="write programs as text and values as .npy into a folder",
    )  # fmt: skip
    add_force(parser)
    add_debug(parser)


def _count(text: str) -> int:
    if not text.isdecimal() or len(text) > 18 or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r}: expected a number of 1 or more")
    return int(text)


def _evaluate(options: argparse.Namespace) -> int:
    from halfbyte.evaluation import evaluate, suite
    from halfbyte.outputs import write_text

    if (options.model is None) == (options.suite is None):
        raise HalfbyteError("eval: expected a model or --suite FILE, one of the two")
    if options.suite is not None and options.trace is not None:
        raise HalfbyteError("--trace: expected a model, found --suite: all would write this file")
    check_threads(options.threads)
    for path, option, keys in (
        (options.json, "--json", ("suite", "results") if options.suite else ("model", "workload")),
        (options.trace, "--trace", ("ph",)),
    ):
        if path is not None:
            may_replace(path, is_own_json(*keys), force=options.force, option=option)
    progress = Progress()
    evaluation = _evaluation(options, progress)
    if options.suite is None:
        entry = suite.Entry(evaluation)
        entry.result = evaluate(evaluation)
        _show(entry, progress)
        entries, code = [entry], FAILED if entry.result.passed is False else 0
        data: Any = entry.as_json()
    else:
        entries = suite.read_suite(options.suite, evaluation)
        code = suite.run_suite(entries, lambda entry: _show(entry, progress))
        print(_coloured("\n".join(suite.summary_rows(entries))))
        data = {"suite": str(options.suite), "results": [entry.as_json() for entry in entries]}
    if options.json is not None:
        write_text(options.json, json.dumps(data, indent=1, allow_nan=False))
    return code


def _evaluation(options: argparse.Namespace, progress: Progress) -> Evaluation:
    """The evaluation that the options describe."""
    from halfbyte.evaluation import Evaluation

    return Evaluation(
        model=options.model or Path(),
        workload=options.workload,
        reference=options.reference,
        backend=options.backend,
        threads=tuple(options.threads),
        passes=options.passes == "on",
        input=options.input,
        sizes=dict(options.size),
        seed=options.seed,
        prompt=options.prompt,
        tokenizer=options.tokenizer,
        context=options.context,
        cache=options.cache,
        prompts=tuple(options.p),
        decodes=tuple(options.n),
        repetitions=options.repetitions,
        forced=options.forced,
        stop=options.stop_on_first_mismatch,
        dump=options.dump_dir,
        trace=options.trace,
        overrides=_overrides(options),
        progress=progress,
    )


def _overrides(options: argparse.Namespace) -> tuple[tuple[Rule, ...], ...]:
    """The rules of a file, and the numbers that override all rules."""
    from halfbyte.evaluation.tolerances import Rule, expectation, fits, read_rules

    layers = [] if options.tolerances is None else [tuple(read_rules(options.tolerances))]
    limits = {key: getattr(options, key) for key in ("rtol", "atol", "min_cosine")}
    numbers = {key: value for key, value in limits.items() if value is not None}
    for key, value in numbers.items():
        if not fits(key, value):
            option = f"--{key.replace('_', '-')}"
            raise HalfbyteError(f"{option}: expected {expectation(key)}, found {value}")
    return (*layers, (Rule(numbers=numbers),))


def _show(entry: Entry, progress: Progress) -> None:
    """Print the result of an evaluation."""
    progress.clear()
    if entry.result is None:
        print(f"error: {entry.error}", file=sys.stderr)
        return
    print(_coloured("\n".join(entry.result.lines)))
    if entry.evaluation.workload in ("validate", "trace"):
        print(_coloured("pass" if entry.result.passed else "FAIL"))
    print(flush=True)


def _coloured(text: str) -> str:
    """Colour verdicts green and red, on a terminal with colours."""
    if not has_colours(sys.stdout):
        return text
    text = re.sub(r"(?<!\S)pass(?!\S)", "\033[32mpass\033[0m", text)
    return re.sub(r"(?<!\S)(FAIL|error)(?!\S)", "\033[31m\\1\033[0m", text)
