"""``halfbyte run`` of an ONNX graph: feeds its inputs, and prints or writes its outputs."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from halfbyte.cli.common import useful_threads
from halfbyte.cli.parser import named_size, number, numbers, whole
from halfbyte.cli.replacing import add_force, is_own_npz, may_replace
from halfbyte.errors import HalfbyteError, OutputError, printable
from halfbyte.formats import pictures
from halfbyte.formats.npz import read_npy, read_npz
from halfbyte.outputs import write_file

if TYPE_CHECKING:
    from halfbyte.onnx.session import InferenceSession, NodeArg

Array = npt.NDArray[Any]
SHOWN, TOP = 6, 5


def add_graph_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of `run` that only graphs take."""
    group = parser.add_argument_group("graphs (ONNX)")
    add = group.add_argument
    add(
        "--input", type=Path, metavar="FILE",
        help="an .npz with an array for each input, a .npy, or a picture (default: random numbers)",
    )  # fmt: skip
    add("--output", "-o", type=Path, metavar="FILE", help="write the outputs to this .npz")
    add_force(group)
    add_sizes(group, "value of an open dimension of random inputs, as in batch=32; may be repeated")
    add("--runs", type=whole, metavar="N", help="run N more times, and print the times")
    add("--dump", action="store_true", help="print the programs that ran")
    add(
        "--scale", type=number, metavar="X",
        help="factor on a picture's values (default: 1/255 for float inputs, 1 for integers)",
    )  # fmt: skip
    add("--mean", type=numbers, metavar="X,...", help="then subtract this, per channel")
    add("--std", type=numbers, metavar="X,...", help="then divide by this, per channel")
    add("--bgr", action="store_true", help="order the channels blue, green, red")


def add_sizes(parser: argparse._ActionsContainer, text: str) -> None:
    """Add the option `--size`, a list of names and sizes."""
    parser.add_argument(
        "--size", type=named_size, action="append", default=[], metavar="NAME=N", help=text
    )


GRAPH_OPTIONS = ("input", "output", "size", "runs", "dump", "scale", "mean", "std", "bgr")


TEXT_OPTIONS: dict[str, Any] = {
    "memory_budget": None, "level": None, "weights": "auto", "context": None, "cache": "auto",
    "tokenizer": None, "batch": None,
}  # fmt: skip
_OF_RUN: dict[str, Any] = {
    "n": None, "temp": None, "top_k": None, "top_p": None, "min_p": None, "logit_bias": [],
    "repetition_penalty": None, "frequency_penalty": None, "presence_penalty": None, "stop": [],
    "beams": None, "length_penalty": None, "template": None, "raw": False, "json": False,
    "file": None, "activations": "int8", "lora": [], "pace": False,
    "pace_at": None,
}  # fmt: skip


def refuse_graph_options(options: argparse.Namespace) -> None:
    """Refuse a graph's options for a language model."""
    for name in GRAPH_OPTIONS:
        if getattr(options, name, None):
            raise HalfbyteError(
                f"{options.model}: --{name} is for ONNX graphs; this is a language model"
            )


def refuse_text_options(
    options: argparse.Namespace, defaults: Mapping[str, Any] = TEXT_OPTIONS
) -> None:
    """Refuse a language model's options for a graph."""
    for name, default in defaults.items():
        if getattr(options, name, default) != default:
            option = "-n" if name == "n" else f"--{name.replace('_', '-')}"
            raise HalfbyteError(
                f"{options.model}: {option} is for language models; this is an ONNX graph"
            )


def run(options: argparse.Namespace) -> int:
    """Run a graph; returns the exit code."""
    from halfbyte.onnx.session import GraphOptimizationLevel, InferenceSession, SessionOptions

    if options.text_parts:
        raise HalfbyteError(f"{options.model}: an ONNX graph takes --input, not a prompt")
    refuse_text_options(options, TEXT_OPTIONS | _OF_RUN)
    if options.output is not None:
        may_replace(options.output, is_own_npz, force=options.force, option="--output")
    settings = SessionOptions()
    settings.intra_op_num_threads = useful_threads(options.threads) or 0
    settings.backend = options.backend
    settings.enable_profiling = options.profile
    if options.passes == "off":
        settings.graph_optimization_level = GraphOptimizationLevel.ORT_DISABLE_ALL
    with InferenceSession(options.model, settings) as session:
        feeds = _feeds(session, options)
        start = time.perf_counter()
        results = session.run(None, feeds)
        first = time.perf_counter() - start
        named = dict(zip((o.name for o in session.get_outputs()), results, strict=True))
        for name, value in named.items():
            print("\n".join(_describe(name, value)))
        _time(session, feeds, options.runs, first)
        if options.dump:
            print("\n\n".join(program.dump() for program in session.programs()))
        if options.profile and session.profile is not None:
            print(session.profile.table(), file=sys.stderr)
    if options.output is not None:
        _write(options.output, named)
    return 0


def _time(
    session: InferenceSession, feeds: Mapping[str, Any], runs: int | None, first: float
) -> None:
    """Print the time of the first run, and of `runs` more."""
    text = f"first run {first * 1e3:.1f} ms"
    if runs:
        seconds = []
        for _ in range(runs):
            start = time.perf_counter()
            session.run(None, feeds)
            seconds.append(time.perf_counter() - start)
        text += f"; {runs} more: least {min(seconds) * 1e3:.2f} ms"
        text += f", median {float(np.median(seconds)) * 1e3:.2f} ms"
    print(text, file=sys.stderr)


