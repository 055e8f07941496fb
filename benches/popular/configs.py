"""What determines the shapes and the arithmetic in the config.json of published models.

The smallest official size of each family, up to two billion weights that a token multiplies with.
"""

from __future__ import annotations

from typing import Any

_LLAMA3 = {"rope_type": "llama3", "low_freq_factor": 1.0, "high_freq_factor": 4.0,
           "original_max_position_embeddings": 8192}  # fmt: skip


def _layers(count: int, kind: str, others: str, at: tuple[int, ...]) -> list[str]:
    """`count` kinds of layers: `kind` at these places, `others` between them."""
    return [kind if layer in at else others for layer in range(count)]


CONFIGS: dict[str, dict[str, Any]] = {
    "Pythia-70M": {
        "model_type": "gpt_neox", "hidden_size": 512, "intermediate_size": 2048,
        "num_hidden_layers": 6, "num_attention_heads": 8, "vocab_size": 50304,
        "max_position_embeddings": 2048, "layer_norm_eps": 1e-5, "rotary_pct": 0.25,
        "rotary_emb_base": 10000, "use_parallel_residual": True, "tie_word_embeddings": False,
    },
    "GPT-2": {
        "model_type": "gpt2", "n_embd": 768, "n_layer": 12, "n_head": 12, "n_positions": 1024,
        "vocab_size": 50257, "layer_norm_epsilon": 1e-5, "activation_function": "gelu_new",
    },
    "OPT-125M": {
        "model_type": "opt", "hidden_size": 768, "ffn_dim": 3072, "num_hidden_layers": 12,
        "num_attention_heads": 12, "word_embed_proj_dim": 768, "vocab_size": 50272,
        "max_position_embeddings": 2048, "do_layer_norm_before": True,
    },
    "Mamba-130M": {
        "model_type": "mamba", "hidden_size": 768, "num_hidden_layers": 24, "state_size": 16,
        "expand": 2, "conv_kernel": 4, "time_step_rank": 48, "vocab_size": 50280,
        "tie_word_embeddings": True,
    },
    "Mamba-2-130M": {
        "model_type": "mamba2", "hidden_size": 768, "num_hidden_layers": 24, "state_size": 128,
        "num_heads": 24, "head_dim": 64, "n_groups": 1, "expand": 2, "conv_kernel": 4,
        "vocab_size": 50288, "tie_word_embeddings": True,
    },
    "SmolLM2-135M": {
        "model_type": "llama", "hidden_size": 576, "intermediate_size": 1536,
        "num_hidden_layers": 30, "num_attention_heads": 9, "num_key_value_heads": 3,
        "vocab_size": 49152, "max_position_embeddings": 8192, "rms_norm_eps": 1e-5,
        "rope_theta": 100000.0, "tie_word_embeddings": True,
    },
    "Gemma 3 270M": {
        "model_type": "gemma3_text", "hidden_size": 640, "intermediate_size": 2048,
        "num_hidden_layers": 18, "num_attention_heads": 4, "num_key_value_heads": 1,
        "head_dim": 256, "vocab_size": 262144, "max_position_embeddings": 32768,
        "query_pre_attn_scalar": 256, "sliding_window": 512, "rms_norm_eps": 1e-6,
        "rope_theta": 1000000.0, "rope_local_base_freq": 10000.0,
        "layer_types": _layers(18, "full_attention", "sliding_attention", (5, 11, 17)),
    },
    "Granite-4.0-350M": {
        "model_type": "granitemoehybrid", "hidden_size": 1024, "intermediate_size": 2048,
        "shared_intermediate_size": 2048, "num_hidden_layers": 28, "num_attention_heads": 16,
        "num_key_value_heads": 4, "num_local_experts": 0, "num_experts_per_tok": 0,
        "vocab_size": 100352, "max_position_embeddings": 32768, "rms_norm_eps": 1e-5,
        "tie_word_embeddings": True, "position_embedding_type": "rope", "rope_theta": 10000000.0,
        "embedding_multiplier": 12, "logits_scaling": 4, "residual_multiplier": 0.263,
        "attention_multiplier": 0.015625, "layer_types": ["attention"] * 28,
    },
    "LFM2-350M": {
        "model_type": "lfm2", "hidden_size": 1024, "intermediate_size": 6656,
        "num_hidden_layers": 16, "num_attention_heads": 16, "num_key_value_heads": 8,
        "vocab_size": 65536, "max_position_embeddings": 128000, "norm_eps": 1e-5,
        "rope_theta": 1000000.0, "conv_L_cache": 3, "conv_bias": False,
        "block_auto_adjust_ff_dim": True, "block_multiple_of": 256,
        "block_ffn_dim_multiplier": 1.0, "tie_word_embeddings": True,
        "layer_types": _layers(16, "full_attention", "conv", (2, 5, 8, 10, 12, 14)),
    },
    "ERNIE-4.5-0.3B": {
        "model_type": "ernie4_5", "hidden_size": 1024, "intermediate_size": 3072,
        "num_hidden_layers": 18, "num_attention_heads": 16, "num_key_value_heads": 2,
        "head_dim": 128, "vocab_size": 103424, "max_position_embeddings": 131072,
        "rms_norm_eps": 1e-5, "rope_theta": 500000.0, "use_bias": False,
        "tie_word_embeddings": True,
    },
    "Qwen2.5-0.5B": {
        "model_type": "qwen2", "hidden_size": 896, "intermediate_size": 4864,
        "num_hidden_layers": 24, "num_attention_heads": 14, "num_key_value_heads": 2,
        "vocab_size": 151936, "max_position_embeddings": 32768, "rms_norm_eps": 1e-6,
        "rope_theta": 1000000.0, "tie_word_embeddings": True,
    },
    "Falcon-H1-0.5B": {
        "model_type": "falcon_h1", "hidden_size": 1024, "intermediate_size": 2048,
        "num_hidden_layers": 36, "num_attention_heads": 8, "num_key_value_heads": 2,
        "head_dim": 64, "vocab_size": 32784, "max_position_embeddings": 16384,
        "rms_norm_eps": 1e-5, "rope_theta": 1e11, "tie_word_embeddings": False,
        "mamba_d_ssm": 1536, "mamba_n_heads": 24, "mamba_d_head": 64, "mamba_n_groups": 1,
        "mamba_d_state": 128, "mamba_d_conv": 4, "mamba_expand": 2, "mamba_chunk_size": 128,
        "mamba_conv_bias": True, "mamba_proj_bias": False, "mamba_rms_norm": False,
        "mamba_norm_before_gate": False, "projectors_bias": False, "attention_bias": False,
        "attention_in_multiplier": 1.0, "attention_out_multiplier": 0.9375,
        "embedding_multiplier": 5.656854249492381, "lm_head_multiplier": 0.0390625,
        "key_multiplier": 0.39062499999999994, "mlp_multipliers": [0.8838834764831844, 0.5859375],
        "ssm_in_multiplier": 1.25, "ssm_out_multiplier": 0.23570226039551587,
        "ssm_multipliers": [
            0.3535533905932738, 0.25, 0.3535533905932738, 0.5, 0.3535533905932738,
        ],
    },
    "Hunyuan-0.5B": {
        "model_type": "hunyuan_v1_dense", "hidden_size": 1024, "intermediate_size": 3584,
        "num_hidden_layers": 24, "num_attention_heads": 16, "num_key_value_heads": 8,
        "head_dim": 128, "vocab_size": 120818, "max_position_embeddings": 262144,
        "rms_norm_eps": 1e-5, "tie_word_embeddings": True,
        "rope_parameters": {
            "rope_type": "dynamic", "rope_theta": 10000.0, "alpha": 1000.0, "factor": 1.0,
        },
    },
    "BLOOM-560M": {
        "model_type": "bloom", "hidden_size": 1024, "n_layer": 24, "n_head": 16,
        "vocab_size": 250880, "layer_norm_epsilon": 1e-5,
    },
    "Qwen3-0.6B": {
        "model_type": "qwen3", "hidden_size": 1024, "intermediate_size": 3072,
        "num_hidden_layers": 28, "num_attention_heads": 16, "num_key_value_heads": 8,
        "head_dim": 128, "vocab_size": 151936, "max_position_embeddings": 40960,
        "rms_norm_eps": 1e-6, "rope_theta": 1000000.0, "tie_word_embeddings": True,
    },
    "Qwen3.5-0.8B": {
        "model_type": "qwen3_5_text", "hidden_size": 1024, "intermediate_size": 3584,
        "num_hidden_layers": 24, "num_attention_heads": 8, "num_key_value_heads": 2,
        "head_dim": 256, "vocab_size": 248320, "max_position_embeddings": 262144,
        "rms_norm_eps": 1e-6, "tie_word_embeddings": True, "linear_conv_kernel_dim": 4,
        "linear_key_head_dim": 128, "linear_value_head_dim": 128, "linear_num_key_heads": 16,
        "linear_num_value_heads": 16, "full_attention_interval": 4,
        "rope_parameters": {
            "rope_type": "default", "rope_theta": 10000000.0, "partial_rotary_factor": 0.25,
        },
        "layer_types": _layers(24, "full_attention", "linear_attention", tuple(range(3, 24, 4))),
    },
    "TinyLlama-1.1B": {
        "model_type": "llama", "hidden_size": 2048, "intermediate_size": 5632,
        "num_hidden_layers": 22, "num_attention_heads": 32, "num_key_value_heads": 4,
        "vocab_size": 32000, "max_position_embeddings": 2048, "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0, "tie_word_embeddings": False,
    },
    "LFM2.5-1.2B": {
        "model_type": "lfm2", "hidden_size": 2048, "intermediate_size": 12288,
        "num_hidden_layers": 16, "num_attention_heads": 32, "num_key_value_heads": 8,
        "vocab_size": 65536, "max_position_embeddings": 128000, "norm_eps": 1e-5,
        "rope_theta": 1000000.0, "conv_L_cache": 3, "conv_bias": False,
        "block_auto_adjust_ff_dim": True, "block_multiple_of": 256,
        "block_ffn_dim_multiplier": 1.0, "tie_word_embeddings": True,
        "layer_types": _layers(16, "full_attention", "conv", (2, 5, 8, 10, 12, 14)),
    },
    "Llama-3.2-1B": {
        "model_type": "llama", "hidden_size": 2048, "intermediate_size": 8192,
        "num_hidden_layers": 16, "num_attention_heads": 32, "num_key_value_heads": 8,
        "head_dim": 64, "vocab_size": 128256, "max_position_embeddings": 131072,
        "rms_norm_eps": 1e-5, "rope_theta": 500000.0, "tie_word_embeddings": True,
        "rope_scaling": {**_LLAMA3, "factor": 32.0},
    },
    "EXAONE-4.0-1.2B": {
        "model_type": "exaone4", "hidden_size": 2048, "intermediate_size": 4096,
        "num_hidden_layers": 30, "num_attention_heads": 32, "num_key_value_heads": 8,
        "head_dim": 64, "vocab_size": 102400, "max_position_embeddings": 65536,
        "rms_norm_eps": 1e-5, "rope_theta": 1000000.0, "tie_word_embeddings": True,
        "rope_scaling": {**_LLAMA3, "factor": 16.0}, "sliding_window": None,
        "layer_types": ["full_attention"] * 30,
    },
    "Falcon-RW-1B": {
        "model_type": "falcon", "hidden_size": 2048, "num_hidden_layers": 24,
        "num_attention_heads": 32, "vocab_size": 50304, "layer_norm_epsilon": 1e-5,
        "alibi": True, "bias": True, "multi_query": False, "parallel_attn": False,
        "new_decoder_architecture": False,
    },
    "Granite-3.1-1B-A400M": {
        "model_type": "granitemoe", "hidden_size": 1024, "intermediate_size": 512,
        "num_hidden_layers": 24, "num_attention_heads": 16, "num_key_value_heads": 8,
        "num_local_experts": 32, "num_experts_per_tok": 8, "vocab_size": 49155,
        "max_position_embeddings": 131072, "rms_norm_eps": 1e-6, "rope_theta": 1500000.0,
        "tie_word_embeddings": True, "embedding_multiplier": 12.0, "logits_scaling": 6.0,
        "residual_multiplier": 0.22, "attention_multiplier": 0.015625,
    },
    "Phi-1.5": {
        "model_type": "phi", "hidden_size": 2048, "intermediate_size": 8192,
        "num_hidden_layers": 24, "num_attention_heads": 32, "num_key_value_heads": 32,
        "vocab_size": 51200, "max_position_embeddings": 2048, "layer_norm_eps": 1e-5,
        "partial_rotary_factor": 0.5, "rope_theta": 10000.0, "tie_word_embeddings": False,
    },
    "OLMo-2-0425-1B": {
        "model_type": "olmo2", "hidden_size": 2048, "intermediate_size": 8192,
        "num_hidden_layers": 16, "num_attention_heads": 16, "num_key_value_heads": 16,
        "vocab_size": 100352, "max_position_embeddings": 4096, "rms_norm_eps": 1e-6,
        "rope_theta": 500000.0, "tie_word_embeddings": False,
    },
    "Granite-4.0-H-1B": {
        "model_type": "granitemoehybrid", "hidden_size": 1536, "intermediate_size": 4096,
        "shared_intermediate_size": 4096, "num_hidden_layers": 40, "num_attention_heads": 12,
        "num_key_value_heads": 4, "num_local_experts": 0, "num_experts_per_tok": 0,
        "vocab_size": 100352, "max_position_embeddings": 131072, "rms_norm_eps": 1e-5,
        "tie_word_embeddings": True, "position_embedding_type": "nope",
        "mamba_d_state": 128, "mamba_n_groups": 1, "mamba_n_heads": 48, "mamba_d_head": 64,
        "mamba_expand": 2, "mamba_d_conv": 4, "mamba_conv_bias": True, "mamba_proj_bias": False,
        "embedding_multiplier": 12, "logits_scaling": 6, "residual_multiplier": 0.22,
        "attention_multiplier": 0.0078125,
        "layer_types": _layers(40, "attention", "mamba", (5, 15, 25, 35)),
    },
    "StableLM-2-1.6B": {
        "model_type": "stablelm", "hidden_size": 2048, "intermediate_size": 5632,
        "num_hidden_layers": 24, "num_attention_heads": 32, "num_key_value_heads": 32,
        "vocab_size": 100352, "max_position_embeddings": 4096, "layer_norm_eps": 1e-5,
        "rope_theta": 10000.0, "partial_rotary_factor": 0.25, "use_qkv_bias": True,
        "tie_word_embeddings": False,
    },
    "Gemma 4 E2B": {
        "model_type": "gemma4_text", "hidden_size": 1536, "intermediate_size": 6144,
        "num_hidden_layers": 35, "num_attention_heads": 8, "num_key_value_heads": 1,
        "head_dim": 256, "global_head_dim": 512, "vocab_size": 262144,
        "max_position_embeddings": 131072, "rms_norm_eps": 1e-6, "sliding_window": 512,
        "vocab_size_per_layer_input": 262144, "hidden_size_per_layer_input": 256,
        "num_kv_shared_layers": 20, "use_double_wide_mlp": True,
        "final_logit_softcapping": 30.0, "tie_word_embeddings": True,
        "layer_types": _layers(35, "full_attention", "sliding_attention", tuple(range(4, 35, 5))),
    },
    "Gemma 3n E2B": {
        "model_type": "gemma3n_text", "hidden_size": 2048, "intermediate_size": 8192,
        "num_hidden_layers": 30, "num_attention_heads": 8, "num_key_value_heads": 2,
        "head_dim": 256, "vocab_size": 262400, "max_position_embeddings": 32768,
        "rms_norm_eps": 1e-6, "sliding_window": 512, "vocab_size_per_layer_input": 262144,
        "hidden_size_per_layer_input": 256, "num_kv_shared_layers": 10, "laurel_rank": 64,
        "altup_num_inputs": 4, "final_logit_softcapping": 30.0, "tie_word_embeddings": True,
        "layer_types": _layers(30, "full_attention", "sliding_attention", tuple(range(4, 30, 5))),
    },
}  # fmt: skip

