"""A model of which only config.json is there: shapes and types for a plan, without a weight.

The architecture is captured once, and asks for each tensor with its shape. Which optional tensors
there are follows from the names of the weights, if their index is there, else from config.json.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from halfbyte.errors import FormatError
from halfbyte.formats.checkpoints.shards import WHOLE, names_of_index
from halfbyte.formats.huggingface.folder import CONFIG, model_name, place_of, read_tokenizer
from halfbyte.formats.huggingface.names import Naming, naming
from halfbyte.formats.huggingface.shapes import Shapes
from halfbyte.formats.json_file import read_json
from halfbyte.formats.model_file import MetadataValue, ModelFile, PlannedTensors
from halfbyte.text import architectures
from halfbyte.text.opening import open_model
from halfbyte.weights import BF16, F16, F32, Tensor, WeightFormat

KIND = "config.json only"
_WEIGHTS = {".safetensors", ".bin", ".pt", ".pth", ".th", ".gguf", ".ckpt"}
_TYPES: dict[str, type[WeightFormat]] = {"float32": F32, "float16": F16, "bfloat16": BF16}
_MERGES = "tokenizer.ggml.merges"
_BIASES = {  # keys of config.json, and the parts that have biases with it
    "attention_bias": ("attn_q", "attn_k", "attn_v", "attn_qkv", "attn_output"),
    "qkv_bias": ("attn_q", "attn_k", "attn_v", "attn_qkv"),
    "mlp_bias": ("ffn_gate", "ffn_up", "ffn_down"),
}
_MOST_BYTES = 1 << 46  # of all weights


def open_plannable(path: Path, tokenizer: Path | None = None) -> ModelFile:
    """Open a model to plan it: as `open_model`, but a folder may lack the weights."""
    return read_outline(path) if _lacks_weights(path) else open_model(path, tokenizer)


def _lacks_weights(path: Path) -> bool:
    """Whether this is a folder with a config.json, and no weights beside it."""
    return (path / CONFIG).is_file() and not any(
        entry.suffix in _WEIGHTS for entry in path.iterdir()
    )


def read_outline(folder: Path) -> ModelFile:
    """The model that a folder's config.json describes; its tensors are zeros that take no memory.

    Weights have the type that config.json says, or BF16. Without a tokenizer there, one of as many
    merges as tokens is counted.

    Raises
    ------
    FormatError, UnsupportedError
        config.json is not valid, its weights are quantized, so that it does not say their sizes,
        or the model is of a kind that halfbyte does not know.
    """
    path = folder / CONFIG
    config, notes = read_json(path), ["planned from config.json: there are no weights beside it"]
    names = naming(config, architectures.model_types(), str(path))
    metadata: dict[str, MetadataValue] = {
        "general.architecture": names.metadata["general.architecture"],
        "general.name": model_name(folder),
        **names.metadata,
        **read_tokenizer(folder, notes),
    }
    asked = _Asked(folder, names, _type_of(config, notes), _parts(folder, names, config))
    metadata |= {key: np.ones(asked.layers, np.float32) for key in names.numbers}
    file = ModelFile(folder, KIND, metadata, asked)
    architecture = architectures.find(file)
    architecture.build(file, architecture.read_config(file), context=1, batch=1, cache="f32")
    if _MERGES not in metadata and "tokenizer.ggml.tokens" not in metadata:
        metadata[_MERGES] = [""] * asked.given["token_embd.weight"].shape[0]
    tensors = dict(sorted(asked.given.items(), key=lambda item: place_of(item[0])))
    return ModelFile(folder, KIND, metadata, tensors, notes)


class _Asked(PlannedTensors):
    """Tensors that an architecture may ask for; `given` are those that it has asked for."""

    def __init__(
        self, folder: Path, names: Naming, kind: type[WeightFormat], parts: set[str]
    ) -> None:
        super().__init__({})
        self._folder, self._kind, self._parts, self._lacking = folder, kind, parts, names.uneven
        self._shapes = Shapes(names.metadata, names.shapes)
        self.layers = self._shapes.layers
        self._bytes = 0
        self.given = {
            name: Tensor(name, F32, values.shape, F32.encode(values))
            for name, values in names.tensors.items()
        }

    def __iter__(self) -> Iterator[str]:
        for part in self._parts:
            yield f"blk.0.{part}"
        yield from self.given

    def __len__(self) -> int:
        return len(self._parts) + len(self.given)

    def __contains__(self, name: object) -> bool:
        if name in self.given:
            return True
        if not isinstance(name, str) or name.startswith(self._lacking):
            return False
        return _part(name) in self._parts

    def __getitem__(self, name: str) -> Tensor:
        if name not in self:
            raise KeyError(name)
        return self.shaped(name, self._shapes[name])

    def shaped(self, name: str, shape: tuple[int, ...]) -> Tensor:
        """The tensor of this name, of the shape that is asked for."""
        known = self.given.get(name)
        if known is not None and known.shape == shape:
            return known
        kind = self._kind if len(shape) > 1 else F32
        size = int(np.prod(shape[:-1], dtype=object)) * kind.row_bytes(shape[-1])
        self._bytes += size
        if self._bytes > _MOST_BYTES:
            raise FormatError(
                f"{self._folder / CONFIG}: expected weights of at most {_MOST_BYTES / 1e12:.0f} TB "
                f"in all, found {self._bytes / 1e12:.0f} TB at {name!r}"
            )
        try:
            zeros = np.zeros(size, np.uint8)  # never accessed: no pages
        except MemoryError:
            raise FormatError(
                f"{self._folder / CONFIG}: tensor {name!r}: {size / 1e9:.0f} GB, more than this "
                "machine can address"
            ) from None
        self.given[name] = Tensor(name, kind, shape, zeros)
        return self.given[name]


def _part(name: str) -> str:
    """A tensor's name without its layer."""
    return name.split(".", 2)[2] if name.startswith("blk.") and name.count(".") > 1 else name


def _parts(folder: Path, names: Naming, config: Mapping[str, Any]) -> set[str]:
    """The tensors that there are, without layers: by the index of the weights, else by the config.

    Matrices of several experts count as stacked.
    """
    for whole in WHOLE:
        index = folder / f"{whole}.index.json"
        if index.is_file():
            renamed = [names.rename(name) for name in names_of_index(index)]
            return {_part(one[0]).partition("[")[0] for one in renamed if one is not None}
    named = {*names.names.values(), *names.layer_names.values()}
    parts = {part[:-1] if part.endswith(".") else f"{part}.weight" for part in named}
    if names.tied:
        parts.discard("output.weight")
    inner = config.get("text_config")
    for key, biased in _BIASES.items():
        if any(isinstance(c, Mapping) and c.get(key) is True for c in (config, inner)):
            parts |= {f"{part}.bias" for part in biased if f"{part}.weight" in parts}
    return parts


def _type_of(config: Mapping[str, Any], notes: list[str]) -> type[WeightFormat]:
    """The type of the weights, as config.json says it."""
    inner = config.get("text_config")
    for one in (config, inner if isinstance(inner, Mapping) else {}):
        for key in ("dtype", "torch_dtype"):
            if one.get(key) in _TYPES:
                return _TYPES[one[key]]
    notes.append("config.json does not say the type of the weights: BF16 is assumed")
    return BF16
