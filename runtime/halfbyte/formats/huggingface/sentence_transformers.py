"""What a folder of sentence-transformers says beside its model: pooling, normalization, prompts.

modules.json lists what a text passes through. Without it an encoder's vectors are the means of its
tokens', as sentence-transformers assumes, too.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from halfbyte.errors import FormatError, UnsupportedError
from halfbyte.formats import embedding
from halfbyte.formats.embedding import Pooling
from halfbyte.formats.huggingface.names import Naming
from halfbyte.formats.json_file import kind_of, optional, read_json, read_json_list
from halfbyte.formats.model_file import MetadataValue

MODULES = "modules.json"
_KNOWN = ("Transformer", "Pooling", "Normalize")
_POOLING = {
    "pooling_mode_cls_token": Pooling.CLS,
    "pooling_mode_mean_tokens": Pooling.MEAN,
    "pooling_mode_lasttoken": Pooling.LAST,
}
_MODES = {"cls": Pooling.CLS, "mean": Pooling.MEAN, "lasttoken": Pooling.LAST}
_MAX_PROMPTS, _MAX_PROMPT = 1 << 10, 1 << 16

Metadata = dict[str, MetadataValue]


def embedding_metadata(folder: Path, names: Naming, notes: list[str]) -> Metadata:
    """``pooling_type`` and the keys of :mod:`halfbyte.formats.embedding`; empty for other models.

    Raises
    ------
    FormatError, UnsupportedError
        A file is damaged, or a text would pass through something that is not known.
    """
    architecture = names.metadata["general.architecture"]
    key, listed = f"{architecture}.pooling_type", folder / MODULES
    metadata: Metadata = {}
    if names.rank:
        metadata[key] = np.uint32(Pooling.RANK)
    elif listed.is_file():
        metadata |= _modules(folder, listed, key)
    elif names.metadata.get(f"{architecture}.attention.causal", True):
        return {}  # a language model
    else:
        notes.append(f"no {MODULES}: a text's vector is the mean of its tokens', not normalized")
        metadata |= {key: np.uint32(Pooling.MEAN), embedding.NORMALIZE: False}
    return metadata | _length(folder) | _prompts(folder / "config_sentence_transformers.json")


def _modules(folder: Path, path: Path, key: str) -> Metadata:
    pooling, normalize = Pooling.NONE, False
    for module in read_json_list(path):
        if not isinstance(module, dict) or not isinstance(module.get("type"), str):
            raise FormatError(f"{path}: expected objects with a 'type'")
        kind = module["type"].rpartition(".")[2]
        if not module["type"].startswith("sentence_transformers.") or kind not in _KNOWN:
            raise UnsupportedError(
                f"{path}: module {module['type'][:80]!r}: expected one of {', '.join(_KNOWN)}"
            )
        if kind == "Pooling":
            pooling = _pooling(folder / _inside(path, module.get("path", "")) / "config.json")
        normalize |= kind == "Normalize"
    if pooling is Pooling.NONE:
        raise UnsupportedError(f"{path}: expected a module Pooling, found none")
    return {key: np.uint32(pooling), embedding.NORMALIZE: normalize}


def _inside(path: Path, name: Any) -> str:
    """A folder's name, which must be one in this folder."""
    if not isinstance(name, str) or not name or Path(name).name != name or name == "..":
        raise FormatError(f"{path}: 'path': expected a folder's name, found {str(name)[:80]!r}")
    return name


def _pooling(path: Path) -> Pooling:
    config = read_json(path)
    used = [name for name in config if name.startswith("pooling_mode_") and config[name]]
    mode = config.get("pooling_mode")
    if isinstance(mode, str):
        used = [mode]
    kinds = [(_POOLING | _MODES).get(name) for name in used]
    if len(kinds) != 1 or kinds[0] is None:
        raise UnsupportedError(
            f"{path}: pooling {', '.join(used)[:200] or 'by nothing'}: expected one of "
            f"{', '.join(_POOLING)}"
        )
    if config.get("include_prompt") is False:
        raise UnsupportedError(f"{path}: 'include_prompt': expected true, found false")
    return kinds[0]


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
