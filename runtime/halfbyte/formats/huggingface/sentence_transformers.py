"""What a folder of sentence-transformers says beside its model: pooling, matrices, prompts.

modules.json lists what a text passes through. Without it an encoder's vectors are the means of its
tokens', as sentence-transformers assumes, too.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from halfbyte.errors import FormatError, UnsupportedError
from halfbyte.formats import embedding
from halfbyte.formats.checkpoints import Checkpoint
from halfbyte.formats.checkpoints.shards import read_folder_weights
from halfbyte.formats.derived import aligned, widened
from halfbyte.formats.embedding import DENSE_NUMBERS, Pooling
from halfbyte.formats.huggingface.names import Naming
from halfbyte.formats.json_file import field, kind_of, optional, read_json, read_json_list
from halfbyte.formats.model_file import MetadataValue
from halfbyte.weights import Tensor

MODULES = "modules.json"
_KNOWN = ("Transformer", "Pooling", "Dense", "Normalize")
_POOLING = {
    "pooling_mode_cls_token": Pooling.CLS,
    "pooling_mode_mean_tokens": Pooling.MEAN,
    "pooling_mode_lasttoken": Pooling.LAST,
}
_MODES = {"cls": Pooling.CLS, "mean": Pooling.MEAN, "lasttoken": Pooling.LAST}
_ACTIVATIONS = {
    "torch.nn.modules.linear.Identity": "identity",
    "torch.nn.modules.activation.Tanh": "tanh",
}
_MAX_PROMPTS, _MAX_PROMPT = 1 << 10, 1 << 16

Metadata = dict[str, MetadataValue]


def read_embedding_files(
    folder: Path, names: Naming, weights: Checkpoint, notes: list[str]
) -> tuple[Metadata, dict[str, Tensor]]:
    """``pooling_type`` and the keys of :mod:`halfbyte.formats.embedding`; empty for other models.

    Tensors are those of modules after pooling, whose files are added to `weights`.

    Raises
    ------
    FormatError, UnsupportedError
        A file is damaged, or a text would pass through something that is not known.
    """
    architecture = names.metadata["general.architecture"]
    key, listed = f"{architecture}.pooling_type", folder / MODULES
    metadata, tensors = Metadata(), dict[str, Tensor]()
    if names.rank:
        metadata[key] = np.uint32(Pooling.RANK)
    elif listed.is_file():
        width = names.metadata[f"{architecture}.embedding_length"]
        metadata, tensors = _modules(folder, listed, architecture, int(width), weights)  # type: ignore[arg-type]
    elif names.metadata.get(f"{architecture}.attention.causal", True):
        return {}, {}  # a language model
    else:
        notes.append(f"no {MODULES}: a text's vector is the mean of its tokens', not normalized")
        metadata |= {key: np.uint32(Pooling.MEAN), embedding.NORMALIZE: False}
    metadata |= _length(folder) | _prompts(folder / "config_sentence_transformers.json")
    return metadata, tensors


def _modules(
    folder: Path, path: Path, architecture: str, width: int, weights: Checkpoint
) -> tuple[Metadata, dict[str, Tensor]]:
    pooling, normalize = Pooling.NONE, False
    metadata, tensors, activations = Metadata(), dict[str, Tensor](), list[str]()
    last = _KNOWN[0]
    for number, module in enumerate(read_json_list(path)):
        if not isinstance(module, dict) or not isinstance(module.get("type"), str):
            raise FormatError(f"{path}: expected objects with a 'type'")
        kind = module["type"].rpartition(".")[2]
        if not module["type"].startswith("sentence_transformers.") or kind not in _KNOWN:
            raise UnsupportedError(
                f"{path}: module {module['type'][:80]!r}: expected one of {', '.join(_KNOWN)}"
            )
        more = kind == last == "Dense" and len(activations) < len(DENSE_NUMBERS)
        late = number and not more and _KNOWN.index(kind) <= _KNOWN.index(last)
        if late or (kind == "Dense" and pooling is Pooling.NONE):
            raise UnsupportedError(
                f"{path}: module {kind} after {last}: expected Transformer, Pooling, at most "
                f"{len(DENSE_NUMBERS)} modules Dense, and Normalize, in this order"
            )
        last = kind
        if kind == "Pooling":
            pooling = _pooling(folder / _inside(path, module.get("path", "")) / "config.json")
        if kind == "Dense":
            name = f"dense_{DENSE_NUMBERS[len(activations)]}"
            inner = folder / _inside(path, module.get("path", ""))
            own, activation, file = _dense(inner, name, width)
            metadata[f"{architecture}.{name}_feat_in"] = np.uint32(width)
            width = own[f"{name}.weight"].shape[0]
            metadata[f"{architecture}.{name}_feat_out"] = np.uint32(width)
            activations.append(activation)
            tensors |= own
            weights.parts |= file.parts
        normalize |= kind == "Normalize"
    if pooling is Pooling.NONE:
        raise UnsupportedError(f"{path}: expected a module Pooling, found none")
    if any(activation != "identity" for activation in activations):
        metadata[embedding.DENSE] = activations
    metadata[f"{architecture}.pooling_type"] = np.uint32(pooling)
    return {**metadata, embedding.NORMALIZE: normalize}, tensors


def _inside(path: Path, name: Any) -> str:
    """A folder's name, which must be one in this folder."""
    if not isinstance(name, str) or not name or Path(name).name != name or name == "..":
        raise FormatError(f"{path}: 'path': expected a folder's name, found {str(name)[:80]!r}")
    return name


