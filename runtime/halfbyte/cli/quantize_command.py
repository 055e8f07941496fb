"""The command ``quantize``, which is also ``halfbyte quantize``.

A module named `quantize` would replace the function `halfbyte.cli.quantize`, the entry point.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from halfbyte.cli.common import add_debug, add_lora, size, useful_threads
from halfbyte.cli.parser import Parser, numbers, whole
from halfbyte.cli.pull import located
from halfbyte.cli.replacing import (
    IsOwn,
    add_force,
    is_own_gguf,
    is_own_imatrix,
    is_own_json,
    is_own_onnx,
    may_replace,
)
from halfbyte.errors import HalfbyteError, OutputError
from halfbyte.onnx.files import is_onnx_file
from halfbyte.outputs import write_text
from halfbyte.quantize.methods import METHODS
from halfbyte.quantize.onnx import Normalization, Options, quantize_onnx
from halfbyte.quantize.presets import ALIASES, canonical, presets
from halfbyte.quantize.quantizer import (
    budget_of,
    default_output,
    quantize_file,
    refuse_to_replace,
)
from halfbyte.quantize.recipe import parse_keep, split_keep
from halfbyte.quantize.report import Report

EXAMPLES = (
    "quantize stories.bin --int4                     writes stories-int4.gguf",
    "quantize model.gguf --int8 -o small.gguf",
    "quantize model.gguf --type q4_k_m               writes model-Q4_K_M.gguf",
    "quantize SmolLM2-135M --int4 -o smollm2.gguf    a Hugging Face folder",
    "quantize model.gguf --int4 --calibrate book.txt   half the loss, in the same bytes",
    "quantize model.gguf --type Q3_K_M --method gptq   the model writes the text itself",
    "quantize model.gguf --int4 --method tuned --calibrate text.txt   best, and takes minutes",
    "quantize model.gguf --bits 3.5                   writes model-3.5bits.gguf",
    "quantize model.gguf --size 600MB --calibrate book.txt",
    "quantize model.gguf --bits 3.5 --engine ray:10.0.0.1:6379   on all nodes of a cluster",
    "quantize model.gguf --type Q4_K_M --imatrix imatrix.gguf",
    "quantize model.gguf --int4 --calibrate book.txt --write-imatrix imatrix.gguf",
    "quantize model.gguf --int4 --keep '*.ffn_down.weight=Q8_0' --json report.json --force",
    "quantize model-q8_0.gguf --int4 --requantize --pure --rtn --verbose --threads 2",
    "quantize stories.bin --bf16 --tokenizer tokenizer.bin",
    "quantize model.gguf --int4 --rotate --calibrate book.txt",
    "quantize model.gguf --int4 --lora pirate.gguf=0.5 -o pirate-int4.gguf",
    "quantize encoder.onnx --int8                    writes encoder-int8.onnx",
    "quantize encoder.onnx --int4 --calibrate lines.txt   less loss, in the same bytes",
    "quantize encoder.onnx --int8 --dynamic --per-channel",
    "quantize encoder.onnx --int8 --attention floats --external --no-compare",
    "quantize model.onnx --fp16 --fp16-io --keep '/decoder/*=fp32'",
    "quantize mobilenet.onnx --int8 --calibrate pictures/ --mean 0.5,0.5,0.5 --std 1,1,1",
    "quantize resnet.onnx --int8 --static --calibrate samples.npz --activations int8",
    "quantize resnet.onnx --int8 --calibrate samples.npz --calibration-method entropy",
)
EPILOG = """\
int4 is Q4_0 with the token embedding and the head in Q8_0; int8 is Q8_0. K-quants and IQ types have
the head in Q6_K. Mixtures, such as Q4_K_M, give attn_v, ffn_down and others of some layers more
bits, as llama.cpp's do; MXFP4_MOE is Q8_0 with experts in MXFP4. Norms and biases stay F32. The
output is GGUF, which llama.cpp also reads.

