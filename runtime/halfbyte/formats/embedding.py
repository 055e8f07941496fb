"""Metadata of models that turn texts into vectors, beside GGUF's ``<architecture>.pooling_type``.

GGUF has no keys for whether vectors are normalized, for activations of matrices after pooling, for
prompts, and for the number of tokens that a text is cut to: they are ``halfbyte.embedding.*``.
Without the first one vectors are normalized, as by llama.cpp.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum

import numpy as np

from halfbyte.errors import FormatError, UnsupportedError
from halfbyte.formats import metadata
from halfbyte.formats.model_file import MetadataValue, ModelFile

NORMALIZE = "halfbyte.embedding.normalize"
MAX_LENGTH = "halfbyte.embedding.max_length"
PROMPT_NAMES = "halfbyte.embedding.prompt_names"
PROMPTS = "halfbyte.embedding.prompts"  # in the order of their names
DENSE = "halfbyte.embedding.dense_activations"  # of the matrices after pooling, if there are any
DEFAULT_PROMPT = "halfbyte.embedding.default_prompt"  # a name

# GGUF's keys, of an architecture, for what a head that scores pairs reads, and its activation
SCORED, SCORING = "classifier.pooling_type", "classifier.activation"
ACTIVATIONS = ("tanh", "gelu", "relu")
DENSE_NUMBERS = range(2, 10)  # of ``dense_2.weight`` and others: 0 and 1 are model and pooling
_MAX_TOKENS = 1 << 24


class Pooling(IntEnum):
    """How a text's vector is made of those of its tokens: GGUF's numbers."""

    NONE = 0
    MEAN = 1
    CLS = 2  # the first token's
    LAST = 3
    RANK = 4  # the first token's, through a head: a score


@dataclass(frozen=True)
class Embedding:
    """What a file says about its vectors."""

    pooling: Pooling
    normalize: bool = True
    max_length: int | None = None
    prompts: Mapping[str, str] = field(default_factory=dict)
    default_prompt: str = ""

    @property
    def prompt(self) -> str:
        """What is put before a text if nothing else is said."""
        return self.prompts.get(self.default_prompt, "")


def read_embedding(file: ModelFile) -> Embedding:
    """The settings of a file; raises `FormatError` and `UnsupportedError`."""
    key = f"{metadata.text(file, 'general.architecture')}.pooling_type"
    number = metadata.integer(file, key, 0, 1 << 16, Pooling.NONE)
    if number not in list(Pooling):
        known = ", ".join(f"{p.value} ({p.name.lower()})" for p in Pooling)
        raise UnsupportedError(f"{file.path}: metadata '{key}': expected {known}, found {number}")
    names, prompts = (strings(file, key) for key in (PROMPT_NAMES, PROMPTS))
    if len(names) != len(prompts):
        raise FormatError(
            f"{file.path}: metadata '{PROMPTS}': expected {len(names)}, found {len(prompts)}"
        )
    normalize = file.metadata.get(NORMALIZE, True)
    if not isinstance(normalize, bool):
        raise FormatError(f"{file.path}: metadata '{NORMALIZE}': expected true or false")
    longest = metadata.integer(file, MAX_LENGTH, 1, _MAX_TOKENS, _MAX_TOKENS)
    return Embedding(
        Pooling(number), normalize, None if longest == _MAX_TOKENS else longest,
        dict(zip(names, prompts, strict=True)),
        metadata.text(file, DEFAULT_PROMPT) if DEFAULT_PROMPT in file.metadata else "",
    )  # fmt: skip


def turns_into_vectors(file: ModelFile) -> bool:
    """Whether a file says that it is for vectors or scores, whatever its architecture."""
    name = file.metadata.get("general.architecture")
    pooling = file.metadata.get(f"{name}.pooling_type")
    pooled = isinstance(pooling, np.integer) and pooling != Pooling.NONE
    return bool(pooled) or file.metadata.get(f"{name}.attention.causal") is False


def strings(file: ModelFile, key: str) -> list[str]:
    """Strings of the metadata; empty without the key."""
    value: MetadataValue = file.metadata.get(key, [])
    if not isinstance(value, list) or not all(isinstance(v, str) for v in value):
        raise FormatError(f"{file.path}: metadata '{key}': expected strings")
    return value  # type: ignore[return-value]
