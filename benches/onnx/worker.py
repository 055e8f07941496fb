"""One ONNX model in a process of its own, for `benches.builds`.

    python worker.py MODEL.onnx THREADS

After opening the session, the process prints a line of JSON with the time that it took. Then it
reads paths of .npz files with inputs, and answers each with the seconds of one run. It imports
nothing of the benches, since it runs in the environments of other checkouts too.
"""

from __future__ import annotations

import json
import os
import sys
import time

import numpy as np


def main() -> None:
    """The command line."""
    path, threads = sys.argv[1:]
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # prints of the engine are not answers
    import halfbyte

    options = halfbyte.SessionOptions()
    options.intra_op_num_threads = int(threads)
    start = time.perf_counter()
    session = halfbyte.InferenceSession(path, options)
    about = {"seconds": time.perf_counter() - start, "about": halfbyte.__file__}
    print(json.dumps(about), file=answers)
    feeds = {}
    for line in sys.stdin:
        name = line.strip()
        if name not in feeds:
            with np.load(name) as arrays:
                feeds[name] = dict(arrays)
        start = time.perf_counter()
        session.run(None, feeds[name])
        print(json.dumps(time.perf_counter() - start), file=answers)


if __name__ == "__main__":
    main()
