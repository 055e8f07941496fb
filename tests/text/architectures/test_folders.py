"""Folders of every architecture as `transformers` saves them, with its logits."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from tests.formats.folders import write_folder, write_json, write_safetensors
from tests.formats.torch_files import write_legacy, write_zip
from tests.support.sampled import sampled
from tests.text.architectures import configs, models

import halfbyte
from halfbyte.errors import FormatError
from halfbyte.quantize import quantize_file
from halfbyte.text.opening import open_model

WRITERS: dict[str, Callable[..., Path]] = {
    "model.safetensors": write_safetensors, "pytorch_model.bin": write_legacy, "m.pt": write_zip,
}  # fmt: skip


def write(folder: Path, name: str, file: str) -> Path:
    """Write a folder; returns the file in it if its name follows no convention."""
    write_folder(folder)
    (folder / "model.safetensors").unlink()
    (folder / "generation_config.json").unlink()
    write_json(folder / "config.json", models.config(name))
    shapes = models.read_golden(name)[0]
    tensors = {n: models.values(f"{name}/{n}", tuple(shape)) for n, shape in shapes.items()}
    WRITERS[file](folder / file, tensors)
    return folder / file if file == "m.pt" else folder


@pytest.mark.parametrize(
    ("name", "file"),
    [
        *((name, file) for name in configs.EVERYWHERE for file in WRITERS),
        *((name, "model.safetensors") for name in configs.OTHERS),
    ],
)
def test_logits(name: str, file: str, tmp_path: Path) -> None:
    _, rows, expected = models.read_golden(name)
    path = write(tmp_path / "m", name, file)
    with halfbyte.load(path) as model:
        actual = model.logits(models.ids(name))[rows, : models.COLUMNS]
    assert models.largest_difference(actual, expected) < 1e-4


@pytest.mark.parametrize("name", ["llama", "gpt2"])
def test_streamed_tensors_are_converted_again(name: str, tmp_path: Path) -> None:
    """Rows are reordered (llama) or transposed (gpt2) each time that they are read."""
    path, ids = write(tmp_path / "m", name, "model.safetensors"), models.ids(name)
    with halfbyte.load(path) as model, halfbyte.load(path, weights="streamed") as streamed:
        np.testing.assert_array_equal(streamed.logits(ids), model.logits(ids))


@pytest.mark.parametrize("name", sampled(models.CONFIGS, 3))
def test_tensors_are_those_of_the_gguf_file(name: str, tmp_path: Path) -> None:
    """Also after `quantize`, which takes a few rows at a time."""
    whole = open_model(models.write(tmp_path / "whole.gguf", name))
    file = open_model(write(tmp_path / "m", name, "pytorch_model.bin"))
    assert file.tensors.keys() == whole.tensors.keys()
    for key, tensor in whole.tensors.items():
        actual = file.tensors[key]
        assert actual.shape == tensor.shape
        np.testing.assert_array_equal(actual.decode(), tensor.decode())
        parts = [actual.take(first, 3) for first in range(0, actual.row_count, 3)]
        np.testing.assert_array_equal(np.concatenate(parts), tensor.rows)
    for source, target in ((tmp_path / "m", "a.gguf"), (tmp_path / "whole.gguf", "b.gguf")):
        quantize_file(source, "int8", tmp_path / target)
    one, other = open_model(tmp_path / "a.gguf"), open_model(tmp_path / "b.gguf")
    for key, tensor in one.tensors.items():
        np.testing.assert_array_equal(tensor.data, other.tensors[key].data)


# Names in folders of the hub, which have matrices for each expert: gate, up, down; `transformers`
# stacks them, under the names in goldens.
EXPERTS = {
    "mixtral": ("block_sparse_moe.experts", "w1", "w3", "w2"),
    **dict.fromkeys(
        ("qwen2_moe", "qwen3_moe", "olmoe"), ("mlp.experts", "gate_proj", "up_proj", "down_proj")
    ),
}


def write_experts(folder: Path, name: str, without: str = "") -> Path:
    """Write a folder with matrices for each expert, but for the one named `without`."""
    write(folder, name, "model.safetensors")
    where, gate, up, down = EXPERTS[name]
    tensors = {}
    for key, shape in models.read_golden(name)[0].items():
        value = models.values(f"{name}/{key}", tuple(shape))
        layer = key.partition("mlp.")[0]
        if not key.endswith(("experts.gate_up_proj", "experts.down_proj")):
            tensors[key.replace("mlp.gate.", where.replace("experts", "gate."))] = value
            continue
        for number, matrix in enumerate(value):
            parts = {down: matrix}
            if key.endswith("gate_up_proj"):
                parts = dict(zip((gate, up), np.split(matrix, 2), strict=True))
            tensors |= {f"{layer}{where}.{number}.{n}.weight": m for n, m in parts.items()}
    tensors.pop(without, None)
    write_safetensors(folder / "model.safetensors", tensors)
    return folder


@pytest.mark.parametrize("name", EXPERTS)
def test_matrices_of_each_expert_are_stacked(name: str, tmp_path: Path) -> None:
    file = open_model(write_experts(tmp_path / "each", name))
    whole = open_model(write(tmp_path / "whole", name, "model.safetensors"))
    assert file.tensors.keys() == whole.tensors.keys()
    for key, tensor in whole.tensors.items():
        np.testing.assert_array_equal(file.tensors[key].decode(), tensor.decode())
        assert file.tensors[key].shape == tensor.shape
        if len(tensor.shape) > 2:  # rows of several experts
            np.testing.assert_array_equal(file.tensors[key].take(5, 70), tensor.take(5, 70))


def test_experts_in_the_order_of_published_folders(tmp_path: Path) -> None:
    """Qwen 3 VL's are transposed there, and not where `transformers` saves them."""
    name = "qwen3_vl_moe"
    whole = open_model(write(tmp_path / "whole", name, "model.safetensors"))
    shapes = models.read_golden(name)[0]
    tensors = {n: models.values(f"{name}/{n}", tuple(shape)) for n, shape in shapes.items()}
    for key, value in tensors.items():
        if ".experts." in key:
            tensors[key] = np.ascontiguousarray(value.swapaxes(1, 2))
    published = write(tmp_path / "published", name, "model.safetensors")
    write_safetensors(published / "model.safetensors", tensors)
    for key, tensor in open_model(published).tensors.items():
        np.testing.assert_array_equal(tensor.decode(), whole.tensors[key].decode())


