"""NumPy's products on one thread each, so that several run at once.

OpenBLAS's own threads wait for each other after every product: small ones gain little by them, and
where other programs run they lose much (measured on two cores beside other work: 68 s instead of 5
for the same steps of a model with a million weights).
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import import_module

_NAMES = (
    "scipy_openblas_{}_num_threads64_",
    "openblas_{}_num_threads64_",
    "openblas_{}_num_threads",
)


@contextmanager
def single_threaded() -> Iterator[None]:
    """One thread for each product in this context, where NumPy's library is OpenBLAS."""
    for module in ("numpy._core._multiarray_umath", "numpy.core._multiarray_umath"):
        with suppress(ImportError, OSError, TypeError):
            library = ctypes.CDLL(import_module(module).__file__)
            break
    else:
        yield
        return
    for name in _NAMES:
        if hasattr(library, name.format("set")):
            set_threads, get = (getattr(library, name.format(verb)) for verb in ("set", "get"))
            before = get()
            set_threads(1)
            try:
                yield
            finally:
                set_threads(before)
            return
    yield
