"""Sixty model types of `transformers`: which open, and why the others do not."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.text.architectures import configs, models

from halfbyte.errors import HalfbyteError, UnsupportedError
from halfbyte.formats.huggingface.names import naming
from halfbyte.formats.huggingface.wrappers import WRAPPERS
from halfbyte.text import architectures

OPEN = [
    "apertus", "arcee", "bloom", "codegen", "cohere", "cohere2", "ernie4_5", "exaone4",
    "falcon", "falcon_h1", "gemma", "gemma2", "gemma3", "gemma3_text", "gemma3n", "gemma4", "glm",
    "glm4", "gpt2",
    "gpt_bigcode", "gpt_neo", "gpt_neox", "gpt_oss", "gptj", "granite", "granitemoe",
    "granitemoehybrid", "helium", "hunyuan_v1_dense", "lfm2", "lfm2_moe", "llama", "mamba",
    "mamba2", "ministral", "ministral3", "mistral", "mistral3", "mixtral", "mpt", "nanochat",
    "nemotron", "olmo", "olmo2", "olmo3", "olmoe", "opt", "phi", "phi3", "qwen2", "qwen2_moe",
    "qwen3", "qwen3_5", "qwen3_moe", "qwen3_next", "seed_oss", "smollm3", "stablelm",
    "starcoder2",
]  # fmt: skip

MORE = [
    "afmoe",
    "bamba",
    "bitnet",
    "cwm",
    "deepseek_v2",
    "deepseek_v3",
    "dots1",
    "ernie4_5_moe",
    "exaone",
    "falcon_mamba",
    "gemma3n_text",
    "gemma4_text",
    "gemma4_unified_text",
    "glm4_moe",
    "glm4_moe_lite",
    "granite_swa",
    "granitemoe_swa",
    "granitemoeshared",
    "hyperclovax",
    "internlm3",
    "iquestcoder",
    "jais2",
    "jamba",
    "lfm3",
    "llama4_text",
    "minicpm3",
    "mllama_text_model",
    "modernbert-decoder",
    "nemotron_h",
    "qwen2_5_vl_text",
    "qwen2_vl_text",
    "qwen3_5_moe_text",
    "qwen3_5_text",
    "qwen3_vl_moe_text",
    "qwen3_vl_text",
    "rwkv7",
    "sarvam_mla",
    "sarvam_moe",
    "solar_open",
    "vaultgemma",
    "youtu",
]  # beyond the sixty; fmt: skip
ENCODERS = [
    "bert", "camembert", "data2vec-text", "distilbert", "electra", "ernie", "eurobert", "gte",
    "jina_embeddings_v3", "modernbert", "mpnet", "nomic_bert", "roberta", "xlm-roberta",
]  # fmt: skip

# Other models' types, with other keys
VARIANTS = {
    "bitnet_b1_58", "falcon_rw", "gemma_embedding", "jina_bert_v2", "nemotron_h_moe",
    "nomic_bert_moe",
}  # fmt: skip

STATE = "its layers with a state are not built"
CLOSED = {
    "rwkv": STATE,
}

INNER = {  # folders with a vision model, or one of sound
    "aya_vision": "cohere2",
    "cohere2_vision": "cohere2",
    "deepseek_vl": "llama",
    "fast_vlm": "qwen2",
    "gemma3": "gemma3",
    "gemma3n": "gemma3n",
    "gemma4": "gemma4",
    "gemma4_unified": "gemma4-unified",
    "got_ocr2": "qwen2",
    "hyperclovax_vision_v2": "hyperclovax",
    "idefics2": "mistral",
    "idefics3": "llama",
    "internvl": "qwen3",
    "lfm2_vl": "lfm2",
    "lfm3_vl": "lfm3",
    "lighton_ocr": "qwen3",
    "llava": "llama-tied-biases",
    "llava_next": "mistral",
    "llava_next_video": "llama",
    "llava_onevision": "qwen2",
    "mistral3": "ministral3",
    "mllama": "llama",
    "ovis2": "qwen2",
    "perception_lm": "llama",
    "qwen2_5_vl": "qwen2_vl",
    "qwen2_audio": "qwen2",
    "qwen2_vl": "qwen2_vl",
    "qwen3_5": "qwen3_5",
    "qwen3_5_moe": "qwen3_5_moe",
    "qwen3_vl": "qwen3",
    "qwen3_vl_moe": "qwen3_moe",
    "smolvlm": "llama",
    "video_llava": "llama",
    "vipllava": "llama",
    "voxtral": "llama",
}


def test_sixty_types() -> None:
    assert len(OPEN) + len(CLOSED) == 60
    known = {*architectures.model_types(), *WRAPPERS}
    assert known == {*OPEN, *MORE, *ENCODERS, *VARIANTS, *configs.KIN, *INNER}
    assert set(WRAPPERS) == set(INNER)


@pytest.mark.parametrize("name", OPEN + MORE)
def test_opens(name: str) -> None:
    """Each has a tiny model, which other tests compare with `transformers`."""
    tested = {config["model_type"] for config in models.CONFIGS.values()}
    tested |= {
        c["text_config"]["model_type"] for c in models.CONFIGS.values() if "text_config" in c
    }
    assert name in tested or name in INNER or name.removesuffix("_text") in INNER


@pytest.mark.parametrize("name", INNER)
def test_text_model_of_a_larger_one(name: str) -> None:
    inner = models.config(INNER[name])
    if inner["model_type"] in INNER:
        inner = inner | {"model_type": f"{name}_text"}
    types = architectures.model_types()
    whole = {"model_type": name, "text_config": inner, "vision_config": {}}
    names = naming(whole, types)
    assert str(names.metadata) == str(naming(inner, types).metadata)
    plain = names.rename("model.embed_tokens.weight")
    for prefix in ("language_model.model.", "model.language_model.", "model.text_model."):
        assert names.rename(f"{prefix}embed_tokens.weight") == plain
    assert names.rename("vision_tower.layers.0.weight") is None
    assert names.rename("model.vision_model.post_layernorm.weight") is None
    assert names.rename("model.connector.modality_projection.proj.weight") is None
    assert names.rename("model.embed_audio.embedding.weight") is None


def test_tied_as_the_whole_says() -> None:
    inner, types = models.config("llama"), architectures.model_types()
    whole = {"model_type": "llava", "text_config": inner}
    assert not naming(whole, types).tied
    assert naming(whole | {"tie_word_embeddings": True}, types).tied


def test_defaults_of_a_text_model() -> None:
    """What the config.json of Gemma 3 with 4 billion weights says is not more."""
    own = {"model_type": "gemma3_text", "hidden_size": 2560, "num_hidden_layers": 34}
    metadata = naming({"model_type": "gemma3", "text_config": own}, architectures.model_types())
    sizes = ("embedding_length", "attention.head_count", "attention.head_count_kv")
    assert [metadata.metadata[f"gemma3.{size}"] for size in sizes] == [2560, 8, 4]


def test_text_beside_the_model_of_images() -> None:
    """Qwen 2 VL's folders have no `text_config`."""
    flat, types = models.config("qwen2_vl"), architectures.model_types()
    whole = {"model_type": "qwen2_vl", "text_config": flat | {"model_type": "qwen2_vl_text"}}
    assert str(naming(flat, types).metadata) == str(naming(whole, types).metadata)