ONNX stays ONNX, which ONNX Runtime also runs; this needs `pip install 'halfbyte[quantize]'`. int8
and int4 store weights in the same blocks (MatMulNBits, GatherBlockQuantized), and int8 stores those
of convolutions with a scale per channel. --dynamic and --static multiply integers in standard
operators.
"""


class Bar:
    """Shows progress and MB/s on a terminal; nothing if stderr is a file or a pipe.

    While a model is tuned, also its divergence on tokens that are held out.
    """

    def __init__(self) -> None:
        self._loss = ""
        self._start = self._shown = time.perf_counter()
        self._wide = 0

    def __call__(self, done: int, total: int) -> None:
        now = time.perf_counter()
        if not sys.stderr.isatty() or (done < total and now - self._shown < 0.1):
            return
        self._shown = now
        filled = 30 * done // max(total, 1)
        rate = done / 1e6 / max(now - self._start, 1e-9)
        line = f"[{'#' * filled:<30}] {done / max(total, 1):4.0%}  {rate:.0f} MB/s{self._loss}"
        before, self._wide = self._wide, len(line)
        print(f"\r{line:<{before}}", end="", file=sys.stderr, flush=True)

    def divergence(self, nats: float) -> None:
        """Show a divergence from now on."""
        self._loss = f"  KL {nats:.3g}"

    def clear(self) -> None:
        """Remove the bar, before something else is printed."""
        if self._wide:
            print(f"\r{'':{self._wide}}\r", end="", file=sys.stderr, flush=True)
            self._wide = 0


def make_parser() -> Parser:
    """The command's options."""
    parser = Parser(
        prog="quantize",
        description="Make a trained model small: int4, int8, fp16 or bf16.",
        examples=EXAMPLES,
        epilog=EPILOG,
    )
    parser.add_argument(
        "model", metavar="MODEL", type=Path, help="a model file, or a Hugging Face folder"
    )
    kind = parser.add_mutually_exclusive_group(required=True)
    for name, type_ in ALIASES.items():
        kind.add_argument(f"--{name}", dest="kind", action="store_const", const=name, help=type_)
    kind.add_argument(
        "--type", dest="kind", type=canonical, choices=[*presets()], metavar="TYPE",
        help=f"by GGUF's or llama.cpp's name: {', '.join(presets())}",
    )  # fmt: skip
    kind.add_argument(
        "--bits", type=float, metavar="B",
        help="mean bits per weight, such as 3.5: what each matrix loses is measured, and types are "
        "chosen so that all lose the least together",
    )  # fmt: skip
    kind.add_argument(
        "--size", type=size, metavar="SIZE", help="the same, for a file of this size, such as 600MB"
    )
    parser.add_argument(
        "-o",
        "--output",
        type=Path,
        metavar="OUT",
        help="default: <stem>-<type>.gguf or .onnx beside MODEL",
    )
    parser.add_argument(
        "--tokenizer", type=Path, metavar="FILE",
        help="a llama2.c model's tokenizer file; with --calibrate TEXT of an ONNX model, its "
        "tokenizer.json, if that is not beside it",
    )  # fmt: skip
    parser.add_argument(
        "--keep", action="append", default=[], metavar="PATTERN=TYPE",
        help="another type for tensors whose names match; may be repeated, the last match applies",
    )  # fmt: skip
    parser.add_argument(
        "--pure", action="store_true", help="quantize all matrices to the same type"
    )
    parser.add_argument(
        "--requantize", action="store_true",
        help="also accept models in less than 8 bits, which lose quality a second time",
    )  # fmt: skip
    parser.add_argument(
        "--rtn", action="store_true", help="round to nearest: no search for scales, no equalization"
    )
    parser.add_argument(
        "--method", dest="rounding", choices=("rtn", *METHODS),
        help="search looks for the best scales; gptq also makes up for each "
        "rounding's error in the weights after it; tuned, of language models, then learns scales "
        "until answers are nearest to the float model's (minutes); rtn is --rtn. Default: gptq "
        "with --calibrate, otherwise search",
    )  # fmt: skip
    parser.add_argument(
        "--calibrate", type=Path, metavar="DATA",
        help="of language models: a text like those that it will see, which says which errors "
        "matter; without one, gptq and tuned let the model write a text. Of ONNX models: a text "
        "for an encoder, whose lines are its inputs, or sample "
        "inputs, a .npz file with an array of samples for each input, or a folder of .npz, .npy "
        "and picture files, one sample each",
    )  # fmt: skip
    parser.add_argument(
        "--imatrix", type=Path, metavar="FILE",
        help="llama.cpp's file of importance (.gguf or .dat), in place of a text, for --method "
        "search",
    )  # fmt: skip
    parser.add_argument(
        "--write-imatrix", type=Path, metavar="FILE",
        help="write the importance in the text of --calibrate as such a file",
    )  # fmt: skip
    add_lora(parser, "merged into the weights before they are quantized")
    parser.add_argument(
        "--rotate", action="store_true",
        help="of language models like Llama: rotate the channels between layers first, which "
        "leaves the function as it is, and channels of similar size",
    )  # fmt: skip
    parser.add_argument(
        "--engine", default="local", metavar="ENGINE",
        help="where matrices are measured and rounded: local; ray, which needs `pip install "
        "'halfbyte[ray]'`, is a cluster of Ray's at RAY_ADDRESS, or else one of this machine; "
        "ray:HOST:PORT another, of which this machine is a node. The file is the same",
    )  # fmt: skip
    _add_onnx(parser)
    parser.add_argument("--json", type=Path, metavar="REPORT", help="write the report as JSON")
    add_force(parser)
    parser.add_argument(
        "--threads", "-t", type=whole, metavar="N", help="default: one per fast core"
    )
    parser.add_argument("--verbose", action="store_true", help="a line per tensor")
    add_debug(parser)
    return parser


