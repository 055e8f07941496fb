"""Broken models in `InferenceSession`, in a process with little memory.

    python -m tests.onnx.session.mutants SEED COUNT [FIRST]

prints a line of JSON for each mutant that neither ran nor was refused properly, and the counts at
the end. The file `at` in the current folder names the present mutant, in case the process dies.
"""

from __future__ import annotations

import json
import math
import resource
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
from onnx import TensorProto, helper
from tests.onnx.mutations import Mutant, mutations
from tests.onnx.node_cases import node_cases
from tests.onnx.session.models import FLOAT, INT64, model, node, tensor, weight

import halfbyte
from halfbyte.errors import HalfbyteError
from halfbyte.onnx.session import NodeArg, RunOptions
from halfbyte.onnx.session.metadata import dtype_of

SECONDS = 2.0
BYTES = 1 << 30  # more than the process has at its start
MAX_ELEMENTS = 1 << 20  # of an input; models with larger inputs are only opened
EVERY = 12  # one of so many of ONNX's node tests is used, others for each seed
_OWN = 20  # copies of our own models among the others


def network() -> bytes:
    """A small network with convolutions, shapes, slices, products and quantization."""
    random = np.random.default_rng(0)
    nodes = [
        node("Conv", "x w b", "c", kernel_shape=[3, 3], pads=[1, 1, 1, 1], strides=[2, 2]),
        node("BatchNormalization", "c scale bias mean var", "n"),
        node("Relu", "n", "r"),
        node("MaxPool", "r", "p", kernel_shape=[2, 2], strides=[2, 2]),
        node("Shape", "p", "s"),
        node("Gather", "s zero", "batch", axis=0),
        node("Unsqueeze", "batch axes", "first"),
        node("Concat", "first rest", "shape", axis=0),
        node("Reshape", "p shape", "flat"),
        node("Gemm", "flat m b2", "g", transB=1, alpha=0.5),
        node("QuantizeLinear", "g qs qz", "q"),
        node("DequantizeLinear", "q qs qz", "dq"),
        node("Slice", "dq start end ax", "sl"),
        node("Softmax", "sl", "y", axis=-1),
    ]
    weights = [
        weight("w", random.normal(size=(4, 3, 3, 3))),
        *(weight(name, random.normal(size=4)) for name in ("b", "scale", "bias", "mean")),
        weight("var", [1, 2, 3, 4]),
        weight("zero", 0, np.int64),
        weight("axes", [0], np.int64),
        weight("rest", [-1], np.int64),
        weight("m", random.normal(size=(10, 16))),
        weight("b2", random.normal(size=10)),
        weight("qs", 0.1),
        weight("qz", 3, np.uint8),
        weight("start", [0], np.int64),
        weight("end", [5], np.int64),
        weight("ax", [1], np.int64),
    ]
    x = tensor("x", FLOAT, ["n", 3, 8, 8])
    return model(nodes, [x], [tensor("y", FLOAT, ["n", 5])], weights)