@pytest.mark.parametrize("name", CLOSED)
def test_is_refused_by_name(name: str) -> None:
    with pytest.raises(UnsupportedError, match=rf"model_type '{name}': expected one of \['"):
        naming({"model_type": name}, architectures.model_types())


def test_code_of_a_folder_is_not_asked_for() -> None:
    """`auto_map` names classes in the folder: without it, the config means the same."""
    config = models.config("smollm3")
    code = {"auto_map": {"AutoModelForCausalLM": "evil.Model"}, "custom": "import os"}
    types = architectures.model_types()
    named, plain = naming(config | code, types), naming(config, types)
    assert (named.metadata, named.names) == (plain.metadata, plain.names)
    with pytest.raises(UnsupportedError, match=r"'qwen9': expected one of \['qwen', 'qwen3', "):
        naming(code | {"model_type": "qwen9"}, types)


PUBLISHED = [
    ("nemotron_h", "backbone.layers.0.mixer.dt_bias", "blk.0.ssm_dt.bias"),
    ("nemotron_h", "backbone.embeddings.weight", "token_embd.weight"),
    ("nemotron_h-experts", "backbone.layers.3.mixer.experts.2.up_proj.weight",
     "blk.3.ffn_up_exps.weight[2]"),
    ("nemotron_h-experts", "backbone.layers.3.mixer.gate.e_score_correction_bias",
     "blk.3.exp_probs_b.bias"),
    ("jamba", "model.layers.1.feed_forward.experts.3.down_proj.weight",
     "blk.1.ffn_down_exps.weight[3]"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "tensor", "expected"), PUBLISHED)
