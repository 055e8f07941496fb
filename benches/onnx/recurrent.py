"""Recurrent layers and loops beside ONNX Runtime, in one process, taking turns.

    python -m benches.onnx.recurrent [-t 1,2] [-s SECONDS]

A layer's figure is the median of calls that follow another one of the same engine, in milliseconds,
the difference the largest one over the largest output. A loop's is the least time of an iteration.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from statistics import median
from typing import Any

import numpy as np
import onnxruntime

import halfbyte
import onnx
from onnx import TensorProto, helper, numpy_helper

# operator, steps, batch, hidden size (and that of the input)
LAYERS = (
    ("LSTM", 64, 1, 64), ("LSTM", 64, 1, 128), ("LSTM", 64, 1, 256), ("LSTM", 256, 1, 512),
    ("GRU", 64, 1, 64), ("GRU", 64, 1, 128), ("GRU", 64, 1, 256), ("GRU", 256, 1, 512),
    ("LSTM", 64, 8, 64), ("LSTM", 64, 8, 128), ("LSTM", 64, 8, 256), ("LSTM", 256, 8, 512),
    ("GRU", 64, 8, 64), ("GRU", 64, 8, 128), ("GRU", 64, 8, 256), ("GRU", 256, 8, 512),
)  # fmt: skip
GATES = {"LSTM": 4, "GRU": 3}
ITERATIONS = 200


def layer(operator: str, steps: int, batch: int, hidden: int) -> tuple[bytes, dict[str, Any]]:
    """A model of one layer, and its feeds."""
    random, rows = np.random.default_rng(0), GATES[operator] * hidden
    shapes = {"W": (1, rows, hidden), "R": (1, rows, hidden), "B": (1, 2 * rows)}
    weights = [
        numpy_helper.from_array(
            (random.standard_normal(shape) * hidden**-0.5).astype(np.float32), name
        )
        for name, shape in shapes.items()
    ]
    other: dict[str, Any] = {"linear_before_reset": 1} if operator == "GRU" else {}
    node = helper.make_node(operator, ["X", *shapes], ["Y"], hidden_size=hidden, **other)
    graph = helper.make_graph(
        [node], "layer", [_info("X", (steps, batch, hidden))],
        [_info("Y", (steps, 1, batch, hidden))], weights,
    )  # fmt: skip
    x = random.standard_normal((steps, batch, hidden)).astype(np.float32)
    return _bytes(graph), {"X": x}


def scan() -> tuple[bytes, dict[str, Any]]:
    """A layer as a Scan: h = tanh(h W + x)."""
    random = np.random.default_rng(0)
    w = numpy_helper.from_array((random.standard_normal((64, 64)) / 8).astype(np.float32), "W")
    nodes = [
        helper.make_node("MatMul", ["h", "W"], ["m"]), helper.make_node("Add", ["m", "x"], ["a"]),
        helper.make_node("Tanh", ["a"], ["next"]), helper.make_node("Identity", ["next"], ["y"]),
    ]  # fmt: skip
    row = (1, 64)
    body = helper.make_graph(
        nodes, "step", [_info("h", row), _info("x", row)], [_info("next", row), _info("y", row)],
        [w],
    )  # fmt: skip
    node = helper.make_node("Scan", ["H", "X"], ["last", "Y"], body=body, num_scan_inputs=1)
    every = (ITERATIONS, *row)
    graph = helper.make_graph(
        [node], "scan", [_info("H", row), _info("X", every)],
        [_info("last", row), _info("Y", every)],
    )  # fmt: skip
    x = random.standard_normal(every).astype(np.float32)
    return _bytes(graph), {"H": np.zeros(row, np.float32), "X": x}


def _info(name: str, shape: Sequence[int]) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)


def _bytes(graph: onnx.GraphProto) -> bytes:
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 8
    data: bytes = model.SerializeToString()
    return data


def opened(data: bytes, threads: int) -> list[Any]:
    """Sessions of halfbyte and of ONNX Runtime."""
    sessions = []
    for module in (halfbyte, onnxruntime):
        options = module.SessionOptions()
        options.intra_op_num_threads = threads
        sessions.append(module.InferenceSession(data, options))
    return sessions


def measured(calls: Sequence[Callable[[], Any]], seconds: float) -> list[list[float]]:
    """Milliseconds of each call's turns; a call before each brings its weights into the caches."""
    times: list[list[float]] = [[] for _ in calls]
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or not times[0]:
        for call, own in zip(calls, times, strict=True):
            call()
            start = time.perf_counter()
            call()
            own.append(1e3 * (time.perf_counter() - start))
    return times


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description="Recurrent layers and loops beside ONNX Runtime.")
    parser.add_argument("-t", "--threads", default="1,2", help="numbers of threads")
    parser.add_argument("-s", "--seconds", type=float, default=1.0, help="for each layer")
    options = parser.parse_args()
    print("| layer | steps x hidden | batch | threads | halfbyte | ONNX Runtime | faster | off |")
    print("|---|---|--:|--:|--:|--:|--:|--:|")
    for threads in map(int, options.threads.split(",")):
        for operator, steps, batch, hidden in LAYERS:
            data, feeds = layer(operator, steps, batch, hidden)
            both = opened(data, threads)
            (ours,), (theirs,) = (session.run(None, feeds) for session in both)
            off = np.abs(ours - theirs).max() / np.abs(theirs).max()
            calls = [lambda s=s, f=feeds: s.run(None, f) for s in both]  # type: ignore[misc]
            a, b = map(median, measured(calls, options.seconds))
            print(
                f"| {operator} | {steps} x {hidden} | {batch} | {threads} | {a:.3f} | {b:.3f} | "
                f"{b / a:.2f} | {off:.0e} |"
            )
    data, feeds = scan()
    calls = [lambda s=s: s.run(None, feeds) for s in opened(data, 1)]  # type: ignore[misc]
    a, b = (1e3 * min(times) / ITERATIONS for times in measured(calls, options.seconds))
    print(f"an iteration of Scan: {a:.1f} us, ONNX Runtime {b:.1f} us")


if __name__ == "__main__":
    main()
