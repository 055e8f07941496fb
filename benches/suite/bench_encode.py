"""Encoding beside llama.cpp's quantizer and gguf's, on one thread, taking turns.

llama.cpp's encoder is `ggml_quantize_chunk` from PyPI's xllamacpp. All encode the same float32
rows.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

import gguf
import numpy as np
import pytest
import xllamacpp
from benches.case import Bench
from benches.figures import Series
from benches.turns import Contender
from benches.yardstick import clock_of

from halfbyte.core.backends.native import Kernels
from halfbyte.weights import FORMATS

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


@pytest.mark.short
@pytest.mark.parametrize("name", ["Q4_0", "Q8_0"])
def bench_encode(bench: Bench, name: str) -> None:
    x = np.random.default_rng(0).standard_normal((ROWS, COLUMNS), np.float32)
    kind = gguf.GGMLQuantizationType[name]
    calls = {
        "plain": ours(name, x, search=False),
        "search": ours(name, x, search=True),
        "llama.cpp": llama_cpp(name, x),
        "gguf": lambda: gguf.quants.quantize(x, kind),
    }
    more = {"bytes": 2 * x.size}  # as in a file in F16
    bench.measure(
        [
            Contender(Series(name, engine, "encode", more=dict(more)), call, clock=clock_of(1))
            for engine, call in calls.items()
        ],
        "clock",
    )
    bench.figures.versions |= {
        "xllamacpp": f"xllamacpp {version('xllamacpp')}", "gguf": f"gguf {version('gguf')}"
    }  # fmt: skip
