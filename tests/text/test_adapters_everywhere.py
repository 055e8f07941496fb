"""Adapters of every matrix of every architecture."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.formats.folders import write_json, write_safetensors
from tests.support.sampled import often
from tests.text.architectures import models
from tests.text.architectures.test_folders import write
from tests.text.architectures.test_goldens import split_latent

import halfbyte
from halfbyte.errors import FormatError, HalfbyteError
from halfbyte.formats.huggingface.inverse import naming_of
from halfbyte.formats.huggingface.names import naming
from halfbyte.quantize import quantize_file
from halfbyte.text import architectures
from halfbyte.text.opening import open_model

RANK = 3
# Parts of names of what is no matrix that activations are multiplied with, or none of its own
OTHERS = (
    "embed", "wte", "wpe", "norm", "altup_projections", "visual.", "vision_model.", "kv_b_proj",
)  # fmt: skip
# Matrices whose rows or columns are in another order in GGUF, split, scaled, picked or vectors
SPECIAL = (
    "llama", "gpt2", "qwen2_moe", "qwen3_next", "qwen3_5", "granitemoeshared", "falcon_h1",
    "granitemoehybrid-attention", "mllama", "rwkv7", "gpt_neox", "deepseek_v2", "gemma4-experts",
)  # fmt: skip


def matrices(name: str) -> dict[str, tuple[int, int]]:
    """Outputs and inputs of a model's matrices, by the names in its folder."""
    names = naming(models.config(name), architectures.model_types())
    shapes = models.read_golden(name)[0]
    found = {
        source: (shape[0], shape[1])
        for source, shape in shapes.items()
        if len(shape) == 2
        and source.endswith(".weight")
        and not any(other in source for other in OTHERS)
        and names.rename(source)
    }
    transposed = name == "gpt2"
    return {n: s[::-1] if transposed and "lm_head" not in n else s for n, s in found.items()}


def write_both(folder: Path, name: str) -> tuple[Path, Path]:
    """An adapter of all matrices, and the model's folder with what it adds."""
    changed = write(folder / "changed", name, "model.safetensors")
    shapes = models.read_golden(name)[0]
    tensors = {n: models.values(f"{name}/{n}", tuple(shape)) for n, shape in shapes.items()}
    adapter = {}
    for source, (outputs, inputs) in matrices(name).items():
        a = models.values(f"{source}.A", (RANK, inputs))
        b = models.values(f"{source}.B", (outputs, RANK))
        module = f"base_model.model.{source.removesuffix('.weight')}"
        adapter |= {f"{module}.lora_A.weight": a, f"{module}.lora_B.weight": b}
        change = b @ a
        tensors[source] = tensors[source] + (change.T if name == "gpt2" else change)
    write_safetensors(changed / "model.safetensors", tensors)
    path = folder / "adapter"
    path.mkdir()
    config = {"peft_type": "LORA", "r": RANK, "lora_alpha": RANK, "bias": "none"}
    write_json(path / "adapter_config.json", config)
    write_safetensors(path / "adapter_model.safetensors", adapter)
    return path, changed


@pytest.mark.parametrize("kind", ["folder", "gguf", "merged"])
@pytest.mark.parametrize("name", often(models.CONFIGS, SPECIAL))
def test_adds_what_changed_matrices_have(name: str, kind: str, tmp_path: Path) -> None:
    ids, called = models.ids(name), models.config(name)["model_type"]
    adapter, changed = write_both(tmp_path, name)
    path = write(tmp_path / "model", name, "model.safetensors")
    if kind == "gguf":
        path = models.write(
            tmp_path / "m.gguf", name, change=lambda m, _: m.update({"general.name": called})
        )
    lora = {adapter: 1.0}
    if kind == "merged":
        merged = tmp_path / "merged.gguf"
        quantize_file(path, "fp16", merged, keep=[("*", "F32")], lora=lora)
        path, lora = merged, {}
    with halfbyte.load(changed) as model:
        expected = model.logits(ids)
    with halfbyte.load(path, lora=lora) as model:
        assert models.largest_difference(model.logits(ids), expected) < 1e-4


def test_names_follow_from_metadata(tmp_path: Path) -> None:
    """An adapter of PEFT fits GGUF files of all architectures."""
    translators = architectures.model_types()
    for name in models.CONFIGS:
        names = naming(models.config(name), translators)

        def call(metadata: dict, tensors: object, name: str = name) -> None:
            metadata["general.name"] = models.config(name)["model_type"]

        file = open_model(models.write(tmp_path / f"{name}.gguf", name, change=call))
        sources = [n for n, shape in models.read_golden(name)[0].items() if len(shape) == 2]
        own = naming_of(file, translators)
        found = [own.rename(source) for source in sources]
        for source, theirs in zip(sources, found, strict=True):
            ours = names.rename(source)
            assert (ours and (ours[0], ours[1].name)) == (theirs and (theirs[0], theirs[1].name))


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, "by what its matrices are multiplied"),  # as in llama.cpp's files
        (np.uint32(1), "original_config': expected a string, found uint32"),
        ("[]", "original_config': expected an object, found an array"),
        ("{", "original_config': not JSON"),
        ('{"model_type": "qwen9"}', "original_config': model_type 'qwen9': expected one of"),
        (json.dumps(models.config("llama")), "the config.json of the file's architecture"),
        (json.dumps(models.config("falcon_h1") | {"num_hidden_layers": 9}), "file's own block_cou"),
    ],
)
def test_original_that_is_another(value: Any, expected: str, tmp_path: Path) -> None:
    """Factors of matrices are in config.json only, which our files keep in their metadata."""

    def change(metadata: dict[str, Any], _: object) -> None:
        metadata.pop("halfbyte.original_config")
        metadata |= {} if value is None else {"halfbyte.original_config": value}

    adapter, _ = write_both(tmp_path, "falcon_h1")
    path = models.write(tmp_path / "m.gguf", "falcon_h1", change=change)
    with pytest.raises(HalfbyteError, match=expected):
        halfbyte.load(path, lora={adapter: 1.0})


@pytest.mark.parametrize("name", ["falcon_h1", "llama"])
def test_original_beside_the_adapter(name: str, tmp_path: Path) -> None:
    """Where a file does not have it within."""
    adapter, changed = write_both(tmp_path, name)
    path = models.write(
        tmp_path / "m.gguf", name, change=lambda m, _: m.pop("halfbyte.original_config", None)
    )
    write_json(adapter / "config.json", models.config(name))
    with halfbyte.load(changed) as model:
        expected = model.logits(models.ids(name))
    with halfbyte.load(path, lora={adapter: 1.0}) as model:
        assert models.largest_difference(model.logits(models.ids(name)), expected) < 1e-4
    write_json(adapter / "config.json", models.config("qwen2"))
    with pytest.raises(FormatError, match=r"adapter/config.json: .*the file's architecture"):
        halfbyte.load(path, lora={adapter: 1.0})


def test_names_follow_where_latents_are_one_head(tmp_path: Path) -> None:
    """In files of llama.cpp's converter."""
    split = open_model(models.write(tmp_path / "m.gguf", "deepseek_v3", change=split_latent))
    names = naming_of(split, architectures.model_types())
    renamed = names.rename("model.layers.1.self_attn.q_b_proj.weight")
    assert renamed is not None
    assert renamed[0] == "blk.1.attn_q_b.weight"
