"""Model architectures: one file each, named as GGUF's ``general.architecture`` says.

Names that begin with an underscore are what several share.
"""

from __future__ import annotations

import importlib
import pkgutil
from typing import Any, Protocol, cast

from halfbyte.core.program import Program
from halfbyte.errors import UnsupportedError
from halfbyte.formats import metadata
from halfbyte.formats.model_file import ModelFile


class Config(Protocol):
    """What every architecture tells about a model."""

    context: int  # tokens, the model's own maximum
    vocabulary: int  # tokens


class Architecture(Protocol):
    """What a module in this package offers."""

    TABLES: frozenset[str]  # tensors that are read while capturing, none of the program's buffers

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
    return cast(Architecture, importlib.import_module(f"{__name__}.{name}"))
