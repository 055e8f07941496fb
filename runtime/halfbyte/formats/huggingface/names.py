"""Hugging Face's names -> GGUF's: config.json becomes metadata, tensors get names and orders.

`naming(config, where)` knows everything that a folder's config.json says about its model. Names
and metadata are those that llama.cpp reads, so that what is written loads there too. Mistral is
`llama` there, with ``attention.sliding_window`` (which llama.cpp does not look at).
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from halfbyte.errors import FormatError, UnsupportedError
from halfbyte.formats.huggingface.config import Keys
from halfbyte.formats.model_file import MetadataValue

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Transform:
    """What becomes of a tensor's values; `apply` takes and returns all of them.

    Where values only move, arrays of any dtype will do (BF16 as uint16); others are float32.
    """

    name: str  # for people
    apply: Callable[[Array], Array]
    moves: bool = True


SAME = Transform("as it is", lambda x: x)
TRANSPOSED = Transform("transposed", lambda x: np.ascontiguousarray(x.T))
PLUS_ONE = Transform("plus one", lambda x: x + np.float32(1), moves=False)


def _interleave(x: Array, heads: int) -> Array:
    if len(x) % (2 * heads):
        raise FormatError(f"{len(x)} rows: expected whole pairs in each of {heads} heads")
    halves = x.reshape(heads, 2, len(x) // heads // 2, *x.shape[1:])
    return np.ascontiguousarray(halves.swapaxes(1, 2)).reshape(x.shape)


def interleaved(heads: int) -> Transform:
    """Rows (j, j + half) of each head become neighbours, as GGUF's Llama turns them."""
    return Transform(f"rows of {heads} heads interleaved", partial(_interleave, heads=heads))


@dataclass(frozen=True)
class Naming:
    """What a config.json says, in GGUF's words.

    Attributes
    ----------
    metadata : dict
        GGUF keys, ``general.architecture`` among them; nothing about the tokenizer.
    tensors : dict of str to float32 array
        Tensors that are made from the config alone, such as ``rope_freqs.weight``.
    tied : bool
        The head is the embedding; otherwise ``output.weight`` must be among the tensors.
    """

    where: str
    kind: str
    metadata: dict[str, MetadataValue]
    names: Mapping[str, str]
    tied: bool
    tensors: dict[str, npt.NDArray[np.float32]] = field(default_factory=dict)
    transforms: Mapping[str, Transform] = field(default_factory=dict)  # by the end of a GGUF name

    def rename(self, name: str) -> tuple[str, Transform] | None:
        """GGUF's name of a tensor and what becomes of it; None for one that is no weight.

        Raises
        ------
        UnsupportedError
            A tensor that this kind of model does not have.
        """
        plain = _OPTIONAL.sub("", name)
        if _DROPPED.search(plain) or (self.tied and plain == "lm_head.weight"):
            return None
        match = _LAYER.fullmatch(plain) or _OUTER.fullmatch(plain)
        part = match and self.names.get(match["part"])
        if match is None or part is None:
            raise UnsupportedError(
                f"{self.where}: tensor {name[:80]!r}: model_type {self.kind!r} has no such tensor"
            )
        kind = f"{part}.{match['kind']}"
        prefix = f"blk.{int(match['layer'])}." if "layer" in match.groupdict() else ""
        return prefix + kind, self.transforms.get(kind, SAME)


# "model." and "transformer." are missing where the model was saved without its head; a text model
# inside another has "language_model." on either side of "model.".
_OPTIONAL = re.compile(r"^(model\.|transformer\.|language_model\.){1,2}")
_LAYER = re.compile(r"(?:layers|h)\.(?P<layer>\d{1,4})\.(?P<part>[\w.]+)\.(?P<kind>weight|bias)")
_OUTER = re.compile(r"(?P<part>\w+)\.(?P<kind>weight|bias)")
# Tables and masks that old versions saved; parts of a model that are not for text.
_DROPPED = re.compile(
    r"rotary_emb\.inv_freq$|^h\.\d{1,4}\.attn\.(masked_)?bias$"
    r"|^(vision_tower|multi_modal_projector)\."
)