def _add_onnx(parser: argparse.ArgumentParser) -> None:
    """Add the options of ONNX models."""
    group = parser.add_argument_group("ONNX models")
    method = group.add_mutually_exclusive_group()
    method.add_argument(
        "--dynamic", dest="method", action="store_const", const="dynamic",
        help="with --int8: compute scales of activations at run time",
    )  # fmt: skip
    method.add_argument(
        "--static", dest="method", action="store_const", const="static",
        help="with --int8: fixed scales of activations, from --calibrate; the default for models "
        "with convolutions if --calibrate is given",
    )  # fmt: skip
    group.add_argument(
        "--calibration-method", choices=("minmax", "percentile", "entropy"), default="minmax",
        help="how ranges are computed from samples; percentile is 99.99",
    )  # fmt: skip
    group.add_argument(
        "--activations", choices=("uint8", "int8"), default="uint8",
        help="type of activations with fixed scales",
    )  # fmt: skip
    group.add_argument(
        "--mean", type=numbers, metavar="R,G,B",
        help="mean of pictures' values from 0 to 1; default: ImageNet's",
    )  # fmt: skip
    group.add_argument(
        "--std", type=numbers, metavar="R,G,B",
        help="standard deviation of pictures' values; default: ImageNet's",
    )  # fmt: skip
    group.add_argument(
        "--per-channel", action="store_true", help="with --dynamic: a scale for each channel"
    )
    group.add_argument(
        "--fp16-io", action="store_true", help="with --fp16: inputs and outputs in float16 too"
    )
    group.add_argument(
        "--external", action="store_true", help="write tensors to a second file, OUT.<hash>.data"
    )
    group.add_argument(
        "--attention", choices=("auto", "int8", "floats"),
        help="with --int8 and --int4: the type in which halfbyte computes attention; auto, the "
        "default, is int8 if that by itself keeps outputs at 40 dB or more",
    )  # fmt: skip
    group.add_argument(
        "--no-compare", action="store_true", help="do not run both models to compare their outputs"
    )


def run(arguments: Sequence[str]) -> int:
    """Run the command; errors are the caller's to handle. Returns the exit code."""
    options = make_parser().parse_args(arguments)
    options.model = located(options.model)
    onnx = is_onnx_file(options.model)
    budget = budget_of(options.bits, options.size)
    named = options.kind if budget is None else budget.name
    output = options.output or default_output(options.model, named, _SUFFIXES[onnx])
    adapters = [path for path, _ in options.lora]
    refuse_to_replace(output, options.model, options.tokenizer, *adapters, *_beside(options.model))
    is_own = is_own_onnx if onnx else is_own_gguf
    may_replace(output, is_own, force=options.force, option="--output")
    for option, own in _OTHER_OUTPUTS.items():
        _check_other_output(options, option, own, output)
    bar = Bar()
    try:
        report = _quantize_onnx(options, bar) if onnx else _quantize_gguf(options, bar)
    finally:
        bar.clear()
    print(report.table())
    if options.verbose:
        print("\n" + report.details())
    if options.json:
        write_text(options.json, json.dumps(report.as_json(), indent=1))
    return 0


