"""A tokenizer's metadata in a model file, read and checked."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeGuard

import numpy as np
import numpy.typing as npt

from halfbyte.errors import FormatError, UnsupportedError
from halfbyte.formats.metadata import integer
from halfbyte.formats.model_file import ModelFile
from halfbyte.formats.tokens import CONTROL, NORMAL

SPACE = "\u2581"

_ROLES = ("bos", "eos", "eot", "eom", "unknown", "seperator", "cls")
# Ids if the metadata has none, as in llama.cpp.
_DEFAULTS = {
    "llama": {"bos": 1, "eos": 2, "unknown": 0},
    "t5": {"eos": 1, "unknown": 2},
    "bert": {"cls": 101, "seperator": 102, "unknown": 100},
    "gpt2": {},
    "rwkv": {},
    "gemma4": {},
    "huggingface": {},
}
# Control tokens that end an answer by their names: many files declare only one of several.
_ENDS = frozenset(
    (
        "<|endoftext|>", "<|end_of_text|>", "<|eot_id|>", "<|eom_id|>", "<|im_end|>", "<|end|>",
        "<|return|>", "<|call|>", "<end_of_turn>", "<end_of_utterance>", "<eos>", "<EOT>",
        "<\uff5cend\u2581of\u2581sentence\uff5c>",
    )
)  # fmt: skip
_LONGEST_TOKEN = 1 << 12  # characters; real ones have up to 256


@dataclass
class Vocabulary:
    """Tokens, their types and roles; made by :meth:`from_file`."""

    file: ModelFile
    tokens: list[str]
    types: npt.NDArray[np.int32]
    ids: dict[str, int] = field(default_factory=dict)  # of special tokens, by GGUF's name

    @classmethod
    def from_file(cls, file: ModelFile, kind: str) -> Vocabulary:
        """Read the metadata of all kinds; raises `FormatError`."""
        tokens = _tokens(file)
        types = np.full(len(tokens), NORMAL, np.int32)
        if "tokenizer.ggml.token_type" in file.metadata or kind == "llama":
            types = _numbers(file, "token_type", len(tokens), "iu").astype(np.int32)
        vocabulary = cls(file, tokens, types)
        last = len(tokens) - 1
        for name in _ROLES:
            key = f"tokenizer.ggml.{name}_token_id"
            default = _DEFAULTS[kind].get(name)
            if key in file.metadata:
                vocabulary.ids[name] = integer(file, key, 0, last)
            elif default is not None:
                vocabulary.ids[name] = min(default, last)
        return vocabulary

    @cached_property
    def scores(self) -> npt.NDArray[np.float32]:
        """The score of each token; raises `FormatError`."""
        with np.errstate(over="ignore"):
            scores = _numbers(self.file, "scores", len(self.tokens), "iuf").astype(np.float32)
        if not np.all(np.isfinite(scores)):
            raise FormatError(
                f"{self.file.path}: metadata 'tokenizer.ggml.scores': not all are finite"
            )
        return scores

    @cached_property
    def merges(self) -> list[str]:
        """Pairs separated by a space, in order; raises `FormatError`."""
        return self.strings("tokenizer.ggml.merges")

    def strings(self, key: str) -> list[str]:
        """An array of strings in the metadata; raises `FormatError`."""
        strings = self.file.metadata.get(key)
        if not _are_strings(strings):
            raise FormatError(f"{self.file.path}: metadata '{key}': expected strings")
        return strings

    @cached_property
    def charsmap(self) -> bytes:
        """SentencePiece's normalization, empty if there is none; raises `FormatError`."""
        key = "tokenizer.ggml.precompiled_charsmap"
        value = self.file.metadata.get(key, np.zeros(0, np.uint8))
        if not isinstance(value, np.ndarray) or value.dtype.itemsize != 1:
            raise FormatError(f"{self.file.path}: metadata '{key}': expected bytes")
        return value.tobytes()

    @property
    def stop_ids(self) -> frozenset[int]:
        """Tokens that end generation."""
        # With "bos": a model that begins a new text has ended the one before.
        named = {self.ids[role] for role in ("bos", "eos", "eot", "eom") if role in self.ids}
        control = np.flatnonzero(self.types == CONTROL).tolist()
        return frozenset(named.union(i for i in control if self.tokens[i] in _ENDS))

    def flag(self, name: str, default: bool) -> bool:
        """A bool of the metadata; raises `FormatError`."""
        value = self.file.metadata.get(f"tokenizer.ggml.{name}", default)
        if not isinstance(value, bool):
            raise FormatError(
                f"{self.file.path}: metadata 'tokenizer.ggml.{name}': expected a bool, found "
                f"{type(value).__name__}"
            )
        return value

    def listed(self, key: str) -> list[int] | None:
        """Ids of tokens in the metadata, or None; raises `FormatError`."""
        ids = self.file.metadata.get(key)
        if ids is None:
            return None
        integers = isinstance(ids, np.ndarray) and ids.dtype.kind in "iu" and ids.ndim == 1
        listed: list[Any] = ids.tolist() if integers else [-1]  # type: ignore[union-attr]
        if any(not 0 <= i < len(self.tokens) for i in listed):
            raise FormatError(f"{self.file.path}: metadata '{key}': expected ids of tokens")
        return listed

    def of_type(self, *types: int) -> dict[str, int]:
        """Tokens of these types and their ids, without an empty token."""
        places = np.flatnonzero(np.isin(self.types, types)).tolist()
        ids = dict(zip(map(self.tokens.__getitem__, places), places, strict=True))
        ids.pop("", None)
        return ids

    def stripping(self, name: str) -> frozenset[int]:
        """Tokens that take the whitespace beside them: "lstrip" before, "rstrip" after."""
        key = f"halfbyte.tokenizer.{name}_token_ids"
        value = self.file.metadata.get(key, np.zeros(0, np.int32))
        if not isinstance(value, np.ndarray) or value.dtype.kind not in "iu":
            raise FormatError(f"{self.file.path}: metadata '{key}': expected integers")
        return frozenset(value.tolist())


