"""Names and orders of a GGUF file's tensors in its original: config.json again, from metadata.

An adapter in PEFT's format has the names of its model's original. What they and the orders of rows
depend on is in the metadata of most architectures; for the others, `quantize` writes the whole
config.json there.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from halfbyte.errors import FormatError, HalfbyteError, UnsupportedError
from halfbyte.formats.adapters import HEAD
from halfbyte.formats.huggingface.names import ORIGINAL, Naming, Translators, naming
from halfbyte.formats.json_file import parse_json, read_json
from halfbyte.formats.model_file import ModelFile

_CONFIG = "config.json"
_SCALED = "falcon-h1"  # has factors in its matrices, which are nowhere else
# config.json's names, also older ones, of GGUF's sizes
_SIZES = {
    "embedding_length": ("hidden_size", "n_embd", "d_model", "word_embed_proj_dim"),
    "block_count": ("num_hidden_layers", "n_layer", "num_layers", "n_layers"),
    "attention.head_count": ("num_attention_heads", "n_head", "num_heads", "n_heads"),
    "attention.head_count_kv": ("num_key_value_heads", "num_kv_heads"),
    "attention.key_length": ("head_dim", "global_head_dim"),
    "attention.key_length_swa": ("head_dim",),
    "attention.value_length": ("v_head_dim",),
    "attention.kv_lora_rank": ("kv_lora_rank",),
    "attention.q_lora_rank": ("q_lora_rank",),
    "attention.shared_kv_layers": ("num_kv_shared_layers",),
    "attention.sliding_window": ("sliding_window",),
    "embedding_length_per_layer_input": ("hidden_size_per_layer_input",),
    "feed_forward_length": (
        "intermediate_size", "n_inner", "ffn_dim", "shared_intermediate_size",
    ),
    "context_length": ("max_position_embeddings", "n_positions", "max_seq_len"),
    "rope.dimension_count": ("rotary_dim", "qk_rope_head_dim"),
    "expert_count": (
        "num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts",
    ),
    "expert_used_count": ("num_experts_per_tok", "moe_k", "top_k_experts"),
    "expert_feed_forward_length": ("moe_intermediate_size",),
    "expert_shared_count": ("n_shared_experts", "moe_num_shared_experts"),
    "expert_shared_feed_forward_length": (
        "shared_expert_intermediate_size", "shared_intermediate_size",
        "moe_shared_expert_intermediate_size",
    ),
    "leading_dense_block_count": ("first_k_dense_replace", "moe_layer_start_index"),
    "full_attention_interval": ("full_attention_interval",),
    "attention.decay_lora_rank": ("decay_low_rank_dim",),
    "attention.gate_lora_rank": ("gate_low_rank_dim",),
    "attention.iclr_lora_rank": ("a_low_rank_dim",),
    "attention.value_residual_mix_lora_rank": ("v_low_rank_dim",),
    "wkv.head_size": ("head_dim",),
    "ssm.conv_kernel": ("conv_kernel", "mamba_d_conv", "linear_conv_kernel_dim"),
    "ssm.group_count": ("n_groups", "mamba_n_groups", "linear_num_key_heads"),
    "ssm.state_size": ("state_size", "mamba_d_state", "ssm_state_size", "linear_key_head_dim"),
    "ssm.time_step_rank": (
        "num_heads", "mamba_n_heads", "mamba_num_heads", "linear_num_value_heads",
        "time_step_rank", "mamba_dt_rank",
    ),
}  # fmt: skip
# Those that the order of rows depends on
_ORDERS = (
    "attention.head_count", "attention.head_count_kv", "attention.key_length",
    "ssm.group_count", "ssm.inner_size", "ssm.state_size", "ssm.time_step_rank",
)  # fmt: skip


def naming_of(model: ModelFile, translators: Translators, adapter: Path | None = None) -> Naming:
    """Names and orders of a model's tensors: by its config.json, or made from its metadata.

    The config.json is the folder's, the metadata's, or the one in the folder of an adapter.

    Raises
    ------
    FormatError, UnsupportedError
        It is another model's, or the metadata is not enough.
    """
    config = model.path / _CONFIG
    if config.is_file():
        return _of_folder(config, translators)
    architecture = str(model.metadata.get("general.architecture"))
    sizes = _Metadata(model, architecture)
    if ORIGINAL in model.metadata:
        return _original(model, sizes, translators)
    if adapter and (config := adapter / _CONFIG).is_file():
        return sizes.checked(_of_folder(config, translators), str(config))
    values, called = sizes.config(), str(model.metadata.get("general.name")).lower()
    module = architecture.replace("-", "_").replace(".", "_")
    kinds = [k for k, t in translators.items() if getattr(t, "__name__", k).endswith(f".{module}")]
    reasons = []
    for kind in sorted(kinds, key=lambda kind: kind not in called):  # the first, unless it is named
        try:
            names = naming({"model_type": kind, **values}, translators)
        except HalfbyteError as error:
            reasons.append(str(error))
            continue
        if architecture != _SCALED and all(sizes.agree(names, key) for key in _ORDERS):
            return names
    lack = "does not say enough about its original for an adapter in PEFT's format"
    if architecture == _SCALED:
        lack = "does not say by what its matrices are multiplied, which an adapter of PEFT needs"
    raise UnsupportedError(
        f"{model.path}: a GGUF file of architecture {architecture!r} {lack}: expected the model's "
        f"folder, its {_CONFIG} beside the adapter's, or the adapter in GGUF"
        f"{': ' + reasons[0] if reasons else ''}"
    )


def _of_folder(config: Path, translators: Translators) -> Naming:
    """By a folder's config.json."""
    values = read_json(config)
    values.pop("quantization_config", None)
    return naming(values, translators, str(config))


