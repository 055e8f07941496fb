"""Model architectures: one module each, named as in GGUF's ``general.architecture``, `-` and `.` as
`_`; those of which only GGUF files are read, and that differ from Llama by a number or two, share
the table of `_llama_kin`.

A module holds all that is known of its architecture; see `Architecture`. To add one, add its
module; no other file of the product changes. Modules that begin with an underscore are shared:
`read_config` takes metadata through `_keys.Keys`, which refuses what was not read, and
`build` spells out the layers with the parts of `_decoder.Decoder`, or of `_encoder.Encoder`: a
module with `HEADS`, endings of class names in config.json, is an encoder.

A tensor that holds several matrices (queries, keys and values; gate and up) is split in place: rows
are whole blocks, so each part is a view, such as ``blk.0.attn_qkv.weight[0:3072]``, which is packed
like any other.

A sliding window (``attention.sliding_window``, with a pattern of layers) works as in the originals.
llama.cpp has it for Gemma 3 only, so its texts differ from ours beyond the window. Keys and values
before the window are not read, but the cache holds them.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol, TypeGuard, cast

from halfbyte.core.program import Program
from halfbyte.errors import TaskError, UnsupportedError, nearest
from halfbyte.formats import metadata
from halfbyte.formats.embedding import turns_into_vectors
from halfbyte.formats.model_file import ModelFile

if TYPE_CHECKING:
    from halfbyte.formats.huggingface.names import Translation

# Channels that may be scaled against each other in decoders like Llama, by GGUF's names: the gains
# of a norm, or the rows of a matrix, and the matrices whose columns they multiply.
CHANNELS: Mapping[str, tuple[str, ...]] = {
    "attn_norm": ("attn_q", "attn_k", "attn_v", "attn_qkv"),
    "ffn_norm": (
        "ffn_gate", "ffn_up", "ffn_gate_inp", "ffn_gate_exps", "ffn_up_exps",
        "ffn_gate_inp_shexp", "ffn_gate_shexp", "ffn_up_shexp",
    ),
    "output_norm": ("output",),
    "ffn_up": ("ffn_down",),
}  # fmt: skip


class Config(Protocol):
    """Hyperparameters that every architecture has."""

    context: int  # the model's maximum, in tokens
    vocabulary: int  # tokens


class Architecture(Protocol):
    """The interface of a module in this package."""

    TABLES: frozenset[str]  # tensors that are read while capturing and are not buffers
    MODEL_TYPES: tuple[str, ...]  # of config.json
    EQUALIZED: Mapping[str, tuple[str, ...]]  # what the quantizer may scale: see `CHANNELS`

    def translate(self, config: Translation, /) -> None:
        """Translate a config.json, with names and shapes of tensors, into GGUF's terms."""

    def read_config(self, file: ModelFile) -> Any:
        """Hyperparameters from metadata, checked against the tensors."""

    def build(
        self, file: ModelFile, config: Any, *, context: int, batch: int, cache: str
    ) -> Program:
        """Capture the model; inputs `ids`, output `logits`, sizes `n`, `position`, `rows`."""


def names() -> list[str]:
    """The names of all architectures."""
    return sorted({*_modules(), *_kin()})


def _modules() -> set[str]:
    return {m.name for m in pkgutil.iter_modules(__path__) if not m.name.startswith("_")}


def _kin() -> Mapping[str, Architecture]:
    table = importlib.import_module(f"{__name__}._llama_kin")  # which imports this module
    return cast("Mapping[str, Architecture]", table.KIN)


def find(file: ModelFile) -> Architecture:
    """The module for a file's architecture; a page that writes has none of encoders."""
    name = metadata.text(file, "general.architecture")
    if not has(name):
        raise (TaskError if turns_into_vectors(file) else UnsupportedError)(
            f"{file.path}: architecture {name[:80]!r}: expected one of {nearest(name, names())}"
        )
    return get(name)


def is_encoder(file: ModelFile) -> bool:
    """Whether a file's architecture turns texts into vectors only."""
    return bool(getattr(find(file), "HEADS", ()))


def has(name: object) -> TypeGuard[str]:
    """Whether a value of ``general.architecture`` names one of `names`."""
    return isinstance(name, str) and (
        module_name(name) in _modules() or module_name(name) in _kin()
    )


def get(name: str) -> Architecture:
    """The module, or the line of the table, of one of `names`."""
    module = module_name(name)
    if module in _modules():
        return cast(Architecture, importlib.import_module(f"{__name__}.{module}"))
    return _kin()[module]


def module_name(architecture: str) -> str:
    """The name of an architecture's module."""
    return architecture.replace("-", "_").replace(".", "_")


def model_types() -> dict[str, Architecture]:
    """All architectures by config.json's model types; those without one by their own names."""
    modules = {name: get(name) for name in names()}
    return {kind: m for name, m in modules.items() for kind in m.MODEL_TYPES or (name,)}