def _pooling(path: Path) -> Pooling:
    config = read_json(path)
    used = [name for name in config if name.startswith("pooling_mode_") and config[name]]
    mode = config.get("pooling_mode")
    if mode is not None:
        used = [str(name) for name in (mode if isinstance(mode, list) else [mode])]
    kinds = [(_POOLING | _MODES).get(name) for name in used]
    if len(kinds) != 1 or kinds[0] is None:
        raise UnsupportedError(
            f"{path}: pooling {', '.join(used)[:200] or 'by nothing'}: expected one of "
            f"{', '.join(_POOLING)}"
        )
    if config.get("include_prompt") is False:
        raise UnsupportedError(f"{path}: 'include_prompt': expected true, found false")
    return kinds[0]


def _dense(folder: Path, name: str, width: int) -> tuple[dict[str, Tensor], str, Checkpoint]:
    """The tensors of a module's folder under `name`, its activation, and its file.

    Raises
    ------
    FormatError, UnsupportedError
        It takes vectors of another width, or its tensors or its activation are not known.
    """
    config = read_json(folder / "config.json")
    activation = config.get("activation_function", "torch.nn.modules.activation.Tanh")
    if activation not in _ACTIVATIONS:
        raise UnsupportedError(
            f"{folder / 'config.json'}: 'activation_function': expected one of "
            f"{', '.join(_ACTIVATIONS)}, found {activation!r:.80}"
        )
    rows = field(folder / "config.json", config, "out_features", int)
    shapes = {"linear.weight": (rows, width), "linear.bias": (rows,)}
    weights, tensors = read_folder_weights(folder), dict[str, Tensor]()
    for found, tensor in weights.tensors.items():
        if tensor.shape != shapes.get(found):
            raise FormatError(
                f"{folder}: tensor {found[:80]!r} of shape {list(tensor.shape)}: expected "
                f"'linear.weight' {[rows, width]}, and perhaps 'linear.bias' {[rows]}"
            )
        new = found.replace("linear", name)
        matrix = len(tensor.shape) > 1
        tensors[new] = aligned(tensor, new) if matrix else widened(tensor, new, lambda x: x)
    if weights.unusable or f"{name}.weight" not in tensors:
        raise FormatError(f"{folder}: no tensor for 'linear.weight' in a type that is known")
    return tensors, _ACTIVATIONS[activation], weights


def _length(folder: Path) -> Metadata:
    path = folder / "sentence_bert_config.json"
    length = read_json(path).get("max_seq_length") if path.is_file() else None
    if length is None:
        return {}
    if type(length) is not int or not 1 <= length < 1 << 24:
        raise FormatError(f"{path}: 'max_seq_length': expected 1 to 2^24, found {length!r:.40}")
    return {embedding.MAX_LENGTH: np.uint32(length)}


def _prompts(path: Path) -> Metadata:
    config = read_json(path) if path.is_file() else {}
    prompts = optional(path, config, "prompts", {}, dict) if config.get("prompts") else {}
    if len(prompts) > _MAX_PROMPTS:
        raise FormatError(f"{path}: 'prompts': expected at most {_MAX_PROMPTS}")
    for name, text in prompts.items():
        if not isinstance(text, str) or len(text) > _MAX_PROMPT:
            found = kind_of(text)
            raise FormatError(f"{path}: 'prompts.{name[:40]}': expected a text, found {found}")
    metadata: Metadata = {}
    if prompts:
        metadata |= {embedding.PROMPT_NAMES: [*prompts], embedding.PROMPTS: [*prompts.values()]}
    default = config.get("default_prompt_name")
    if default is not None:
        if not isinstance(default, str) or default not in prompts:
            raise FormatError(
                f"{path}: 'default_prompt_name': expected one of {[*prompts]}, found "
                f"{default!r:.80}"
            )
        metadata[embedding.DEFAULT_PROMPT] = default
    return metadata
