"""Encoding speed beside llama.cpp's quantizer and gguf's, on one thread, taking turns.

    python benches/encode.py

llama.cpp's is `ggml_quantize_chunk`, out of PyPI's xllamacpp. All get the same float32 rows; speed
is MB/s of input counted as F16, as a file's would be. Printed are medians of `-r` rounds.
"""

from __future__ import annotations

import argparse
import ctypes
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import gguf
import numpy as np
import xllamacpp

from halfbyte.core.backends.native import Kernels
from halfbyte.weights import FORMATS, Q4_0, Q8_0

ROWS, COLUMNS = 2048, 2048


def llama_cpp(name: str, x: np.ndarray) -> Callable[[], None]:
    """llama.cpp's encoder of one type."""
    library = ctypes.CDLL(str(next(Path(xllamacpp.__file__).parent.glob("xllamacpp*.so"))))
    function = library.ggml_quantize_chunk
    function.restype = ctypes.c_size_t
    function.argtypes = [
        ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p,
        ctypes.c_int64, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p,
    ]  # fmt: skip
    out = np.empty((ROWS, FORMATS[name].row_bytes(COLUMNS)), np.uint8)
    kind = FORMATS[name].ggml_type
    return lambda: function(kind, x.ctypes.data, out.ctypes.data, 0, ROWS, COLUMNS, None)


def ours(name: str, x: np.ndarray, *, search: bool) -> Callable[[], None]:
    """halfbyte's encoder, plain or with the search of scales."""
    kernels = Kernels()
    out = np.empty((ROWS, FORMATS[name].row_bytes(COLUMNS)), np.uint8)
    arguments = {"w": out, "x": x, "n": ROWS, "k": COLUMNS}
    if search:
        arguments |= {
            "error": np.empty((ROWS, 2), np.float32),
            "importance": np.ones(COLUMNS, np.float32),
        }
    kernel = f"encode_search_{name.lower()}" if search else f"encode_{name.lower()}"
    return lambda: kernels.call(kernel, **arguments)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description="Encoding speed beside others'.")
    parser.add_argument("-r", type=int, default=7, help="rounds (default 7)")
    options = parser.parse_args()
    x = np.random.default_rng(0).standard_normal((ROWS, COLUMNS), np.float32)
    print("| type | halfbyte | with search | llama.cpp | gguf | halfbyte : llama.cpp |")
    print("|---|--:|--:|--:|--:|--:|")
    for format_ in (Q4_0, Q8_0):
        name = format_.name
        kind = gguf.GGMLQuantizationType[name]
        calls = [
            ours(name, x, search=False), ours(name, x, search=True), llama_cpp(name, x),
            lambda kind=kind: gguf.quants.quantize(x, kind),
        ]  # fmt: skip
        times: list[list[float]] = [[] for _ in calls]
        for _ in range(options.r + 1):
            for call, taken in zip(calls, times, strict=True):
                start = time.perf_counter()
                call()
                taken.append(time.perf_counter() - start)
        speeds = [x.size * 2 / 1e6 / statistics.median(taken[1:]) for taken in times]
        ratio = statistics.median(b / a for a, b in zip(times[0][1:], times[2][1:], strict=True))
        print(f"| {name} | " + " | ".join(f"{s:.0f} MB/s" for s in speeds) + f" | {ratio:.1f} |")


if __name__ == "__main__":
    main()
