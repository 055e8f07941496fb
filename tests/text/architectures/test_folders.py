"""Folders of every architecture as `transformers` saves them, with its logits."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from tests.formats.folders import write_folder, write_json, write_safetensors
from tests.formats.torch_files import write_legacy, write_zip
from tests.text.architectures import configs, models

import halfbyte
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


@pytest.mark.parametrize("name", models.CONFIGS)
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
