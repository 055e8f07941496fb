"""Logits of tiny models of every architecture are those of `transformers`, on every backend."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tests.support.sampled import sampled
from tests.text.architectures import configs, models

import halfbyte
from halfbyte.core import ops
from halfbyte.formats import MetadataValue, metadata
from halfbyte.text import architectures
from halfbyte.text.opening import open_model

BOUND = 1e-4  # of the largest logit


@pytest.mark.parametrize("name", configs.EVERYWHERE)
def test_logits(name: str, backend: str, tmp_path: Path) -> None:
    _, rows, expected = models.read_golden(name)
    path = models.write(tmp_path / "model.gguf", name)
    with halfbyte.load(path, backend=backend) as model:
        actual = model.logits(models.ids(name))[rows, : models.COLUMNS]
    assert models.largest_difference(actual, expected) < BOUND


@pytest.mark.parametrize("kind", ["numpy", "native"])
@pytest.mark.parametrize("name", configs.OTHERS)
def test_logits_on_two_backends(name: str, kind: str, tmp_path: Path) -> None:
    test_logits(name, kind, tmp_path)


@pytest.mark.parametrize("name", sampled(models.CONFIGS, 3))
def test_passes_and_batches_change_nothing(name: str, tmp_path: Path) -> None:
    """Token by token, in batches that cross windows, and without passes."""
    path = models.write(tmp_path / "model.gguf", name)
    ids = models.ids(name)
    with halfbyte.load(path) as model, halfbyte.load(path, batch=5) as batched:
        at_once = model.logits(ids)
        model.reset()
        single = np.vstack([model.feed([token]).copy() for token in ids])
        np.testing.assert_array_equal(single, at_once)
        np.testing.assert_array_equal(batched.logits(ids), at_once)
        batched.reset()
        np.testing.assert_array_equal(batched.feed(ids, rows=3), at_once[-3:])
    with halfbyte.load(path, passes=False) as plain:
        assert models.largest_difference(plain.logits(ids), at_once) < 1e-5


def test_every_architecture_has_a_model(tmp_path: Path) -> None:
    """Only `mistral` is not the name of its models in GGUF; encoders have tests of their own."""
    tested = set()
    for name in models.CONFIGS:
        path = models.write(tmp_path / "model.gguf", name)
        architecture = metadata.text(open_model(path), "general.architecture")
        tested.add(architectures.module_name(architecture))
    language = {n for n in architectures.names() if not hasattr(architectures.get(n), "HEADS")}
    assert tested | configs.KIN | {"mistral"} == language
    goldens = {p.stem for p in models.GOLDENS.iterdir()}
    assert {name for name in goldens if not name.startswith("lora-")} == set(models.CONFIGS)


def test_mistral_by_its_own_name(tmp_path: Path) -> None:
    """A file that says `mistral` has the model that llama.cpp's converter calls `llama`."""
    _, rows, expected = models.read_golden("mistral")
    path = models.write(tmp_path / "model.gguf", "mistral", architecture="mistral")
    with halfbyte.load(path) as model:
        actual = model.logits(models.ids("mistral"))[rows, : models.COLUMNS]
    assert models.largest_difference(actual, expected) < BOUND


def test_phi3_takes_short_factors_for_short_texts(tmp_path: Path) -> None:
    """A context of at most the original one is rotated by other frequencies."""
    path = models.write(tmp_path / "model.gguf", "phi3-long")
    ids = models.ids("phi3-long")[:24]
    with halfbyte.load(path, context=24) as short, halfbyte.load(path, context=25) as long:
        assert models.largest_difference(short.logits(ids), long.logits(ids)) > 1e-3


