"""Folders and torchless files, overwritten at random: our own errors, and no memory for lies."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from tests.formats.folders import write_folder
from tests.formats.test_hostile_files import little_memory, mutate, use
from tests.formats.torch_files import write_legacy, write_zip
from tests.tools import load_tool

from halfbyte.errors import HalfbyteError

MUTATIONS = 150
BIN = "pytorch_model.bin"
INDEX = "model.safetensors.index.json"
SAFETENSORS = "model.safetensors"
REPOSITORY = Path(__file__).resolve().parents[2]


def write_torchless(folder: Path) -> Path:
    write_folder(folder, model_type="mistral", sliding_window=None)
    path = folder.with_name("m.bin")
    load_tool(REPOSITORY, "make_torchless").make_torchless(folder, path, int8=True)
    return path


# What is opened, and the file of it that is overwritten.
CASES: dict[str, tuple[Callable[[Path], Path], str]] = {
    "config": (write_folder, "config.json"),
    "generation": (write_folder, "generation_config.json"),
    "safetensors": (write_folder, SAFETENSORS),
    "index": (lambda path: write_folder(path, shards=3), INDEX),
    "zip": (lambda path: write_folder(path, write=write_zip, name=BIN), BIN),
    "legacy": (lambda path: write_folder(path, write=write_legacy, name=BIN), BIN),
    "torchless": (write_torchless, ""),
}


@pytest.mark.parametrize("name", CASES)
def test_mutated_folders_are_refused_or_used(name: str, tmp_path: Path) -> None:
    write, spoiled = CASES[name]
    path = write(tmp_path / "m")
    target = path / spoiled if spoiled else path
    whole, random, refused = target.read_bytes(), np.random.default_rng(0), 0
    for index in range(MUTATIONS):
        content = bytearray(whole)
        for _ in range(random.integers(1, 4)):
            mutate(content, random)
        target.write_bytes(content)
        try:
            if index % 10:
                use(path)
            else:
                with little_memory():
                    use(path)
        except HalfbyteError as error:
            refused += 1
            message = str(error)
            assert message.startswith(str(tmp_path))
            assert "\n" not in message
            assert len(message) < len(str(path)) + 600
    assert MUTATIONS // 8 < refused < MUTATIONS
