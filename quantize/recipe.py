"""The type of each tensor, and which norm or matrix it reads."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase

import numpy as np

from halfbyte.errors import HalfbyteError, nearest
from halfbyte.formats import ModelFile
from halfbyte.quantize.mixtures import Model
from halfbyte.quantize.presets import ALIASES, ResolvedPreset, canonical, presets
from halfbyte.text import architectures
from halfbyte.weights import BF16, F16, F32, FORMATS, Q8_0, Tensor, WeightFormat


@dataclass(frozen=True)
class Choice:
    """A tensor's type; `note` says why it differs from the requested one.

    With `exact` its values lie on the type's lattice (:mod:`halfbyte.quantize.lattice`).
    """

    tensor: Tensor
    format: type[WeightFormat]
    note: str = ""
    exact: bool = False

    def widened(self, why: str) -> Choice:
        """The next wider type, with a reason; a tensor in BF16 is widened to BF16."""
        wider = self.format.wider
        if self.format is F16 and self.tensor.format is BF16:
            wider = BF16
        note = f"{self.note}; {why}" if self.note else why
        return Choice(self.tensor, wider, note)


def is_coarse(format_: type[WeightFormat]) -> bool:
    """Whether a format has fewer bits per weight than Q8_0."""
    return format_.block_bytes / format_.block < Q8_0.block_bytes / Q8_0.block


def choose(
    file: ModelFile,
    type: str,
    keep: Iterable[tuple[str, str]] = (),
    *,
    pure: bool = False,
    exact: bool = False,
) -> list[Choice]:
    """Types of all tensors of a file, before their values are known.

    Vectors stay F32. Matrices take the preset's type; embeddings, the head and some layers may take
    another (:class:`halfbyte.quantize.presets.ResolvedPreset`). With `exact`, matrices that have
    less than eight bits already keep their type. Of the patterns in `keep`, the last that matches
    decides.
    """
    preset = find_preset(type)
    patterns = [(pattern, _named(name)) for pattern, name in keep]
    for pattern, _ in patterns:
        if not any(fnmatchcase(name, pattern) for name in file.tensors):
            raise HalfbyteError(f"{file.path}: no tensor's name matches '{pattern}'")
    model, chosen = model_of(file), []
    for tensor in file.tensors.values():
        matrix = len(tensor.shape) > 1
        target = preset.format_of(tensor.name, model, pure=pure) if matrix else F32
        if exact and is_coarse(tensor.format):
            target = tensor.format
        chosen.append(_choice(tensor, target, patterns))
    return chosen


def model_of(file: ModelFile) -> Model:
    """What the choice of types depends on."""
    architecture = str(file.metadata.get("general.architecture", ""))

    def number(key: str) -> int:
        value = file.metadata.get(f"{architecture}.{key}", 0)
        whole = value.reshape(-1) if isinstance(value, np.ndarray) else [value]
        return next((int(v) for v in whole if isinstance(v, np.integer | int) and v > 0), 0)

    prefixes = layers(file)
    parts = ("attn_v.weight", "attn_qkv.weight")
    heads, shared = number("attention.head_count"), number("attention.head_count_kv")
    return Model(
        layers=len(prefixes),
        tied="output.weight" not in file.tensors,
        architecture=architecture,
        sharing=heads // shared if shared else 1,
        experts=number("expert_count"),
        attention=tuple(
            int(prefix[4:-1])
            for prefix in prefixes
            if len(prefix) < 15 and any(prefix + part in file.tensors for part in parts)
        ),
    )


def find_preset(name: str) -> ResolvedPreset:
    """A preset by its name or alias; raises `HalfbyteError`."""
    known, name = presets(), canonical(name)
    if ALIASES.get(name, name) not in known:
        raise HalfbyteError(f"type '{name}': expected one of {nearest(name, [*ALIASES, *known])}")
    return known[ALIASES.get(name, name)]


def split_keep(text: str) -> tuple[str, str]:
    """Pattern and type of ``PATTERN=TYPE``."""
    pattern, _, name = text.rpartition("=")
    if not pattern:
        raise HalfbyteError(f"--keep {text}: expected PATTERN=TYPE, such as '*.ffn_down.*=Q8_0'")
    return pattern, canonical(name)


def parse_keep(text: str) -> tuple[str, str]:
    """The same, but raises where there is no such type."""
    pattern, name = split_keep(text)
    _named(name)
    return pattern, name


def _named(name: str) -> type[WeightFormat]:
    known = {name: format_ for name, format_ in FORMATS.items() if format_.presets}
    if ALIASES.get(name, name) not in known:
        raise HalfbyteError(f"type '{name}': expected one of {[*known, *ALIASES]}")
    return known[ALIASES.get(name, name)]


def _choice(
    tensor: Tensor, target: type[WeightFormat], keep: list[tuple[str, type[WeightFormat]]]
) -> Choice:
    for pattern, kept in keep:
        if fnmatchcase(tensor.name, pattern):
            target = kept
    choice = Choice(tensor, target)
    while tensor.columns % choice.format.block:
        block = choice.format.block
        why = f"{tensor.columns} columns, no multiple of {choice.format.name}'s {block}"
        choice = choice.widened(why if not choice.note else "")
    return Choice(tensor, choice.format, choice.note.rstrip("; "))


def equalized(file: ModelFile) -> Mapping[str, tuple[str, ...]]:
    """The channels that the architecture can equalize; empty where it is not known."""
    name = file.metadata.get("general.architecture")
    return architectures.get(name).EQUALIZED if architectures.has(name) else {}


def layers(file: ModelFile) -> list[str]:
    """Prefixes of the layers, such as ``blk.0.``, in order."""
    matches = (re.match(r"blk\.\d+\.", name) for name in file.tensors)
    return list(dict.fromkeys(match[0] for match in matches if match))


def norm_groups(file: ModelFile) -> dict[str, list[str]]:
    """Gain of an RMSNorm -> the matrices of its layer whose columns are its channels.

    They are as the architecture says, or else as in Llama, which suffices for weights of errors.
    The norm before the head is included only if the head has its own matrix: a tied one is the
    embedding as well. Norms with a bias are not: their gain does not scale all of their output.
    """
    channels, groups = equalized(file) or architectures.CHANNELS, {}
    for prefix in (*layers(file), ""):
        for norm, readers in channels.items():
            groups[f"{prefix}{norm}.weight"] = [f"{prefix}{r}.weight" for r in readers]
    groups = {n: [r for r in group if r in file.tensors] for n, group in groups.items()}
    return {
        norm: readers
        for norm, readers in groups.items()
        if readers
        and norm in file.tensors
        and len(file.tensors[norm].shape) == 1
        and _bias(norm) not in file.tensors
        and all(_fits(file.tensors, norm, r) for r in readers)
    }


def _bias(weight: str) -> str:
    return weight.removesuffix("weight") + "bias"


def _fits(tensors: Mapping[str, Tensor], norm: str, reader: str) -> bool:
    return tensors[reader].shape[-1:] == tensors[norm].shape


def hidden_pairs(file: ModelFile) -> dict[str, str]:
    """``ffn_up`` -> ``ffn_down``, where rows of the first act linearly on columns of the second.

    That is so only if there is a gate, which has the activation function, and no bias.
    """
    pairs = {}
    for prefix in layers(file) if "ffn_up" in equalized(file) else ():
        gate, up, down = (f"{prefix}ffn_{part}.weight" for part in ("gate", "up", "down"))
        if (
            {gate, up, down} <= file.tensors.keys()
            and _bias(up) not in file.tensors
            and len(file.tensors[up].shape) == 2
            and file.tensors[gate].shape == file.tensors[up].shape
            and file.tensors[down].shape[1:] == file.tensors[up].shape[:1]
        ):
            pairs[up] = down
    return pairs
