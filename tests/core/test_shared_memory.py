"""Arrays in a memory apart from NumPy's behave as NumPy's own; memory is reused."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from halfbyte.core.aligned import ALIGNMENT
from halfbyte.core.backends.memory import in_numpy
from halfbyte.core.backends.shared import SharedArray, SharedMemory
from halfbyte.formats.mapped import is_apart, is_mapped
from halfbyte.weights import Q8_0, Tensor

STEP, LIMIT = 4096, 1 << 22


class Bytes:
    """A memory that grows in steps, up to a limit."""

    def __init__(self) -> None:
        self.content = np.zeros(STEP, np.uint8)

    limit = LIMIT

    @property
    def size(self) -> int:
        return len(self.content)

    def read(self, address: int, out: npt.NDArray[Any]) -> None:
        out.reshape(-1).view(np.uint8)[...] = self.content[address : address + out.nbytes]

    def write(self, address: int, data: npt.NDArray[Any]) -> None:
        self.content[address : address + data.nbytes] = data.reshape(-1).view(np.uint8)

    def take(self, address: int, data: Any) -> None:
        self.write(address, np.frombuffer(data, np.uint8))

    def clear(self, address: int, nbytes: int) -> None:
        self.content[address : address + nbytes] = 0

    def grow(self, nbytes: int) -> None:
        more = -(-nbytes // STEP) * STEP
        if self.size + more > LIMIT:
            raise MemoryError(f"{nbytes} bytes")
        self.content = np.concatenate([self.content, np.zeros(more, np.uint8)])


@pytest.fixture
def memory() -> SharedMemory:
    return SharedMemory(Bytes(), 100)


@pytest.fixture
def x() -> npt.NDArray[np.float32]:
    return np.random.default_rng(0).standard_normal((5, 7, 9)).astype(np.float32)


PARTS: list[Any] = [
    ..., 2, -1, slice(1, 3), (slice(1, 4), slice(2, 5)), (slice(None), slice(None), 3),
    (..., slice(0, 1)), (2, ...), (slice(None), 6), (slice(4, 2),), (slice(None), slice(2, 9)),
    (1, 2, 3),
]  # fmt: skip


@pytest.mark.parametrize("part", PARTS, ids=str)
def test_parts(memory: SharedMemory, x: npt.NDArray[np.float32], part: Any) -> None:
    """Read and written, with the rest unchanged."""
    shared = memory.reach(x)
    np.testing.assert_array_equal(np.asarray(shared[part]), x[part])
    expected = x.copy()
    expected[part] = shared[part] = 7 + np.arange(np.size(x[part])).reshape(np.shape(x[part]))
    np.testing.assert_array_equal(np.asarray(shared), expected)
    expected[part] = shared[part] = -1  # the same number everywhere
    np.testing.assert_array_equal(np.asarray(shared), expected)


def test_a_part_of_a_part_is_a_view(memory: SharedMemory, x: npt.NDArray[np.float32]) -> None:
    shared = memory.reach(x)
    shared[1:4][:, 2:4][0] = 5
    x = x.copy()
    x[1:4][:, 2:4][0] = 5
    np.testing.assert_array_equal(np.asarray(shared), x)


def test_shapes_and_dtypes(memory: SharedMemory, x: npt.NDArray[np.float32]) -> None:
    shared = memory.reach(x)
    for shape in ((-1,), (35, 9), (5, -1), (315, 1, 1)):
        np.testing.assert_array_equal(np.asarray(shared.reshape(shape)), x.reshape(shape))
    np.testing.assert_array_equal(np.asarray(shared.view(np.uint16)), x.view(np.uint16))
    assert (shared.ndim, shared.size, shared.nbytes, len(shared)) == (3, 315, 1260, 5)
    with pytest.raises(ValueError, match=r"315 elements cannot be reshaped to \(4, 5\)"):
        shared.reshape(4, 5)
    with pytest.raises(ValueError, match="not contiguous"):
        shared[:, 1:3].reshape(-1)
    with pytest.raises(IndexError, match="step of 1"):
        shared[::2]


def test_one_copy_as_long_as_it_is_used(memory: SharedMemory, x: npt.NDArray[np.float32]) -> None:
    """Also of different views of the same bytes; copies of copies are themselves."""
    first, second = memory.reach(x), memory.reach(x.reshape(35, 9)[:])
    assert first.address == second.address
    assert memory.reach(first) is first
    assert memory.reach(x[1:]).address != first.address
    used = memory.allocated
    del first, second
    gc.collect()
    assert memory.allocated < used
    again = memory.reach(x * 2)
    np.testing.assert_array_equal(np.asarray(again), x * 2)


def test_memory_is_reused_and_joined(memory: SharedMemory) -> None:
    """In any order, until it is as it was before."""
    random = np.random.default_rng(1)
    kept: list[tuple[SharedArray, int]] = []
    for number in range(400):
        if kept and random.random() < 0.5:
            array, value = kept.pop(int(random.integers(len(kept))))
            assert (np.asarray(array) == value % 251).all()
            del array
        array = memory.aligned(int(random.integers(0, 9000)))
        assert array.address % ALIGNMENT == 0
        assert not np.asarray(array).any()  # zeroed, whatever was there
        array[...] = number % 251
        kept.append((array, number))
        if len(kept) > 60:
            kept.clear()
    size = memory.bytes.size
    del array
    kept.clear()
    gc.collect()
    assert memory.allocated == 128  # what comes before the first address
    whole = memory.unset(size - 128)
    assert memory.bytes.size == size
    assert whole.nbytes == size - 128


def test_no_memory(memory: SharedMemory) -> None:
    with pytest.raises(MemoryError, match="bytes"):
        memory.aligned(2 * LIMIT)
    assert memory.aligned(1000).nbytes == 1000


def test_operands(memory: SharedMemory, x: npt.NDArray[np.float32]) -> None:
    """Arrays and tensors reach NumPy; what is there already is not copied."""
    shared = memory.reach(x)
    assert is_apart(shared)
    assert not is_apart(x)
    assert not is_mapped(shared)
    np.testing.assert_array_equal(in_numpy(shared), x)
    assert in_numpy(x) is x
    assert in_numpy(None) is None
    rows = Q8_0.encode(x.reshape(-1)[:288].reshape(9, 32))
    tensor = Tensor("w", Q8_0, (9, 32), memory.reach(rows.reshape(-1)))
    np.testing.assert_array_equal(in_numpy(tensor).decode(), Q8_0.decode(rows))
    part = tensor.part(2, 5)
    np.testing.assert_array_equal(np.asarray(part.data), rows[2:5].reshape(-1))
    assert tensor.owned


def test_javascript_arrays_are_taken(memory: SharedMemory) -> None:
    array = memory.unset(5)
    array[1:4].take(b"abc")
    assert np.asarray(array[1:4]).tobytes() == b"abc"
