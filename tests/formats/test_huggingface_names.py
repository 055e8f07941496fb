"""The translation of config.json, and its errors. `make judge` compares logits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from halfbyte.errors import FormatError, HalfbyteError, UnsupportedError
from halfbyte.formats.huggingface import names as translation
from halfbyte.formats.huggingface.names import Naming
from halfbyte.formats.transforms import PLUS_ONE, SAME, TRANSPOSED
from halfbyte.text.architectures import model_types

LLAMA: dict[str, Any] = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 100,
    "max_position_embeddings": 64,
    "rms_norm_eps": 1e-5,
    "rope_theta": 5e5,
}
LLAMA3 = {
    "rope_type": "llama3",
    "factor": 32.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}


def naming(config: dict[str, Any], where: str = "config.json") -> Naming:
    return translation.naming(config, model_types(), where)


def test_metadata_of_a_llama() -> None:
    names = naming(LLAMA)
    assert names.metadata["general.architecture"] == "llama"
    assert names.metadata["llama.attention.head_count_kv"] == 2
    assert names.metadata["llama.attention.key_length"] == 8
    assert names.metadata["llama.rope.freq_base"] == np.float32(5e5)
    assert not names.tied
    assert not names.tensors


def test_names() -> None:
    names = naming(LLAMA)
    name = "model.layers.11.self_attn.v_proj.weight"
    assert names.rename(name) == ("blk.11.attn_v.weight", SAME)
    assert names.rename("model.norm.weight") == ("output_norm.weight", SAME)
    assert names.rename("model.layers.0.self_attn.rotary_emb.inv_freq") is None
    assert names.rename("lm_head.weight") == ("output.weight", SAME)
    assert naming({**LLAMA, "tie_word_embeddings": True}).rename("lm_head.weight") is None
    with pytest.raises(UnsupportedError, match=r"tensor 'model\.layers\.0\.experts\.weight'"):
        names.rename("model.layers.0.experts.weight")


def test_rows_of_llama_are_interleaved() -> None:
    """Rows j and j + half of each head become neighbours; k has its own number of heads."""
    renamed = naming(LLAMA).rename("model.layers.0.self_attn.k_proj.weight")
    assert renamed
    assert renamed[0] == "blk.0.attn_k.weight"
    rows = renamed[1].apply(np.arange(16, dtype=np.uint16)[:, None])[:, 0]
    assert rows.tolist() == [0, 4, 1, 5, 2, 6, 3, 7, 8, 12, 9, 13, 10, 14, 11, 15]
    with pytest.raises(FormatError, match="6 rows: expected whole pairs in each of 2 heads"):
        renamed[1].apply(np.zeros((6, 1), np.uint16))


def test_scaling_of_llama_3() -> None:
    """Fast pairs are unchanged, slow ones 32 times slower, others in between."""
    config = {**LLAMA, "head_dim": 64, "rope_scaling": LLAMA3}
    factors = naming(config).tensors["rope_freqs.weight"]
    assert factors.shape == (32,)
    assert (np.diff(factors) >= 0).all()
    assert factors[0] == 1
    assert factors[-1] == 32
    turns = 8192 * 5e5 ** (-np.arange(32) / 32) / (2 * np.pi)
    assert ((factors == 1) == (turns >= 4)).all()
    assert ((factors == 32) == (turns <= 1)).all()


def test_windows() -> None:
    mistral = {**LLAMA, "model_type": "mistral", "sliding_window": 16}
    assert naming(mistral).metadata["llama.attention.sliding_window"] == 16
    assert (
        "llama.attention.sliding_window" not in naming({**mistral, "sliding_window": None}).metadata
    )
    qwen = {**LLAMA, "model_type": "qwen2", "sliding_window": 16, "max_window_layers": 1}
    assert "qwen2.attention.sliding_window" not in naming(qwen).metadata
    pattern = naming({**qwen, "use_sliding_window": True}).metadata
    assert np.asarray(pattern["qwen2.attention.sliding_window_pattern"]).tolist() == [False, True]


@pytest.mark.parametrize("nested", [False, True])
def test_gemma3(nested: bool) -> None:
    config = {
        **LLAMA, "model_type": "gemma3_text", "num_hidden_layers": 12, "sliding_window": 8,
        "rope_theta": 1e6, "rope_local_base_freq": 2e4, "query_pre_attn_scalar": 64,
        "rope_scaling": {"rope_type": "linear", "factor": 8.0},
    }  # fmt: skip
    prefix = "model."
    if nested:
        config, prefix = {"model_type": "gemma3", "text_config": config}, "language_model.model."
    names = naming(config)
    assert names.metadata["gemma3.rope.freq_base"] == np.float32(1e6)
    assert names.metadata["gemma3.rope.freq_base_swa"] == np.float32(2e4)
    assert names.metadata["gemma3.rope.scaling.factor"] == 8
    assert names.metadata["gemma3.attention.key_length"] == 256
    assert names.metadata["gemma3.attention.scale"] == np.float32(1 / 8)
    assert "gemma3.attention.sliding_window_pattern" not in names.metadata
    name = f"{prefix}layers.3.post_feedforward_layernorm.weight"
    assert names.rename(name) == ("blk.3.post_ffw_norm.weight", PLUS_ONE)
    assert PLUS_ONE.apply(np.zeros(2, np.float32)).tolist() == [1, 1]
    assert names.rename("vision_tower.anything.weight") is None
    assert names.tied


def test_phi3() -> None:
    config = {
        **LLAMA, "model_type": "phi3", "max_position_embeddings": 4096,
        "original_max_position_embeddings": 64, "partial_rotary_factor": 0.5,
        "rope_scaling": {"type": "longrope", "long_factor": [2.0, 3.0], "short_factor": [1, 1]},
    }  # fmt: skip
    names = naming(config)
    assert names.metadata["phi3.rope.dimension_count"] == 4
    assert names.tensors["rope_factors_long.weight"].tolist() == [2, 3]
    assert names.metadata["phi3.rope.scaling.attn_factor"] == np.float32(2**0.5)  # 64^2 = 4096
    name = "model.layers.0.mlp.gate_up_proj.weight"
    assert names.rename(name) == ("blk.0.ffn_up.weight", SAME)


def test_gpt2() -> None:
    config = {"model_type": "gpt2", "n_embd": 8, "n_layer": 1, "n_head": 2, "vocab_size": 9}
    names = naming({**config, "n_positions": 4})
    assert names.metadata["gpt2.feed_forward_length"] == 32
    for prefix in ("", "transformer."):
        assert names.rename(prefix + "h.0.mlp.c_fc.weight") == ("blk.0.ffn_up.weight", TRANSPOSED)
        assert names.rename(prefix + "h.0.mlp.c_fc.bias") == ("blk.0.ffn_up.bias", SAME)
        assert names.rename(prefix + "h.0.attn.bias") is None
    assert TRANSPOSED.apply(np.array([[1, 2], [3, 4]])).tolist() == [[1, 3], [2, 4]]


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"model_type": None}, "key 'model_type': expected a string, found nothing"),
    ({"model_type": "rwkv"}, "model_type 'rwkv': expected one of ['"),
    ({"architectures": ["LlamaForSequenceClassification"]}, "expected a language model"),
    ({"architectures": "LlamaForCausalLM"}, "key 'architectures': expected a list"),
    ({"quantization_config": {"bits": 4}}, "expected weights that are not quantized"),
    ({"hidden_size": "32"}, "key 'hidden_size': expected an integer, found '32'"),
    ({"hidden_size": True}, "key 'hidden_size': expected an integer, found True"),
    ({"hidden_size": 10**400}, "key 'hidden_size': expected 1 to 4294967295, found 1000000000"),
    ({"num_hidden_layers": 0}, "key 'num_hidden_layers': expected 1 to"),
    ({"num_attention_heads": -4}, "key 'num_attention_heads': expected 1 to"),
    ({"rms_norm_eps": float("nan")}, "key 'rms_norm_eps': expected a positive number"),
    ({"rope_theta": 10**400}, "key 'rope_theta': expected a positive number"),
    ({"rope_scaling": [1]}, "key 'rope_scaling': expected an object, found list"),
    ({"rope_scaling": {"type": "su"}}, "scaling of rotary positions 'su': expected 'default'"),
    ({"rope_scaling": {"type": "linear"}}, "key 'factor': expected a number, found nothing"),
    ({"rope_scaling": {**LLAMA3, "high_freq_factor": 1}}, "low_freq_factor 1.0: expected below"),
    ({"hidden_act": "relu"}, "key 'hidden_act': expected 'silu', found 'relu'"),
    ({"tie_word_embeddings": 1}, "key 'tie_word_embeddings': expected true or false, found 1"),
    ({"model_type": "mistral", "layer_types": ["full_attention"]}, "expected 2 of"),
    ({"model_type": "gemma3", "text_config": 5}, "key 'text_config': expected an object"),
    ({"model_type": "gemma3_text", "final_logit_softcapping": 30.0}, "expected None, found 30.0"),
    ({"model_type": "phi3", "partial_rotary_factor": 1e30}, "'partial_rotary_factor': expected at"),
    (
        {"model_type": "phi3", "rope_scaling": {"type": "su", "long_factor": [1.0]}},
        "key 'long_factor': expected 4 numbers, found 1",
    ),
    ({"model_type": "gpt2", "n_embd": 1 << 31}, "key 'n_embd': expected 1 to 1048576"),
    (
        {"head_dim": (1 << 31) - 1, "rope_scaling": LLAMA3},
        "key 'head_dim': expected 1 to 4096, found 2147483647",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("changes", "message"), REFUSED, ids=lambda v: str(v)[:40])
def test_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(HalfbyteError) as caught:
        naming({**LLAMA, **changes}, "model/config.json")
    assert message in str(caught.value)
    assert str(caught.value).startswith("model/config.json")
    assert "\n" not in str(caught.value)
