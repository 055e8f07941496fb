"""Encoding speed beside llama.cpp's quantizer and gguf's, on one thread, taking turns.

    python -m benches.encode [-r 7] [--json FILE]

llama.cpp's encoder is `ggml_quantize_chunk` from PyPI's xllamacpp. All encode the same float32
rows. Speed is in MB/s of input, counted as F16 like that of a file; the table shows medians of the
rounds.
"""

from __future__ import annotations

import argparse
import ctypes
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

import gguf
import numpy as np
import xllamacpp
from benches import tables
from benches.figures import Series, add_json_option, pytest_json, write_json

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
    parser = argparse.ArgumentParser(
        prog="python -m benches.encode", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("-r", "--rounds", type=int, default=7, help="(default 7)")
    add_json_option(parser)
    options = parser.parse_args()
    x = np.random.default_rng(0).standard_normal((ROWS, COLUMNS), np.float32)
    series: list[Series] = []
    for format_ in (Q4_0, Q8_0):
        name = format_.name
        kind = gguf.GGMLQuantizationType[name]
        calls = {
            "plain": ours(name, x, search=False),
            "search": ours(name, x, search=True),
            "llama.cpp": llama_cpp(name, x),
            "gguf": lambda kind=kind: gguf.quants.quantize(x, kind),
        }
        row = [Series(name, engine, "encode", more={"bytes": 2 * x.size}) for engine in calls]
        for turn in range(options.rounds + 1):
            for call, one in zip(calls.values(), row, strict=True):
                start = time.perf_counter()
                call()
                if turn:
                    one.seconds.append(time.perf_counter() - start)
        series += row
    print(tables.encode(series))
    versions = {
        "llama.cpp": f"xllamacpp {version('xllamacpp')}", "gguf": f"gguf {version('gguf')}"
    }  # fmt: skip
    write_json(options.json, pytest_json(series, "benches/encode", versions=versions))


if __name__ == "__main__":
    main()
