"""Models of well-known shapes whose weights are memory that is never touched."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from tests.support.tools import load_tool

from halfbyte.formats.model_file import ModelFile
from halfbyte.quantize.presets import presets
from halfbyte.weights import Tensor


def zeros(repository: Path, name: str, kind: str) -> ModelFile:
    """A model of a shape of tools/make_model.py, in a type of `quantize`."""
    tool = load_tool(repository, "make_model")
    preset = presets()[kind]
    infos = list(tool._tensors(tool.SHAPES[name], preset))
    tensors = {i.name: Tensor(i.name, i.format, i.shape, np.zeros(i.size, np.uint8)) for i in infos}
    metadata = tool._metadata(name, tool.SHAPES[name])
    metadata["general.file_type"] = np.uint32(preset.file_type)
    return ModelFile(Path(f"{name}.gguf"), "GGUF v3", metadata, tensors)
