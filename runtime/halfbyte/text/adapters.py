"""Adapters (LoRA) of language models: found by their content, run beside a model or merged."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

from halfbyte import arguments
from halfbyte.core.passes.adapt import add_adapters
from halfbyte.core.program import Program
from halfbyte.errors import FormatError, HalfbyteError
from halfbyte.formats import gguf
from halfbyte.formats.adapters import EMBEDDING, HEAD, Adapter, LowRank, read_gguf_adapter
from halfbyte.formats.derived import DerivedTensor
from halfbyte.formats.mapped import map_file
from halfbyte.formats.model_file import ModelFile
from halfbyte.text import architectures
from halfbyte.weights import F32, U8, Tensor

Files = Mapping[str | os.PathLike[str], float]  # scales by the files of adapters


def names_of(files: Files) -> dict[str, float]:
    """Scales by the names of adapters: a folder's, or a file's without its ending.

    Raises
    ------
    HalfbyteError
        Two have the same name.
    """
    scales: dict[str, float] = {}
    for file, scale in files.items():
        path = Path(file)
        name = path.name if path.is_dir() else path.stem
        if name in scales:
            raise HalfbyteError(f"lora {str(path)!r}: there is another adapter named {name!r}")
        scales[name] = scale
    return scales


def check_files(files: object) -> Files:
    """The argument `lora`, if it is a mapping of paths to finite numbers."""
    if not isinstance(files, Mapping):
        arguments.refuse("lora", "a mapping of files to scales", files)
    for file, scale in files.items():
        if not isinstance(file, str | os.PathLike):
            arguments.refuse("a key of lora", "str or os.PathLike", file)
        arguments.finite(f"lora[{str(file)!r}]", scale)
    return files


def read_adapter(path: Path, model: ModelFile) -> Adapter:
    """An adapter of a model: a GGUF file of llama.cpp, or a folder of PEFT.

    Raises
    ------
    FormatError, UnsupportedError
        It is neither, is damaged, or does not fit the model.
    """
    if path.is_file() and bytes(map_file(path)[: len(gguf.MAGIC)]) == gguf.MAGIC:
        return read_gguf_adapter(path, model)
    folder = path.parent if path.is_file() else path
    if not folder.is_dir() or (path.is_file() and not path.name.startswith("adapter_")):
        raise FormatError(f"{path}: expected an adapter: a GGUF file, or a folder of PEFT")
    from halfbyte.formats.huggingface.adapter import read_peft_adapter

    return read_peft_adapter(folder, model, architectures.model_types())


def adapted(program: Program, model: ModelFile, files: Files) -> Program:
    """A model's program, before any pass, with adapters."""
    return add_adapters(program, [read_adapter(Path(file), model) for file in files])


def merged(model: ModelFile, files: Files) -> ModelFile:
    """The model with adapters added to its matrices, in float32: W + scale * factor * B A."""
    tensors = dict(model.tensors)
    for file, scale in check_files(files).items():
        for name, change in read_adapter(Path(file), model).changes.items():
            target = HEAD if name == EMBEDDING else name
            tensors[target] = _sum(tensors.get(target, model.tensors[name]), target, change, scale)
    notes = [f"with adapter {name} at {scale:g}" for name, scale in names_of(files).items()]
    return replace(model, tensors=tensors, notes=(*model.notes, *notes))


def _sum(tensor: Tensor, name: str, change: LowRank, scale: float) -> Tensor:
    factor = np.float32(scale * change.factor)

    def make(first: int, count: int) -> U8:
        values = tensor.format.decode(np.asarray(tensor.take(first, count)))
        return F32.encode(values + change.b[first : first + count] @ change.a * factor)

    return DerivedTensor(name, F32, tensor.shape, make)