_OUTSIDE = {"embed_tokens": "token_embd", "norm": "output_norm", "lm_head": "output"}
_ATTENTION = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
}
_GATED = {"mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down"}
_LLAMA = {**_OUTSIDE, **_ATTENTION, **_GATED, "post_attention_layernorm": "ffn_norm"}
_HEAD_NORMS = {"self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm"}
_GEMMA3 = {
    **_LLAMA,
    **_HEAD_NORMS,
    "post_attention_layernorm": "post_attention_norm",
    "pre_feedforward_layernorm": "ffn_norm",
    "post_feedforward_layernorm": "post_ffw_norm",
}
_PHI3 = {
    **_LLAMA,
    "self_attn.qkv_proj": "attn_qkv",
    "mlp.gate_up_proj": "ffn_up",
}
_GPT2 = {
    "wte": "token_embd",
    "wpe": "position_embd",
    "ln_f": "output_norm",
    "lm_head": "output",
    "ln_1": "attn_norm",
    "ln_2": "ffn_norm",
    "attn.c_attn": "attn_qkv",
    "attn.c_proj": "attn_output",
    "mlp.c_fc": "ffn_up",
    "mlp.c_proj": "ffn_down",
}


def naming(config: Mapping[str, Any], where: str = "config.json") -> Naming:
    """What a parsed config.json says about its model.

    Parameters
    ----------
    config : mapping
        The file's content.
    where : str
        The file's name, for messages.

    Raises
    ------
    FormatError, UnsupportedError
        A key is missing, is no such value, or asks for what is not built.
    """
    keys = Keys(config, where)
    if keys.get("quantization_config") is not None:
        raise UnsupportedError(
            f"{where}: key 'quantization_config': expected weights that are not quantized"
        )
    kind = keys.text("model_type")
    if kind not in _FAMILIES:
        raise UnsupportedError(
            f"{where}: model_type {kind[:80]!r}: expected one of {sorted(_FAMILIES)}"
        )
    for name in keys.list("architectures"):
        if not str(name).endswith(("ForCausalLM", "LMHeadModel", "ForConditionalGeneration")):
            raise UnsupportedError(
                f"{where}: architecture {str(name)[:80]!r}: expected a language model"
            )
    return _FAMILIES[kind](keys, kind)


