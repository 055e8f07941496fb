"""LFM 3: short convolutions, attention with a window, and attention to everything.

Each head's result is multiplied with a gate. Layers that see everything rotate half of the pairs of
a head, with a base of their own. Results of parts are normed.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from halfbyte.core.program import Program
from halfbyte.formats.model_file import ModelFile
from halfbyte.text.architectures import _block, gemma4, lfm2
from halfbyte.text.architectures._block import Block, Config
from halfbyte.text.architectures._keys import Keys

if TYPE_CHECKING:
    from halfbyte.formats.huggingface.names import Translation

TABLES = _block.TABLES
EQUALIZED = {
    "attn_norm": (*lfm2.EQUALIZED["attn_norm"], "attn_gate"),
    "ffn_norm": lfm2.EQUALIZED["ffn_norm"],
    "output_norm": ("output",),
    "ffn_up": lfm2.EQUALIZED["ffn_up"],
}
MODEL_TYPES = ("lfm3",)
BLOCK = Block(head_norms="heads")
_NAMES = {
    "embedding_norm": "output_norm",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "self_attn.g_proj": "attn_gate",
    "self_attn.gate_proj": "attn_gate",  # in published folders
    "post_operator_norm": "post_attention_norm",
    "post_ffn_norm": "post_ffw_norm",
}
_KINDS = (*lfm2.KINDS, "sliding_attention")


def translate(config: Translation) -> None:
    """Translate a config.json into GGUF's terms."""
    keys = config.keys.renamed(rms_norm_eps="norm_eps")
    config.keys = keys = keys.otherwise(head_dim=128, sliding_window=256)
    keys.expect("conv_bias", False)
    keys.expect("attention_bias", False)
    config.decoder("lfm3", default_epsilon=1e-5)
    types = [str(kind) for kind in keys.list("layer_types")] or _usual(config.size("block_count"))
    config.windows([kind == "sliding_attention" for kind in types])
    lfm2.translate_kinds(config, types, _KINDS)
    config.uneven += tuple(f"blk.{i}.attn_gate" for i, kind in enumerate(types) if kind == "conv")
    lfm2.translate_convolution(config, taps=7)
    gemma4.translate_rope(config, config.size("attention.key_length"), 0.5)
    heads, dim = config.size("attention.head_count"), config.size("embedding_length")
    config.shapes["attn_gate"] = (heads, dim)
    config.names = {**lfm2.NAMES, **_NAMES}
    config.tied = keys.boolean("tie_word_embeddings", True)


def _usual(layers: int) -> list[str]:
    """Kinds of layers where config.json has none."""
    kinds = ("sliding_attention", "conv", "full_attention", "conv")
    return ["conv", *(kinds[layer % 4] for layer in range(1, min(layers, 1 << 10)))]


def read_config(file: ModelFile) -> Config:
    """Hyperparameters from metadata, under ``lfm3.*``."""
    keys = Keys(file, "lfm3")
    attends, heads = keys.attends(keys.size("block_count", 1 << 10))
    return _block.read_config(
        keys, BLOCK, kv_heads=heads, attends=attends, mixer=lfm2.read_convolution(keys),
        local_base=keys.number("rope.freq_base_swa", 10000.0),
    )  # fmt: skip


def build(file: ModelFile, config: Config, *, context: int, batch: int, cache: str) -> Program:
    """Capture the model; see :class:`_decoder.Decoder`."""
    names = file.tensors
    block = replace(
        BLOCK,
        after=any(name.endswith("post_ffw_norm.weight") for name in names),
        head_gates=any(name.endswith("attn_gate.weight") for name in names),
    )
    return _block.build(block, file, config, context=context, batch=batch, cache=cache)