def test_names_in_published_folders(name: str, tensor: str, expected: str) -> None:
    """Where they are not those of `transformers`' own models."""
    renamed = naming(models.config(name), architectures.model_types()).rename(tensor)
    assert renamed
    assert renamed[0] == expected


def test_a_model_s_own_key_decides() -> None:
    """Others, which its original does not read, may have any value."""
    config, types = models.config("lfm2") | {"rms_norm_eps": 0.5}, architectures.model_types()
    assert naming(config, types).metadata["lfm2.attention.layer_norm_rms_epsilon"] < 1e-4


def test_pattern_of_layers() -> None:
    """Nemotron H's published folders have a letter for each layer."""
    config, types = models.config("nemotron_h-experts"), architectures.model_types()
    pattern = {"layers_block_type": None, "hybrid_override_pattern": "EM*E"}
    assert str(naming(config | pattern, types).metadata) == str(naming(config, types).metadata)


@pytest.mark.parametrize("name", ["qwen3_moe", "qwen2_moe"])
def test_number_of_experts_under_its_newer_name(name: str) -> None:
    """As `transformers` 5 saves Qwen 3's."""
    config, types = models.config(name), architectures.model_types()
    newer = {k: v for k, v in config.items() if k != "num_experts"}
    newer["num_local_experts"] = config["num_experts"]
    assert str(naming(newer, types).metadata) == str(naming(config, types).metadata)


