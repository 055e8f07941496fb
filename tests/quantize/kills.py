"""Runs `quantize` repeatedly and kills it: ``python -m tests.quantize.kills KIND FOLDER N``.

One process imports everything and forks a child for each run, so that a run takes milliseconds. The
output changes from one model's to another's and back; after each kill it must be one of the two,
whole. Moments are random, N of them, and then before each change of a name.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from tests.quantize.test_quantize import write_model

import halfbyte.quantize.onnx.quantizer  # noqa: F401 - before children are forked
from halfbyte.cli import quantize as main

KINDS = {
    "gguf": [],
    "onnx": ["--no-compare", "--attention", "floats"],
    "external": ["--no-compare", "--attention", "floats", "--external"],
}


def gguf(path: Path, seed: int) -> Path:
    x = np.random.default_rng(seed).standard_normal((4, 512, 512), np.float32)
    return write_model(path.with_suffix(".gguf"), {f"{i}.weight": part for i, part in enumerate(x)})


def graph(path: Path, seed: int) -> Path:
    x = np.random.default_rng(seed).standard_normal((3, 256, 256), np.float32)
    names = [f"x{i}" for i in range(4)]
    pairs = list(pairwise(names))
    nodes = [onnx.helper.make_node("MatMul", [a, f"w{a}"], [b]) for a, b in pairs]
    weights = [onnx.numpy_helper.from_array(w, f"w{a}") for (a, _), w in zip(pairs, x, strict=True)]
    ends = [
        onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [1, 256])
        for name in (names[0], names[-1])
    ]
    main = onnx.helper.make_graph(nodes, "g", ends[:1], ends[1:], weights)
    opset = [onnx.helper.make_opsetid("", 21)]
    path = path.with_suffix(".onnx")
    onnx.save(onnx.helper.make_model(main, opset_imports=opset, ir_version=10), path)
    return path


def content(path: Path) -> list[bytes]:
    """The bytes of a model: of its file, and of the second file that it names."""
    parts = [path.read_bytes()]
    if path.suffix == ".onnx":
        tensors = onnx.load(path, load_external_data=False).graph.initializer
        beside = {e.value for t in tensors for e in t.external_data if e.key == "location"}
        parts += [(path.parent / name).read_bytes() for name in sorted(beside)]
    return parts


def counted(change: Callable[..., Any], left: list[int]) -> Callable[..., Any]:
    """A system function that kills the process after a number of calls."""

    def call(*arguments: Any, **options: Any) -> Any:
        if left[0] == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        left[0] -= 1
        return change(*arguments, **options)

    return call


def run(command: list[str], seconds: float | None = None, changes: int = -1) -> int:
    """Run it in a child that is killed after a time or before a rename; returns its status."""
    child = os.fork()
    if child == 0:
        left = [changes]
        for place, name in ((Path, "replace"), (Path, "unlink"), (os, "link")):
            setattr(place, name, counted(getattr(place, name), left))
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        os._exit(main(command))
    if seconds is not None:
        time.sleep(seconds)
        os.kill(child, signal.SIGKILL)
    return os.waitpid(child, 0)[1]


def kill(kind: str, folder: Path, kills: int) -> None:
    """Run all kills for one kind of output."""
    make = gguf if kind == "gguf" else graph
    sources = [make(folder / f"source-{seed}", seed) for seed in (0, 1)]
    target = folder / "out" / f"out{sources[0].suffix}"
    target.parent.mkdir()
    commands = [
        [str(source), "--int8", "--threads", "1", "-o", str(target), *KINDS[kind]]
        for source in sources
    ]
    whole, took = [], 0.0
    for command in (commands[1], commands[0]):
        start = time.perf_counter()
        assert run(command) == 0
        took = time.perf_counter() - start
        whole.insert(0, content(target))
    files = len(list(target.parent.iterdir()))
    assert files == len(whole[0]) == (2 if kind == "external" else 1)
    outcomes = set()
    draw = random.Random(7)
    for number in range(kills):
        run(commands[(number + 1) % 2], seconds=draw.uniform(0, took))
        outcomes.add(whole.index(content(target)))
    for changes in range(100):
        assert run(commands[0]) == 0
        killed = run(commands[1], changes=changes)
        outcomes.add(whole.index(content(target)))
        if not killed:
            break
    assert 1 < changes < 99, changes
    assert outcomes == {0, 1}
    assert run(commands[0]) == 0
    assert content(target) == whole[0]
    assert len(list(target.parent.iterdir())) == files, list(target.parent.iterdir())


if __name__ == "__main__":
    kill(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]))
