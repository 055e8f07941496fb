"""llama.cpp loads tiny models of every architecture, and its distributions are ours."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import numpy as np
import pytest
import xllamacpp
from tests.formats.files import VOCABULARY
from tests.judges.test_llama_cpp import F64, divergence, log_softmax
from tests.support.sampled import often, sampled
from tests.text.architectures import models
from tests.text.architectures.test_goldens import split_latent

import halfbyte
from halfbyte.quantize import quantize_file

BOUND = 2e-5  # of any log-probability: sums in other orders
UNIT_BOUND = 1e-4  # keys are scaled to length one, which llama.cpp does with another epsilon
GELU_BOUND = 1e-2  # llama.cpp looks GELU up in a table of F16

# llama.cpp has windows for Gemma 3 only; for others, texts are no longer than the window.
LENGTHS = {
    "mistral": 7, "ministral": 7, "cwm": 7, "qwen2-window": 9, "dots1": 9, "afmoe": 9, "phi3": 11,
    "starcoder2": 11,
}  # fmt: skip
# It always scales products of Gemma 3's queries and keys by 1 / sqrt(head_dim), knows one number of
# Gemma 3n's streams, inputs and sparse layers, has windows of EXAONE 4 only in 64 layers, rounds
# the range of gpt-oss's frequencies, has one epsilon of Falcon Mamba's, takes 0 for Qwen 2 VL's,
# takes MiniCPM 3's long factors for its own context, opens DeepSeek 2 without a vector of queries
# only in some numbers of layers, takes the two best scores of its groups of experts, has one
# epsilon of GLM 4.7 Flash's, and does not know the last architectures.
OTHERS = {
    "gemma3-scale", "gemma3n-shared", "exaone4", "gpt_oss", "falcon_mamba", "qwen2_vl", "minicpm3",
    "deepseek_v2", "deepseek_v2-groups", "sarvam_mla", "glm4_moe_lite", "gptj", "codegen",
    "gpt_neo", "opt", "opt-post_norm", "nanochat", "bitnet", "vaultgemma", "hyperclovax",
    "granite_swa", "granitemoe_swa", "lfm3", "lfm3-plain", "bamba", "falcon-rw",
    "modernbert-decoder", "modernbert-decoder-bases",
}  # fmt: skip
QUANTIZED = [
    "qwen2", "qwen3", "gemma3", "phi3-long", "gpt2", "gemma2", "bloom", "falcon-groups", "mixtral",
    "falcon_h1", "granitemoehybrid", "gpt_oss-plain", "deepseek_v3", "nemotron_h", "rwkv7",
]  # fmt: skip
GELU = (
    "gemma", "gpt", "starcoder2", "phi-", "bloom", "mpt", "falcon",
)  # fmt: skip


def log_probabilities(
    path: Path, ids: list[int], lengths: list[int], vocabulary: int = VOCABULARY,
    adapters: Mapping[Path, float] = MappingProxyType({}),
) -> F64:  # fmt: skip
    """llama.cpp's log-probabilities after texts of these lengths, [lengths, vocabulary]."""
    parameters = xllamacpp.CommonParams()
    parameters.model.path = str(path)
    parameters.n_ctx, parameters.n_parallel, parameters.n_gpu_layers = 256, 1, 0
    parameters.warmup, parameters.verbosity = False, -1
    parameters.cpuparams.n_threads = 1
    parameters.cache_type_k = parameters.cache_type_v = xllamacpp.ggml_type.GGML_TYPE_F32
    parameters.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
    parameters.lora_adapters = [
        xllamacpp.CommonAdapterLoraInfo(str(file), scale) for file, scale in adapters.items()
    ]
    server = xllamacpp.Server(parameters)
    logs = np.full((len(lengths), vocabulary), -np.inf)
    for row, length in zip(logs, lengths, strict=True):
        answer = server.handle_completions(
            {
                "prompt": ids[:length],
                "n_predict": 1,
                "n_probs": vocabulary,
                "cache_prompt": False,
                "ignore_eos": True,
                "logit_bias": [[vocabulary - 1, 1000]],  # a token whose text is whole
            }
        )
        (token,) = answer["choices"][0]["logprobs"]["content"]
        for candidate in token["top_logprobs"]:
            row[candidate["id"]] = candidate["logprob"]
    return logs


@pytest.mark.parametrize("name", sampled([n for n in models.CONFIGS if n not in OTHERS], 2))
def test_distributions_agree(name: str, tmp_path: Path) -> None:
    path = models.write(tmp_path / "model.gguf", name)
    ids = models.ids(name)
    lengths = list(range(1, 1 + LENGTHS.get(name, models.CONTEXT), 3))
    theirs = log_probabilities(path, ids, lengths)
    np.testing.assert_allclose(np.exp(theirs).sum(axis=1), 1, rtol=1e-3)
    with halfbyte.load(path) as model:
        ours = log_softmax(model.logits(ids))[np.array(lengths) - 1]
    bound = GELU_BOUND if f"{name}-".startswith(GELU) else BOUND
    if name == "rwkv7" or "linear_num_key_heads" in models.config(name):
        bound = UNIT_BOUND
    assert np.abs(theirs - ours).max() < bound


def test_latent_attention_with_matrices_apart(tmp_path: Path) -> None:
    """As files of today have them."""
    path = models.write(tmp_path / "model.gguf", "deepseek_v3", change=split_latent)
    ids = models.ids("deepseek_v3")
    theirs = log_probabilities(path, ids, [1, 20, 40])
    with halfbyte.load(path) as model:
        ours = log_softmax(model.logits(ids))[[0, 19, 39]]
    assert np.abs(theirs - ours).max() < BOUND


@pytest.mark.parametrize("kind", often(["int8", "int4"], ["int4"]))
@pytest.mark.parametrize("name", QUANTIZED)
def test_quantized_files_are_the_same_model(name: str, kind: str, tmp_path: Path) -> None:
    """Fused matrices, positions, and rows that are not whole blocks.

    Where experts are nearly equal, llama.cpp's rounding may choose others for a token.
    """
    path = tmp_path / "quantized.gguf"
    quantize_file(models.write(tmp_path / "model.gguf", name), kind, path)
    ids = models.ids(name)
    theirs = log_probabilities(path, ids, list(range(7, models.CONTEXT, 8)))
    with halfbyte.load(path, cache="f32") as model:
        ours = log_softmax(model.logits(ids))[6::8]
    rows = [divergence(*row) for row in zip(theirs[:, None], ours[:, None], strict=True)]
    experts = {"num_local_experts", "n_routed_experts"} & models.config(name).keys()
    assert (np.median if experts else np.mean)(rows) < 1e-3
