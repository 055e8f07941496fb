"""Models of well-known shapes whose weights are memory that is never touched."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import cast

from tests.support.tools import load_tool

from halfbyte.formats.model_file import ModelFile


def zeros(repository: Path, name: str, kind: str, layers: int = 0) -> ModelFile:
    """A model of a shape of tools/make_model.py, of all its layers or few, in a type of `quantize`.

    Plans of few layers take a part of the time.
    """
    tool = load_tool(repository, "make_model")
    shape = tool.SHAPES[name]
    shape = replace(shape, layers=layers or shape.layers)
    return cast(ModelFile, tool.empty_model(shape, kind, name))
