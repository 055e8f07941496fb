"""Nemotron H: each layer is a state space, attention without positions, or a feed-forward part.

In models with experts, which GGUF calls ``nemotron_h_moe``, all feed-forward parts have them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from halfbyte.core import ops
from halfbyte.core.buffer import Buffer
from halfbyte.core.program import Program, capture
from halfbyte.errors import FormatError
from halfbyte.formats import metadata
from halfbyte.formats.model_file import ModelFile
from halfbyte.text.architectures import CHANNELS, _decoder, _experts, _ssm
from halfbyte.text.architectures._decoder import ATTENTION, Decoder
from halfbyte.text.architectures._experts import Experts
from halfbyte.text.architectures._keys import Keys
from halfbyte.text.architectures._ssm import StateSpace

if TYPE_CHECKING:
    from halfbyte.formats.huggingface.config import Keys as ConfigKeys
    from halfbyte.formats.huggingface.names import Translation

TABLES: frozenset[str] = frozenset()
EQUALIZED = {
    "attn_norm": (*CHANNELS["attn_norm"], "ssm_in", "ffn_up"),
    "output_norm": CHANNELS["output_norm"],
}
MODEL_TYPES = ("nemotron_h",)
SPACE, ATTENDS, FEEDS, EXPERTS = "linear_attention", "full_attention", "mlp", "moe"
_LETTERS = {"M": SPACE, "*": ATTENDS, "-": FEEDS, "E": EXPERTS}  # of `hybrid_override_pattern`
_OLD = {"mamba": SPACE, "attention": ATTENDS}
_PARTS = {
    SPACE: ("ssm_",),
    ATTENDS: ATTENTION,
    FEEDS: ("ffn_up.", "ffn_down."),
    EXPERTS: ("ffn_", "exp_probs_b."),
}
_EPSILON = "attention.layer_norm_rms_epsilon"
_LAYER_EPSILON = "attention.layer_norm_epsilon"  # which llama.cpp asks for, too


def kinds(keys: ConfigKeys) -> list[str]:
    """The kind of each layer, by `layers_block_type` or `hybrid_override_pattern`."""
    pattern = keys.text("hybrid_override_pattern", "")
    types = [str(kind) for kind in keys.list("layers_block_type")]
    types = [_OLD.get(kind, kind) for kind in types] or [_LETTERS.get(c, c) for c in pattern]
    if not 1 <= len(types) <= 1 << 10 or any(kind not in _PARTS for kind in types):
        raise FormatError(
            f"{keys.where}: key 'layers_block_type': expected 1 to {1 << 10} of {tuple(_PARTS)}"
        )
    if FEEDS in types and EXPERTS in types:
        raise FormatError(
            f"{keys.where}: key 'layers_block_type': expected 'mlp' or 'moe', found both"
        )
    return types


def variant(keys: ConfigKeys) -> str:
    """The architecture of a config with experts."""
    return "nemotron_h_moe" if EXPERTS in kinds(keys) else ""


def translate(config: Translation) -> None:
    """Translate a config.json into GGUF's terms."""
    translate_parts(config, "nemotron_h")
    translate_layers(config)


def translate_parts(config: Translation, architecture: str) -> None:
    """Set the sizes and names of layers without experts."""
    keys, types = config.keys, kinds(config.keys)
    for key in ("attention_bias", "mlp_bias", "mamba_proj_bias", "use_bias"):
        keys.expect(key, False)
    keys.expect("use_conv_bias", True)
    keys.expect("mlp_hidden_act", "relu2")
    keys.expect("mamba_hidden_act", "silu")
    keys.expect("sliding_window", None)
    config.keys = keys = keys.renamed(rms_norm_eps="layer_norm_epsilon").replaced(
        num_hidden_layers=len(types)
    )
    config.decoder(architecture, 128, default_epsilon=1e-5)
    del config.metadata["rope.dimension_count"]
    config.metadata[_LAYER_EPSILON] = config.metadata[_EPSILON]
    heads = keys.integer("mamba_num_heads", 128, maximum=_ssm.MAX_HEADS)
    _ssm.translate(
        config,
        channels=heads * keys.integer("mamba_head_dim", 64),
        heads=heads,
        groups=keys.integer("n_groups", 8),
        states=keys.integer("ssm_state_size", 128),
        taps=keys.integer("conv_kernel", 4),
    )
    part = "mixer"
    config.names = {
        "embeddings": "token_embd",
        "norm_f": "output_norm",
        "lm_head": "output",
        "norm": "attn_norm",
        **_ssm.names(part),
        **{f"{part}.{n}_proj": f"attn_{n}" for n in "qkv"},
        f"{part}.o_proj": "attn_output",
        f"{part}.up_proj": "ffn_up",
        f"{part}.down_proj": "ffn_down",
    }
    config.dropped = ("mtp.",)
    config.tied = keys.boolean("tie_word_embeddings", False)


