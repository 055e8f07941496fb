"""Reader of Hugging Face folders: config.json, weights, tokenizer, chat template.

Names, orders and metadata become GGUF's (`names`), so that neither the rest of halfbyte nor
llama.cpp, after `quantize`, needs to know where a model came from.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np

from halfbyte.errors import FormatError, UnsupportedError
from halfbyte.formats.checkpoints import Checkpoint
from halfbyte.formats.checkpoints.shards import (
    index_of,
    read_folder_weights,
    read_shards,
    read_weights,
)
from halfbyte.formats.derived import (
    aligned,
    padded,
    permuted,
    reordered,
    scaled,
    split_rows,
    widened,
    with_columns,
)
from halfbyte.formats.huggingface import rwkv_vocabulary
from halfbyte.formats.huggingface.config import Keys
from halfbyte.formats.huggingface.experts import with_stacks
from halfbyte.formats.huggingface.names import (
    Naming,
    Translators,
    as_metadata,
    is_of_senses,
    naming,
)
from halfbyte.formats.huggingface.quantized import with_plain_weights
from halfbyte.formats.huggingface.sentence_transformers import read_embedding_files
from halfbyte.formats.huggingface.shapes import Shapes, check_layers
from halfbyte.formats.huggingface.tokenizer import tokenizer_metadata
from halfbyte.formats.json_file import read_json
from halfbyte.formats.mapped import Pages
from halfbyte.formats.model_file import MetadataValue, ModelFile
from halfbyte.formats.transforms import SAME, Transform
from halfbyte.weights import F32, Tensor

CONFIG = "config.json"
_TOKENIZERS = ("tokenizer.json", "tokenizer.model", rwkv_vocabulary.FILE)
_SNAPSHOT = re.compile(r"models--(?:.*--)?(.+)")
# generation_config.json's names -> GGUF's, and the types that llama.cpp gives them
_SAMPLING: dict[str, tuple[str, Callable[[float], np.generic]]] = {
    "temperature": ("general.sampling.temp", np.float32),
    "top_k": ("general.sampling.top_k", np.int32),
    "top_p": ("general.sampling.top_p", np.float32),
    "min_p": ("general.sampling.min_p", np.float32),
    "repetition_penalty": ("general.sampling.penalty_repeat", np.float32),
}
_MAX_SETTING = 1e6


def read_folder(
    folder: Path, translators: Translators, weights: Checkpoint | None = None
) -> ModelFile:
    """The model in a folder; `weights` replace those of the folder.

    Raises
    ------
    FormatError, UnsupportedError
        A file is missing or damaged, config.json contradicts the tensors, or the model is of a
        kind that halfbyte does not know.
    """
    path = folder / CONFIG
    if not path.is_file():
        raise FormatError(
            f"{folder}: is a directory, expected a model file, or a Hugging Face folder with "
            f"{CONFIG}"
        )
    config, notes = read_json(path), list[str]()
    quantization = Keys(config, str(path)).inner("quantization_config")
    config.pop("quantization_config", None)
    names = naming(config, translators, str(path))
    if weights is None:
        weights = read_folder_weights(folder)
    if quantization.values:
        weights = with_plain_weights(weights, quantization, str(folder), notes)
    if senses := [name for name in weights.tensors if is_of_senses(name)]:
        notes.append(
            f"tensors of images and sound ({len(senses)}, such as {senses[0]!r}): passed over"
        )
    kind = f"Hugging Face, {weights.kind}"
    tensors = model_tensors(str(folder), names, weights)
    embedding, more = read_embedding_files(folder, names, weights, notes)
    metadata = {
        "general.architecture": names.metadata["general.architecture"],
        "general.name": model_name(folder),
        **names.metadata,
        **as_metadata(names, tensors),
        **embedding,
        **read_tokenizer(folder, notes),
        **_sampling(folder / "generation_config.json"),
    }
    return ModelFile(folder, kind, metadata, tensors | more, notes, weights.parts)


def read_beside(path: Path, pages: Pages, translators: Translators) -> ModelFile:
    """The model whose weights are in this file, or in several files including this one."""
    if not path.with_name(CONFIG).is_file():
        raise FormatError(
            f"{path}: only holds tensors: expected {CONFIG} beside it, which describes the model"
        )
    index = index_of(path)
    weights = read_shards(index) if index is not None else read_weights(path, pages)
    return read_folder(path.parent, translators, weights)


def model_name(folder: Path) -> str:
    """The folder's name or, in the hub's cache, the repository's."""
    whole = folder.resolve()
    match = _SNAPSHOT.fullmatch(whole.parent.parent.name)
    name = match[1] if match and whole.parent.name == "snapshots" else whole.name
    return name.encode(errors="replace").decode()


