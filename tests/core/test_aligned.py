"""Weights that kernels read vector by vector begin at a cache line."""

from __future__ import annotations

import numpy as np
import pytest

from halfbyte.core.aligned import ALIGNMENT, contiguous, zeros
from halfbyte.core.ops import pack_kernels, pack_quantized
from halfbyte.core.ops.panels import pack_panels


@pytest.mark.parametrize("m", [1, 16, 33, 100, 700])
def test_packed_weights_begin_at_a_cache_line(m: int) -> None:
    """Of small arrays one in four does by chance."""
    w = np.ones((m, 70), np.float32)
    kernels = np.ones((m, 6, 3, 3), np.int8)
    packed = [pack_panels(w), pack_kernels(w.reshape(m, 70, 1, 1)), pack_quantized(kernels)]
    assert [array.ctypes.data % ALIGNMENT for array in packed] == [0, 0, 0]


def test_copies_are_contiguous() -> None:
    x = np.arange(24, dtype=np.int16).reshape(4, 6).T
    copy = contiguous(x)
    assert copy.flags.c_contiguous
    np.testing.assert_array_equal(copy, x)
    assert not zeros((3, 5), np.float32).any()
