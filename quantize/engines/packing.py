"""Objects as arrays of bytes: a pickle, and after it the numbers that it refers to, not copied."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from typing import Any

import numpy as np

from halfbyte.weights import U8

Packed = list[U8]


def packed(value: Any) -> Packed:
    """An object's pickle, uint8 [n], and those of the arrays in it, as views."""
    buffers: list[pickle.PickleBuffer] = []
    head = pickle.dumps(value, 5, buffer_callback=buffers.append)
    numbers = (np.frombuffer(buffer.raw(), np.uint8) for buffer in buffers)
    return [np.frombuffer(head, np.uint8), *numbers]


def unpacked(parts: Sequence[U8]) -> Any:
    """The object, whose arrays are views of the parts: only for what this program has packed."""
    return pickle.loads(parts[0].data, buffers=parts[1:])  # noqa: S301