def translate_layers(config: Translation) -> None:
    """Set which layers attend and which feed forward, once all sizes are known."""
    types = np.array(kinds(config.keys))
    for key, those in (
        ("attention.head_count_kv", types == ATTENDS),
        ("feed_forward_length", (types == FEEDS) | (types == EXPERTS)),
    ):
        config.metadata[key] = (those * config.size(key)).astype(np.int32)
    config.uneven = tuple(
        f"blk.{layer}.{part}"
        for layer, own in enumerate(types)
        for kind, parts in _PARTS.items()
        if kind != own
        for part in parts
    )


@dataclass(frozen=True)
class Config(_decoder.Config):
    """Sizes, with the kind of each layer; experts read `latent` elements, or 0 for all."""

    kinds: tuple[str, ...]
    space: StateSpace
    experts: Experts | None = None
    latent: int = 0


def read_config(file: ModelFile) -> Config:
    """Hyperparameters from metadata, under ``nemotron_h.*``."""
    return read(Keys(file, "nemotron_h"))


def read(keys: Keys, *, experts: bool = False) -> Config:
    """Hyperparameters of a model with these layers."""
    layers = keys.size("block_count", 1 << 10)
    attends, heads = keys.attends(layers)
    feeds, hidden = keys.of_some("feed_forward_length", layers, 1 << 22)
    if any(both := np.array(attends) & np.array(feeds)):
        layer = both.tolist().index(True)
        raise keys.error("feed_forward_length", f"expected 0 in layer {layer}, which attends")
    epsilon = _EPSILON if keys.has(_EPSILON) else _LAYER_EPSILON
    config = Config(
        **vars(_decoder.sizes(keys, epsilon, heads, hidden)),
        kinds=tuple(
            ATTENDS if attending else (EXPERTS if experts else FEEDS) if feeding else SPACE
            for attending, feeding in zip(attends, feeds, strict=True)
        ),
        space=_ssm.read(keys),
        experts=_experts.read(keys, gating=_experts.SIGMOID, hidden=hidden) if experts else None,
        latent=keys.size("moe_latent_size", 1 << 20, 0, low=0) if experts else 0,
    )
    keys.refuse_others(config.head_dim, {"expert_shared_count": metadata.ANY} if experts else None)
    return config


def build(file: ModelFile, config: Config, *, context: int, batch: int, cache: str) -> Program:
    """Capture the model; see :class:`Decoder`."""
    with capture(file.path.name) as program:
        model = Decoder(file, config, program, context, batch, cache)
        x = model.embed()
        for layer, kind in enumerate(config.kinds):
            block = f"blk.{layer}."
            h = model.norm(x, block + "attn_norm")
            x = ops.add(x, _part(model, config, h, block, kind))
        x = ops.last_rows(x, rows=model.logit_rows)
        model.head(model.norm(x, "output_norm"))
    return program


def _part(model: Decoder, config: Config, x: Buffer, block: str, kind: str) -> Buffer:
    """The result of a layer of this kind."""
    if kind == SPACE:
        return config.space.mixed(model, x, block)
    if kind == ATTENDS:
        q, k, v = model.projected(x, block)
        mixed = model.attend(block, q, k, v, rope=None)
        return model.linear(mixed, block + "attn_output", config.dim, bias=None)
    experts, activation = config.experts, "relu_squared"
    if experts is None:
        return model.fed_forward(x, block, activation, gated=False)
    h = model.linear(x, block + "ffn_latent_down", config.latent) if config.latent else x
    y = _experts.mixture(model, h, block, experts, activation, router=x, gated=False)
    if config.latent:
        y = model.linear(y, block + "ffn_latent_up", config.dim)
    if not experts.shared:
        return y
    shared = model.fed_forward(
        x, block, activation, gated=False, hidden=experts.shared, suffix="_shexp"
    )
    sums: Buffer = ops.add(y, shared)
    return sums
