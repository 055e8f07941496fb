"""Opens model files: `open_model` finds the format from the content."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from halfbyte.errors import FormatError, UnsupportedError
from halfbyte.formats import gguf, gguf_split
from halfbyte.formats.mapped import Buffer, Pages, is_apart, map_file, size_of
from halfbyte.formats.model_file import ModelFile
from halfbyte.text import architectures

_SUPPORTED = "GGUF, llama2.c's .bin (v0, v1, v2), torchless' .bin, or a Hugging Face folder"


def open_model(
    path: str | os.PathLike[str], tokenizer: str | os.PathLike[str] | None = None
) -> ModelFile:
    """Open a model of any supported format, recognized by its content.

    Parameters
    ----------
    path
        A GGUF file (any one of a model in several), a ``.bin`` of llama2.c or torchless, a Hugging
        Face folder, or weights in one: safetensors or PyTorch's.
    tokenizer
        A llama2.c tokenizer file, which replaces the tokenizer in the model or beside it.

    Raises
    ------
    FormatError, UnsupportedError
        In one line: the file, what was expected and what was found.
    """
    path = Path(path)
    model = _open_folder(path) if path.is_dir() else _open_file(path)
    if tokenizer is not None or model.kind.startswith("llama2.c"):
        from halfbyte.formats.llama2c_tokenizer import with_tokenizer

        return with_tokenizer(model, Path(tokenizer) if tokenizer is not None else None)
    return model


def _open_folder(path: Path) -> ModelFile:
    from halfbyte.formats.huggingface.folder import read_folder

    return read_folder(path, architectures.model_types())


def _open_file(path: Path) -> ModelFile:
    pages = map_file(path)
    model = _read(path, pages)
    if model is None:
        from halfbyte.formats.huggingface.folder import read_beside

        return read_beside(path, pages, architectures.model_types())
    return gguf_split.join(model) if gguf_split.file_count(model) > 1 else model


def open_bytes(data: Buffer, name: str, *, own: bool = False) -> ModelFile:
    """Open a model file that is in memory, without copying it.

    Parameters
    ----------
    data
        Contiguous bytes: `bytes`, a `memoryview`, an array of uint8, also one in another memory.
    name
        The file's name, for messages.
    own
        The bytes are the model's: tensors may be overwritten.
    """
    path = Path(name)
    if not size_of(data):
        raise FormatError(f"{path}: is empty (0 bytes)")
    model = _read(path, _pages(data, own=own))
    if model is None:
        raise UnsupportedError(
            f"{path}: holds only tensors, without the model's config.json: quantize its whole "
            "folder to a GGUF file first: `quantize FOLDER --int8`"
        )
    gguf_split.refuse_part(model)
    if model.kind.startswith("llama2.c"):
        note = "no tokenizer is in a llama2.c file; `quantize` writes a GGUF with it"
        return replace(model, notes=(*model.notes, note))
    return model


def _pages(data: Any, *, own: bool) -> Any:
    """The bytes as readers take them."""
    if is_apart(data):
        return data if bytes(data[: len(gguf.MAGIC)].copy()) == gguf.MAGIC else data.copy().data
    pages = np.frombuffer(data, np.uint8).data
    return pages if own else pages.toreadonly()


def open_parts(parts: Mapping[str, Buffer]) -> ModelFile:
    """Open a GGUF model whose files are in memory, by their names; it takes the bytes over."""
    files = [gguf.read_gguf(Path(name), _pages(data, own=True)) for name, data in parts.items()]
    return gguf_split.join_parts(files)


def _read(path: Path, pages: Pages) -> ModelFile | None:
    """The model in one file; None if the file only has tensors."""
    start = np.asarray(pages[:256]).tobytes() if is_apart(pages) else bytes(pages[:256])
    if start.startswith(gguf.MAGIC):
        return gguf.read_gguf(path, pages)
    return _read_other(path, pages, start)


def _read_other(path: Path, pages: Pages, start: bytes) -> ModelFile | None:
    """As `_read`, for formats whose readers are not imported for a GGUF file."""
    from halfbyte.formats import llama2c, torchless
    from halfbyte.formats.checkpoints import safetensors, shards

    if start.startswith(llama2c.MAGIC) or llama2c.is_legacy(start, len(pages)):
        return llama2c.read_llama2c(path, pages)
    if safetensors.has_json_header(start):
        header, end = safetensors.read_json_header(path, pages)
        if torchless.is_torchless(header):
            translators = architectures.model_types()
            return torchless.read_torchless(path, pages, header, end, translators)
    if shards.is_weights(start):
        return None
    raise FormatError(
        f"{path}: not a model file that halfbyte reads: expected {_SUPPORTED}; found {len(pages)} "
        f"bytes that begin with {start[:8]!r}{shards.pointer_hint(start)}"
        f"{llama2c.legacy_hint(start, len(pages))}"
    )
