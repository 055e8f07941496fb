"""Nomic Embed: BERT with rotary positions and SwiGLU, without biases of matrices."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from halfbyte.formats.model_file import ModelFile
from halfbyte.text.architectures import _encoder
from halfbyte.text.architectures._encoder import Block, Config
from halfbyte.text.architectures._keys import Keys
from halfbyte.text.architectures.bert import EMBEDDINGS, HEAD_NAMES

if TYPE_CHECKING:
    from halfbyte.formats.huggingface.config import Keys as ConfigKeys
    from halfbyte.formats.huggingface.names import Translation

TABLES = _encoder.TABLES
EQUALIZED = {"ffn_up": ("ffn_down",)}
HEADS = _encoder.HEADS
MODEL_TYPES = ("nomic_bert",)
BLOCK = Block(activation="silu", gated=True, rotary=True)
build = partial(_encoder.build, BLOCK)

# Those of `transformers` for encoders with rotary positions and norms after each part
NAMES = {
    **EMBEDDINGS,
    **HEAD_NAMES,
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "attn_output_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "post_mlp_layernorm": "layer_output_norm",
}
# Those of Nomic's own code, and its keys
OWN_NAMES = {
    **EMBEDDINGS,
    "emb_ln": "token_embd_norm",
    "attn.Wqkv": "attn_qkv",
    "attn.out_proj": "attn_output",
    "norm1": "attn_output_norm",
    "mlp.fc11": "ffn_up",
    "mlp.fc12": "ffn_gate",
    "mlp.fc2": "ffn_down",
    "norm2": "layer_output_norm",
}


def variant(keys: ConfigKeys) -> str:
    """The architecture of a config with experts."""
    return "nomic_bert_moe" if keys.get("moe_every_n_layers") else ""


def translate(config: Translation) -> None:
    """Translate a config.json into GGUF's terms."""
    if config.keys.get("n_embd") is not None:
        translate_own(config, "swiglu")
        for key in ("qkv_proj_bias", "mlp_fc1_bias", "mlp_fc2_bias"):
            config.keys.expect(key, False)
        config.names = OWN_NAMES
    else:
        config.keys = config.keys.otherwise(rope_theta=1000.0)
        config.keys.expect("hidden_act", "silu")
        config.keys.expect("head_dim", None, *_head_dim(config))
        config.names = NAMES
    config.encoder("nomic-bert")
    config.rotates_heads()
    _encoder.without_task(config, config.classifies())


def _head_dim(config: Translation) -> list[int]:
    keys = config.keys
    return [keys.integer("hidden_size") // keys.integer("num_attention_heads")]


def translate_own(config: Translation, activation: str) -> None:
    """The keys of a config of Nomic's own code, whose scaling begins beyond the trained context."""
    keys = config.keys
    for key in ("causal", "prenorm", "parallel_block", "use_rms_norm", "rotary_emb_interleaved"):
        keys.expect(key, False, None)
    keys.expect("activation_function", activation)
    keys.expect("rotary_emb_fraction", 1.0, 1)
    keys.expect("rotary_emb_scale_base", None)
    trained = min(keys.integer("n_positions"), keys.integer("max_trained_positions", 2048))
    config.keys = keys.renamed(
        hidden_size="n_embd", num_hidden_layers="n_layer", num_attention_heads="n_head",
        intermediate_size="n_inner", layer_norm_eps="layer_norm_epsilon",
        rope_theta="rotary_emb_base",
    ).replaced(max_position_embeddings=trained)  # fmt: skip


def read_config(file: ModelFile) -> Config:
    """Hyperparameters from metadata, under ``nomic-bert.*``."""
    return _encoder.read_config(Keys(file, "nomic-bert"), BLOCK)