def _original(model: ModelFile, sizes: _Metadata, translators: Translators) -> Naming:
    """By the config.json in the metadata, if it is that of the file's sizes."""
    where, text = f"{model.path}: metadata '{ORIGINAL}'", model.metadata[ORIGINAL]
    if not isinstance(text, str):
        raise FormatError(f"{where}: expected a string, found {type(text).__name__}")
    return sizes.checked(naming(parse_json(Path(where), text.encode()), translators, where), where)


class _Metadata:
    """The sizes of a model, by GGUF's keys without the architecture's name."""

    def __init__(self, model: ModelFile, architecture: str) -> None:
        self._model, self._architecture = model, architecture
        self._layers = int(self._array("block_count").max(initial=0))

    def _array(self, key: str) -> npt.NDArray[Any]:
        """One number, or one for each layer; nothing if they are no integers.

        Where keys and values are stored as one head of latents, it is the original's.
        """
        values, prefix = self._model.metadata, f"{self._architecture}."
        if key == "attention.head_count_kv" and f"{prefix}attention.key_length_mla" in values:
            key = "attention.head_count"
        found: Any = values.get(f"{prefix}{key}_mla", values.get(prefix + key, ()))
        array = np.asarray(found).reshape(-1)
        return array if array.dtype.kind in "iub" else np.zeros(0, np.int64)

    def _size(self, key: str) -> int:
        """The largest of the numbers, 0 if there is none."""
        return int(self._array(key).max(initial=0))

    def agree(self, names: Naming, key: str) -> bool:
        """Whether the file's size is that of the config."""
        ours: Any = names.metadata.get(f"{self._architecture}.{key}")
        own = self._array(key)
        return ours is None or not own.size or int(np.max(ours)) == int(own.max())

    def checked(self, names: Naming, where: str) -> Naming:
        """The names of a config.json, if it is that of a model of this architecture and sizes."""
        if names.metadata["general.architecture"] != self._architecture:
            raise FormatError(f"{where}: expected the config.json of the file's architecture")
        for key in (*_ORDERS, "block_count", "embedding_length"):
            if not self.agree(names, key):
                raise FormatError(f"{where}: expected the file's own {key}")
        return names

    def config(self) -> dict[str, Any]:
        """Sizes as config.json has them; enough for names and orders in most architectures."""
        values: dict[str, Any] = {
            "vocab_size": self._model.tensors["token_embd.weight"].shape[0],
            "tie_word_embeddings": HEAD not in self._model.tensors,
            "num_experts": 1, "num_local_experts": 0,
        }  # fmt: skip
        for key, names in _SIZES.items():
            if self._array(key).size:
                values |= dict.fromkeys(names, self._size(key))
        shared = values.get("num_key_value_heads") == 1
        values |= {"multi_query": shared, "new_decoder_architecture": not shared}
        return values | self._latent() | self._space() | self._of_layers() | self._windows()

    def _latent(self) -> dict[str, Any]:
        """The sizes of latent attention."""
        plain = self._size("attention.key_length") - self._size("rope.dimension_count")
        return {"qk_nope_head_dim": plain} if self._size("attention.kv_lora_rank") else {}

    def _space(self) -> dict[str, Any]:
        """The sizes of layers with a state."""
        channels, heads = self._size("ssm.inner_size"), self._size("ssm.time_step_rank")
        if self._size("wkv.head_size"):
            epsilon: Any = self._model.metadata.get(
                f"{self._architecture}.attention.layer_norm_epsilon"
            )
            return {"norm_eps": float(epsilon)}
        if not channels or not heads:
            return {}
        width, factor = channels // heads, channels // max(self._size("embedding_length"), 1)
        values = {"linear_value_head_dim": width, "mamba_head_dim": width, "mamba_expand": factor}
        if self._size("attention.key_length"):
            return values
        return values | {"head_dim": width, "expand": factor}

    def _of_layers(self) -> dict[str, Any]:
        """The kinds of layers in models where only some attend."""
        attends, hidden = self._array("attention.head_count_kv"), self._array("feed_forward_length")
        if not attends.size or attends.size != self._layers:
            return {}
        if hidden.size != self._layers:
            other = "conv" if self._size("shortconv.l_cache") else "mamba"
            types = ["full_attention" if count else other for count in attends]
            places = np.flatnonzero(attends).tolist()
            return {
                "layer_types": types, "attn_layer_indices": places,
                "attn_layer_period": self._layers, "attn_layer_offset": min(places, default=0),
            }  # fmt: skip
        routed = "moe" if self._size("expert_count") else "mlp"
        kinds = [
            "full_attention" if count else routed if width else "linear_attention"
            for count, width in zip(attends, hidden, strict=True)
        ]
        return {"layers_block_type": kinds}

    def _windows(self) -> dict[str, Any]:
        """The kinds of layers in models where only some have a window, and their key heads."""
        local = self._array("attention.sliding_window_pattern")
        if local.size != self._layers:
            return {}
        values: dict[str, Any] = {
            "layer_types": ["sliding_attention" if window else "full_attention" for window in local]
        }
        heads = self._array("attention.head_count_kv")
        if heads.size == self._layers and 0 < local.sum() < self._layers:
            narrow, wide = (int(heads[local == kind].max()) for kind in (True, False))
            values |= {"num_key_value_heads": narrow, "num_global_key_value_heads": wide}
            values["attention_k_eq_v"] = narrow != wide
        return values | {"enable_moe_block": self._size("expert_count") > 0}