def _are_strings(value: Any) -> TypeGuard[list[str]]:
    return isinstance(value, list) and set(map(type, value)) <= {str}


def _tokens(file: ModelFile) -> list[str]:
    where = f"{file.path}: metadata 'tokenizer.ggml.tokens'"
    tokens: Any = file.metadata.get("tokenizer.ggml.tokens")
    if not _are_strings(tokens):
        raise FormatError(f"{where}: expected strings")
    embedding = file.tensors.get("token_embd.weight")
    if embedding is not None and embedding.shape[0] != len(tokens):
        raise FormatError(
            f"{file.path}: tokenizer has {len(tokens)} tokens, but tensor 'token_embd.weight' has "
            f"{embedding.shape[0]} rows"
        )
    if not tokens:
        raise FormatError(f"{where}: is empty")
    longest = max(map(len, tokens))
    if longest > _LONGEST_TOKEN:
        raise UnsupportedError(
            f"{where}: a token of {longest} characters: expected at most {_LONGEST_TOKEN}"
        )
    return tokens


def _numbers(file: ModelFile, name: str, count: int, kinds: str) -> npt.NDArray[np.generic]:
    """An array of `count` numbers, of one of NumPy's `kinds`."""
    key = f"tokenizer.ggml.{name}"
    values = file.metadata.get(key)
    if not isinstance(values, np.ndarray) or values.dtype.kind not in kinds:
        expected = "numbers" if "f" in kinds else "integers"
        raise FormatError(f"{file.path}: metadata '{key}': expected an array of {expected}")
    if len(values) != count:
        raise FormatError(
            f"{file.path}: metadata '{key}': {len(values)} entries, expected {count}, one a token"
        )
    return values
