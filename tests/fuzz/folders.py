"""Folders of small models in which one file is the mutated data, and the use of a model."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from tests.formats.folders import write_folder

import halfbyte
from halfbyte.text.describe import describe


@cache
def small_folder() -> dict[str, bytes]:
    """The files of a folder that generates, by name."""
    with tempfile.TemporaryDirectory() as folder:
        write_folder(Path(folder))
        return {path.name: path.read_bytes() for path in Path(folder).iterdir()}


def use(files: Mapping[str, bytes], model: str = "") -> None:
    """Describe and load a folder, or one file in it, and generate a little."""
    with tempfile.TemporaryDirectory() as folder:
        for name, data in files.items():
            Path(folder, name).write_bytes(data)
        path = Path(folder, model)
        describe(path, context=8)
        with halfbyte.load(path, context=8, threads=1) as loaded:
            loaded.generate("ab a", max_tokens=2)
