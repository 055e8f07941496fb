"""GGUF models in several files: ``<name>-00001-of-00003.gguf`` and so on.

Each file is a complete GGUF. ``split.no`` counts from 0, ``split.count`` is the number of files,
``split.tensors.count`` the number of tensors in all of them; the first file has the metadata.
"""

from __future__ import annotations

import re
from pathlib import Path

from halfbyte.errors import FormatError, UnsupportedError
from halfbyte.formats import metadata
from halfbyte.formats.gguf import read_gguf
from halfbyte.formats.mapped import Pages, map_file
from halfbyte.formats.model_file import ModelFile
from halfbyte.weights import Tensor

_NAME = re.compile(r"(.*)-(\d{5})-of-(\d{5})(\.gguf)?", re.DOTALL)
_NO, _COUNT, _TENSORS = "split.no", "split.count", "split.tensors.count"
_MAX_FILES = 1 << 10  # files


def file_count(file: ModelFile) -> int:
    """The number of files of the model to which this one belongs."""
    return metadata.integer(file, _COUNT, 0, _MAX_FILES, 1) or 1


def join(file: ModelFile) -> ModelFile:
    """The whole model of which this file is a part; the others are beside it.

    Raises
    ------
    FormatError
        A file is missing, or is not the part that its name says.
    """
    count = file_count(file)
    paths = _names(file, count)
    number = _number(file, count)
    if file.path != paths[number]:
        raise FormatError(
            f"{file.path}: is part {number + 1} of {count}, expected the name {paths[number].name}"
        )
    if missing := [path.name for path in paths if not path.is_file()]:
        raise FormatError(
            f"{file.path}: is part {number + 1} of {count}, and {len(missing)} of them are "
            f"missing beside it: {', '.join(missing[:3])}{', ...' if len(missing) > 3 else ''}"
        )
    parts = [file if path == file.path else read_gguf(path, map_file(path)) for path in paths]
    return _merged(parts)


def _names(file: ModelFile, count: int) -> list[Path]:
    match = _NAME.fullmatch(file.path.name)
    if match is None or int(match[3]) != count:
        raise FormatError(
            f"{file.path}: is one of {count} files of a model: expected a name such as "
            f"model-00001-of-{count:05}.gguf, by which the others are found"
        )
    stem, end = match[1], match[4] or ""
    return [
        file.path.with_name(f"{stem}-{index:05}-of-{count:05}{end}")
        for index in range(1, count + 1)
    ]


def _number(file: ModelFile, count: int) -> int:
    if file_count(file) != count:
        raise FormatError(
            f"{file.path}: metadata '{_COUNT}': expected {count}, found {file_count(file)}"
        )
    return metadata.integer(file, _NO, 0, count - 1)


def _merged(parts: list[ModelFile]) -> ModelFile:
    first = parts[0]
    tensors, pages = dict[str, Tensor](), dict[Path, Pages]()
    for index, part in enumerate(parts):
        if _number(part, len(parts)) != index:
            raise FormatError(
                f"{part.path}: metadata '{_NO}': expected {index}, found {part.metadata[_NO]}"
            )
        if twice := tensors.keys() & part.tensors.keys():
            raise FormatError(f"{part.path}: tensor {min(twice)!r}: is in an earlier file too")
        tensors |= part.tensors
        pages |= part.parts
    total = metadata.integer(first, _TENSORS, 0, 1 << 31, len(tensors))
    if total != len(tensors):
        raise FormatError(
            f"{first.path}: metadata '{_TENSORS}': {total} tensors, but the {len(parts)} files "
            f"have {len(tensors)}"
        )
    values = {k: v for k, v in first.metadata.items() if not k.startswith("split.")}
    kind = f"{first.kind} in {len(parts)} files"
    return ModelFile(first.path, kind, values, tensors, parts=pages)


def join_parts(parts: list[ModelFile]) -> ModelFile:
    """The whole model of parts in memory, in any order.

    Raises
    ------
    FormatError
        They are not all parts of one model.
    """
    count = file_count(parts[0])
    if len(parts) != count:
        raise FormatError(
            f"{parts[0].path}: is one of {count} files of a model, found {len(parts)}"
        )
    return _merged(sorted(parts, key=lambda part: _number(part, count)))


def names_of_parts(name: str) -> list[str]:
    """Names, or addresses, of all parts of the model to which a file belongs by its name.

    A name that is not a part's is returned as it is.
    """
    name, mark, query = name.partition("?")
    match = _NAME.fullmatch(name)
    if match is None or not 1 < int(match[3]) <= _MAX_FILES:
        return [name + mark + query]
    stem, end = match[1], f"-of-{match[3]}{match[4] or ''}{mark}{query}"
    return [f"{stem}-{index:05}{end}" for index in range(1, int(match[3]) + 1)]


def refuse_part(file: ModelFile) -> None:
    """Raise if a file in memory is only a part of a model."""
    if (count := file_count(file)) > 1:
        raise UnsupportedError(f"{file.path}: is one of {count} files of a model: open it by path")