_SUFFIXES = ("gguf", "onnx")


def _quantize_gguf(options: argparse.Namespace, bar: Bar) -> Report:
    used = (
        "method",
        "mean",
        "std",
        "per_channel",
        "fp16_io",
        "external",
        "attention",
    )
    for option in used:
        if getattr(options, option):
            shown = "dynamic or --static" if option == "method" else option.replace("_", "-")
            raise HalfbyteError(f"{options.model}: --{shown} is for ONNX models")
    return quantize_file(
        options.model,
        options.kind or "int8",
        options.output,
        bits=options.bits,
        size=options.size,
        tokenizer=options.tokenizer,
        keep=[parse_keep(text) for text in options.keep],
        method=options.rounding,
        calibrate=options.calibrate,
        imatrix=options.imatrix,
        write_imatrix=options.write_imatrix,
        rtn=options.rtn,
        pure=options.pure,
        requantize=options.requantize,
        lora=dict(options.lora),
        rotate=options.rotate,
        threads=useful_threads(options.threads),
        progress=bar,
        divergence=bar.divergence,
        engine=options.engine,
    )


def _quantize_onnx(options: argparse.Namespace, bar: Bar) -> Report:
    if options.tokenizer is not None and options.calibrate is None:
        raise HalfbyteError(
            f"{options.model}: --tokenizer is for llama2.c models, and for a text of --calibrate"
        )
    if options.lora:
        raise HalfbyteError(f"{options.model}: --lora is for language models")
    if options.rotate:
        raise HalfbyteError(f"{options.model}: --rotate is for language models")
    if options.engine != "local":
        raise HalfbyteError(f"{options.model}: --engine is for language models")
    if options.kind is None:
        raise HalfbyteError(f"{options.model}: --bits and --size are for language models")
    if options.imatrix or options.write_imatrix:
        raise HalfbyteError(f"{options.model}: an imatrix is for language models")
    if options.rounding == "tuned":
        raise HalfbyteError(f"{options.model}: --method {options.rounding} is for language models")
    numbers = {"mean": options.mean, "std": options.std}
    chosen = Options(
        type=options.kind,
        method=options.method or "auto",
        calibration=options.calibration_method,
        normalization=Normalization(**{name: v for name, v in numbers.items() if v is not None}),
        tokenizer=options.tokenizer,
        activations=options.activations,
        per_channel=options.per_channel,
        keep=[split_keep(text) for text in options.keep],
        rounding=options.rounding if options.rounding in ("search", "gptq") else "auto",
        rtn=options.rtn or options.rounding == "rtn",
        pure=options.pure,
        requantize=options.requantize,
        fp16_io=options.fp16_io,
        external=options.external,
        attention=options.attention or "auto",
        compare=not options.no_compare,
    )
    return quantize_onnx(
        options.model, options.output, chosen, samples=options.calibrate,
        threads=useful_threads(options.threads), progress=bar,
    )  # fmt: skip


def _beside(model: Path) -> list[Path]:
    """The files in a model's folder, except GGUF files, which may be earlier outputs."""
    return [p for p in model.iterdir() if p.suffix != ".gguf"] if model.is_dir() else []


_OTHER_OUTPUTS = {"json": is_own_json("source_format", "output"), "write_imatrix": is_own_imatrix}


def _check_other_output(
    options: argparse.Namespace, name: str, is_own: IsOwn, output: Path
) -> None:
    """Refuse, before the work, a file that would replace an input or cannot be written."""
    path: Path | None = getattr(options, name)
    if path is None:
        return
    option = f"--{name.replace('_', '-')}"
    adapters = [adapter for adapter, _ in options.lora]
    inputs = (options.model, options.tokenizer, options.calibrate, options.imatrix, *adapters)
    refuse_to_replace(path, *inputs, *_beside(options.model))
    others = {"the output": output, "the report": options.json if name != "json" else None}
    for what, other in others.items():
        if other is not None and os.path.realpath(path) == os.path.realpath(other):
            raise OutputError(f"{path}: is also {what}; choose another file with {option}")
    may_replace(path, is_own, force=options.force, option=option)