def attention() -> bytes:
    """Embeddings, a layer norm, attention, a loop, a branch, and shapes that depend on values."""
    random = np.random.default_rng(1)
    body = helper.make_graph(
        [node("Add", "a a", "a2"), node("Identity", "go", "go2"), node("Identity", "a2", "each")],
        "body",
        [tensor("i", INT64, []), tensor("go", TensorProto.BOOL, []), tensor("a", FLOAT, None)],
        [
            tensor("go2", TensorProto.BOOL, []),
            tensor("a2", FLOAT, None),
            tensor("each", FLOAT, None),
        ],
    )
    branches = [
        helper.make_graph([node(kind, "last", kind)], kind, [], [tensor(kind, FLOAT, None)])
        for kind in ("Neg", "Abs")
    ]
    nodes = [
        node("Gather", "table ids", "e"),
        node("LayerNormalization", "e gain shift", "ln", axis=-1),
        *(node("MatMul", f"ln w{part}", part) for part in "qkv"),
        node("Transpose", "k", "kt", perm=[0, 2, 1]),
        node("MatMul", "q kt", "scores"),
        node("Softmax", "scores", "p", axis=-1),
        node("MatMul", "p v", "o"),
        node("Loop", "trips yes o", "last all", body=body),
        node("ReduceSum", "last", "sum", keepdims=0),
        node("Greater", "sum nought", "big"),
        node("If", "big", "chosen", then_branch=branches[0], else_branch=branches[1]),
        node("NonZero", "chosen", "where"),
        node("TopK", "chosen one", "y at", axis=-1),
    ]
    weights = [
        weight("table", random.normal(size=(20, 8))),
        weight("gain", np.ones(8)),
        weight("shift", np.zeros(8)),
        *(weight(f"w{part}", random.normal(size=(8, 8))) for part in "qkv"),
        weight("trips", 2, np.int64),
        weight("yes", True, np.bool_),
        weight("nought", 0),
        weight("one", [1], np.int64),
    ]
    outputs = [tensor("y", FLOAT, None), tensor("where", INT64, None)]
    return model(nodes, [tensor("ids", INT64, [1, "n"])], outputs, weights)


def seeds(part: int) -> list[bytes]:
    """Models that run: our own, and a part of ONNX's node tests."""
    cases = [case for case in node_cases() if case.kind == "node"][part % EVERY :: EVERY]
    return [network(), attention()] * _OWN + [case.proto.SerializeToString() for case in cases]


def feeds(session: halfbyte.InferenceSession) -> dict[str, Any] | None:
    """A value for each input; None if one is too large."""
    random = np.random.default_rng(0)
    values: dict[str, Any] = {}
    for argument in session.get_inputs():
        shape = [size if isinstance(size, int) else 2 for size in argument.shape]
        if math.prod(shape) > MAX_ELEMENTS:
            return None
        values[argument.name] = _value(argument, shape, random)
    return values


def _value(argument: NodeArg, shape: list[int], random: np.random.Generator) -> Any:
    try:
        dtype = dtype_of(argument.type)
    except ValueError:
        return []
    if dtype.kind == "O":
        return np.full(shape, "a", object)
    if dtype.names:
        return np.zeros(shape, dtype)
    return random.integers(0, 3, shape).astype(dtype)


def outcome(mutant: Mutant) -> tuple[str, str]:
    """What happened to a mutant, and the problem, if that is one."""
    start = time.process_time()  # other processes may use the machine
    problem, end = "", "ran"
    try:
        options = halfbyte.SessionOptions()
        options.intra_op_num_threads = 1
        with halfbyte.InferenceSession(mutant.data, options) as session:
            inputs = feeds(session)
            if inputs is None:
                end = "opened"
            else:
                run_options = RunOptions()
                timer = threading.Timer(SECONDS / 2, setattr, (run_options, "terminate", True))
                timer.start()
                try:
                    session.run(None, inputs, run_options)
                finally:
                    timer.cancel()
    except HalfbyteError as error:
        end = "refused"
        if "\n" in str(error) or len(str(error)) > 2000:
            problem = f"a message of {len(str(error))} characters: {str(error)[:300]!r}"
    except BaseException as error:
        end, problem = "raised", f"{type(error).__name__}: {error}"
    seconds = time.process_time() - start
    if seconds > SECONDS:
        problem = problem or f"{seconds:.1f} s of the processor"
    return end, problem


def main() -> None:
    seed, count, *first = map(int, sys.argv[1:])
    mutants = enumerate(mutations(seeds(seed), count, seed))
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + BYTES, used + BYTES))
    counts: Counter[str] = Counter()
    for index, mutant in mutants:
        if index < sum(first):
            continue
        Path("at").write_text(f"{index} {mutant.kind}")
        end, problem = outcome(mutant)
        counts[end] += 1
        if problem:
            print(json.dumps({"at": index, "kind": mutant.kind, "problem": problem}), flush=True)
    print(json.dumps(counts))


if __name__ == "__main__":
    main()
