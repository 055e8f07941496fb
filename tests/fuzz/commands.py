"""Mutated GGUF and ONNX files through the commands: a byte for the command, then the file.

A command ends with 0, 1 or 2; with 2 it prints one line. Its outputs are whole, and after an error
there are none.
"""

from __future__ import annotations

import contextlib
import io
import json
import math
import os
import random
import tempfile
from functools import cache
from pathlib import Path
from unittest import mock

import numpy as np
import onnx
from google.protobuf.message import DecodeError
from tests.fuzz import gguf
from tests.fuzz import onnx as graphs
from tests.onnx.mutations import mutated
from tests.onnx.session.models import FLOAT, INT64, model, node, tensor, weight
from tests.onnx.session.mutants import MAX_ELEMENTS

from halfbyte.cli import main
from halfbyte.errors import MAX_MESSAGE, HalfbyteError
from halfbyte.text.opening import open_model

TEXT_MODELS = (
    "run m.gguf ab -n 2 -t 1", "run m.gguf ab -n 2 -t 1 --beams 2 --json", "run m.gguf ab -n 1 "
    "--weights streamed", "chat m.gguf --template short.jinja -n 2 -t 1",
    "tokenize m.gguf ab", "info m.gguf", "info m.gguf --json --program",
    "perplexity m.gguf --text text", "eval m.gguf --prompt ab -t 1 --json report.json",
    "eval m.gguf -w trace --prompt ab -t 1", "fit m.gguf --device pixel-6 --json",
    "fit m.gguf --device android-go-2gb --tab", "simulate m.gguf --device pixel-6 --draws 2 "
    "--minutes 1", "quantize m.gguf --int4 -o out.gguf -t 1 --json report.json",
    "quantize m.gguf --type q4_k_m -o out.gguf -t 1 --requantize --verbose",
    "quantize m.gguf --bf16 -o out.gguf -t 1",
)  # fmt: skip
GRAPHS = (
    "run m.onnx -t 1 --output out.npz", "run m.onnx -t 1 --profile --dump", "info m.onnx",
    "info m.onnx --json --program", "eval m.onnx -t 1 --json report.json",
    "eval m.onnx -w trace -t 1", "eval m.onnx -w run -r 1 -t 1 --trace out.json",
    "fit m.onnx --device pixel-6 --json", "simulate m.onnx --device pixel-6 --draws 2 --minutes 1",
    "quantize m.onnx --int8 -o out.onnx -t 1 --json report.json",
    "quantize m.onnx --int8 -o out.onnx -t 1 --external --verbose",
    "quantize m.onnx --int8 --dynamic --per-channel -o out.onnx -t 1 --requantize",
    "quantize m.onnx --int8 --static --calibrate samples.npz -o out.onnx -t 1",
    "quantize m.onnx --int4 -o out.onnx -t 1", "quantize m.onnx --fp16 --fp16-io -o out.onnx -t 1",
    "quantize m.onnx --fp16 -o out.onnx -t 1 --no-compare --requantize",
)  # fmt: skip
COMMANDS = (*TEXT_MODELS, *GRAPHS)
_ENDLESS = (b"Loop", b"Scan")  # a graph may run for ever, and no command ends it


@cache
def corpus() -> list[bytes]:
    """Each command with a file that it takes."""
    small = gguf.corpus()[1]
    return [
        bytes([i]) + (small if command in TEXT_MODELS else network())
        for i, command in enumerate(COMMANDS)
    ]


def network() -> bytes:
    """A graph with products, a convolution and an embedding that are worth quantizing."""
    numbers = np.random.default_rng(0)
    nodes = [
        node("Gather", "table ids", "rows"),
        node("MatMul", "rows up", "wide"),
        node("Relu", "wide", "active"),
        node("Gemm", "active down bias", "narrow", transB=1),
        node("Conv", "image kernel", "features", kernel_shape=[3, 3]),
        node("GlobalAveragePool", "features", "pooled"),
        node("Flatten", "pooled", "flat"),
        node("MatMul", "flat up", "other"),
        node("Concat", "active other", "both", axis=0),
        node("Softmax", "both", "y"),
    ]
    shapes = {"table": (40, 32), "up": (32, 64), "down": (32, 64), "bias": (32,)}
    shapes["kernel"] = (32, 3, 3, 3)
    weights = [weight(name, numbers.normal(size=shape)) for name, shape in shapes.items()]
    inputs = [tensor("ids", INT64, ["n"]), tensor("image", FLOAT, [1, 3, 8, 8])]
    outputs = [tensor("y", FLOAT, None), tensor("narrow", FLOAT, ["n", 32])]
    return model(nodes, inputs, outputs, weights)


