"""Runs in which arrays of the caller are the memory of a program's inputs and outputs.

Copying a large input and a large result takes as long as an elementwise operator. For one run, the
addresses in the instructions that use a buffer are replaced by those of another array.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from halfbyte.core.backends.library import INSTRUCTION, Kernel
from halfbyte.core.buffer import Buffer, Kind

WORTH = 1 << 15  # bytes of an array; smaller ones are copied as fast

_WORDS = INSTRUCTION.itemsize // 8
_FIRST = INSTRUCTION.fields["slot"][1] // 8 if INSTRUCTION.fields else 0


class DirectOperands:
    """Which buffers of a program can have their memory elsewhere, and where their addresses are.

    Parameters
    ----------
    code : array of instructions
        As kernels read them.
    kernels : sequence of Kernel
        Those of the instructions.
    arrays : mapping of Buffer to array
        The program's own memory.
    """

    def __init__(
        self, code: npt.NDArray[Any], kernels: Sequence[Kernel],
        arrays: Mapping[Buffer, npt.NDArray[Any]],
    ) -> None:  # fmt: skip
        self._words = code.view(np.uint64)
        self._kernels, self._arrays = kernels, arrays
        # words, what they hold, and the address of the buffer's first byte
        self._places: dict[Buffer, tuple[list[tuple[int, int]], int]] = {}
        self._moved: list[Buffer] = []

    def has(self, buffer: Buffer) -> bool:
        """Whether the memory of an input or an output can be elsewhere, and is worth it."""
        if buffer.kind not in (Kind.INPUT, Kind.OUTPUT) or buffer.root is not buffer:
            return False
        if self._arrays[buffer].nbytes < WORTH:
            return False
        if buffer not in self._places:
            self._places[buffer] = self._found(buffer)
        return bool(self._places[buffer][0])

    def _found(self, buffer: Buffer) -> tuple[list[tuple[int, int]], int]:
        """Nowhere if it is an input that is written, or an output that is not."""
        array = self._arrays[buffer]
        begin = int(array.ctypes.data)
        first, last = (bisect_left(self._operands, (a,)) for a in (begin, begin + array.nbytes))
        found = self._operands[first:last]
        written = any(kind == "out" for _, _, kind in found)
        fits = written == (buffer.kind is Kind.OUTPUT)
        return [(word, address) for address, word, _ in found] if fits else [], begin

    @cached_property
    def _operands(self) -> list[tuple[int, int, str]]:
        """Address, word and kind of all that instructions read and write, in order."""
        return sorted(
            (int(self._words[word]), word, field.kind)
            for number, kernel in enumerate(self._kernels)
            for word, field in enumerate(kernel.fields, number * _WORDS + _FIRST)
            if field.kind in ("in", "out")
        )

    def place(self, arrays: Mapping[Buffer, npt.NDArray[Any]]) -> None:
        """Make these arrays the memory until `restore`: contiguous, aligned, of as many bytes."""
        self._moved = list(arrays)
        for buffer, array in arrays.items():
            places, begin = self._places[buffer]
            distance = array.__array_interface__["data"][0] - begin
            for word, address in places:
                self._words[word] = address + distance

    def restore(self) -> None:
        """The program's own memory again; nothing after a run that did."""
        for buffer in self._moved:
            for word, address in self._places[buffer][0]:
                self._words[word] = address
        self._moved = []
