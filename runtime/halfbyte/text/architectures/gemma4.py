"""Gemma 4 (text): an input for each layer in small models, experts in one of the large ones.

Heads of layers that see everything are wider than those of layers with a window, and rotate some of
their pairs only; they may have fewer keys, which may be their values, too. Experts stand beside the
feed-forward part. Norms are as in Gemma 3, but their gains are in files as they are.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from halfbyte.core import ops
from halfbyte.core.buffer import Buffer
from halfbyte.core.program import Program, capture
from halfbyte.errors import FormatError
from halfbyte.formats.model_file import ModelFile
from halfbyte.text.architectures import CHANNELS, _experts, _per_layer
from halfbyte.text.architectures._experts import Experts
from halfbyte.text.architectures._keys import Keys
from halfbyte.text.architectures._per_layer import Layers

if TYPE_CHECKING:
    from halfbyte.formats.huggingface.config import Keys as ConfigKeys
    from halfbyte.formats.huggingface.names import Translation

TABLES = frozenset({"rope_freqs.weight"})
EQUALIZED = {
    **CHANNELS,
    "ffn_norm": ("ffn_gate", "ffn_up"),
    "pre_ffw_norm_2": ("ffn_gate_exps", "ffn_up_exps", "ffn_gate_up_exps"),
}
MODEL_TYPES = ("gemma4_text", "gemma4_unified_text")
PERIOD = 6  # layers, the last without a window, if a folder does not say
_MAX_HEAD = 1 << 12
_STILL = 1e30  # divides the frequencies of pairs that do not rotate
_NAMES = {
    "layer_scalar": "layer_output_scale",
    "router.proj": "ffn_gate_inp",
    "router.scale": "ffn_gate_inp.scale.",
    "router.per_expert_scale": "ffn_down_exps.scale.",
    "experts.gate_up_proj": "ffn_gate_up_exps",
    "experts.down_proj": "ffn_down_exps",
    "pre_feedforward_layernorm_2": "pre_ffw_norm_2",
    "post_feedforward_layernorm_1": "post_ffw_norm_1",
    "post_feedforward_layernorm_2": "post_ffw_norm_2",
}


def translate(config: Translation) -> None:
    """Translate a config.json into GGUF's terms."""
    if config.kind == "gemma4_unified_text":
        own = {"hidden_size_per_layer_input": 0, "enable_moe_block": False}
        config.keys = config.keys.otherwise(sliding_window=1024).replaced(**own)
    keys = config.keys
    keys.expect("use_bidirectional_attention", "vision", None)
    if not keys.list("layer_types"):
        layers = keys.integer("num_hidden_layers", maximum=1 << 10)
        kinds = [(layer + 1) % PERIOD and "sliding_attention" for layer in range(layers)]
        config.keys = keys.replaced(layer_types=[kind or "full_attention" for kind in kinds])
    local = _per_layer.translate(config, "gemma4", shared=0)
    if local[-1]:
        raise FormatError(f"{keys.where}: key 'layer_types': expected 'full_attention' at the end")
    config.names = {**config.names, **_NAMES}
    config.shapes["layer_output_scale"] = (1,)
    _translate_heads(config, local)
    _translate_hidden(config)
    inputs = _per_layer.count(keys, "hidden_size_per_layer_input", 256, maximum=1 << 16)
    _per_layer.translate_inputs(config, inputs)
    if keys.boolean("enable_moe_block", False):
        _experts.translate(
            config, count="num_experts", hidden="moe_intermediate_size", used="top_k_experts"
        )
        count, dim = config.size("expert_count"), config.size("embedding_length")
        config.shapes |= {"ffn_gate_inp.scale": (dim,), "ffn_down_exps.scale": (count,)}


def _translate_heads(config: Translation, local: list[bool]) -> None:
    """Set sizes and rotation of both kinds of heads."""
    keys, values = config.keys, config.metadata
    narrow, few = config.size("attention.key_length"), config.size("attention.head_count_kv")
    head, kv_heads = _wide_heads(keys, local, few)
    values |= {
        "attention.key_length": np.uint32(head),
        "attention.value_length": np.uint32(head),
        "attention.key_length_swa": np.uint32(narrow),
        "attention.value_length_swa": np.uint32(narrow),
        "rope.dimension_count": np.uint32(head),
        "rope.dimension_count_swa": np.uint32(narrow),
    }
    if kv_heads != few:
        counts = [few if window else kv_heads for window in local]
        values["attention.head_count_kv"] = np.array(counts, np.int32)
    dim, heads = config.size("embedding_length"), config.size("attention.head_count")
    for layer, window in enumerate(local):
        size, count = (narrow, few) if window else (head, kv_heads)
        name = f"blk.{layer}.attn_"
        config.shapes |= {
            f"{name}q": (heads * size, dim), f"{name}k": (count * size, dim),
            f"{name}v": (count * size, dim), f"{name}output": (dim, heads * size),
            f"{name}q_norm": (size,), f"{name}k_norm": (size,),
        }  # fmt: skip
        if not window and keys.boolean("attention_k_eq_v", False):
            config.uneven += (f"{name}v",)
    translate_rope(config, head)


