"""Protocol Buffers: numbers of every length, and those that are too long."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from halfbyte.errors import FormatError
from halfbyte.formats.protobuf import Message


def varint(value: int, size: int = 1) -> bytes:
    """A number in at least `size` bytes."""
    out = bytearray()
    while value > 127 or len(out) < size - 1:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


MESSAGE = Message(memoryview(b""), Path("m.onnx"), "m")


def decoded(numbers: bytes) -> list[int]:
    """Packed numbers, by both ways of reading them."""
    values = MESSAGE.integers([memoryview(numbers)])
    array = MESSAGE.integer_array([memoryview(numbers)])
    assert array.astype(np.int64).tolist() == values
    return values


@pytest.mark.parametrize("count", [3, 200])  # few are decoded by Python, many by NumPy
def test_numbers_of_every_length(count: int) -> None:
    values = [(1 << 7 * (i % 9)) + i for i in range(count)]
    assert decoded(b"".join(map(varint, values))) == values


@pytest.mark.parametrize("count", [3, 200])
def test_ten_bytes_and_not_eleven(count: int) -> None:
    rest = varint(300) * count
    assert decoded(rest + varint(5, 10))[-1] == 5
    for read in (MESSAGE.integers, MESSAGE.integer_array):
        with pytest.raises(FormatError, match=r"11 bytes, expected at most 10|endless integer"):
            read([memoryview(rest + varint(5, 11))])
