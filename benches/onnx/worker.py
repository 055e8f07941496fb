"""One ONNX model in a process of its own, for `benches.builds` and peers with own environments.

    python worker.py MODEL.onnx THREADS [openvino]

After opening the session, the process prints a line of JSON with the time that it took. Then it
reads paths of .npz files with inputs, and answers each with the seconds of one run; after a path
with `=` before it, it saves the first output as PATH.npy. It imports nothing of the benches, since
it runs in the environments of other checkouts too.
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


def halfbyte_run(path: str, threads: int) -> Run:
    """A session of halfbyte."""
    import halfbyte

    options = halfbyte.SessionOptions()
    options.intra_op_num_threads = threads
    session = halfbyte.InferenceSession(path, options)
    return lambda feeds: session.run(None, feeds)[0]


def openvino_run(path: str, threads: int) -> Run:
    """A model compiled by OpenVINO for the processor, with float32 as in the file."""
    import openvino  # type: ignore[import-not-found]  # in its own environment

    settings = {"INFERENCE_NUM_THREADS": threads, "INFERENCE_PRECISION_HINT": "f32"}
    request = openvino.compile_model(path, "CPU", settings).create_infer_request()
    return lambda feeds: next(iter(request.infer(feeds, share_inputs=True).values()))


ENGINES = {"halfbyte": ("halfbyte", halfbyte_run), "openvino": ("openvino", openvino_run)}


def main() -> None:
    """The command line."""
    path, threads, *engine = sys.argv[1:]
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # prints of the engine are not answers
    module, make = ENGINES[engine[0] if engine else "halfbyte"]
    __import__(module)
    start = time.perf_counter()
    run = make(path, int(threads))
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
