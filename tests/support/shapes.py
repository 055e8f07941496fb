"""Models of well-known shapes whose weights are memory that is never touched."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
from tests.support.tools import load_tool

from halfbyte.formats.model_file import ModelFile
from halfbyte.quantize.presets import presets
from halfbyte.weights import Tensor


def zeros(repository: Path, name: str, kind: str, layers: int = 0) -> ModelFile:
    """A model of a shape of tools/make_model.py, of all its layers or few, in a type of `quantize`.

    Plans of few layers take a part of the time.
    """
    tool = load_tool(repository, "make_model")
    shape, preset = tool.SHAPES[name], presets()[kind]
    shape = replace(shape, layers=layers or shape.layers)
    infos = list(tool._tensors(shape, preset))
    tensors = {i.name: Tensor(i.name, i.format, i.shape, np.zeros(i.size, np.uint8)) for i in infos}
    metadata = tool._metadata(name, shape)
    metadata["general.file_type"] = np.uint32(preset.file_type)
    return ModelFile(Path(f"{name}.gguf"), "GGUF v3", metadata, tensors)
