"""Encoding beside llama.cpp's quantizer and gguf's, on one thread, taking turns.

llama.cpp's encoder is `ggml_quantize_chunk` from PyPI's xllamacpp. It searches scales of K-quants
and IQ types, and rounds to the others plainly, as gguf does. All encode the same float32 rows.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import partial
from importlib.metadata import version
from pathlib import Path

import gguf
import numpy as np
import pytest
from benches.case import Bench
from benches.figures import Series
from benches.peers.trial import tried
from benches.turns import Contender
from benches.yardstick import clock_of

from halfbyte.quantize.encode import Codec
from halfbyte.weights import FORMATS, ScaledFormat

ROWS, COLUMNS = 512, 2048  # a slice of the quantizer
NAMES = [name for name, format_ in FORMATS.items() if issubclass(format_, ScaledFormat)]


def llama_cpp(name: str, x: np.ndarray) -> Callable[[], None]:
    """llama.cpp's encoder of one type."""
    import xllamacpp

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


def ours(name: str, x: np.ndarray, *, search: bool) -> Callable[[], object]:
    """halfbyte's encoder, plain or with the search of scales."""
    codec, format_ = Codec(), FORMATS[name]
    importance = np.ones(COLUMNS, np.float32)
    assert issubclass(format_, ScaledFormat)
    if search:
        return lambda: codec.search(format_, x, importance)
    return lambda: codec.encode(format_, x)


@pytest.mark.short
@pytest.mark.parametrize("name", NAMES)
def bench_encode(bench: Bench, name: str) -> None:
    x = np.random.default_rng(0).standard_normal((ROWS, COLUMNS), np.float32)
    kind = gguf.GGMLQuantizationType[name]
    calls: dict[str, Callable[[], Callable[[], object]]] = {
        "plain": partial(ours, name, x, search=False),
        "search": partial(ours, name, x, search=True),
        "llama.cpp": partial(tried, partial(llama_cpp, name, x)),
    }
    searches = name.startswith("IQ") or name.endswith("K")
    if not searches:
        calls["gguf"] = lambda: partial(gguf.quants.quantize, x, kind)
    more = {"bytes": 2 * x.size, "searches": searches}  # as in a file in F16
    bench.measure(
        [
            Contender.of(Series(name, engine, "encode", more=dict(more)), make, clock_of(1))
            for engine, make in calls.items()
        ],
        "clock",
    )
    bench.figures.versions |= {
        "xllamacpp": f"xllamacpp {version('xllamacpp')}", "gguf": f"gguf {version('gguf')}"
    }  # fmt: skip
