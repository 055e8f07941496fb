"""The config.json of each tiny model."""

from __future__ import annotations

import itertools
from typing import Any

from tests.formats.files import VOCABULARY

CONTEXT = 48  # tokens of the text

SIZES = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": VOCABULARY,
    "max_position_embeddings": CONTEXT,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}
_LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 16,
}
_LONG = {"long_factor": [1.5, 2.0, 4.0], "short_factor": [1.0, 1.25, 1.5], "rope_type": "longrope"}

_YARN = {
    "rope_type": "yarn",
    "rope_theta": 10000.0,
    "factor": 4.0,
    "original_max_position_embeddings": 12,
    "beta_fast": 4.0,
    "beta_slow": 0.5,
}
_MINISTRAL = {
    **_YARN, "mscale": 1.0, "mscale_all_dim": 1.0, "llama_4_scaling_beta": 0.3,
}  # fmt: skip
_GPT = {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": CONTEXT}
# Whose config.json has names of its own
OLD = {
    "gpt2", "gptj", "codegen", "gpt_neo", "gpt_bigcode", "opt", "bloom", "mpt", "falcon",
}  # fmt: skip
OLD_SIZES = {"vocab_size": VOCABULARY, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}

CONFIGS: dict[str, dict[str, Any]] = {
    "llama": {"model_type": "llama"},
    "llama-tied-biases": {
        "model_type": "llama",
        "tie_word_embeddings": True,
        "attention_bias": True,
        "mlp_bias": True,
        "num_key_value_heads": 4,
    },
    "llama3": {"model_type": "llama", "rope_scaling": _LLAMA3, "head_dim": 16},
    "llama-linear": {"model_type": "llama", "rope_scaling": {"rope_type": "linear", "factor": 4.0}},
    "mistral": {"model_type": "mistral", "sliding_window": 7},
    "qwen2": {"model_type": "qwen2", "tie_word_embeddings": True},
    "qwen2-window": {
        "model_type": "qwen2",
        "use_sliding_window": True,
        "sliding_window": 9,
        "max_window_layers": 1,
    },
    "qwen3": {"model_type": "qwen3", "head_dim": 12},
    "gemma3": {
        "model_type": "gemma3_text",
        "num_hidden_layers": 7,
        "head_dim": 16,
        "query_pre_attn_scalar": 16,
        "sliding_window": 8,
        "rope_theta": 50000.0,
        "rope_local_base_freq": 1000.0,
        "rope_scaling": {"rope_type": "linear", "factor": 8.0},
    },
    "gemma3-pattern": {
        "model_type": "gemma3_text",
        "head_dim": 16,
        "query_pre_attn_scalar": 16,
        "sliding_window": 5,
        "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
    },
    "gemma3-scale": {
        "model_type": "gemma3_text",
        "num_hidden_layers": 2,
        "head_dim": 16,
        "query_pre_attn_scalar": 24,
        "sliding_window": 48,
    },
    "phi3": {"model_type": "phi3", "sliding_window": 11, "original_max_position_embeddings": 48},
    "phi3-long": {
        "model_type": "phi3",
        "num_key_value_heads": 4,
        "partial_rotary_factor": 0.75,
        "original_max_position_embeddings": 24,
        "rope_scaling": _LONG,
    },
    "phi3-short": {
        "model_type": "phi3",
        "num_key_value_heads": 4,
        "partial_rotary_factor": 0.75,
        "original_max_position_embeddings": 256,
        "rope_scaling": _LONG,
    },
    "gpt2": {
        "model_type": "gpt2",
        "n_embd": 32,
        "n_layer": 3,
        "n_head": 4,
        "n_inner": 80,
        "n_positions": CONTEXT,
        "activation_function": "gelu_new",
        "layer_norm_epsilon": 1e-5,
        "vocab_size": VOCABULARY,
        "bos_token_id": 1,
        "eos_token_id": 2,
    },
    # ---- built by `_block`; on fewer backends: see EVERYWHERE
    "smollm3": {"model_type": "smollm3", "num_hidden_layers": 4},
    "arcee": {"model_type": "arcee", "rope_parameters": _YARN},
    "ministral": {
        "model_type": "ministral",
        "head_dim": 8,
        "sliding_window": 7,
        "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
    },
    "ministral3": {"model_type": "ministral3", "head_dim": 12, "rope_parameters": _MINISTRAL},
    "helium": {"model_type": "helium", "head_dim": 8},
    "olmo": {"model_type": "olmo", "clip_qkv": 1.5},
    "olmo2": {"model_type": "olmo2"},
    "olmo3": {
        "model_type": "olmo3",
        "num_hidden_layers": 4,
        "sliding_window": 9,
        "rope_parameters": {
            "full_attention": _YARN,
            "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
        },
    },
    "granite": {
        "model_type": "granite",
        "embedding_multiplier": 6.0,
        "residual_multiplier": 0.25,
        "attention_multiplier": 0.3,
        "logits_scaling": 4.0,
    },
    "stablelm": {"model_type": "stablelm", "use_qkv_bias": True, "layer_norm_eps": 1e-5},
    "stablelm-parallel": {
        "model_type": "stablelm",
        "num_hidden_layers": 2,
        "use_parallel_residual": True,
        "partial_rotary_factor": 0.5,
    },
    "starcoder2": {"model_type": "starcoder2", "sliding_window": 11, "use_bias": True},
    "gemma": {"model_type": "gemma", "head_dim": 16, "hidden_act": "gelu_pytorch_tanh"},
    "gemma2": {
        "model_type": "gemma2",
        "num_hidden_layers": 4,
        "head_dim": 16,
        "query_pre_attn_scalar": 16,
        "sliding_window": 8,
        "attn_logit_softcapping": 2.0,
        "final_logit_softcapping": 3.0,
    },
    "glm": {"model_type": "glm", "head_dim": 8, "attention_bias": True},
    "glm4": {"model_type": "glm4", "head_dim": 8, "attention_bias": True},
    "exaone4": {
        "model_type": "exaone4",
        "num_hidden_layers": 4,
        "sliding_window": 9,
        "sliding_window_pattern": 4,
    },
    "exaone4-whole": {
        "model_type": "exaone4",
        "num_hidden_layers": 2,
        "sliding_window": None,
        "layer_types": ["full_attention"] * 2,
    },
    "ernie4_5": {"model_type": "ernie4_5", "head_dim": 8},
    "hunyuan_v1_dense": {
        "model_type": "hunyuan_v1_dense",
        "head_dim": 8,
        "rope_parameters": {
            "rope_type": "dynamic",
            "alpha": 1000.0,
            "factor": 1.0,
            "rope_theta": 10000.0,
        },
    },
    "cohere": {"model_type": "cohere", "logit_scale": 0.25},
    "cohere2": {
        "model_type": "cohere2",
        "num_hidden_layers": 4,
        "head_dim": 8,
        "sliding_window": 9,
        "logit_scale": 0.25,
    },
    "phi": {"model_type": "phi", "partial_rotary_factor": 0.5, "num_key_value_heads": 4},
    "seed_oss": {"model_type": "seed_oss", "head_dim": 12, "attention_bias": True},
    "nemotron": {"model_type": "nemotron", "head_dim": 8, "norm_eps": 1e-5},
    "gpt_neox": {
        "model_type": "gpt_neox",
        "rotary_pct": 0.5,
        "layer_norm_eps": 1e-5,
        "num_key_value_heads": 4,
    },
    "gpt_neox-serial": {
        "model_type": "gpt_neox",
        "num_hidden_layers": 2,
        "use_parallel_residual": False,
        "num_key_value_heads": 4,
    },
    "gptj": {"model_type": "gptj", **_GPT, "rotary_dim": 4, "tie_word_embeddings": False},
    "codegen": {"model_type": "codegen", **_GPT, "rotary_dim": 4, "tie_word_embeddings": False},
    "gpt_neo": {
        "model_type": "gpt_neo",
        "hidden_size": 32,
        "num_layers": 3,
        "num_heads": 4,
        "attention_types": [[["global", "local"], 1], [["global"], 1]],
        "window_size": 6,
        "max_position_embeddings": CONTEXT,
        "activation_function": "gelu_new",
    },
    "gpt_bigcode": {
        "model_type": "gpt_bigcode",
        **_GPT,
        "activation_function": "gelu_pytorch_tanh",
    },
    "gpt_bigcode-heads": {
        "model_type": "gpt_bigcode",
        **_GPT,
        "activation_function": "gelu_pytorch_tanh",
        "multi_query": False,
    },
    "opt": {
        "model_type": "opt",
        "hidden_size": 32,
        "ffn_dim": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "word_embed_proj_dim": 32,
        "max_position_embeddings": CONTEXT,
    },
    "bloom": {"model_type": "bloom", "hidden_size": 32, "n_layer": 2, "n_head": 4},
    "bloom-six": {"model_type": "bloom", "hidden_size": 48, "n_layer": 2, "n_head": 6},
    "mpt": {
        "model_type": "mpt",
        "d_model": 32,
        "n_layers": 2,
        "n_heads": 4,
        "max_seq_len": CONTEXT,
        "attn_config": {"alibi": True, "clip_qkv": 1.5, "alibi_bias_max": 8},
    },
    "falcon": {
        "model_type": "falcon",
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "new_decoder_architecture": False,
        "bias": False,
        "alibi": False,
        "max_position_embeddings": CONTEXT,
    },
    "nanochat": {"model_type": "nanochat", "final_logit_softcapping": 3.0},
    "mixtral": {
        "model_type": "mixtral",
        "num_local_experts": 4,
        "num_experts_per_tok": 2,
        "sliding_window": None,
    },
    "qwen2_moe": {
        "model_type": "qwen2_moe",
        "num_experts": 6,
        "num_experts_per_tok": 3,
        "moe_intermediate_size": 32,
        "shared_expert_intermediate_size": 64,
    },
    "qwen3_moe": {
        "model_type": "qwen3_moe",
        "head_dim": 12,
        "num_experts": 5,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 32,
        "norm_topk_prob": True,
    },
    "olmoe": {
        "model_type": "olmoe",
        "num_key_value_heads": 4,
        "num_experts": 8,
        "num_experts_per_tok": 3,
    },
    "granitemoe": {
        "model_type": "granitemoe",
        "num_local_experts": 4,
        "num_experts_per_tok": 2,
        "embedding_multiplier": 6.0,
        "residual_multiplier": 0.25,
        "attention_multiplier": 0.3,
        "logits_scaling": 4.0,
    },
    "granitemoeshared": {
        "model_type": "granitemoeshared",
        "num_local_experts": 4,
        "num_experts_per_tok": 2,
        "shared_intermediate_size": 32,
        "num_hidden_layers": 2,
    },
    "falcon-groups": {
        "model_type": "falcon",
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_kv_heads": 2,
        "new_decoder_architecture": True,
        "alibi": False,
        "max_position_embeddings": CONTEXT,
    },
    "lfm2": {
        "model_type": "lfm2",
        "num_hidden_layers": 4,
        "layer_types": ["conv", "full_attention", "conv", "full_attention"],
        "conv_L_cache": 3,
        "block_multiple_of": 16,
        "norm_eps": 1e-5,
    },
}

# Run on every table of kernels; the others, which have the same operators, on two backends
EVERYWHERE = [
    *itertools.takewhile(lambda name: name != "smollm3", CONFIGS), "gemma2", "bloom-six", "mixtral",
    "lfm2",
]  # fmt: skip
OTHERS = [name for name in CONFIGS if name not in EVERYWHERE]
