"""Reader of PEFT's adapters: a folder with adapter_config.json and adapter_model.safetensors.

Tensors get GGUF's names by the table of the model's architecture, and the rows of B are reordered
as those of the matrix are.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np

from halfbyte.errors import FormatError, HalfbyteError, UnsupportedError
from halfbyte.formats.adapters import HEAD, Adapter, Half, paired
from halfbyte.formats.checkpoints.safetensors import read_json_header, read_safetensors
from halfbyte.formats.huggingface.config import Keys
from halfbyte.formats.huggingface.names import Naming, Translators, naming
from halfbyte.formats.json_file import read_json
from halfbyte.formats.mapped import map_file
from halfbyte.formats.model_file import ModelFile
from halfbyte.formats.transforms import SAME, TRANSPOSED, Transform

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
    names, path = naming_of(model, translators), folder / WEIGHTS
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
        alphas[target] = _alpha(keys, match["module"])
        moved = side == "b" and transform is not TRANSPOSED  # A's columns, and B's rows, are W's
        halves.append(Half(target, side, tensor, (transform if moved else SAME).apply))
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


def _target(names: Naming, module: str, where: str) -> tuple[str, Transform]:
    """GGUF's name of a module's matrix, and the transform of its rows."""
    try:
        renamed = names.rename(f"{module}.weight")
    except UnsupportedError as error:
        raise UnsupportedError(f"{where}: {error}") from None
    if renamed is None and module.endswith("lm_head"):  # which is the embedding
        return HEAD, names.transforms.get(HEAD, SAME)
    if renamed is None or not (renamed[1].moves and not renamed[1].widens):
        raise UnsupportedError(f"{where}: expected an adapter of a matrix of the text model")
    return renamed


def naming_of(model: ModelFile, translators: Translators) -> Naming:
    """Names and orders of a model's tensors: by its config.json, or made from its metadata.

    Raises
    ------
    UnsupportedError
        The metadata is not enough.
    """
    config = model.path / "config.json"
    if config.is_file():
        values = read_json(config)
        values.pop("quantization_config", None)
        return naming(values, translators, str(config))
    architecture = str(model.metadata.get("general.architecture"))
    values = _config(model, architecture)
    module, called = architecture.replace("-", "_"), str(model.metadata.get("general.name")).lower()
    kinds = [k for k, t in translators.items() if getattr(t, "__name__", k).endswith(f".{module}")]
    reasons = []
    for kind in sorted(kinds, key=lambda kind: kind not in called):  # the first, unless it is named
        try:
            names = naming({"model_type": kind, **values}, translators)
        except HalfbyteError as error:
            reasons.append(str(error))
            continue
        if all(_same(names, model, f"{architecture}.{key}") for key in _ORDERS):
            return names
    raise UnsupportedError(
        f"{model.path}: a GGUF file of architecture {architecture!r} does not say enough about its "
        "original for an adapter in PEFT's format: expected the model's folder, or the adapter in "
        f"GGUF{': ' + reasons[0] if reasons else ''}"
    )


def _same(names: Naming, model: ModelFile, key: str) -> bool:
    ours: Any = names.metadata.get(key)
    own: Any = model.metadata.get(key)
    return ours is None or own is None or bool(np.max(ours) == np.max(own))


# config.json's names, also older ones, of GGUF's sizes
_SIZES = {
    "embedding_length": ("hidden_size", "n_embd", "d_model", "word_embed_proj_dim"),
    "block_count": ("num_hidden_layers", "n_layer", "num_layers", "n_layers"),
    "attention.head_count": ("num_attention_heads", "n_head", "num_heads", "n_heads"),
    "attention.head_count_kv": ("num_key_value_heads", "num_kv_heads"),
    "attention.key_length": ("head_dim",),
    "feed_forward_length": ("intermediate_size", "n_inner", "ffn_dim"),
    "context_length": ("max_position_embeddings", "n_positions", "max_seq_len"),
    "rope.dimension_count": ("rotary_dim",),
    "expert_count": ("num_experts", "num_local_experts"),
    "expert_used_count": ("num_experts_per_tok",),
    "expert_feed_forward_length": ("moe_intermediate_size",),
    "expert_shared_feed_forward_length": (
        "shared_expert_intermediate_size", "shared_intermediate_size",
    ),
}  # fmt: skip
# Those that the order of rows depends on
_ORDERS = (
    "attention.head_count", "attention.head_count_kv", "attention.key_length",
    "ssm.group_count", "ssm.inner_size", "ssm.state_size", "ssm.time_step_rank",
)  # fmt: skip


def _config(model: ModelFile, architecture: str) -> dict[str, Any]:
    """Sizes as config.json has them; enough for names and orders in most architectures."""
    values: dict[str, Any] = {
        "vocab_size": model.tensors["token_embd.weight"].shape[0],
        "tie_word_embeddings": HEAD not in model.tensors,
    }
    for key, names in _SIZES.items():
        found: Any = model.metadata.get(f"{architecture}.{key}", ())
        size = np.asarray(found)
        if size.size and size.dtype.kind in "iu":
            values |= dict.fromkeys(names, int(size.max()))
    shared = values.get("num_key_value_heads") == 1
    return values | {"multi_query": shared, "new_decoder_architecture": not shared}
