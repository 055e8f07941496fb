"""External data: tensors whose bytes are in files beside the model."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any

import numpy as np

from halfbyte.errors import FormatError, ModelError, UnsupportedError
from halfbyte.formats.mapped import Buffer, is_apart, map_file, refuse_overlaps, size_of

_MAX_LOCATION = 1024  # characters


class External:
    """The files that a model's tensors name; a file is opened when a tensor in it is read.

    A location is a relative path without `..`. With symbolic links resolved, the file must be in
    the model's folder, or, if the model is a link itself (as in the Hugging Face hub's cache), in
    the folder of the file that it points to. The first folder is searched first; `quantize` writes
    into the second one if its output is a link.

    Parameters
    ----------
    path : Path
        The path of the model, for messages.
    folder : Path, optional
        None for a model in memory, whose only files are `files`.
    files : mapping of str to bytes
        Contents of files by location; they take precedence over the folder.
    tensors : mapping of str to bytes
        Contents of tensors by name; they take precedence over all files.
    open_file : callable
        Opens a file of the folder.
    """

    def __init__(
        self,
        path: Path,
        folder: Path | None,
        files: Mapping[str, Buffer] | None = None,
        tensors: Mapping[str, Buffer] | None = None,
        open_file: Callable[[Path], Any] = map_file,
    ) -> None:
        self._open_file = open_file
        self._path, self._folder, self._tensors = path, folder, tensors or {}
        self._files: dict[str, Any] = {
            location: data if is_apart(data) else np.frombuffer(data, np.uint8).data.toreadonly()
            for location, data in (files or {}).items()
            if size_of(data)
        }
        self._spans: dict[str, dict[tuple[int, int], str]] = {}

    def read(self, location: str, offset: int, size: int, name: str) -> Any:
        """A view of `size` bytes, in memory apart if the file is; `name` is the tensor's.

        Raises
        ------
        ModelError
            The path leaves the folder, the file cannot be read, or it is too short.
        UnsupportedError
            The model is in memory, and this file is not.
        """
        where = f"{self._path}: tensor {name!r}"
        if name in self._tensors:
            content = np.frombuffer(self._tensors[name], np.uint8).data
            if len(content) != size:
                raise ModelError(f"{where}: expected {size} bytes, found {len(content)}")
            return content
        if location not in self._files:
            real = self._find(location, where)
            try:
                pages = self._open_file(real)
                self._files[location] = pages if is_apart(pages) else memoryview(pages)
            except FormatError as error:
                raise ModelError(f"{where}: external data: {error}") from None
        data = self._files[location]
        if offset > size_of(data) or size > size_of(data) - offset:
            raise ModelError(
                f"{where}: expected {size} bytes at offset {offset} of {location!r}, "
                f"the file has {size_of(data)}"
            )
        self._spans.setdefault(location, {})[offset, offset + size] = name
        return data[offset : offset + size]

    @property
    def opened(self) -> Iterable[Any]:
        """The files opened so far."""
        return self._files.values()

    def refuse_overlaps(self) -> None:
        """Raise `FormatError` if tensors share some of their bytes; they may share all of them."""
        for location, spans in self._spans.items():
            used = [(start, end, name) for (start, end), name in spans.items() if start < end]
            refuse_overlaps(self._path, used, f"tensor in {location!r}")

    def _find(self, location: str, where: str) -> Path:
        """The file of a location."""
        if self._folder is None:
            raise UnsupportedError(
                f"{where}: its data is in the file {location!r}, but the model is in memory: open "
                f"it by its path, or give that file's bytes as `external`"
            )
        posix, windows = PurePosixPath(location), PureWindowsPath(location)
        bad = posix.is_absolute() or windows.drive or windows.root or ".." in windows.parts
        if bad or not 0 < len(location) <= _MAX_LOCATION or not location.isprintable():
            raise ModelError(
                f"{where}: expected a file in the model's folder, found {location[:200]!r}"
            )
        try:
            model = Path(os.path.realpath(self._folder / self._path.name))
            places = (self._folder / location, model.parent / location)
            real = Path(os.path.realpath(next(filter(os.path.lexists, places), places[0])))
            folders = (os.path.realpath(self._folder), model.parent)
        except (OSError, ValueError) as error:
            raise ModelError(f"{where}: external data: {location!r}: {error}") from None
        if not any(real.is_relative_to(folder) for folder in folders):
            raise ModelError(
                f"{where}: {location!r} is a link to {real}, outside the model's folder"
            )
        return real