def mutate(data: bytes, chance: random.Random) -> bytes:
    """Choose another command or graph, or change the file."""
    number, file = data[0], data[1:]
    is_text = COMMANDS[number % len(COMMANDS)] in TEXT_MODELS
    way = chance.randrange(8)
    if way == 0:
        return bytes([chance.randrange(len(COMMANDS))]) + file
    if is_text:
        return bytes([number]) + gguf.mutate(file, chance)
    if way == 1:
        return bytes([number]) + chance.choice(_nodes())
    return bytes([number]) + mutated(file, np.random.default_rng(chance.getrandbits(64)))


@cache
def _nodes() -> list[bytes]:
    return [data for data in graphs.corpus() if not any(word in data for word in _ENDLESS)]


class Terminal(io.StringIO):
    """A terminal, which text from a file must not control."""

    def isatty(self) -> bool:
        return True


def target(data: bytes) -> None:
    """Run the command; raises `HalfbyteError` if it ends with 2."""
    command = COMMANDS[(data or b"\0")[0] % len(COMMANDS)].split()
    if _has_large_inputs(data[1:]):  # which commands would generate
        raise HalfbyteError("inputs of more elements than are worth a test")
    out, err = Terminal(), io.StringIO()
    with (
        tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder),
        contextlib.redirect_stdout(out), contextlib.redirect_stderr(err),
        mock.patch("sys.stdin", io.StringIO("ab\n")), mock.patch.dict(os.environ, NO_COLOR="1"),
    ):  # fmt: skip
        inputs = _written(command[1], data[1:])
        try:
            code: object = main(command)
        except SystemExit as stop:
            code = stop.code
        new = {path.name for path in Path().iterdir()} - inputs.keys()
        changed = [name for name, content in inputs.items() if Path(name).read_bytes() != content]
        _check(not changed, f"changed: {changed}")
        _check_streams(code, out.getvalue(), err.getvalue())
        if code == 2:
            _check(not new, f"left behind: {new}")
            raise HalfbyteError(err.getvalue().rstrip())
        for name in new:
            _check_whole(Path(name))


def _has_large_inputs(file: bytes) -> bool:
    try:
        inputs = onnx.load_from_string(file).graph.input
    except DecodeError:
        return False
    shapes = [info.type.tensor_type.shape.dim for info in inputs]
    return any(math.prod(dim.dim_value or 1 for dim in shape) > MAX_ELEMENTS for shape in shapes)


def _written(name: str, file: bytes) -> dict[str, bytes]:
    """Write the files that commands read; their contents by name."""
    samples = io.BytesIO()
    images = np.random.default_rng(0).normal(size=(2, 1, 3, 8, 8)).astype(np.float32)
    np.savez(samples, ids=np.arange(6).reshape(2, 3), image=images)
    contents = {
        name: file, "samples.npz": samples.getvalue(), "text": b"ab a\nba\n",
        "short.jinja": b"{{ messages[-1].content }}",
    }  # fmt: skip
    for each, content in contents.items():
        Path(each).write_bytes(content)
    return contents


def _check_streams(code: object, out: str, err: str) -> None:
    _check(code in (0, 1, 2), f"exit code {code!r}")
    for line in (*out.split("\n"), *err.split("\n")):
        _check(line.replace("\t", "").isprintable(), f"controls the terminal: {line[:300]!r}")
    for text in ("Traceback", "a mistake in halfbyte", "there is not enough memory;"):
        _check(text not in err, err[:300])
    if code == 2:
        _check(err.startswith("error: ") and err.find("\n") == len(err) - 1, f"lines: {err[:300]}")
        _check(len(err) <= MAX_MESSAGE + 1, f"{len(err)} characters: {err[:300]}")


def _check_whole(path: Path) -> None:
    """Read an output."""
    if path.suffix == ".json":
        json.loads(path.read_bytes())
    elif path.suffix == ".npz":
        with np.load(path) as arrays:
            assert all(arrays[name].size >= 0 for name in arrays)
    elif path.suffix in (".gguf", ".onnx"):  # of the input's format, whatever its name
        if path.read_bytes().startswith(b"GGUF"):
            open_model(path)
        else:
            onnx.load_model(path)  # with its external data
    else:
        _check(path.suffix == ".data", f"left behind: {path}")


def _check(condition: bool, message: str) -> None:
    if not condition:
        raise AssertionError(message)
