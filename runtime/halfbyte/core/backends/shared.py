"""Memory apart from the interpreter's, and arrays in it.

In a browser, worker threads can only share memory that Python's interpreter does not live in, so
NumPy has no views of it. A `SharedArray` takes an array's place: slices and reshapes are views,
``np.asarray(array)`` copies out, and ``array[...] = values`` copies in.
"""

from __future__ import annotations

import math
import weakref
from bisect import insort
from collections.abc import Callable, Iterator
from contextlib import suppress
from types import SimpleNamespace
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from halfbyte.core.aligned import ALIGNMENT
from halfbyte.core.backends.memory import Memory
from halfbyte.formats.mapped import is_apart

U8 = npt.NDArray[np.uint8]


class Bytes(Protocol):
    """The bytes of a memory, which only grows; addresses are offsets in it.

    `size` is their number, and `limit` the most that there may be. In a browser either may be more
    than Python's `len` there can return.
    """

    limit: int

    @property
    def size(self) -> int: ...

    def read(self, address: int, out: npt.NDArray[Any]) -> None:
        """Copy out as many bytes as `out` has, which is C-contiguous."""

    def write(self, address: int, data: npt.NDArray[Any]) -> None:
        """Copy in; `data` is C-contiguous."""

    def take(self, address: int, data: Any) -> None:
        """Copy in a JavaScript array of bytes."""

    def clear(self, address: int, nbytes: int) -> None:
        """Write zeros."""

    def grow(self, nbytes: int) -> None:
        """Append at least so many bytes, which are zero. Raises `MemoryError`."""


class Block:
    """Allocated bytes, which are freed with the last reference to them."""

    def __init__(self, memory: SharedMemory, address: int, nbytes: int) -> None:
        self.memory, self.address = memory, address
        weakref.finalize(self, memory.free, address, nbytes)


class SharedMemory(Memory):
    """Allocates from the bytes of a memory, first fit.

    Parameters
    ----------
    source : Bytes
    start : int
        The first address that may be allocated.
    """

    apart = True

    def __init__(self, source: Bytes, start: int) -> None:
        self.bytes = source
        first = self._fresh = _padded(start)  # from here on, all bytes still are zero
        self._holes = [(first, source.size - first)]  # free, in order: address, size
        self._copies: dict[tuple[int, ...], tuple[weakref.ref[Any], weakref.ref[Block]]] = {}

    @property
    def allocated(self) -> int:
        """Bytes in use."""
        return self.bytes.size - sum(size for _, size in self._holes)

    @property
    def room(self) -> int:
        """Bytes that may still be allocated, in pieces that fit the holes."""
        return self.bytes.limit - self.allocated

    def aligned(self, nbytes: int) -> Any:
        """Zeroed bytes, aligned to a cache line: a `SharedArray`. Raises `MemoryError`."""
        fresh = self._fresh
        array = self.unset(nbytes)
        used = min(fresh - array.address, nbytes)
        if used > 0:
            self.bytes.clear(array.address, used)
        return array

    def unset(self, nbytes: int) -> SharedArray:
        """As `aligned`, with any content."""
        size = max(_padded(nbytes), ALIGNMENT)
        block = Block(self, self._take(size), size)
        self._fresh = max(self._fresh, block.address + size)
        return SharedArray.within(block, np.dtype(np.uint8), (nbytes,))

    def reach(self, array: Any) -> Any:
        """A copy in this memory; the same one for the same bytes, as long as it lives."""
        if isinstance(array, SharedArray):
            return array
        array = np.ascontiguousarray(array)
        owner = _owner(array)
        key = (id(owner), array.ctypes.data, array.nbytes)
        kept = self._copies.get(key)
        block = kept[1]() if kept is not None and kept[0]() is owner else None
        if block is not None:
            return SharedArray.within(block, array.dtype, array.shape)
        copy = self.unset(array.nbytes)
        copy[...] = array.reshape(-1).view(np.uint8)
        self._remember(key, owner, copy.block)
        return SharedArray.within(copy.block, array.dtype, array.shape)

    def address(self, array: Any) -> int:
        return int(array.address)

    def _remember(self, key: tuple[int, ...], owner: Any, block: Block) -> None:
        def forget(_: object) -> None:
            self._copies.pop(key, None)

        with suppress(TypeError):  # bytes, whose life cannot be watched
            self._copies[key] = weakref.ref(owner, forget), weakref.ref(block, forget)

    def _take(self, size: int) -> int:
        for index, (address, hole) in enumerate(self._holes):
            if hole >= size:
                self._holes[index : index + 1] = [(address + size, hole - size)] * (hole > size)
                return address
        end, last = self.bytes.size, self._holes[-1] if self._holes else (0, 0)
        free = last[1] if sum(last) == end else 0
        self.bytes.grow(size - free)
        self.free(end, self.bytes.size - end)
        return self._take(size)

    def free(self, address: int, size: int) -> None:
        """Return a block, joined with the holes beside it."""
        if not size:
            return
        insort(self._holes, (address, size))
        joined: list[tuple[int, int]] = []
        for begin, length in self._holes:
            if joined and sum(joined[-1]) == begin:
                begin, length = joined[-1][0], joined.pop()[1] + length
            joined.append((begin, length))
        self._holes = joined


