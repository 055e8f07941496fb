"""Tests of encoders like test_kernels.py, for a library with memory of its own."""

from __future__ import annotations

import numpy as np
from tests.quantize.test_kernels import K, rows, wide_rows

from halfbyte.core.backends.library import Library
from halfbyte.core.backends.native import Kernels
from halfbyte.quantize.scale_search import encode, search
from halfbyte.quantize.steps import KernelSteps, OnePass
from halfbyte.weights import FORMATS, ScaledFormat

ODD = [np.inf, -np.inf, np.nan, 65519.9, 65520, -65520, 3.4e38, 1e-8, 5.9604645e-8, 2.9e-8]


def assert_encodes_in_steps(library: Library, isa: str, name: str) -> None:
    """A format's plain rounding and search on kernels write the bytes of the definitions."""
    x, format_ = wide_rows()[:24], FORMATS[name]
    assert issubclass(format_, ScaledFormat)
    importance = np.random.default_rng(1).random(512, np.float32)
    expected, expected_error = search(x, importance, format_)
    steps = KernelSteps(Kernels(isa, library=library))
    actual, error = search(x, importance, format_, steps)
    np.testing.assert_array_equal(actual, expected)
    np.testing.assert_array_equal(error, expected_error)
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(encode(x, format_, steps), format_.encode(x))


def assert_encodes(library: Library, isa: str, name: str) -> None:
    """A format's encoders write the bytes, and return the errors, of their definitions."""
    x, format_ = rows(), FORMATS[name]
    if format_.block == 1:
        x = np.vstack([x, np.resize(np.array(ODD, np.float32), (2, K))])
    with np.errstate(all="ignore"):
        expected = format_.encode(x)
    kernels, reach = Kernels(isa, library=library), library.memory.reach
    actual = reach(np.full_like(expected, 0xA5))
    kernels.call(f"encode_{name.lower()}", w=actual, x=reach(x), n=len(x), k=K)
    np.testing.assert_array_equal(actual, expected)
    if format_.block == 1:
        return
    importance = np.random.default_rng(1).random(K, np.float32)
    expected, expected_error = search(x, importance, format_)
    found = OnePass(kernels).search(format_, x, importance)
    assert found is not None
    actual, error = found
    np.testing.assert_array_equal(actual, expected)
    np.testing.assert_array_equal(error, expected_error)