def model_tensors(where: str, names: Naming, weights: Checkpoint) -> dict[str, Tensor]:
    """Tensors under GGUF's names, in the order of layers; errors begin with `where`."""
    shapes = Shapes(names.metadata, names.shapes)
    tensors: dict[str, Tensor] = {}
    for name in (*weights.tensors, *weights.unusable):
        renamed = names.rename(name)
        if renamed is None:
            continue
        if name in weights.unusable:
            raise UnsupportedError(f"{where}: tensor {name!r}: {weights.unusable[name]}")
        new, transform = renamed
        if new in tensors:
            raise FormatError(f"{where}: tensor {name!r}: there is another for {new!r}")
        tensor, shape = _split(where, weights.tensors[name], name, transform), shapes[new]
        transform = transform.fitting(tensor.shape, shape)
        expected = tuple(shape[axis] for axis in _axes(tensor, transform)) or shape
        if tensor.shape != expected:
            raise FormatError(
                f"{where}: tensor {name!r} has shape {list(tensor.shape)}, but {names.where} asks "
                f"for {list(expected)}"
            )
        try:
            tensors[new] = _converted(new, tensor, transform)
        except FormatError as error:  # the rows are not whole heads
            raise FormatError(f"{where}: tensor {name!r}: {error}") from None
    tensors = with_stacks(where, tensors, shapes)
    for new in [name for name in tensors if names.idle and name.endswith(names.idle)]:
        if not tensors[new].decode().any():
            del tensors[new]
    for new, values in names.tensors.items():
        tensors[new] = Tensor(new, F32, values.shape, F32.encode(values))
    norm = ["output_norm.weight"] if "output_norm" in names.names.values() else []
    needed = ["token_embd.weight", *norm, *([] if names.tied else ["output.weight"])]
    if lost := [name for name in needed if name not in tensors]:
        reason = ": config.json does not tie it to the embedding" if "output" in lost[0][:7] else ""
        raise FormatError(f"{where}: no tensor for {lost[0]!r}{reason}")
    check_layers(where, names.where, tensors, shapes.layers, names.uneven)
    return dict(sorted(tensors.items(), key=lambda item: place_of(item[0])))


def _split(where: str, tensor: Tensor, name: str, transform: Transform) -> Tensor:
    """A matrix that is several, as these."""
    if not transform.matrices:
        return tensor
    try:
        return split_rows(tensor, transform.matrices)
    except FormatError as error:
        raise FormatError(f"{where}: tensor {name!r}: {error}") from None


def place_of(name: str) -> tuple[int, str]:
    """Embeddings come first, then the layers, then the final norm and the head."""
    match = re.match(r"blk\.(\d+)\.", name)
    if match:
        return int(match[1]), ""
    return (-1, "") if "_embd" in name else (1 << 30, name)


def _axes(tensor: Tensor, transform: Transform) -> tuple[int, ...]:
    """The permutation of axes; blocks are along rows already, whatever floats are."""
    return transform.axes if tensor.format.block == 1 else ()


def _converted(name: str, tensor: Tensor, transform: Transform) -> Tensor:
    """The tensor as in GGUF: vectors, and what is widened or scaled, are F32; others keep types."""
    if transform.factors is not None:
        return scaled(tensor, name, transform.factors)
    if transform.columns is not None:
        return with_columns(tensor, name, transform.columns(np.arange(tensor.columns)))
    if transform.more:
        return padded(tensor, name, transform.more)
    if len(tensor.shape) == 1 or transform.widens:
        return widened(tensor, name, transform.apply)
    if transform is SAME or (transform.matrices and not transform.axes):
        return aligned(tensor, name)
    if axes := _axes(tensor, transform):
        tensor = permuted(tensor, name, axes)
    if transform.axes:
        numbers = np.arange(tensor.row_count).reshape(tensor.shape[:-1])
        rows = transform.rows or SAME.apply
        return reordered(tensor, name, rows(numbers))
    return reordered(tensor, name, transform.apply(np.arange(len(tensor.rows))))


def read_tokenizer(folder: Path, notes: list[str]) -> dict[str, MetadataValue]:
    """The tokenizer's metadata; without a tokenizer nothing, and a note."""
    if any((folder / name).is_file() for name in _TOKENIZERS):
        return tokenizer_metadata(folder, notes)
    notes.append(f"no tokenizer found: looked for {' and '.join(_TOKENIZERS[:2])}")
    return {}


def _sampling(path: Path) -> dict[str, MetadataValue]:
    """The trainer's recommended settings, unless these are to choose the likeliest token."""
    values = read_json(path) if path.is_file() else {}
    settings: dict[str, MetadataValue] = {}
    if values.get("do_sample") is False:
        return settings
    for name, (key, kind) in _SAMPLING.items():
        value = values.get(name)
        if value is None:
            continue
        if type(value) not in (int, float) or not 0 <= value <= _MAX_SETTING:
            raise FormatError(f"{path}: '{name}': expected a number, found {value!r:.80}")
        settings[key] = kind(value)
    return settings