def test_a_missing_expert_is_named(tmp_path: Path) -> None:
    lost = "model.layers.1.block_sparse_moe.experts.2.w3.weight"
    folder = write_experts(tmp_path / "m", "mixtral", without=lost)
    expected = r"'blk.1.ffn_up_exps.weight': expected 4 experts, expert 2 is missing"
    with pytest.raises(FormatError, match=expected):
        open_model(folder)


def test_inputs_of_layers_are_padded(tmp_path: Path) -> None:
    """Tokens that are not of a text may have none: as in llama.cpp's files, theirs are zeros."""
    folder, rows = write(tmp_path / "m", "gemma3n", "model.safetensors"), 250
    write_json(
        folder / "config.json", models.config("gemma3n") | {"vocab_size_per_layer_input": rows}
    )
    shapes = models.read_golden("gemma3n")[0]
    tensors = {n: models.values(f"gemma3n/{n}", tuple(shape)) for n, shape in shapes.items()}
    name = "model.embed_tokens_per_layer.weight"
    tensors[name] = tensors[name][:rows]
    tensors["model.embed_audio.embedding.weight"] = np.zeros((2, 2), np.float32)
    write_safetensors(folder / "model.safetensors", tensors)
    assert "tensors of images and sound (1, such as" in " ".join(open_model(folder).notes)
    table = open_model(folder).tensors["per_layer_token_embd.weight"]
    expected = np.pad(tensors[name], ((0, table.shape[0] - rows), (0, 0)))
    np.testing.assert_array_equal(table.decode(), expected)
    parts = [table.take(first, 7) for first in range(0, len(expected), 7)]
    np.testing.assert_array_equal(np.concatenate(parts), table.rows)
    with halfbyte.load(folder) as model:
        assert np.isfinite(model.feed([1, rows + 3])).all()
