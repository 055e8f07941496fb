"""The shapes of tensors that follow from a config.json, under GGUF's names."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from halfbyte.errors import FormatError
from halfbyte.formats.model_file import MetadataValue

_LAYER = re.compile(r"blk\.(\d+)\.(.+)")
Shape = tuple[int, ...]


class Shapes:
    """Expected shapes by GGUF name; `own` are an architecture's exceptions, or those of a layer."""

    def __init__(
        self, metadata: Mapping[str, MetadataValue], own: Mapping[str, Shape] | None = None
    ) -> None:
        architecture = metadata["general.architecture"]

        def size(key: str, default: int = 0) -> int:
            value: Any = metadata.get(f"{architecture}.{key}", default)
            return int(np.max(value))  # of all layers

        dim, hidden, heads = (
            size(k) for k in ("embedding_length", "feed_forward_length", "attention.head_count")
        )
        kv_heads = size("attention.head_count_kv", heads)
        head = size("attention.key_length", dim // max(heads, 1))
        self.layers = size("block_count")
        self._matrices: dict[str, Shape] = {
            "token_embd": (size("vocab_size"), dim),
            "output": (size("vocab_size"), dim),
            "position_embd": (size("context_length"), dim),
            "attn_q": (heads * head, dim),
            "attn_k": (kv_heads * head, dim),
            "attn_v": (kv_heads * head, dim),
            "attn_qkv": ((heads + 2 * kv_heads) * head, dim),
            "attn_output": (dim, heads * head),
            "ffn_gate": (hidden, dim),
            "ffn_up": (hidden, dim),
            "ffn_down": (dim, hidden),
            **(own or {}),
        }
        self._norms: dict[str, Shape] = {"attn_q_norm": (head,), "attn_k_norm": (head,)}
        self._norm = (dim,)

    def __getitem__(self, name: str) -> Shape:
        """The shape of ``blk.3.attn_q.weight``; every norm has the model's width.

        ``blk.3.ffn_up_exps.weight[5]`` is one of the matrices of ``blk.3.ffn_up_exps.weight``.
        """
        match = _LAYER.fullmatch(name)
        whole = match[2] if match else name
        if whole in self._matrices:  # the shape of a bias, or of a tensor without an ending
            return self._matrices[whole]
        part, _, kind = whole.rpartition(".")
        shape = self._matrices.get(name.removesuffix(f".{kind}"), self._matrices.get(part))
        if shape is not None:
            if kind.endswith("]"):
                return shape[1:]
            return shape if kind == "weight" else shape[:-1]
        return self._norms.get(part, self._norm)


def check_layers(
    where: str, config: str, names: Iterable[str], layers: int, uneven: tuple[str, ...] = ()
) -> None:
    """Raise unless every layer of a model has the same tensors, and there are `layers` of them.

    Parameters
    ----------
    where, config : str
        The model and its config.json, for messages.
    names : iterable of str
        GGUF names.
    layers : int
        The number of layers in config.json.
    uneven : tuple of str
        Beginnings of names that may be missing.
    """
    parts: dict[int, set[str]] = {}
    for name in names:
        if match := _LAYER.fullmatch(name):
            parts.setdefault(int(match[1]), set()).add(match[2])
    expected = range(layers)  # not a set: config.json may ask for any number
    if len(parts) != layers or any(layer not in expected for layer in parts):
        beyond = [layer for layer in parts if layer not in expected]
        lacking = next((layer for layer in expected if layer not in parts), layers)
        wrong = min([*beyond, lacking])
        state = "is there" if wrong in parts else "is missing"
        raise FormatError(
            f"{where}: layer {wrong} {state}, but {config} says num_hidden_layers is {layers}"
        )
    every = set().union(*parts.values())
    for layer in range(layers):
        lost = every - parts[layer]
        lost -= {part for part in lost if uneven and f"blk.{layer}.{part}".startswith(uneven)}
        if lost:
            raise FormatError(
                f"{where}: layer {layer} has no tensor for {min(lost)!r}, which other layers have"
            )