class SharedArray:
    """An array in shared memory; see the module's description for what it can do."""

    __slots__ = ("__weakref__", "address", "block", "dtype", "shape", "strides")

    flags = SimpleNamespace(writeable=True, aligned=True, c_contiguous=True)

    def __init__(
        self,
        block: Block,
        address: int,
        dtype: np.dtype[Any],
        shape: tuple[int, ...],
        strides: tuple[int, ...],
    ) -> None:
        self.block, self.address, self.dtype = block, address, dtype
        self.shape, self.strides = shape, strides

    @classmethod
    def within(cls, block: Block, dtype: np.dtype[Any], shape: tuple[int, ...]) -> SharedArray:
        """The array at the beginning of a block."""
        return cls(block, block.address, dtype, shape, _strides(shape, dtype.itemsize))

    @classmethod
    def without_memory(cls, nbytes: int) -> SharedArray:
        """Bytes of which only the places are known: they can be sliced, and all read as 1."""
        nowhere: Any = None
        return cls(nowhere, 0, np.dtype(np.uint8), (nbytes,), (1,))

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Size of the elements in bytes."""
        return self.size * self.dtype.itemsize

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    def __len__(self) -> int:
        return self.shape[0]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> npt.NDArray[Any]:
        out = np.ones(self.shape, self.dtype)
        if self.block is not None:
            self._each(self.block.memory.bytes.read, out)
        return out if dtype is None else out.astype(dtype)

    def __setitem__(self, key: Any, values: Any) -> None:
        target, data = self[key], np.asarray(values, self.dtype, order="C")
        if data.shape != target.shape:
            data = np.ascontiguousarray(np.broadcast_to(data, target.shape))
        target._each(self.block.memory.bytes.write, data)

    def _each(self, act: Callable[[int, U8], None], array: npt.NDArray[Any]) -> None:
        """Call `act` with the address of each contiguous piece and its bytes in `array`."""
        if self.strides == _strides(self.shape, self.dtype.itemsize):
            return act(self.address, array)
        flat, done = array.reshape(-1).view(np.uint8), 0
        for address, nbytes in self._runs():
            act(address, flat[done : done + nbytes])
            done += nbytes
        return None

    def __getitem__(self, key: Any) -> SharedArray:
        """Slices with step 1, whole numbers and an ellipsis."""
        if key is Ellipsis:
            return self
        keys = list(key if isinstance(key, tuple) else (key,))
        if Ellipsis in keys:
            at = keys.index(Ellipsis)
            keys[at : at + 1] = [slice(None)] * (self.ndim - len(keys) + 1)
        keys += [slice(None)] * (self.ndim - len(keys))
        address, shape, strides = self.address, [], []
        for part, length, stride in zip(keys, self.shape, self.strides, strict=True):
            if isinstance(part, slice):
                first, end, step = part.indices(length)
                if step != 1:
                    raise IndexError(f"{part}: expected a step of 1")
                shape.append(max(end - first, 0))
                strides.append(stride)
            else:
                first = range(length)[part]
            address += first * stride
        return SharedArray(self.block, address, self.dtype, tuple(shape), tuple(strides))

    def take(self, values: Any) -> None:
        """Copy in a JavaScript array of as many bytes."""
        self.block.memory.bytes.take(self.address, values)

    def in_javascript(self) -> Any:
        """A JavaScript array of the bytes, in a browser, until the memory grows."""
        source: Any = self.block.memory.bytes
        return source.part(self.address, self.nbytes)

    def reshape(self, *shape: Any) -> SharedArray:
        """A view with another shape, one of whose sizes may be -1; only of contiguous elements."""
        sizes = list(shape[0] if len(shape) == 1 and not isinstance(shape[0], int) else shape)
        if -1 in sizes:
            at = sizes.index(-1)
            sizes[at] = self.size // max(math.prod(sizes[:at] + sizes[at + 1 :]), 1)
        if math.prod(sizes) != self.size:
            raise ValueError(f"{self.size} elements cannot be reshaped to {tuple(sizes)}")
        return self._contiguous(self.dtype, tuple(sizes))

    def view(self, dtype: Any) -> SharedArray:
        """The same bytes as elements of another dtype; only of contiguous elements."""
        dtype = np.dtype(dtype)
        if not self.shape:
            return self._contiguous(dtype, ())
        last = self.shape[-1] * self.dtype.itemsize // dtype.itemsize
        return self._contiguous(dtype, (*self.shape[:-1], last))

    def copy(self) -> npt.NDArray[Any]:
        """The elements, in Python's memory."""
        return np.asarray(self)

    def _contiguous(self, dtype: np.dtype[Any], shape: tuple[int, ...]) -> SharedArray:
        if self.size and self.strides != _strides(self.shape, self.dtype.itemsize):
            raise ValueError(f"a part {self.shape} of a shared array is not contiguous")
        return SharedArray(self.block, self.address, dtype, shape, _strides(shape, dtype.itemsize))

    def _runs(self) -> Iterator[tuple[int, int]]:
        """Addresses and sizes of contiguous pieces, in order."""
        if not self.size:
            return
        run, axis = self.dtype.itemsize, self.ndim
        while axis and (self.strides[axis - 1] == run or self.shape[axis - 1] == 1):
            axis -= 1
            run *= self.shape[axis]
        for index in np.ndindex(*self.shape[:axis]):
            yield self.address + sum(map(int.__mul__, index, self.strides)), run


def memory_of(data: Any) -> SharedMemory | None:
    """The memory that an array is in; None for NumPy's."""
    memory: SharedMemory | None = data.block.memory if is_apart(data) else None
    return memory


def _strides(shape: tuple[int, ...], itemsize: int) -> tuple[int, ...]:
    return tuple(math.prod(shape[axis + 1 :]) * itemsize for axis in range(len(shape)))


def _padded(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT


def _owner(array: npt.NDArray[Any]) -> Any:
    """The object that keeps an array's bytes."""
    owner: Any = array
    while isinstance(owner, np.ndarray) and owner.base is not None:
        owner = owner.base
    return owner
