"""LFM2: short gated convolutions over the last tokens, and attention in some layers.

The state of a convolution is what its first gate let through of the last tokens. The final norm has
the name of a norm of embeddings, as in llama.cpp's files.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from halfbyte.core import ops
from halfbyte.core.buffer import Buffer
from halfbyte.core.program import Program, capture
from halfbyte.errors import FormatError
from halfbyte.formats.model_file import ModelFile
from halfbyte.formats.transforms import KERNELS
from halfbyte.text.architectures import CHANNELS, _decoder, _experts
from halfbyte.text.architectures._decoder import ATTENTION, Decoder, RotaryConfig
from halfbyte.text.architectures._experts import Experts
from halfbyte.text.architectures._keys import Keys

if TYPE_CHECKING:
    from halfbyte.formats.huggingface.names import Translation

TABLES: frozenset[str] = frozenset()
EQUALIZED = {
    "attn_norm": ("attn_q", "attn_k", "attn_v", "shortconv.in_proj"),
    "ffn_norm": CHANNELS["ffn_norm"],
    "token_embd_norm": CHANNELS["output_norm"],
    "ffn_up": CHANNELS["ffn_up"],
}
MODEL_TYPES = ("lfm2",)
KINDS = ("conv", "full_attention")
NAMES = {
    "embed_tokens": "token_embd",
    "embedding_norm": "token_embd_norm",
    "lm_head": "output",
    "operator_norm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.out_proj": "attn_output",
    "self_attn.q_layernorm": "attn_q_norm",
    "self_attn.k_layernorm": "attn_k_norm",
    "conv.in_proj": "shortconv.in_proj",
    "conv.conv": "shortconv.conv",
    "conv.out_proj": "shortconv.out_proj",
    "ffn_norm": "ffn_norm",
    "feed_forward.w1": "ffn_gate",
    "feed_forward.w3": "ffn_up",
    "feed_forward.w2": "ffn_down",
}
# Usual names of keys -> those that the first models have, which count first
_OLD = {
    "intermediate_size": "block_ff_dim", "tie_word_embeddings": "tie_embedding",
    "rope_theta": "theta",
}  # fmt: skip
_MAX_TAPS = 64


def translate(config: Translation, architecture: str = "lfm2") -> None:
    """Translate a config.json into GGUF's terms."""
    values = config.keys.values
    old = {new: values[name] for new, name in _OLD.items() if name in values}
    keys = config.keys.replaced(**old).renamed(rms_norm_eps="norm_eps")
    config.keys = keys = keys.otherwise(rope_theta=1_000_000.0)
    keys.expect("conv_bias", False)
    config.decoder(architecture, default_epsilon=1e-5)
    config.rope()
    translate_kinds(config, _types(config), KINDS)
    translate_convolution(config, taps=3)
    config.metadata["feed_forward_length"] = np.uint32(_hidden(config))
    config.names = NAMES
    config.tied = keys.boolean("tie_word_embeddings", True)


def translate_convolution(config: Translation, taps: int) -> None:
    """Set the sizes of convolutions, by default of so many taps."""
    taps = config.keys.integer("conv_L_cache", taps, maximum=_MAX_TAPS)
    config.metadata["shortconv.l_cache"] = np.uint32(taps)
    dim = config.size("embedding_length")
    config.shapes |= {
        "shortconv.in_proj": (3 * dim, dim),
        "shortconv.conv": (dim, 1, taps),
        "shortconv.out_proj": (dim, dim),
    }
    config.transforms["shortconv.conv.weight"] = KERNELS


def translate_kinds(config: Translation, types: list[str], known: tuple[str, ...]) -> None:
    """Set which layers attend, by their types: all that are known but the first one."""
    layers = config.size("block_count")
    if len(types) != layers or any(kind not in known for kind in types):
        raise FormatError(f"{config.keys.where}: key 'layer_types': expected {layers} of {known}")
    config.uneven = tuple(
        f"blk.{layer}.{part}"
        for layer, kind in enumerate(types)
        for part in (ATTENTION if kind == "conv" else ("shortconv",))
    )
    heads = config.size("attention.head_count_kv")
    counts = [heads * (kind != "conv") for kind in types]
    config.metadata["attention.head_count_kv"] = np.array(counts, np.int32)