QWEN3_VL_MOE = models.config("qwen3_vl_moe")["text_config"]
REFUSED = [
    ("llama4", {"no_rope_layers": [1, 0]}, "'no_rope_layers': expected [1, 1], found [1, 0]"),
    ("llama4", {"moe_layers": [1]}, "'moe_layers': expected [] or None, found [1]"),
    ("llama4", {"moe_layers": None}, "'interleave_moe_layer_step': expected 0, found 1"),
    ("llama4", {"attention_chunk_size": 8}, "'attention_chunk_size': expected 48 or None, found 8"),
    ("llama4", {"use_qk_norm": False}, "'use_qk_norm': expected True, found False"),
    ("iquestcoder", {"clip_qkv": 8.0}, "'clip_qkv': expected None, found 8.0"),
    ("iquestcoder", {"use_sliding_window": True}, "'use_sliding_window': expected False or None"),
    ("smollm3", {"no_rope_layers": [1, 0, 1, 0]}, "'no_rope_layers': expected [1, 1, 1, 0]"),
    ("smollm3", {"use_sliding_window": True}, "'use_sliding_window': expected False"),
    ("arcee", {"hidden_act": "silu"}, "'hidden_act': expected 'relu2', found 'silu'"),
    ("arcee", {"rope_parameters": {"rope_type": "xpos"}}, "'dynamic', 'linear', 'llama3' or 'ya"),
    ("olmo2", {"attention_bias": True}, "'attention_bias': expected False"),
    ("olmo3", {"layer_types": ["linear_attention"] * 4}, "'layer_types': expected 4 of"),
    ("stablelm", {"qk_layernorm": True}, "'qk_layernorm': expected False"),
    ("stablelm", {"partial_rotary_factor": 1.5}, "expected at most 1, found 1.5"),
    ("gemma2", {"use_bidirectional_attention": True}, "expected False or None, found True"),
    ("cohere", {"use_qk_norm": True}, "'use_qk_norm': expected False"),
    ("falcon", {"alibi": True, "parallel_attn": True}, "'parallel_attn': expected False, fo"),
    ("falcon-rw", {"alibi": False}, "'parallel_attn': expected True, found False"),
    ("falcon-groups", {"num_kv_heads": 3}, "4 heads do not fit 3 key/value heads"),
    ("opt", {"word_embed_proj_dim": 1 << 21}, "_dim': expected 1 to 1048576, found 2097152"),
    ("opt", {"enable_bias": False}, "'enable_bias': expected True, found False"),
    ("bloom", {"apply_residual_connection_post_layernorm": True}, "expected False, found True"),
    ("mpt", {"attn_config": {"alibi": False}}, "key 'alibi': expected True, found False"),
    ("gpt_neo", {"attention_types": [[["global"], 1]]}, "expected 3 of 'global' and 'local'"),
    ("gpt_neo", {"attention_types": [[["near"], 3]]}, "expected 3 of 'global' and 'local'"),
    ("hunyuan_v1_dense", {"rope_parameters": {"rope_type": "yarn", "alpha": 2}}, "'dynamic'"),
    ("lfm2", {"layer_types": ["conv"] * 3}, "'layer_types': expected 4 of ('conv', 'full_att"),
    ("lfm2", {"layer_types": ["conv", "mamba"] * 2}, "'layer_types': expected 4 of"),
    ("lfm2", {"conv_bias": True}, "'conv_bias': expected False, found True"),
    ("lfm2", {"conv_L_cache": 65}, "'conv_L_cache': expected 1 to 64, found 65"),
    ("mamba", {"use_bias": True}, "'use_bias': expected False, found True"),
    ("mamba", {"conv_kernel": 65}, "65 taps: expected at most 64"),
    ("mamba", {"expand": 1 << 31}, "68719476736 channels: expected at most 1048576"),
    ("mamba2", {"time_step_limit": [0.0, 0.1]}, "'time_step_limit': expected [0, inf]"),
    ("mamba2", {"head_dim": 8}, "expected a multiple of 16 channels in each head, found 32 in 4"),
    ("mamba2", {"n_groups": 3}, "expected a multiple of 16 channels in each group, found 64 in 3"),
    ("granitemoehybrid", {"mamba_d_head": 8}, "'mamba_d_head': expected 'auto' or 16, found 8"),
    ("granitemoehybrid", {"layer_types": ["conv"] * 3}, "'layer_types': expected 3 of ('mamba', '"),
    ("granitemoehybrid-attention", {"position_embedding_type": ""}, "expected 'rope', found ''"),
    ("falcon_h1", {"mamba_norm_before_gate": True}, "_gate': expected False, found True"),
    ("falcon_h1", {"ssm_multipliers": [1.0] * 4}, "'ssm_multipliers': expected 5 numbers, found 4"),
    ("falcon_h1", {"projectors_bias": True}, "expected False, found True"),
    ("gemma4", {"use_bidirectional_attention": "all"}, "'vision' or None, found 'all'"),
    ("gemma4", {"layer_types": ["sliding_attention"] * 6}, "expected 'full_attention' at the end"),
    ("gemma4", {"num_kv_shared_layers": 7}, "'num_kv_shared_layers': expected 1 to 6, found 7"),
    ("gemma4", {"per_layer_config": {"1": {"head_dim": 64}}}, "expected the same sizes in all"),
    ("gemma4", {"per_layer_config": {"0": {"head_dim": 64}}}, "full_attention', and no others"),
    ("gemma4", {"rope_parameters": {"full_attention": {"rope_type": "yarn"}}}, "or 'proportional'"),
    ("gemma3n", {"altup_correct_scale": False}, "_correct_scale': expected True, found False"),
    ("gemma3n", {"altup_num_inputs": 17}, "'altup_num_inputs': expected 1 to 16, found 17"),
    ("gemma3n", {"activation_sparsity_pattern": [1.0] * 5}, "expected 5 numbers of 0 and more"),
    ("gemma3n", {"vocab_size_per_layer_input": 1000}, "_per_layer_input': expected 1 to 264, foun"),
    ("ernie4_5_moe", {"moe_layer_interval": 2}, "'moe_layer_interval': expected 1, found 2"),
    ("ernie4_5_moe", {"moe_layer_end_index": 1}, "expected -1 or 2, found 1"),
    ("ernie4_5_moe", {"moe_layer_start_index": 4}, "_index': expected 1 to 3, found 4"),
    ("falcon_mamba", {"mixer_rms_eps": 0.0}, "'mixer_rms_eps': expected a positive number"),
    ("ministral3", {"sliding_window": 4096}, "'sliding_window': expected None, found 4096"),
    ("nemotron_h", {"layers_block_type": ["mamba", "conv"]}, "'layers_block_type': expected 1 to"),
    ("nemotron_h", {"layers_block_type": [], "hybrid_override_pattern": "MX"}, "'linear_attention"),
    ("nemotron_h", {"layers_block_type": ["mlp", "moe"]}, "expected 'mlp' or 'moe', found both"),
    ("nemotron_h", {"mlp_hidden_act": "silu"}, "'mlp_hidden_act': expected 'relu2', found 'silu'"),
    ("nemotron_h-experts", {"n_group": 65}, "'n_group': expected 1 to 64, found 65"),
    ("deepseek_v3", {"topk_group": 2}, "'topk_group': expected 1 to 1, found 2"),
    ("deepseek_v3", {"topk_method": "greedy"}, "'topk_method': expected 'noaux_tc' or None, fo"),
    ("deepseek_v2", {"scoring_func": "sigmoid"}, "'scoring_func': expected 'softmax' or None"),
    ("glm4_moe_lite", {"mlp_layer_types": ["sparse", "dense"]}, "expected 3 of 'dense', then 's"),
    ("glm4_moe_lite", {"num_hidden_layers": (1 << 32) - 1}, "_types': expected 4294967295 of 'de"),
    ("lfm3", {"layer_types": ["conv", "mamba"] * 2}, "expected 4 of ('conv', 'full_attention', 's"),
    ("lfm3", {"conv_bias": True}, "'conv_bias': expected False, found True"),
    ("bamba", {"attn_layer_indices": [3]}, "_indices': expected some of 3 layers"),
    ("modernbert-decoder", {"norm_bias": True}, "'norm_bias': expected False or None, found"),
    ("bamba", {"mlp_bias": True}, "'mlp_bias': expected False, found True"),
    ("granitemoe_swa", {"num_local_experts": 0}, "'num_local_experts': expected 1 to 1024, fo"),
    ("qwen3_vl_moe", {"text_config": QWEN3_VL_MOE | {"moe_intermediate_size": 16}}, "found 16: of"),
    ("qwen3_vl_moe", {"text_config": QWEN3_VL_MOE | {"moe_intermediate_size": 32}}, "found 32: of"),
    ("deepseek_v3", {"rope_interleave": False}, "'rope_interleave': expected True or None, found"),
    ("deepseek_v3", {"first_k_dense_replace": 4}, "_replace': expected 1 to 3, found 4"),
    ("deepseek_v2", {"norm_topk_prob": True}, "'norm_topk_prob': expected False or None, found"),
    ("deepseek_v2", {"attention_bias": True}, "'attention_bias': expected False or None"),
    ("deepseek_v2", {"qk_rope_head_dim": None}, "'qk_rope_head_dim': expected an integer"),
    ("minicpm3", {"scale_depth": 1}, "'scale_depth': expected 1.4, found 1"),
    ("minicpm3", {"max_position_embeddings": 64}, "expected 64 or more, found 48"),
    ("jamba", {"attn_layer_offset": 4}, "'attn_layer_offset': expected 0 to 3, found 4"),
    ("jamba", {"expert_layer_offset": "1"}, "'expert_layer_offset': expected 0 to 1, found '1'"),
    ("granite_swa", {"layer_rope_theta": [0, 1, 2, 2]}, "expected 4 of one number and 0"),
    ("jais2", {"hidden_act": "silu"}, "'hidden_act': expected 'relu2', found 'silu'"),
    ("jamba", {"mamba_proj_bias": True}, "'mamba_proj_bias': expected False, found True"),
    ("rwkv7", {"norm_eps": 1e-5}, "'norm_eps': expected 0.00064 as their product, found 0.00032"),
    ("rwkv7", {"gate_low_rank_dim": None}, "'gate_low_rank_dim': expected an integer"),
    ("rwkv7", {"attn": {"layers": [1]}}, "'attn': expected None, found {'layers': [1]}"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "changes", "expected"), REFUSED, ids=lambda v: str(v)[:30])
def test_what_is_not_built_is_refused(name: str, changes: dict[str, object], expected: str) -> None:
    with pytest.raises(HalfbyteError, match=re.escape(expected)):
        naming(models.config(name) | changes, architectures.model_types())


def test_the_page_lists_all() -> None:
    """The table of docs/models.md: architecture, model types, names of models."""
    page = Path(__file__).parents[3] / "docs/models.md"
    lines = page.read_text("utf-8").splitlines()
    rows = [line.split("|")[1:3] for line in lines if line.startswith("| `")]
    listed = {row[0].strip(" `*"): set(re.findall(r"`([\w-]+)`", row[1])) for row in rows}
    modules = {architectures.module_name(name) for name in listed}
    assert modules == set(architectures.names())
    assert [name for name in WRAPPERS if f"`{name}`" not in page.read_text("utf-8")] == []
    for name, types in listed.items():
        assert set(architectures.get(name).MODEL_TYPES) == types
