"""RWKV 7 ("Goose"): layers of `_rwkv`, and feed-forward parts that read the token before, too."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from halfbyte.core import ops
from halfbyte.core.buffer import Buffer
from halfbyte.core.program import Program, capture
from halfbyte.errors import UnsupportedError
from halfbyte.formats.model_file import ModelFile
from halfbyte.formats.transforms import FLATTENED
from halfbyte.text.architectures._decoder import activated
from halfbyte.text.architectures._keys import Keys
from halfbyte.text.architectures._rwkv import EPSILON, RANKS, Config, Layers, read

if TYPE_CHECKING:
    from halfbyte.formats.huggingface.names import Translation

TABLES: frozenset[str] = frozenset()
EQUALIZED: dict[str, tuple[str, ...]] = {}  # biases forbid it
MODEL_TYPES = ("rwkv7",)
_LOW_RANKS = {"w": "decay", "a": "a", "v": "v", "g": "gate"}  # in keys of config.json
_NAMES = {
    "embeddings": "token_embd",
    "pre_norm": ".token_embd_norm",
    "norm": "output_norm",
    "lm_head": "output",
    "attn_norm": "attn_norm",
    "ffn_norm": "attn_norm_2",
    "attn.r_proj": "time_mix_receptance",
    "attn.k_proj": "time_mix_key",
    "attn.v_proj": "time_mix_value",
    "attn.o_proj": "time_mix_output",
    "attn.g_norm": "time_mix_ln",
    "ffn.x_k": "channel_mix_lerp_k",
    "ffn.key": "channel_mix_key",
    "ffn.value": "channel_mix_value",
    **{f"attn.{name}": f"time_mix_{name}" for name in ("k_k", "k_a", "r_k")},
    **{f"attn.x_{p}": f"time_mix_lerp_fused.weight[{i}]." for i, p in enumerate("rwkvag")},
    **{f"attn.{p}_lora.lora.0": f"time_mix_{p}1" for p in RANKS},
    **{f"attn.{p}_lora.lora.2": f"time_mix_{p}2" for p in RANKS},
    **{f"attn.{p}_lora.lora.2.bias": f"time_mix_{p}0.weight." for p in RANKS},
}


def translate(config: Translation) -> None:
    """Translate a config.json of flash-linear-attention into GGUF's terms."""
    keys, config.architecture = config.keys, "rwkv7"
    expected = {"hidden_act": "sqrelu", "norm_first": True, "norm_bias": True, "attn": None}
    for key, value in expected.items():
        keys.expect(key, value)
    size, epsilon = keys.integer("head_dim", 64), keys.number("norm_eps", 1e-5)
    if not np.isclose(size * epsilon, EPSILON, rtol=1e-5, atol=0):
        raise UnsupportedError(
            f"{keys.where}: keys 'head_dim' and 'norm_eps': expected {EPSILON:g} as their product, "
            f"found {size * epsilon:g}"
        )
    dim = keys.integer("hidden_size", maximum=1 << 20)
    hidden = -(-dim * keys.integer("hidden_ratio", 4) // 32) * 32
    ranks = {p: keys.integer(f"{n}_low_rank_dim", maximum=1 << 16) for p, n in _LOW_RANKS.items()}
    config.metadata |= {
        "vocab_size": np.uint32(keys.integer("vocab_size")),
        "context_length": np.uint32(1 << 20),  # as in llama.cpp's files: there is no limit
        "embedding_length": np.uint32(dim),
        "block_count": np.uint32(keys.integer("num_hidden_layers")),
        "feed_forward_length": np.uint32(keys.integer("intermediate_size", hidden)),
        "attention.head_count": np.uint32(0),
        "attention.layer_norm_epsilon": np.float32(epsilon),
        "wkv.head_size": np.uint32(size),
        **{key: np.uint32(ranks[part]) for part, key in RANKS.items()},
    }
    _set_shapes(config, dim, size, ranks)
    config.names = _NAMES
    config.tied = keys.boolean("tie_word_embeddings", False)


def _set_shapes(config: Translation, dim: int, size: int, ranks: dict[str, int]) -> None:
    """Set the shapes of tensors, and make those that llama.cpp expects in vain."""
    hidden, square = config.size("feed_forward_length"), ("receptance", "key", "value", "output")
    config.shapes |= {
        **{f"time_mix_{name}": (dim, dim) for name in square},
        **{f"time_mix_{part}1": (rank, dim) for part, rank in ranks.items()},
        **{f"time_mix_{part}2": (dim, rank) for part, rank in ranks.items()},
        "time_mix_lerp_fused": (6, 1, 1, dim),
        "time_mix_r_k": (dim // size, size),
        "channel_mix_key": (hidden, dim),
        "channel_mix_value": (dim, hidden),
    }
    config.transforms["time_mix_r_k.weight"] = FLATTENED
    config.dropped = ("layers.0.attn.v_lora.",)  # the first layer's values are its own
    config.uneven = ("blk.0.time_mix_v",)
    unused: tuple[tuple[int, ...], ...] = ((dim,), (ranks["a"], dim), (dim, ranks["a"]))
    for number, shape in enumerate(unused):
        config.tensors[f"blk.0.time_mix_v{number}.weight"] = np.zeros(shape, np.float32)


def read_config(file: ModelFile) -> Config:
    """Hyperparameters from metadata, under ``rwkv7.*``."""
    return read(Keys(file, "rwkv7"), "attention.layer_norm_epsilon", 2)


def build(file: ModelFile, config: Config, *, context: int, batch: int, cache: str) -> Program:
    """Capture the model; see :class:`_decoder.Decoder`."""
    with capture(file.path.name) as program:
        model = Layers(file, config, program, context, batch, cache)
        x = model.layer_norm(model.embed(), "token_embd_norm")
        for number in range(config.layers):
            block = f"blk.{number}."
            x = ops.add(x, model.time_mix(model.layer_norm(x, block + "attn_norm"), block))
            x = ops.add(x, _channel_mix(model, x, block))
        x = ops.last_rows(x, rows=model.logit_rows)
        model.head(model.layer_norm(x, "output_norm"))
    return program


def _channel_mix(model: Layers, x: Buffer, block: str) -> Buffer:
    """The feed-forward part of a layer, which reads the token before, too."""
    c, name = model.c, block + "channel_mix_"
    x = model.layer_norm(x, block + "attn_norm_2")
    (h,) = model.shifted(x, name + "lerp_k", "k", c.dim)
    h = activated(model.linear(h, name + "key", c.hidden), "relu_squared")
    return model.linear(h, name + "value", c.dim)