def _types(config: Translation) -> list[str]:
    """The kinds of layers: `layer_types`, or `full_attn_idxs` in older files, or all attend."""
    keys, layers = config.keys, config.size("block_count")
    types = keys.list("layer_types")
    if not types:
        attends = keys.list("full_attn_idxs") or range(layers)
        types = [KINDS[layer in attends] for layer in range(min(layers, 1 << 10))]
    return types


def _hidden(config: Translation) -> int:
    """Width of the feed-forward part: by default two thirds, rounded up to a multiple."""
    keys = config.keys
    hidden = keys.integer("intermediate_size")
    if not keys.boolean("block_auto_adjust_ff_dim", True):
        return hidden
    multiple = keys.integer("block_multiple_of", 256)
    hidden = int(keys.number("block_ffn_dim_multiplier", 1.0) * int(2 * hidden / 3))
    return min(-(-hidden // multiple) * multiple, (1 << 32) - 1)


@dataclass(frozen=True)
class Config(RotaryConfig):
    """Hyperparameters with LFM2's own."""

    attends: tuple[bool, ...] = ()  # each layer
    taps: int = 0  # shortconv.l_cache: tokens of a convolution
    experts: Experts | None = None


def read_config(file: ModelFile) -> Config:
    """Hyperparameters from metadata, under ``lfm2.*``."""
    return read(Keys(file, "lfm2"))


def read(keys: Keys, experts: Experts | None = None) -> Config:
    """Hyperparameters of a model with these layers."""
    attends, heads = keys.attends(keys.size("block_count", 1 << 10))
    c = _decoder.rotary(keys, kv_heads=heads)
    taps = read_convolution(keys).taps
    keys.refuse_others(c.head_dim)
    return Config(**vars(c), attends=attends, taps=taps, experts=experts)


def build(file: ModelFile, config: Config, *, context: int, batch: int, cache: str) -> Program:
    """Capture the model; see :class:`Decoder`."""
    with capture(file.path.name) as program:
        model = Decoder(file, config, program, context, batch, cache)
        rope = model.rope(config, interleaved=False)
        x = model.embed()
        for layer in range(config.layers):
            block = f"blk.{layer}."
            h = model.norm(x, block + "attn_norm")
            if config.attends[layer]:
                q, k, v = model.queries_keys_values(h, block)
                q = model.norm(q, block + "attn_q_norm", heads=config.heads)
                k = model.norm(k, block + "attn_k_norm", heads=config.kv_heads)
                mixed = model.attend(block, q, k, v, rope=rope, window=config.windows[layer])
                x = ops.add(x, model.linear(mixed, block + "attn_output", config.dim))
            else:
                x = ops.add(x, ShortConvolution(config.taps).mixed(model, h, block))
            h = model.norm(x, block + "ffn_norm")
            if config.experts is None or not config.experts.in_layer(layer):
                y = model.fed_forward(h, block, "silu", gated=True)
            else:
                y = _experts.mixture(model, h, block, config.experts, "silu")
            x = ops.add(x, y)
        x = ops.last_rows(x, rows=model.logit_rows)
        model.head(model.norm(x, "token_embd_norm"))
    return program


@dataclass(frozen=True)
class ShortConvolution:
    """A gated convolution over the last `taps` tokens."""

    taps: int

    def mixed(self, model: Decoder, x: Buffer, block: str) -> Buffer:
        """gate * conv(input gate * input), through `out_proj`."""
        dim = model.config.dim
        before, after, values = model.fused(x, block + "shortconv.in_proj", (dim, dim, dim))
        y = model.causal_conv(ops.mul(before, values), block, "shortconv.conv", self.taps)
        return model.linear(ops.mul(after, y), block + "shortconv.out_proj", dim)


def read_convolution(keys: Keys) -> ShortConvolution:
    """Hyperparameters from metadata."""
    return ShortConvolution(keys.size("shortconv.l_cache", _MAX_TAPS, low=2))
