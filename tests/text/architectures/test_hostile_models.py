"""Files of each architecture that contradict themselves or ask for unsupported features."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.text.architectures import models

import halfbyte
from halfbyte.errors import HalfbyteError
from halfbyte.formats import MetadataValue
from halfbyte.text.describe import describe

REFUSED: list[tuple[str, dict[str, MetadataValue], str]] = [
    ("llama", {"llama.rope.scaling.type": "dynamic"}, "'none' or 'linear' or 'yarn', found 'dyn"),
    ("llama", {"llama.rope.scaling.type": "yarn"}, "'llama.rope.scaling.factor': expected a posit"),
    ("arcee", {"arcee.rope.scaling.original_context_length": np.uint32(0)}, "expected 1 to 16777"),
    ("arcee", {"arcee.rope.scaling.yarn_beta_fast": np.float32(-1)}, "expected a positive number"),
    ("arcee", {"arcee.feed_forward_length": np.uint32(65)}, "'blk.0.ffn_up.weight': expected [65,"),
    ("olmo", {"olmo.attention.clamp_kqv": np.float32(-1)}, "expected a positive number"),
    ("granite", {"granite.logit_scale": np.float32(np.nan)}, "expected a positive number"),
    ("gemma2", {"gemma2.attn_logit_softcapping": "50"}, "expected a positive number"),
    ("gemma2", {"gemma2.attention.max_alibi_bias": np.float32(8)}, "expected 0, found 8.0"),
    ("mpt", {"mpt.attention.max_alibi_bias": np.float32(0)}, "expected a positive number"),
    ("gpt_neox", {"gptneox.use_parallel_residual": "yes"}, "expected true or false, found str"),
    ("ministral3", {"mistral3.attention.temperature_scale": np.float32(-1)}, "a positive number"),
    ("lfm2", {"lfm2.shortconv.l_cache": np.uint32(1)}, "l_cache': expected 2 to 64, found 1"),
    ("lfm2", {"lfm2.shortconv.l_cache": np.uint32(4)}, "conv.weight': expected [32, 4], found [3"),
    ("lfm2", {"lfm2.attention.head_count_kv": np.zeros(4, np.int32)}, "expected 4 counts, each of"),
    ("lfm2", {"lfm2.attention.head_count_kv": np.array([0, 2, 0, 1])}, "expected 4 counts, each"),
    ("lfm2", {"lfm2.attention.head_count_kv": np.array([0, -2, 0, -2])}, "expected 4 counts, ea"),
    ("lfm2", {"lfm2.attention.head_count_kv": np.array([0, 2])}, "expected 4 counts, each of them"),
    ("lfm2", {"lfm2.attention.head_count_kv": np.array([0, 3, 0, 3])}, "4 heads do not fit 3 key"),
    ("lfm2", {"lfm2.attention.head_count_kv": np.uint32(2)}, "'blk.0.attn_q.weight': expected [32"),
    ("mamba", {"mamba.ssm.inner_size": np.uint32(63)}, "16 channels in each head, found 63"),
    ("mamba", {"mamba.ssm.state_size": np.uint32(1 << 30)}, "expected 1 to 4096, found 10737"),
    ("mamba", {"mamba.ssm.conv_kernel": np.uint32(1)}, "conv_kernel': expected 2 to 64, found 1"),
    ("mamba", {"mamba.attention.head_count": np.uint32(4)}, "count': expected 0 to 0, found 4"),
    ("mamba", {"mamba.ssm.time_step_rank": np.uint32(3)}, "ssm_x.weight': expected [19, 64], fou"),
    ("falcon_mamba", {"mamba.ssm.rms_epsilon": np.float32(0)}, "expected a positive number"),
    ("ernie4_5_moe", {"ernie4_5-moe.interleave_moe_layer_step": np.uint32(2)}, "expected 1, found"),
    ("mamba2", {"mamba2.ssm.group_count": np.uint32(2)}, "ssm_in.weight': expected [196, 32], f"),
    ("mamba2", {"mamba2.ssm.time_step_rank": np.uint32(8)}, "16 channels in each head, found 64"),
    ("mamba2", {"mamba2.ssm.group_count": np.uint32(0)}, "count': expected 1 to 65536, found"),
    ("rwkv7", {"rwkv7.wkv.head_size": np.uint32(24)}, "expected a multiple of 16 that divides 64"),
    ("rwkv7", {"rwkv7.wkv.head_size": np.uint32(48)}, "expected a multiple of 16 that divides 64"),
    ("rwkv7", {"rwkv7.token_shift_count": np.uint32(1)}, "shift_count': expected 2 to 2, found 1"),
    ("rwkv7", {"rwkv7.attention.gate_lora_rank": np.uint32(0)}, "fused.weight': expected [5, "),
    ("rwkv7", {"rwkv7.attention.decay_lora_rank": np.uint32(9)}, "w1.weight': expected [9, 64]"),
    ("deepseek_v2", {"deepseek2.attention.kv_lora_rank": np.uint32(31)}, "kv_b.weight': expected"),
    ("deepseek_v2", {"deepseek2.rope.dimension_count": np.uint32(20)}, "expected 1 to 19, found"),
    ("deepseek_v2", {"deepseek2.attention.head_count": np.uint32(33)}, "expected at most 32"),
    ("deepseek_v3", {"deepseek2.attention.q_lora_rank": np.uint32(0)}, "attn_q.weight': expected"),
    ("deepseek_v3", {"deepseek2.expert_group_count": np.uint32(65)}, "expected 0 to 64, found 65"),
    ("deepseek_v3", {"deepseek2.expert_group_count": np.uint32(8)}, "group_used_count': expected"),
    ("deepseek_v3-groups", {"deepseek2.expert_group_used_count": np.uint32(1)}, "3 run, do not fi"),
    ("deepseek_v3-groups", {"deepseek2.expert_group_count": np.uint32(3)}, "fit 2 of 3 groups"),
    ("deepseek_v3-groups", {"deepseek2.expert_group_count": np.uint32(8)}, "fit 2 of 8 groups"),
    ("nemotron_h", {"nemotron_h.feed_forward_length": np.array([0, 9, 9])}, "0 in layer 2, which"),
    ("nemotron_h", {"nemotron_h.feed_forward_length": np.array([0, 9])}, "expected 3 counts, each"),
    ("nemotron_h-latent", {"nemotron_h_moe.moe_latent_size": np.uint32(8)}, "expected [8, 32], fo"),
    ("jamba", {"jamba.attention.head_count_kv": np.array([0, 2, 2, 0])}, "blk.1.attn_q.weight"),
    ("jamba", {"jamba.ssm.time_step_rank": np.uint32(3)}, "ssm_x.weight': expected [19, 64], fou"),
    ("cohere2", {"cohere2.expert_count": np.uint32(8)}, "expert_count': expected 0, found 8"),
    ("smollm3", {"smollm3.attn_logit_softcapping": np.float32(30)}, "expected 0, found 30.0"),
    ("llama", {"llama.rope.scaling.type": "linear"}, "'llama.rope.scaling.factor': expected a pos"),
    ("llama", {"llama.rope.scaling.factor": np.float32(2)}, "factor': expected 1, found 2.0"),
    ("mistral", {"llama.attention.sliding_window": np.int32(-1)}, "expected 0 to 16777216, found"),
    ("mistral", {"llama.attention.sliding_window": "7"}, "sliding_window': expected an integer"),
    ("qwen2", {"qwen2.attention.sliding_window_pattern": np.ones(2, bool)}, "expected 3 flags"),
    ("qwen2", {"qwen2.attention.sliding_window_pattern": ["a"]}, "an integer, found list"),
    ("qwen2", {"qwen2.attention.head_count": np.uint32(3)}, "3 heads do not fit 2 key/value"),
    ("qwen3", {"qwen3.attention.value_length": np.uint32(8)}, "value_length': expected 12"),
    ("qwen3", {"qwen3.attention.key_length": np.uint32(11)}, "dimension_count': expected 1 to 11"),
    ("qwen3", {"qwen3.expert_count": np.uint32(8)}, "expert_count': expected 0, found 8"),
    ("gemma3", {"gemma3.final_logit_softcapping": np.float32(30)}, "expected 0, found 30.0"),
    ("gemma3", {"gemma3.rope.freq_base_swa": np.float32(np.nan)}, "expected a positive number"),
    ("gemma3", {"gemma3.attention.scale": np.float32(0)}, "expected a positive number"),
    ("gemma4", {"gemma4.attention.shared_kv_layers": np.uint32(7)}, "expected 0 to 6, found 7"),
    ("gemma4", {"gemma4.attention.shared_kv_layers": np.uint32(5)}, "layer 1: no layer without a"),
    ("gemma4", {"gemma4.attention.key_length_swa": np.uint32(18)}, "value_length_swa': expected"),
    ("gemma4", {"gemma4.attention.head_count_kv": np.array([2, 3] * 3)}, "3 do not share 4 heads"),
    ("gemma4", {"gemma4.attention.head_count_kv": np.array([2, 1])}, "expected 6 integers from 1"),
    ("gemma4", {"gemma4.feed_forward_length": np.full(6, 64)}, "ffn_gate.weight': expected [64,"),
    ("gemma4", {"gemma4.feed_forward_length": np.full(6, -1)}, "expected 6 integers from 1 to 41"),
    ("gemma4", {"gemma4.embedding_length_per_layer_input": np.uint32(17)}, "expected [102, 32]"),
    ("gemma4", {"gemma4.embedding_length_per_layer_input": np.uint32(0)}, "does not use it"),
    ("gemma4", {"gemma4.attention.sliding_window": np.uint32(0)}, "expected 1 to 16777216, found"),
    ("gemma3n", {"gemma3n.altup.num_inputs": np.uint32(5)}, "proj.weight': expected [4, 32, 32]"),
    ("gemma3n", {"gemma3n.altup.num_inputs": np.uint32(1)}, "num_inputs': expected 2 to 16, found"),
    ("gemma3n", {"gemma3n.altup.active_idx": np.uint32(4)}, "active_idx': expected 0 to 3, found"),
    ("gemma3n", {"gemma3n.activation_sparsity_scale": np.float32([np.nan] * 5)}, "5 numbers below"),
    ("gemma3n", {"gemma3n.activation_sparsity_scale": np.zeros(4, np.float32)}, "5 numbers below"),
    ("phi3", {"phi3.rope.scaling.type": "su"}, "'linear' or 'yarn' or 'longrope', found 'su'"),
    ("phi3", {"phi3.rope.scaling.attn_factor": np.float32(np.inf)}, "expected a positive number"),
    ("phi3", {"phi3.feed_forward_length": np.uint32(63)}, "'blk.0.ffn_up.weight': expected [126,"),
    ("mixtral", {"llama.expert_used_count": np.uint32(5)}, "used_count': expected 1 to 4, found 5"),
    ("mixtral", {"llama.expert_used_count": np.uint32(0)}, "used_count': expected 1 to 4, found 0"),
    ("mixtral", {"llama.expert_count": np.uint32(5)}, "blk.0.ffn_gate_inp.weight': expected [5,"),
    ("mixtral", {"llama.expert_count": np.uint32(1 << 20)}, "expected 0 to 1024, found 1048576"),
    ("mixtral", {"llama.expert_group_count": np.uint32(2)}, "group_used_count': expected an integ"),
    ("mixtral", {"llama.expert_group_used_count": np.uint32(2)}, "expected 0 to 1, found 2"),
    ("mixtral", {"llama.expert_gating_func": np.uint32(4)}, "_func': expected 1 to 3, found 4"),
    ("mixtral", {"llama.expert_weights_norm": np.uint32(1)}, "expected true or false, found uint"),
    ("olmoe", {"olmoe.expert_count": np.uint32(0)}, "expert_count': expected 1 to 1024, found 0"),
    ("olmoe", {"olmoe.expert_feed_forward_length": np.uint32(32)}, "exps.weight': expected [8, 32"),
    ("gpt2", {"gpt2.context_length": np.uint32(64)}, "'position_embd.weight': expected [64, 32]"),
    ("gpt2", {"gpt2.attention.max_alibi_bias": np.float32(8)}, "expected 0, found 8.0"),
    ("gpt2", {"gpt2.attention.head_count": np.uint32(5)}, "5 key/value heads and width 32"),
]  # fmt: skip

CHANGED: list[tuple[str, str, Any, str]] = [
    ("qwen2", "blk.1.attn_k.bias", None, "expected [16], found nothing"),
    ("qwen3", "blk.0.attn_q_norm.weight", (8,), "expected [12], found [8]"),
    ("gemma3", "blk.2.post_ffw_norm.weight", None, "expected [32], found nothing"),
    ("gemma3", "blk.0.attn_q.bias", (64,), "architecture 'gemma3' does not use it"),
    ("gemma4", "blk.0.attn_v.weight", None, "expected [32, 32], found nothing"),
    ("gemma4", "blk.0.layer_output_scale.weight", (2,), "expected [1], found [2]"),
    ("gemma4-experts", "blk.1.ffn_down_exps.scale", (3,), "expected [4], found [3]"),
    ("gemma4-experts", "blk.0.ffn_gate_inp.scale", None, "expected [32], found nothing"),
    ("gemma3n", "blk.1.laurel_r.weight", (32, 63), "expected [32, 64], found [32, 63]"),
    ("gemma3n", "altup_unembd_proj.weight", None, "expected [3, 32, 32], found nothing"),
    ("phi3", "blk.0.attn_qkv.weight", (60, 32), "expected [64, 32], found [60, 32]"),
    ("phi3", "blk.0.attn_qkv.weight[0:32]", (32, 32), "architecture 'phi3' does not use it"),
    ("phi3-long", "rope_factors_long.weight", None, "expected [3], found nothing"),
    ("llama3", "rope_freqs.weight", (3,), "expected [8], found [3]"),
    ("stablelm", "blk.1.attn_k.bias", None, "expected [16], found nothing"),
    ("starcoder2", "blk.2.ffn_norm.bias", None, "expected [32], found nothing"),
    ("arcee", "blk.1.ffn_gate.weight", (64, 32), "architecture 'arcee' does not use it"),
    ("olmo2", "blk.0.attn_q_norm.weight", (8,), "expected [32], found [8]"),
    ("olmo2", "blk.1.post_ffw_norm.weight", None, "expected [32], found nothing"),
    ("olmo", "output_norm.weight", (32,), "architecture 'olmo' does not use it"),
    ("olmo", "output_proj.weight", (32, 32), "architecture 'olmo' does not use it"),
    ("olmo", "token_embd_proj.weight", (32, 32), "architecture 'olmo' does not use it"),
    ("phi", "output.bias", (31,), "expected ["),
    ("opt", "position_embd.weight", (48, 32), "expected [50, 32], found [48, 32]"),
    ("opt-post_norm", "token_embd_proj.weight", (64, 31), "expected [264, 31], found [264, 32]"),
    ("opt-post_norm", "output_proj.weight", (32, 63), "expected [32, 64], found [32, 63]"),
    ("opt-post_norm", "output_norm.weight", (64,), "architecture 'opt' does not use it"),
    ("falcon-groups", "blk.1.attn_norm_2.weight", None, "expected [32], found nothing"),
    ("bloom", "blk.0.attn_qkv.bias", (95,), "expected [96], found [95]"),
    ("glm4", "blk.1.ffn_up.weight", (64, 32), "expected [128, 32], found [64, 32]"),
    ("mixtral", "blk.1.ffn_down_exps.weight", None, "expected [4, 32, 64], found nothing"),
    ("mixtral", "blk.1.ffn_up_exps.weight", (3, 64, 32), "expected [4, 64, 32], found [3, 64, 32]"),
    ("mixtral", "blk.0.ffn_up.weight", (64, 32), "architecture 'llama' does not use it"),
    ("qwen2_moe", "blk.0.ffn_gate_inp_shexp.weight", (31,), "expected [32], found [31]"),
    ("lfm2", "blk.0.shortconv.conv.weight", (32, 4), "expected [32, 3], found [32, 4]"),
    ("lfm2", "blk.2.shortconv.in_proj.weight", None, "expected [96, 32], found nothing"),
    ("lfm2", "blk.0.attn_q.weight", (32, 32), "architecture 'lfm2' does not use it"),
    ("mamba", "blk.1.ssm_a", None, "expected [64, 8], found nothing"),
    ("mamba2", "blk.1.ssm_conv1d.bias", None, "expected [96], found nothing"),
    ("mamba2", "blk.0.ssm_in.bias", (164,), "architecture 'mamba2' does not use it"),
    ("deepseek_v3", "blk.1.attn_kv_b.weight", (112, 31), "expected [112, 32], found [112, 31]"),
    ("minicpm3", "blk.2.attn_q_a_norm.weight", None, "expected [24], found nothing"),
    ("jamba", "blk.1.ssm_b_norm.weight", None, "expected [8], found nothing"),
    ("jamba", "blk.1.ffn_gate_inp.weight", None, "expected [64, 32], found nothing"),
    ("nemotron_h", "blk.0.attn_q.weight", (64, 32), "architecture 'nemotron_h' does not use it"),
    ("nemotron_h-latent", "blk.1.ffn_latent_up.weight", (32, 9), "expected [32, 16], found [32, 9"),
    ("granitemoehybrid", "blk.1.ssm_a", (4, 1), "architecture 'granitehybrid' does not use it"),
    ("granitemoehybrid", "blk.0.ssm_norm.weight", (64,), "expected [1, 64], found [64]"),
    ("falcon_h1", "blk.1.attn_k.weight", None, "expected [16, 32], found nothing"),
    ("gpt2", "blk.0.ffn_down.bias", None, "expected [32], found nothing"),
    ("gpt2", "blk.0.attn_qkv.bias", (32,), "expected [96], found [32]"),
]


def refused(path: Path) -> str:
    with pytest.raises(HalfbyteError) as caught:
        halfbyte.load(path)
    message = str(caught.value)
    assert message.startswith(f"{path}: ")
    assert "\n" not in message
    return message


@pytest.mark.parametrize(("name", "changes", "expected"), REFUSED, ids=lambda v: str(v)[:40])
def test_metadata(
    name: str, changes: dict[str, MetadataValue], expected: str, tmp_path: Path
) -> None:
    path = tmp_path / "model.gguf"
    models.write(path, name, change=lambda metadata, tensors: metadata.update(changes))
    assert expected in refused(path)


@pytest.mark.parametrize(("name", "changed", "shape", "expected"), CHANGED)
def test_tensors(
    name: str, changed: str, shape: tuple[int, ...] | None, expected: str, tmp_path: Path
) -> None:
    def change(metadata: dict[str, MetadataValue], tensors: dict[str, models.F32Array]) -> None:
        tensors.pop(changed, None)
        if shape:
            tensors[changed] = np.ones(shape, np.float32)

    path = models.write(tmp_path / "model.gguf", name, change=change)
    message = refused(path)
    assert expected in message
    assert "tensor '" in message


def test_a_weight_that_is_not_finite_is_named_within_its_part(tmp_path: Path) -> None:
    """Fused tensors are split when they are loaded."""

    def change(metadata: dict[str, MetadataValue], tensors: dict[str, models.F32Array]) -> None:
        tensors["blk.1.attn_qkv.weight"][33, 5] = np.nan

    path = models.write(tmp_path / "model.gguf", "phi3", change=change)
    expected = r"'blk\.1\.attn_qkv\.weight\[32:48\]': expected finite .* row 1, column 5"
    with halfbyte.load(path) as model, pytest.raises(HalfbyteError, match=expected):
        model.logits([1, 2, 3])


PASSED: list[tuple[str, dict[str, MetadataValue]]] = [
    ("llama", {"llama.rope.scaling.finetuned": True}),
    ("qwen2", {"qwen2.pooling_type": np.uint32(1)}),
    ("qwen3", {"qwen3.rope.scaling.yarn_beta_fast": np.float32(32)}),
    ("llama", {"llama.expert_weights_scale": np.float32(2)}),
]
NEUTRAL: list[tuple[str, dict[str, MetadataValue]]] = [
    ("llama", {"llama.rope.scaling.attn_factor": np.float32(1)}),
    ("llama", {"llama.attention.scale": np.float32(8**-0.5)}),
    ("llama", {"llama.attention.scale": np.nextafter(np.float32(8**-0.5), np.float32(1))}),
    ("gemma3", {"gemma3.final_logit_softcapping": np.float32(0)}),
    ("gpt2", {"gpt2.attention.max_alibi_bias": np.float32(0)}),
    ("mistral", {"llama.expert_count": np.zeros(3, np.uint32)}),
    ("qwen2", {"qwen2.attention.head_count": np.array([4, 4, 4], np.uint32)}),
]


@pytest.mark.parametrize(("name", "changes"), [*PASSED, *NEUTRAL])
def test_what_changes_no_result_is_passed_over(
    name: str, changes: dict[str, MetadataValue], tmp_path: Path
) -> None:
    ids = models.ids(name)[:5]
    with halfbyte.load(models.write(tmp_path / "plain.gguf", name)) as model:
        expected = model.feed(ids).copy()
        notes = len(model.notes)
    (key,) = changes
    path = models.write(
        tmp_path / "more.gguf", name, change=lambda metadata, tensors: metadata.update(changes)
    )
    with halfbyte.load(path) as model:
        np.testing.assert_array_equal(model.feed(ids), expected)
        more = model.notes[notes:]
    assert [key in note and "passed over" in note for note in more] == [True] * len(more)
    assert len(more) == ((name, changes) in PASSED)
    text = describe(path)
    assert (f"notes\n  metadata '{key}': passed over" in text) == bool(more)


def test_keys_of_nothing_here_are_noted(tmp_path: Path) -> None:
    """Keys of another or no architecture, but not those about the file and its history."""
    general: dict[str, MetadataValue] = {"general.author": "me", "quantize.imatrix.file": "x"}
    foreign: dict[str, MetadataValue] = {"qwen2.rope.freq_base": np.float32(7), "clip.a": "b"}
    path = models.write(
        tmp_path / "m.gguf", "llama",
        change=lambda metadata, tensors: metadata.update(general | foreign | {"llamas": "x"}),
    )  # fmt: skip
    notes = json.loads(describe(path, as_json=True))["notes"]
    assert [note.split("'")[1] for note in notes] == [*foreign, "llamas"]
    assert all("passed over: it is not a key of this architecture" in note for note in notes)


@pytest.mark.parametrize(("context", "reach"), [(24, "short"), (25, "long")])
def test_a_context_says_which_factors_of_longrope_it_takes(
    context: int, reach: str, tmp_path: Path
) -> None:
    """As in llama.cpp, by the context that is asked for, not by the length of a text."""
    path = models.write(tmp_path / "m.gguf", "phi3-long")

    def only(metadata: dict[str, MetadataValue], tensors: dict[str, models.F32Array]) -> None:
        for name in ("long", "short"):
            tensors[f"rope_factors_{name}.weight"] = tensors[f"rope_factors_{reach}.weight"]

    same = models.write(tmp_path / "same.gguf", "phi3-long", change=only)
    ids = models.ids("phi3-long")[:20]
    with halfbyte.load(path, context=context) as model, halfbyte.load(same, context=24) as one:
        np.testing.assert_array_equal(model.logits(ids), one.logits(ids))
    text = describe(path, context=context)
    assert ("notes\n  LongRoPE: a context of 25 tokens, beyond" in text) == (reach == "long")