# Files of them on a hub that the page suggests, with the memory that a tab took for the model
SUGGESTED = {
    "SmolLM2-135M": "bartowski/SmolLM2-135M-Instruct-GGUF:Q4_0",
    "LFM2-350M": "LiquidAI/LFM2-350M-GGUF:Q4_0",
    "ERNIE-4.5-0.3B": "unsloth/ERNIE-4.5-0.3B-PT-GGUF:Q4_0",
    "Qwen2.5-0.5B": "Qwen/Qwen2.5-0.5B-Instruct-GGUF:Q4_0",
    "Falcon-H1-0.5B": "tiiuae/Falcon-H1-0.5B-Instruct-GGUF:Q4_0",
    "Qwen3-0.6B": "unsloth/Qwen3-0.6B-GGUF:Q4_0",
    "Qwen3.5-0.8B": "ggml-org/Qwen3.5-0.8B-GGUF:Q4_0",
    "Llama-3.2-1B": "bartowski/Llama-3.2-1B-Instruct-GGUF:Q4_0",
    "EXAONE-4.0-1.2B": "LGAI-EXAONE/EXAONE-4.0-1.2B-GGUF:Q4_0",
    "Granite-4.0-H-1B": "ibm-granite/granite-4.0-h-1b-GGUF:Q4_0",
}
