"""The result of every reader: tensors as views of the file, metadata under GGUF's keys."""

from __future__ import annotations

import mmap
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from halfbyte.errors import FormatError
from halfbyte.formats.mapped import MappedFile, Pages, size_of
from halfbyte.weights import F32Array, Tensor

# A metadata value carries its GGUF type: NumPy scalars (np.uint32(5)), bool, str, arrays of numbers
# or bools (np.ndarray), lists of str, nested lists of these.
MetadataValue: TypeAlias = (
    "np.generic | bool | str | npt.NDArray[np.generic] | list[str] | list[MetadataValue]"
)


K = TypeVar("K")
V = TypeVar("V")


class ReadOnly(Mapping[K, V]):
    """An immutable copy of a mapping; closing it drops all entries."""

    def __init__(self, entries: Mapping[K, V]) -> None:
        self._entries = dict(entries)

    def __getitem__(self, key: K) -> V:
        return self._entries[key]

    def __iter__(self) -> Iterator[K]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def close(self) -> None:
        """Drop all entries."""
        self._entries.clear()


class PlannedTensors(ReadOnly[str, Tensor], ABC):
    """Tensors of a model without weights, which come to be as they are asked for."""

    @abstractmethod
    def shaped(self, name: str, shape: tuple[int, ...]) -> Tensor:
        """The tensor of this name, of the shape that is asked for."""


@dataclass(frozen=True, eq=False)
class ModelFile:
    """An open model file. Whatever the format, names and metadata keys are GGUF's.

    It is immutable until it is closed, except that the bytes of tensors in memory may be given
    away; see :meth:`halfbyte.weights.Tensor.release`.
    """

    path: Path
    kind: str  # for people: "GGUF v3", "llama2.c v0"
    metadata: Mapping[str, MetadataValue]
    tensors: Mapping[str, Tensor]  # in file order
    notes: Sequence[str] = ()  # what was skipped or is not exact
    parts: Mapping[Path, Pages] = field(default_factory=dict)  # the model's files

    def __post_init__(self) -> None:
        """Keep immutable copies; `dataclasses.replace` passes them on."""
        for name in ("metadata", "tensors", "parts"):
            value = getattr(self, name)
            object.__setattr__(
                self, name, value if isinstance(value, ReadOnly) else ReadOnly(value)
            )
        object.__setattr__(self, "notes", tuple(self.notes))

    @property
    def size(self) -> int:
        """Size of all files together, in bytes."""
        return sum(map(size_of, self.parts.values()))

    @property
    def mapped(self) -> list[MappedFile]:
        """The files that are mapped."""
        return [pages for pages in self.parts.values() if isinstance(pages, MappedFile)]

    def check(self) -> None:
        """Raise `FormatError` if a mapped file was changed in place since it was opened."""
        for pages in self.mapped:
            pages.check()

    def forget(self) -> None:
        """Let the system drop the pages read so far; they are read again when needed."""
        for pages in self.parts.values():
            if isinstance(pages, mmap.mmap) and hasattr(mmap, "MADV_DONTNEED"):
                pages.madvise(mmap.MADV_DONTNEED)

    @property
    def on_storage(self) -> bool:
        """Whether the files are mapped, rather than bytes in memory."""
        return bool(self.parts) and all(isinstance(p, mmap.mmap) for p in self.parts.values())

    def locate(self, tensor: Tensor) -> tuple[Path, int] | None:
        """The file of which a tensor's bytes are a view, and their offset in it."""
        address = tensor.data.ctypes.data
        for path, pages in self.parts.items():
            offset = address - np.frombuffer(pages, np.uint8).ctypes.data
            if 0 <= offset <= len(pages) - tensor.nbytes:
                return path, offset
        return None

    def check_values(self, tensor: Tensor, values: F32Array, first: int = 0) -> float:
        """The largest magnitude among rows of a tensor, the first of which is row `first`.

        Raises
        ------
        FormatError
            A value is not finite; the message says which.
        """
        top = max(float(values.max()), -float(values.min()))
        if np.isfinite(top):
            return top
        row, column = np.argwhere(~np.isfinite(values))[0]
        place = f"row {first + row}, column {column}" if len(tensor.shape) > 1 else str(column)
        raise FormatError(
            f"{self.path}: tensor {tensor.name!r}: expected finite weights, found "
            f"{values[row, column]} at {place}"
        )

    def close(self) -> None:
        """Drop the mapping; tensors must not be used afterwards."""
        for entries in (self.tensors, self.parts):
            if isinstance(entries, ReadOnly):
                entries.close()
