"""Readers of model files: `open_model` finds the format from the content."""

from __future__ import annotations

import os
from pathlib import Path

from halfbyte.errors import FormatError
from halfbyte.formats import gguf, llama2c
from halfbyte.formats.llama2c_tokenizer import attach_tokenizer
from halfbyte.formats.mapped import map_file
from halfbyte.formats.model_file import MetadataValue, ModelFile

__all__ = ["MetadataValue", "ModelFile", "open_model"]

_SUPPORTED = "GGUF, or llama2.c's .bin (v0, v1, v2)"


def open_model(
    path: str | os.PathLike[str], tokenizer: str | os.PathLike[str] | None = None
) -> ModelFile:
    """Open a model file of any supported format, found from its content.

    Parameters
    ----------
    path
        A GGUF file or a llama2.c ``.bin``.
    tokenizer
        A llama2.c tokenizer file, which takes the place of the tokenizer found in the model or
        beside it.

    Raises
    ------
    FormatError, UnsupportedError
        With one line that names the file, and what was expected and found.
    """
    path = Path(path)
    with map_file(path) as pages:
        start, size = pages[:256], len(pages)
    if start.startswith(gguf.MAGIC):
        model = gguf.read_gguf(path)
    elif start.startswith(llama2c.MAGIC) or llama2c.is_legacy(start, size):
        model = llama2c.read_llama2c(path)
    else:
        raise FormatError(
            f"{path}: not a model file that halfbyte reads: expected {_SUPPORTED}; found {size} "
            f"bytes that begin with {start[:8]!r}{llama2c.legacy_hint(start, size)}"
        )
    if tokenizer is not None or model.kind.startswith("llama2.c"):
        attach_tokenizer(model, Path(tokenizer) if tokenizer is not None else None)
    return model