# ---- inputs --------------------------------------------------------------------------------------


def _feeds(session: InferenceSession, options: argparse.Namespace) -> dict[str, Any]:
    from halfbyte.evaluation.inputs import completed

    arrays: dict[str, Any] = {}
    if options.input is not None:
        arrays = _read(options.input, session.get_inputs(), options)
    return completed(
        session.model, arrays, dict(options.size), options.seed or 0, str(options.input)
    )


def _read(path: Path, inputs: Sequence[NodeArg], options: argparse.Namespace) -> dict[str, Any]:
    """The inputs in a file, whose type is recognized by its content."""
    with path.open("rb") as file:
        start = file.read(6)
    if start.startswith(b"PK\3\4"):
        return read_npz(path)
    if start.startswith(b"\x93NUMPY"):
        array = read_npy(path)
        return {inputs[0].name: array} if inputs else {}
    pixels = pictures.read_picture(path)
    for argument in inputs:
        layout = pictures.layout_of(argument.shape)
        if layout is not None:
            return {argument.name: _of_picture(pixels, argument, layout, options)}
    raise HalfbyteError(
        f"{options.model}: no input takes a picture: expected [1, 1 or 3, height, width] or "
        f"[1, height, width, 1 or 3], found {[i.shape for i in inputs]}"
    )


def _of_picture(
    pixels: pictures.Pixels, argument: NodeArg, layout: tuple[int, int, int],
    options: argparse.Namespace,
) -> Array:  # fmt: skip
    """(pixels × scale − mean) / std in the input's size, order of dimensions and type.

    By default, integer inputs take the pixels as they are, 0 to 255.
    """
    channel, row, column = layout
    sizes = [argument.shape[i] for i in (row, column)]
    height, width = (
        size if isinstance(size, int) else length
        for size, length in zip(sizes, pixels.shape, strict=False)
    )
    channels = argument.shape[channel]
    values = pictures.in_channels(pixels, channels if isinstance(channels, int) else 3)
    values = pictures.resized(values, height, width)
    if options.bgr:
        values = values[:, :, ::-1]
    dtype = _dtype(argument)
    is_float = dtype.kind == "f"
    scale = options.scale if options.scale is not None else 1 / 255 if is_float else 1.0
    values = values * scale - np.asarray(options.mean or 0.0)
    values = values / np.asarray(options.std or 1.0)
    if not is_float:
        limits = np.iinfo(dtype)
        values = np.clip(np.rint(values), limits.min, limits.max)
    if channel < row:
        values = values.transpose(2, 0, 1)
    array: Array = values.astype(dtype).reshape((1,) * (len(argument.shape) - 3) + values.shape)
    return array


def _dtype(argument: NodeArg) -> np.dtype[Any]:
    from halfbyte.onnx.session.metadata import dtype_of

    return dtype_of(argument.type)


# ---- outputs -------------------------------------------------------------------------------------


def _describe(name: str, value: Any) -> list[str]:
    """A line that describes an output; for one row of classes, a second line with the likeliest."""
    if isinstance(value, list):
        lines = [f"{printable(name)}: {len(value)} parts"]
        for index, part in enumerate(value):
            lines += [f"  {line}" for line in _describe(f"[{index}]", part)]
        return lines
    if not isinstance(value, np.ndarray):
        return [f"{printable(name)}: {printable(repr(value))}"]
    values = _plain(value)
    text = f"{printable(name)}: {value.dtype} {list(value.shape)}"
    if values.size and values.dtype.kind in "biuf":
        wide = values.astype(np.float64)
        with np.errstate(all="ignore"):
            text += f", min {wide.min():.6g}, mean {wide.mean():.6g}, max {wide.max():.6g}"
    first = [
        printable(repr(v), 200) if isinstance(v, str) else f"{v:.6g}"
        for v in values.reshape(-1)[:SHOWN]
    ]
    lines = [f"{text}: {' '.join(first)}{' ...' if values.size > SHOWN else ''}"]
    if values.dtype.kind == "f" and values.ndim == 2 and values.shape[0] == 1 < values.shape[1]:
        best = np.argsort(-values[0], kind="stable")[:TOP]
        lines.append("  top: " + ", ".join(f"{i} ({values[0, i]:.6g})" for i in best))
    return lines


def _plain(value: Array) -> Array:
    """The array in one of NumPy's types: small floats as float32, small integers as int8."""
    from halfbyte.onnx.files.dtypes import special_name, widen
    from halfbyte.onnx.session.arrays import from_caller

    ours = from_caller(value)
    return widen(ours) if special_name(ours.dtype) else ours


def _write(path: Path, named: Mapping[str, Any]) -> None:
    """Write the outputs as .npz; parts of sequences are named `name.0`, `name.1`, ..."""
    arrays: dict[str, Array] = {}
    for name, value in named.items():
        parts = {name: value}
        if isinstance(value, list):
            parts = {f"{name}.{index}": part for index, part in enumerate(value)}
        for key, part in parts.items():
            if not isinstance(part, np.ndarray):
                kind = type(part).__name__
                raise OutputError(f"{path}: output {key!r} is a {kind}, not an array")
            plain = _plain(part)
            arrays[key] = plain.astype(str) if plain.dtype.kind == "O" else plain
    write_file(path, lambda file: np.savez(file, **arrays))  # type: ignore[arg-type]
