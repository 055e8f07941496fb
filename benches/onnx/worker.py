"""One ONNX model in a process of its own, for `benches.builds` and peers with own environments.

    python worker.py MODEL THREADS [ENGINE [PRECISION]]

After opening the session, the process prints a line of JSON with the time that it took. Then it
reads paths of .npz files with inputs, and answers each with the seconds of one run; after a path
with `=` before it, it saves the first output as PATH.npy. MODEL is an ONNX file; for litert, one
that `tflite.py` wrote. It imports nothing of the benches: it runs in other environments.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

Run = Callable[[dict[str, Any]], Any]  # the first output for inputs


def halfbyte_run(path: str, threads: int, precision: str) -> Run:
    """A session of halfbyte."""
    import halfbyte

    options = halfbyte.SessionOptions()
    options.intra_op_num_threads = threads
    session = halfbyte.InferenceSession(path, options)
    return lambda feeds: session.run(None, feeds)[0]


def openvino_run(path: str, threads: int, precision: str) -> Run:
    """A model compiled by OpenVINO for the processor, with float32 as in the file."""
    import openvino  # type: ignore[import-not-found]  # in its own environment

    settings = {"INFERENCE_NUM_THREADS": threads, "INFERENCE_PRECISION_HINT": "f32"}
    request = openvino.compile_model(path, "CPU", settings).create_infer_request()
    return lambda feeds: next(iter(request.infer(feeds, share_inputs=True).values()))


def pytorch_run(path: str, threads: int, precision: str, *, compiled: bool = False) -> Run:
    """A module of PyTorch; in int8 its Linear layers quantize their inputs as they run."""
    import pytorch
    import torch  # type: ignore[import-not-found]  # in its own environment
    from torch.ao import quantization  # type: ignore[import-not-found]

    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", f"{path}.inductor")
    torch.set_num_threads(threads)
    module = pytorch.load(path)
    if precision == "int8":
        how = {torch.nn.Linear: quantization.per_channel_dynamic_qconfig}
        module = quantization.quantize_dynamic(module, how, dtype=torch.qint8)
    if compiled:
        torch._inductor.config.freezing = True  # weights are constants, as in other engines
        module = torch.compile(module, dynamic=False)

    def run(feeds: dict[str, Any]) -> Any:
        with torch.inference_mode():
            return module(**{name: torch.from_numpy(x) for name, x in feeds.items()}).numpy()

    return run


def compiled_run(path: str, threads: int, precision: str) -> Run:
    """The same, compiled by Inductor once for each shape."""
    return pytorch_run(path, threads, precision, compiled=True)


def litert_run(path: str, threads: int, precision: str) -> Run:
    """LiteRT with XNNPACK; its shapes are fixed, so texts are padded and run one by one."""
    from ai_edge_litert.interpreter import Interpreter  # type: ignore[import-not-found]

    interpreter = Interpreter(path, num_threads=threads)
    signatures = interpreter.get_signature_list()
    runners = {name: interpreter.get_signature_runner(name) for name in signatures}

    def one(feeds: dict[str, Any]) -> Any:
        if "input" in feeds:
            [runner] = runners.values()
            return next(iter(runner(args_0=feeds["input"]).values()))
        length = feeds["input_ids"].shape[1]
        width = next(n for n in (16, 128) if n >= length)
        runner = runners[f"length_{width}"]
        details = runner.get_input_details()
        padded = {
            name: np.pad(x, ((0, 0), (0, width - length))).astype(details[name]["dtype"])
            for name, x in feeds.items()
        }
        return next(iter(runner(**padded).values()))

    def run(feeds: dict[str, Any]) -> Any:
        rows = len(next(iter(feeds.values())))
        return np.concatenate(
            [one({name: x[row : row + 1] for name, x in feeds.items()}) for row in range(rows)]
        )

    return run


ENGINES = {
    "halfbyte": ("halfbyte", halfbyte_run),
    "openvino": ("openvino", openvino_run),
    "pytorch": ("torch", pytorch_run),
    "pytorch-compiled": ("torch", compiled_run),
    "litert": ("ai_edge_litert", litert_run),
}


def main() -> None:
    """The command line."""
    path, threads, *more = sys.argv[1:]
    engine, precision = (*more, *("halfbyte", "fp32")[len(more) :])
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # prints of the engine are not answers
    module, make = ENGINES[engine]
    __import__(module)
    start = time.perf_counter()
    run = make(path, int(threads), precision)
    about = {"seconds": time.perf_counter() - start, "about": sys.modules[module].__file__}
    print(json.dumps(about), file=answers)
    feeds = {}
    for line in sys.stdin:
        name = line.strip().removeprefix("=")
        if name not in feeds:
            with np.load(name) as arrays:
                feeds[name] = dict(arrays)
        start = time.perf_counter()
        output = run(feeds[name])
        taken = time.perf_counter() - start
        if line.startswith("="):
            np.save(f"{name}.npy", output)
        print(json.dumps(taken), file=answers)


if __name__ == "__main__":
    main()
