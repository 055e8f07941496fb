"""NumPy's products on one thread each, so that several run at once, and for which processor.

OpenBLAS's own threads wait for each other after every product: small ones gain little by them, and
where other programs run they lose much (measured on two cores beside other work: 68 s instead of 5
for the same steps of a model with a million weights).
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from typing import Any

import numpy as np

_NAMES = (
    "scipy_openblas_{}64_",
    "openblas_{}64_",
    "openblas_{}",
)


def _functions(*names: str) -> list[Any] | None:
    """Functions of OpenBLAS; None where NumPy's library is another."""
    for module in ("numpy._core._multiarray_umath", "numpy.core._multiarray_umath"):
        with suppress(ImportError, OSError, TypeError):
            library = ctypes.CDLL(import_module(module).__file__)
            for name in _NAMES:
                if hasattr(library, name.format(names[0])):
                    return [getattr(library, name.format(each)) for each in names]
            return None
    return None


@contextmanager
def single_threaded() -> Iterator[None]:
    """One thread for each product in this context, where NumPy's library is OpenBLAS."""
    functions = _functions("get_num_threads", "set_num_threads")
    if functions is None:
        yield
        return
    get, set_threads = functions
    before = get()
    set_threads(1)
    try:
        yield
    finally:
        set_threads(before)


def processor() -> str:
    """The kind of processor whose code NumPy's products run, which decides the order of sums."""
    simd = np.show_config(mode="dicts").get("SIMD Extensions", {})
    widest = (simd.get("found") or simd.get("baseline") or ["unknown"])[-1]
    functions = _functions("get_corename")
    if functions is None:
        return str(widest)
    functions[0].restype = ctypes.c_char_p
    return f"{functions[0]().decode()} with {widest}"
