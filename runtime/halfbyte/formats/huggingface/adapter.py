"""Reader of PEFT's adapters: a folder with adapter_config.json and adapter_model.safetensors.

Tensors get GGUF's names by the table of the model's architecture. What is done with the rows of a
matrix is done with those of B, what is done with its columns with those of A.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from halfbyte.errors import FormatError, UnsupportedError
from halfbyte.formats.adapters import HEAD, Adapter, Half, paired
from halfbyte.formats.checkpoints.safetensors import read_json_header, read_safetensors
from halfbyte.formats.huggingface.config import Keys
from halfbyte.formats.huggingface.inverse import naming_of
from halfbyte.formats.huggingface.names import Naming, Translators
from halfbyte.formats.json_file import read_json
from halfbyte.formats.mapped import map_file
from halfbyte.formats.model_file import ModelFile
from halfbyte.formats.transforms import FLATTENED, SAME, TRANSPOSED, Transform
from halfbyte.weights import F32Array, Tensor

CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
_TENSOR = re.compile(r"base_model\.model\.(?P<module>[\w.]+)\.lora_(?P<side>[AB])(\.\w+)?\.weight")
_PLAIN = re.compile(r"\^?[\w.\\]+\$?")
# What changes more than matrices, or other matrices than the file's; absent, null or false is fine
_REFUSED = (
    "use_dora", "modules_to_save", "lora_bias", "use_qalora", "alora_invocation_tokens",
    "layer_replication", "target_parameters", "trainable_token_indices", "megatron_config",
)  # fmt: skip
# Initializations that change the model's own matrices too
_OTHER_BASE = ("pissa", "olora", "corda", "loftq", "lora_ga")


def read_peft_adapter(folder: Path, model: ModelFile, translators: Translators) -> Adapter:
    """The adapter in a folder.

    Raises
    ------
    FormatError, UnsupportedError
        A file is missing or damaged, a setting is not supported, or a tensor does not fit the
        model; the message names it.
    """
    for name in (CONFIG, WEIGHTS):
        if not (folder / name).is_file():
            raise FormatError(f"{folder}: expected {CONFIG} and {WEIGHTS}, found no {name}")
    keys = _checked(Keys(read_json(folder / CONFIG), str(folder / CONFIG)))
    names, path = naming_of(model, translators, folder), folder / WEIGHTS
    pages = map_file(path)
    weights = read_safetensors(path, pages, *read_json_header(path, pages))
    ranks = {keys.integer("r"), *_pattern(keys, "rank_pattern").values()}
    alphas: dict[str, float] = {}
    halves = []
    for name in (*weights.unusable, *weights.tensors):
        match = _TENSOR.fullmatch(name)
        if match is None:
            raise UnsupportedError(
                f"{path}: tensor {name[:80]!r}: expected only lora_A and lora_B of matrices"
            )
        if name in weights.unusable:
            raise UnsupportedError(f"{path}: tensor {name!r}: {weights.unusable[name]}")
        target, transform = _target(names, match["module"], f"{path}: tensor {name!r}")
        tensor, side = weights.tensors[name], match["side"].lower()
        rank = tensor.shape[0 if side == "a" else -1]
        if rank not in ranks:
            raise FormatError(
                f"{path}: tensor {name!r}: expected rank {' or '.join(map(str, sorted(ranks)))} by "
                f"{CONFIG}, found {rank}"
            )
        own = _halves(target, side, tensor, transform, model)
        alphas |= dict.fromkeys((half.target for half in own), _alpha(keys, match["module"]))
        halves += own
    root = keys.boolean("use_rslora", False)
    return paired(path, model, halves, lambda name, r: alphas[name] / (r**0.5 if root else r))


def _checked(keys: Keys) -> Keys:
    """The keys of adapter_config.json, if they ask for what is supported."""
    keys.expect("peft_type", "LORA")
    keys.expect("bias", "none", None)
    for key in _REFUSED:
        if keys.get(key):
            raise UnsupportedError(
                f"{keys.where}: key '{key}': expected nothing, found {keys.get(key)!r:.80}"
            )
    start = keys.get("init_lora_weights")
    if isinstance(start, str) and start.startswith(_OTHER_BASE):
        raise UnsupportedError(
            f"{keys.where}: key 'init_lora_weights': {start[:40]!r} changes the model's own "
            "matrices: expected an adapter that was saved for the original model"
        )
    return keys


def _pattern(keys: Keys, key: str) -> dict[str, Any]:
    """Numbers by the ends of modules' names."""
    inner = keys.inner(key)
    for name in inner.values:
        if not _PLAIN.fullmatch(name):
            raise UnsupportedError(
                f"{inner.where}: {name[:80]!r}: expected the end of a module's name"
            )
    return {name: inner.number(name) for name in inner.values}


def _alpha(keys: Keys, module: str) -> float:
    """A module's alpha: by the first pattern that its name ends with, or that of all others."""
    for name, alpha in _pattern(keys, "alpha_pattern").items():
        plain = name.strip("^$").replace("\\", "")
        whole = module == plain or (not name.startswith("^") and module.endswith(f".{plain}"))
        if whole:
            return float(alpha)
    return keys.number("lora_alpha")


def _halves(
    target: str, side: str, tensor: Tensor, transform: Transform, model: ModelFile
) -> list[Half]:
    """A or B of a matrix, or of the two that GGUF has of gate and up: the same A, a half of B."""
    own = side == ("b" if transform.columns is None else "a")
    change = (transform if own and transform not in (TRANSPOSED, FLATTENED) else SAME).apply
    if "_gate_up" not in target or target in model.tensors:
        return [Half(target, side, tensor, change)]

    def part(half: int) -> Callable[[F32Array], F32Array]:
        return lambda x: np.split(change(x), 2)[half] if side == "b" else change(x)

    names = (target.replace("_gate_up", part) for part in ("_gate", "_up"))
    return [Half(name, side, tensor, part(half), 2) for half, name in enumerate(names)]


def _is_of_rows_or_columns(transform: Transform) -> bool:
    """Whether W's transform can be one of B's rows or A's columns."""
    moves = transform.moves or transform.factors is not None
    return transform is FLATTENED or (moves and not transform.widens)


def _target(names: Naming, module: str, where: str) -> tuple[str, Transform]:
    """GGUF's name of a module's matrix, and the transform of its rows."""
    try:
        renamed = names.rename(f"{module}.weight")
    except UnsupportedError as error:
        raise UnsupportedError(f"{where}: {error}") from None
    if renamed is None and module.endswith("lm_head"):  # which is the embedding
        return HEAD, names.transforms.get(HEAD, SAME)
    if renamed is None or not _is_of_rows_or_columns(renamed[1]):
        raise UnsupportedError(f"{where}: expected an adapter of a matrix of the text model")
    return renamed
