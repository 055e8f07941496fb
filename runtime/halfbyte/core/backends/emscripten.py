"""The kernels in Pyodide: selects the WebAssembly file that this engine runs correctly.

A module with relaxed SIMD is invalid as a whole if the engine lacks it, and some engines compute
its dot product incorrectly. So a file is validated, then tested with known products.
"""

from __future__ import annotations

import ctypes
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from halfbyte.core.backends.library import Library, declare, packaged
from halfbyte.core.backends.memory import Memory
from halfbyte.core.backends.single import SingleKernels
from halfbyte.core.backends.threads import Pool
from halfbyte.errors import UnsupportedError
from halfbyte.weights import Q4_0, Q8_0
from halfbyte.weights.packed import packed_rows

FILES = ("kernels-relaxed.wasm", "kernels.wasm")  # the faster first


def open_library() -> Library:
    """The best kernels for this engine; raises `UnsupportedError` if there are none."""
    reasons = []
    for name in FILES:
        path = packaged(name)
        if path is None:
            reasons.append(f"{name} is not in the package")
        elif not _valid(path):
            reasons.append(f"{name} needs SIMD that this browser lacks")
        else:
            library = Library(declare(ctypes.CDLL(str(path))), Memory(), _one_thread)
            library.path = path
            if answers_rightly(library):
                return library
            reasons.append(f"{name} computes wrongly in this browser")
    raise UnsupportedError(f"no kernels: {'; '.join(reasons)}; backend numpy works all the same")


def _one_thread(library: Library, threads: int) -> Pool:
    """The pool of any number of threads: workers have no part in the interpreter's memory."""
    return Pool(library, min(threads, 1))


def _valid(path: Path) -> bool:
    js: Any = import_module("js")  # modules that Pyodide provides
    to_js: Any = import_module("pyodide.ffi").to_js
    return bool(js.WebAssembly.validate(to_js(path.read_bytes())))


def answers_rightly(library: Library) -> bool:
    """Compare integer products, with all pairs of signs and the extreme values, with NumPy's."""
    kernels = SingleKernels(library)
    reach = library.memory.reach
    # not np.random, whose import takes longer than all of this
    numbers = np.arange(16 * 64, dtype=np.uint32) * 2654435761 >> 16
    xq = (numbers[:64] % 255 - 127).astype(np.int8).reshape(1, 64)
    xq[0, :4] = [127, -127, 127, -127]
    xs = xq.reshape(1, 4, 16).sum(axis=2, dtype=np.int16)
    ones = np.ones((1, 2), np.float32)
    for format_ in (Q4_0, Q8_0):
        weights = (numbers.reshape(16, 64) % 16).astype(np.float32) - 8
        weights[:, [0, 32]] = -8  # the largest: the scale is 1, or in any case exact
        rows = format_.encode(weights)
        quantized, scales, _ = format_.quantized(rows)
        products = quantized.astype(np.int32) * xq.reshape(2, 32)
        expected = (products.sum(axis=2) * scales).sum(axis=1, dtype=np.float32)
        layout = packed_rows(format_)
        for dtype, w in ((format_.dtype, rows), (layout.dtype, layout.pack(rows))):
            y = reach(np.zeros((1, 16), np.float32))
            kernels.call(
                f"matmul_int8_{dtype}",
                y=y, w=reach(w), xd=reach(ones), xq=reach(xq), xs=reach(xs), n=1, k=64, m=16,
            )  # fmt: skip
            if not np.array_equal(y[0], expected):
                return False
    return True