def _decoder(keys: Keys, architecture: str, head_dim: int | None = None) -> dict[str, Any]:
    """Metadata of a decoder with RMSNorm and rotary positions, keys without their prefix."""
    dim, heads = keys.integer("hidden_size"), keys.integer("num_attention_heads")
    head_dim = keys.integer("head_dim", head_dim or max(dim // heads, 1))
    return {
        "general.architecture": architecture,
        "vocab_size": np.uint32(keys.integer("vocab_size")),
        "context_length": np.uint32(keys.integer("max_position_embeddings")),
        "embedding_length": np.uint32(dim),
        "block_count": np.uint32(keys.integer("num_hidden_layers")),
        "feed_forward_length": np.uint32(keys.integer("intermediate_size")),
        "attention.head_count": np.uint32(heads),
        "attention.head_count_kv": np.uint32(keys.integer("num_key_value_heads", heads)),
        "attention.key_length": np.uint32(head_dim),
        "attention.value_length": np.uint32(head_dim),
        "attention.layer_norm_rms_epsilon": np.float32(keys.number("rms_norm_eps", 1e-6)),
        "rope.dimension_count": np.uint32(head_dim),
    }


def _named(values: dict[str, Any]) -> dict[str, MetadataValue]:
    """Every key but ``general.architecture`` under the architecture's name."""
    architecture = values["general.architecture"]
    return {k if k.startswith("general.") else f"{architecture}.{k}": v for k, v in values.items()}


def _rope(keys: Keys, values: dict[str, Any], rope: Keys) -> dict[str, npt.NDArray[np.float32]]:
    """Base and scaling of rotary positions into `values`; tensors that scaling needs."""
    base = rope.number("rope_theta", keys.number("rope_theta", 10000.0))
    values["rope.freq_base"] = np.float32(base)
    scaling = rope.text("rope_type", rope.text("type", "default"))
    if scaling == "linear":
        values["rope.scaling.type"] = "linear"
        values["rope.scaling.factor"] = np.float32(rope.number("factor"))
    elif scaling == "llama3":
        return {
            "rope_freqs.weight": _llama3_factors(rope, base, int(values["rope.dimension_count"]))
        }
    elif scaling != "default":
        raise UnsupportedError(
            f"{rope.where}: scaling of rotary positions {scaling[:80]!r}: expected 'default', "
            "'linear' or 'llama3'"
        )
    return {}


def _llama3_factors(rope: Keys, base: float, rotated: int) -> npt.NDArray[np.float32]:
    """What each frequency is divided by, [rotated / 2].

    1 where `original` positions are more than `high` wavelengths, `factor` where they are fewer
    than `low`, between them the inverse runs linearly. Source: Llama 3.1's reference code.
    """
    low, high = rope.number("low_freq_factor"), rope.number("high_freq_factor")
    factor = rope.number("factor")
    original = rope.integer("original_max_position_embeddings")
    if low >= high:
        raise FormatError(f"{rope.where}: low_freq_factor {low}: expected below {high}")
    frequency = base ** (-np.arange(rotated // 2, dtype=np.float64) * 2 / rotated)
    turns = original * frequency / (2 * math.pi)
    share = np.clip((turns - low) / (high - low), 0, 1)
    return (1 / ((1 - share) / factor + share)).astype(np.float32)


def _windows(keys: Keys, values: dict[str, Any], local: list[bool]) -> None:
    """The sliding window of those layers that have one."""
    if any(local) and keys.get("sliding_window") is not None:
        values["attention.sliding_window"] = np.uint32(keys.integer("sliding_window"))
        if not all(local):
            values["attention.sliding_window_pattern"] = np.array(local, np.bool_)


def _local_layers(keys: Keys, otherwise: Callable[[int], bool]) -> list[bool]:
    """Which layers look at a window alone: `layer_types` tells, or a rule."""
    layers = keys.integer("num_hidden_layers", most=1 << 10)
    types = keys.list("layer_types")
    if not types:
        return [otherwise(layer) for layer in range(layers)]
    known = ("sliding_attention", "full_attention")
    if len(types) != layers or any(t not in known for t in types):
        raise FormatError(f"{keys.where}: key 'layer_types': expected {layers} of {known}")
    return [t == "sliding_attention" for t in types]


def _llama(keys: Keys, kind: str) -> Naming:
    keys.expect("hidden_act", "silu")
    keys.expect("partial_rotary_factor", 1.0, None)
    values = _decoder(keys, "llama")
    tensors = _rope(keys, values, keys.rope())
    if kind == "mistral":
        _windows(keys, values, _local_layers(keys, lambda layer: True))
    kinds: dict[str, Transform] = {}
    for part, count in (("attn_q", "attention.head_count"), ("attn_k", "attention.head_count_kv")):
        turned = interleaved(int(values[count]))
        kinds |= {f"{part}.weight": turned, f"{part}.bias": turned}
    tied = keys.boolean("tie_word_embeddings", False)
    return Naming(keys.where, kind, _named(values), _LLAMA, tied, tensors, kinds)


def _qwen(keys: Keys, kind: str) -> Naming:
    keys.expect("hidden_act", "silu")
    values = _decoder(keys, kind, 128 if kind == "qwen3" else None)
    tensors = _rope(keys, values, keys.rope())
    if keys.boolean("use_sliding_window", False):
        first = keys.integer("max_window_layers", 28)
        _windows(keys, values, _local_layers(keys, lambda layer: layer >= first))
    names = _LLAMA if kind == "qwen2" else _LLAMA | _HEAD_NORMS
    tied = keys.boolean("tie_word_embeddings", False)
    return Naming(keys.where, kind, _named(values), names, tied, tensors)


def _gemma3(keys: Keys, kind: str) -> Naming:
    if kind == "gemma3":
        keys = keys.inner("text_config")
    keys.expect("hidden_activation", "gelu_pytorch_tanh", None)
    keys.expect("attn_logit_softcapping", None)
    keys.expect("final_logit_softcapping", None)
    keys.expect("use_bidirectional_attention", False, None)
    values = _decoder(keys, "gemma3", 256)
    rope = keys.rope()
    local = rope.inner("sliding_attention")
    everywhere = rope.inner("full_attention") if "full_attention" in rope.values else rope
    default = Keys({"rope_theta": 1_000_000.0} | dict(everywhere.values), everywhere.where)
    if "rope_theta" in keys.values and "rope_theta" not in everywhere.values:
        default = everywhere  # an older config: beside the scaling
    tensors = _rope(keys, values, default)
    base = local.number("rope_theta", keys.number("rope_local_base_freq", 10000.0))
    values["rope.freq_base_swa"] = np.float32(base)
    period = keys.integer("sliding_window_pattern", keys.integer("_sliding_window_pattern", 6))
    layers = _local_layers(keys, lambda layer: (layer + 1) % period != 0)
    _windows(keys, values, layers)
    if layers == [(layer + 1) % 6 != 0 for layer in range(len(layers))]:
        values.pop("attention.sliding_window_pattern", None)  # as llama.cpp takes it to be
    scalar = keys.number("query_pre_attn_scalar", 256.0)
    if scalar != values["attention.key_length"]:
        values["attention.scale"] = np.float32(scalar**-0.5)
    norms = ("attn_norm", "attn_q_norm", "attn_k_norm", "post_attention_norm")
    kinds = {f"{n}.weight": PLUS_ONE for n in (*norms, "ffn_norm", "post_ffw_norm", "output_norm")}
    tied = keys.boolean("tie_word_embeddings", True)
    return Naming(keys.where, kind, _named(values), _GEMMA3, tied, tensors, kinds)


def _phi3(keys: Keys, kind: str) -> Naming:
    keys.expect("hidden_act", "silu")
    values = _decoder(keys, "phi3")
    rope, tensors = keys.rope(), {}
    part = rope.number("partial_rotary_factor", keys.number("partial_rotary_factor", 1.0))
    if part > 1:
        raise FormatError(f"{keys.where}: key 'partial_rotary_factor': expected at most 1")
    rotated = int(int(values["rope.dimension_count"]) * part)
    values["rope.dimension_count"] = np.uint32(rotated)
    original = rope.integer(
        "original_max_position_embeddings", keys.integer("original_max_position_embeddings", 4096)
    )
    values["rope.scaling.original_context_length"] = np.uint32(original)
    if rope.text("rope_type", rope.text("type", "default")) in ("longrope", "su"):
        stretch = int(values["context_length"]) / original
        factor = (
            math.sqrt(1 + math.log(stretch) / math.log(original)) if stretch > 1 < original else 1.0
        )
        factor = rope.number("attention_factor", factor)
        values["rope.scaling.attn_factor"] = np.float32(factor)
        for name in ("long", "short"):
            factors = rope.numbers(f"{name}_factor", rotated // 2)
            tensors[f"rope_factors_{name}.weight"] = factors
        rope = Keys({k: v for k, v in rope.values.items() if k == "rope_theta"}, rope.where)
    _rope(keys, values, rope)
    _windows(keys, values, _local_layers(keys, lambda layer: True))
    tied = keys.boolean("tie_word_embeddings", False)
    return Naming(keys.where, kind, _named(values), _PHI3, tied, tensors)


def _gpt2(keys: Keys, kind: str) -> Naming:
    keys.expect("activation_function", "gelu_new", "gelu_pytorch_tanh")
    keys.expect("scale_attn_weights", True)
    keys.expect("scale_attn_by_inverse_layer_idx", False)
    keys.expect("add_cross_attention", False)
    dim = keys.integer("n_embd", most=1 << 20)
    hidden = keys.integer("n_inner", 4 * dim)
    values = {
        "general.architecture": "gpt2",
        "vocab_size": np.uint32(keys.integer("vocab_size")),
        "context_length": np.uint32(keys.integer("n_positions")),
        "embedding_length": np.uint32(dim),
        "block_count": np.uint32(keys.integer("n_layer")),
        "feed_forward_length": np.uint32(hidden),
        "attention.head_count": np.uint32(keys.integer("n_head")),
        "attention.layer_norm_epsilon": np.float32(keys.number("layer_norm_epsilon", 1e-5)),
    }
    products = ("attn_qkv", "attn_output", "ffn_up", "ffn_down")
    kinds = {f"{name}.weight": TRANSPOSED for name in products}
    tied = keys.boolean("tie_word_embeddings", True)
    return Naming(keys.where, kind, _named(values), _GPT2, tied, transforms=kinds)


_FAMILIES: dict[str, Callable[[Keys, str], Naming]] = {
    "llama": _llama,
    "mistral": _llama,
    "qwen2": _qwen,
    "qwen3": _qwen,
    "gemma3": _gemma3,
    "gemma3_text": _gemma3,
    "phi3": _phi3,
    "gpt2": _gpt2,
}