def _wide_heads(keys: ConfigKeys, local: list[bool], kv_heads: int) -> tuple[int, int]:
    """Elements and key heads of layers that see everything.

    They have keys of their own in the hub's configs, and an object of each layer's in newer ones.
    """
    if not keys.boolean("attention_k_eq_v", False):
        keys = keys.replaced(num_global_key_value_heads=None)
    head = keys.integer("global_head_dim", 512, maximum=_MAX_HEAD)
    found = head, keys.integer("num_global_key_value_heads", kv_heads)
    if keys.get("per_layer_config") is None:
        return found
    layers, wide = keys.inner("per_layer_config"), set()
    numbers = {int(name): name for name in layers.values if re.fullmatch(r"\d{1,4}", name)}
    for own in map(layers.inner, numbers.values()):
        sizes = own.integer("head_dim", keys.integer("head_dim", 256), maximum=_MAX_HEAD)
        wide.add((sizes, own.integer("num_key_value_heads", kv_heads)))
        if unknown := own.values.keys() - {"head_dim", "num_key_value_heads"}:
            own.expect(min(unknown), None)
    everywhere = {layer for layer, window in enumerate(local) if not window}
    if len(wide) != 1 or len(numbers) != len(layers.values) or numbers.keys() != everywhere:
        raise FormatError(
            f"{layers.where}: expected the same sizes in all layers of type 'full_attention', and "
            "no others"
        )
    return wide.pop()


def translate_rope(config: Translation, head: int, share: float = 0.25) -> None:
    """Bases of both kinds of layers, and which pairs rotate where everything is seen.

    By default these are a `share` of a head's.
    """
    rope = config.keys.rope()
    local = rope.inner("sliding_attention").otherwise(rope_theta=10000.0)
    local.expect("rope_type", "default", None)
    everywhere = rope.inner("full_attention")
    if not everywhere.values:
        everywhere = everywhere.otherwise(
            rope_type="proportional", partial_rotary_factor=share, rope_theta=1_000_000.0
        )
    share = 1.0
    if everywhere.one_of("rope_type", "default", "proportional") == "proportional":
        everywhere.expect("factor", 1, None)
        share = everywhere.number("partial_rotary_factor", 1.0)
    if share > 1:
        raise FormatError(f"{everywhere.where}: key 'partial_rotary_factor': expected at most 1")
    config.metadata |= {
        "rope.freq_base": np.float32(everywhere.number("rope_theta", 1_000_000.0)),
        "rope.freq_base_swa": np.float32(local.number("rope_theta")),
    }
    factors = np.full(head // 2, _STILL, np.float32)
    factors[: int(share * head // 2)] = 1
    config.tensors["rope_freqs.weight"] = factors


def _translate_hidden(config: Translation) -> None:
    """Set the width of feed-forward parts, twice as large without keys, if config.json says so."""
    if not config.keys.boolean("use_double_wide_mlp", False):
        return
    hidden, layers = config.size("feed_forward_length"), config.size("block_count")
    first = layers - config.size("attention.shared_kv_layers")
    sizes = [hidden * (2 if layer >= first else 1) for layer in range(layers)]
    _per_layer.set_hidden(config, sizes)


@dataclass(frozen=True)
class Config(_per_layer.Config):
    """Hyperparameters with Gemma 4's own."""

    experts: Experts | None = None


def read_config(file: ModelFile) -> Config:
    """Hyperparameters from metadata, under ``gemma4.*``."""
    keys = Keys(file, "gemma4")
    experts = _experts.read(keys, optional=True)
    return Config(**_per_layer.read(keys, PERIOD, experts=experts))


def build(file: ModelFile, config: Config, *, context: int, batch: int, cache: str) -> Program:
    """Capture the model; see :class:`_decoder.Decoder`."""
    with capture(file.path.name) as program:
        model = Layers(file, config, program, context, batch, cache)
        x = model.start()
        for layer in range(config.layers):
            (x,) = model.narrow([x])
            x = _layer(model, x, layer, config.experts)
        (x,) = model.narrow([x])
        model.head(model.norm(x, "output_norm"), config.softcap)
    return program


def _layer(model: Layers, x: Buffer, layer: int, experts: Experts | None) -> Buffer:
    """A layer's output."""
    name = model.enter(layer)
    y = model.attended(model.norm(x, name + "attn_norm"), layer)
    x = ops.add(x, model.norm(y, name + "post_attention_norm"))
    y = model.fed_forward(model.norm(x, name + "ffn_norm"), name, "gelu_tanh", gated=True)
    if experts is not None:
        y = ops.add(model.norm(y, name + "post_ffw_norm_1"), _mixture(model, x, name, experts))
    x = ops.add(x, model.norm(y, name + "post_ffw_norm"))
    if model.whole.inputs:
        x = ops.add(x, model.with_input(x, layer))
    scale = f"{name}layer_output_scale.weight"
    if model.has(scale):
        factor = model.tensor(scale, 1).decode()
        x = ops.mul(x, model.row(scale, np.repeat(factor, model.config.dim)))
    return x


def _mixture(model: Layers, x: Buffer, name: str, experts: Experts) -> Buffer:
    """The experts' part; the router reads x by a norm of its own."""
    dim = model.config.dim
    gain = model.tensor(f"{name}ffn_gate_inp.scale", dim).decode() * np.float32(dim**-0.5)
    row = model.program.constant(f"{name}ffn_gate_inp.scale", gain)
    router = ops.rms_norm(x, row, epsilon=model.config.epsilon)
    h = model.norm(x, name + "pre_ffw_norm_2")
    y = _experts.mixture(model, h, name, experts, "gelu_tanh", router)
    return model.norm(y, name + "post_ffw_norm_2")
