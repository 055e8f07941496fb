"""Reader of Mistral's tekken.json: byte-level BPE whose vocabulary is in the order of merging.

Tokens are bytes in base64, in the order in which their parts are merged; ids of control tokens come
first. As in `tiktoken`, any two pieces whose union is a token are merged, the union of the lowest
rank first, so a list of merges is not needed.
"""

from __future__ import annotations

import base64
import binascii
import json
from pathlib import Path
from typing import Any

import numpy as np

from halfbyte.errors import FormatError
from halfbyte.formats.json_file import field, optional
from halfbyte.formats.model_file import MetadataValue
from halfbyte.formats.tokens import CONTROL, NORMAL, PIPELINE, write_bytes

MAX_TOKENS = 1 << 20
# For files that do not list them
_CONTROL = (
    "<unk>", "<s>", "</s>", "[INST]", "[/INST]", "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]",
    "[TOOL_RESULTS]", "[/TOOL_RESULTS]", "[TOOL_CALLS]", "[IMG]", "<pad>", "[IMG_BREAK]",
    "[IMG_END]", "[PREFIX]", "[MIDDLE]", "[SUFFIX]", "[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]",
    "[TOOL_CONTENT]",
)  # fmt: skip
_ROLES = {"<s>": "bos", "</s>": "eos", "<unk>": "unknown", "<pad>": "padding"}


def is_tekken(data: dict[str, Any]) -> bool:
    """Whether this is a tekken.json rather than a tokenizer.json."""
    return "model" not in data and isinstance(data.get("config"), dict) and "vocab" in data


def read_tekken(path: Path, data: dict[str, Any]) -> dict[str, MetadataValue]:
    """The tokenizer under GGUF's keys and our own; raises `FormatError`."""
    config = field(path, data, "config", dict)
    size, count = (
        field(path, config, name, int, "config.")
        for name in ("default_vocab_size", "default_num_special_tokens")
    )
    if not 0 <= count <= size <= MAX_TOKENS:
        raise FormatError(f"{path}: 'config': {count} control tokens of {size}")
    control = _control(path, data, count)
    tokens = control + _ranked(path, field(path, data, "vocab", list), size - count)
    step = {"type": "Split", "pattern": {"Regex": field(path, config, "pattern", str, "config.")}}
    steps = {
        "model": {"type": "BPE", "by_rank": True, "ignore_merges": True},
        "pre_tokenizer": [
            step | {"behavior": "Isolated"},
            {"type": "ByteLevel", "add_prefix_space": False, "use_regex": False},
        ],
        "decoder": [{"type": "ByteLevel"}],
        **{name: list(range(count)) for name in ("added", "only_added", "special")},
    }
    metadata: dict[str, MetadataValue] = {
        "tokenizer.ggml.model": "huggingface",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": np.array(
            [CONTROL] * count + [NORMAL] * (len(tokens) - count), np.int32
        ),
        "tokenizer.ggml.add_bos_token": "<s>" in control,
        "tokenizer.ggml.add_eos_token": False,
        PIPELINE: json.dumps(steps),
    }
    for name, role in _ROLES.items():
        if name in control:
            metadata[f"tokenizer.ggml.{role}_token_id"] = np.uint32(control.index(name))
    return metadata


def _control(path: Path, data: dict[str, Any], count: int) -> list[str]:
    """The control tokens in the order of their ids; tokens without a name get one."""
    listed = optional(path, data, "special_tokens", [], list)
    names = list(_CONTROL[:count]) if data.get("special_tokens") is None else []
    for rank, entry in enumerate(listed):
        name = entry.get("token_str") if isinstance(entry, dict) else None
        if not isinstance(name, str) or not name or entry.get("rank") != rank or rank >= count:
            raise FormatError(f"{path}: 'special_tokens[{rank}]': expected a name of rank {rank}")
        names.append(name)
    return names + [f"<SPECIAL_{rank}>" for rank in range(len(names), count)]


def _ranked(path: Path, entries: list[Any], count: int) -> list[str]:
    """The first `count` tokens, in byte-level BPE's notation for bytes."""
    if len(entries) < count:
        raise FormatError(f"{path}: 'vocab': {len(entries)} tokens, expected {count} or more")
    tokens: list[str] = []
    for rank, entry in enumerate(entries[:count]):
        text = entry.get("token_bytes") if isinstance(entry, dict) else None
        if not isinstance(text, str) or entry.get("rank") != rank:
            raise FormatError(f"{path}: 'vocab[{rank}]': expected bytes of rank {rank}")
        try:
            content = base64.b64decode(text, validate=True)
        except (binascii.Error, ValueError):
            raise FormatError(f"{path}: 'vocab[{rank}].token_bytes': not base64") from None
        tokens.append(write_bytes(content))
    if len(set(tokens)) < count or "" in tokens:
        raise FormatError(f"{path}: 'vocab': a token appears twice, or is empty")
    return tokens
