"""Model architectures: one file each, named as GGUF's ``general.architecture`` says.

Names that begin with an underscore are what several share.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol, cast

from halfbyte.core.program import Program
from halfbyte.errors import UnsupportedError
from halfbyte.formats import metadata
from halfbyte.formats.model_file import ModelFile

if TYPE_CHECKING:
    from halfbyte.formats.huggingface.names import Translation

# What may be scaled against each other by channels: a norm's gain, or a matrix's rows, and the
# matrices whose columns these are, by GGUF's names. So in decoders of Llama's kind.
CHANNELS: Mapping[str, tuple[str, ...]] = {
    "attn_norm": ("attn_q", "attn_k", "attn_v", "attn_qkv"),
    "ffn_norm": ("ffn_gate", "ffn_up"),
    "output_norm": ("output",),
    "ffn_up": ("ffn_down",),
}


class Config(Protocol):
    """What every architecture tells about a model."""

    context: int  # tokens, the model's own maximum
    vocabulary: int  # tokens


class Architecture(Protocol):
    """What a module in this package offers: all that is known of an architecture."""

    TABLES: frozenset[str]  # tensors that are read while capturing, none of the program's buffers
    MODEL_TYPES: tuple[str, ...]  # of config.json
    EQUALIZED: Mapping[str, tuple[str, ...]]  # channels that meet nothing else: see `CHANNELS`

    def translate(self, config: Translation, /) -> None:
        """What a config.json says, in GGUF's words."""

    def read_config(self, file: ModelFile) -> Any:
        """Hyperparameters from metadata, checked against the tensors."""

    def build(
        self, file: ModelFile, config: Any, *, context: int, batch: int, cache: str
    ) -> Program:
        """Capture the model; inputs `ids`, output `logits`, sizes `n`, `position`, `rows`."""


def names() -> list[str]:
    """Every architecture that is built."""
    return sorted(m.name for m in pkgutil.iter_modules(__path__) if not m.name.startswith("_"))


def find(file: ModelFile) -> Architecture:
    """The module for a file's architecture."""
    name = metadata.text(file, "general.architecture")
    if name not in names():
        raise UnsupportedError(
            f"{file.path}: architecture {name[:80]!r}: expected one of {names()}"
        )
    return get(name)


def get(name: str) -> Architecture:
    """The module of one of `names`."""
    return cast(Architecture, importlib.import_module(f"{__name__}.{name}"))


def model_types() -> dict[str, Architecture]:
    """Every architecture by the kinds of models that a config.json names."""
    return {kind: module for module in map(get, names()) for kind in module.MODEL_TYPES}