def test_gate_and_up_of_experts_in_one_tensor(tmp_path: Path) -> None:
    """As llama.cpp's converter writes them."""

    def merge(metadata: dict[str, MetadataValue], tensors: dict[str, models.F32Array]) -> None:
        for layer in range(3):
            parts = (tensors.pop(f"blk.{layer}.ffn_{n}_exps.weight") for n in ("gate", "up"))
            tensors[f"blk.{layer}.ffn_gate_up_exps.weight"] = np.concatenate([*parts], axis=1)

    apart = models.write(tmp_path / "apart.gguf", "gemma4-experts")
    merged = models.write(tmp_path / "merged.gguf", "gemma4-experts", change=merge)
    ids = models.ids("gemma4-experts")
    with halfbyte.load(apart) as model, halfbyte.load(merged) as other:
        np.testing.assert_array_equal(other.logits(ids), model.logits(ids))


def split_latent(metadata: dict[str, MetadataValue], tensors: dict[str, models.F32Array]) -> None:
    """Matrices of keys and values apart, those of keys transposed, and sizes of what is cached."""
    for name in [name for name in tensors if "attn_kv_b" in name]:
        both = tensors.pop(name).reshape(4, 28, 32)
        tensors[name.replace("kv_b", "k_b")] = both[:, :12].swapaxes(1, 2).copy()
        tensors[name.replace("kv_b", "v_b")] = both[:, 12:].copy()
    metadata |= {
        "deepseek2.attention.head_count_kv": np.uint32(1),
        "deepseek2.attention.key_length": np.uint32(40),
        "deepseek2.attention.value_length": np.uint32(32),
        "deepseek2.attention.key_length_mla": np.uint32(20),
        "deepseek2.attention.value_length_mla": np.uint32(16),
    }


@pytest.mark.parametrize("name", ["deepseek_v2", "deepseek_v3"])
def test_matrices_of_keys_and_values_apart(name: str, tmp_path: Path) -> None:
    """As llama.cpp's converter writes them."""
    whole = models.write(tmp_path / "whole.gguf", name)
    split = models.write(tmp_path / "split.gguf", name, change=split_latent)
    with halfbyte.load(whole) as model, halfbyte.load(split) as other:
        np.testing.assert_array_equal(
            other.logits(models.ids(name)), model.logits(models.ids(name))
        )


@pytest.mark.parametrize("name", ["gemma4", "gemma3n-shared"])
def test_layers_without_keys_read_the_last_rows(name: str, tmp_path: Path) -> None:
    """Of a prompt, only the rows whose logits are asked for."""
    with halfbyte.load(models.write(tmp_path / "m.gguf", name), passes=False) as model:
        shared = {"gemma4": 4, "gemma3n-shared": 2}[name]
        products = [i for i in model.program.instructions if i.operator is ops.matmul]
        sizes = {i.operands["w"].name: str(i.operands["x"].shape[0]) for i in products}
    for layer in range(len({part.split(".")[1] for part in sizes if part.startswith("blk.")})):
        expected = "rows" if layer >= shared else "n"
        assert sizes[f"blk.{layer}.ffn_down.weight"].startswith(f"{expected}≤")


@pytest.mark.parametrize("name", ["qwen2", "qwen2_moe", "qwen3", "qwen3_moe", "olmoe"])
def test_divided_frequencies(name: str, tmp_path: Path) -> None:
    """As of the scaling `llama3`: all of them divided by 4 is linear scaling by 4."""

    def divide(metadata: dict[str, MetadataValue], tensors: dict[str, models.F32Array]) -> None:
        rotated = metadata[f"{metadata['general.architecture']}.rope.dimension_count"]
        tensors["rope_freqs.weight"] = np.full(int(str(rotated)) // 2, 4, np.float32)

    def stretch(metadata: dict[str, MetadataValue], _: dict[str, models.F32Array]) -> None:
        scaling = f"{metadata['general.architecture']}.rope.scaling"
        metadata |= {f"{scaling}.type": "linear", f"{scaling}.factor": np.float32(4)}

    divided = models.write(tmp_path / "divided.gguf", name, change=divide)
    stretched = models.write(tmp_path / "stretched.gguf", name, change=stretch)
    ids = models.ids(name)
    with halfbyte.load(divided) as model, halfbyte.load(stretched) as other:
        assert models.largest_difference(model.logits(ids), other.logits(ids)) < 1e-6
