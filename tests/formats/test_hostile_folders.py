"""Folders and torchless files, overwritten at random: only our errors, and little memory."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from tests.formats.folders import write_folder
from tests.formats.test_hostile_files import little_memory, mutate, use
from tests.formats.torch_files import write_legacy, write_zip
from tests.support.tools import load_tool

from halfbyte.errors import FormatError, HalfbyteError
from halfbyte.text.opening import open_model

MUTATIONS = [50, pytest.param(150, marks=pytest.mark.long)]
BIN = "pytorch_model.bin"
INDEX = "model.safetensors.index.json"
SAFETENSORS = "model.safetensors"
REPOSITORY = Path(__file__).resolve().parents[2]


def write_torchless(folder: Path) -> Path:
    write_folder(folder, model_type="mistral", sliding_window=None)
    path = folder.with_name("m.bin")
    load_tool(REPOSITORY, "make_torchless").make_torchless(folder, path, int8=True)
    return path


# The path that is opened, and the file in it that is overwritten
CASES: dict[str, tuple[Callable[[Path], Path], str]] = {
    "config": (write_folder, "config.json"),
    "generation": (write_folder, "generation_config.json"),
    "safetensors": (write_folder, SAFETENSORS),
    "index": (lambda path: write_folder(path, shards=3), INDEX),
    "zip": (lambda path: write_folder(path, write=write_zip, name=BIN), BIN),
    "legacy": (lambda path: write_folder(path, write=write_legacy, name=BIN), BIN),
    "torchless": (write_torchless, ""),
}


@pytest.mark.parametrize("count", MUTATIONS)
@pytest.mark.parametrize("name", CASES)
def test_mutated_folders_are_refused_or_used(name: str, count: int, tmp_path: Path) -> None:
    write, spoiled = CASES[name]
    path = write(tmp_path / "m")
    target = path / spoiled if spoiled else path
    whole, random, refused = target.read_bytes(), np.random.default_rng(0), 0
    for index in range(count):
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
    assert count // 8 < refused < count


def test_more_layers_than_there_are_take_no_memory(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "m", num_hidden_layers=1 << 24)
    tracemalloc.start()
    with pytest.raises(FormatError, match=r"layer 2 is missing, but .* num_hidden_layers is 1677"):
        open_model(folder)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 8 << 20


@pytest.mark.parametrize("character", ["a", "ä", "\ud800"])
def test_names_of_files_that_no_system_takes(character: str, tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "m", shards=2)
    index = folder / "model.safetensors.index.json"
    data = json.loads(index.read_text(encoding="utf-8"))
    data["weight_map"] = dict.fromkeys(data["weight_map"], character * 256)
    index.write_text(json.dumps(data), encoding="utf-8")
    with pytest.raises(FormatError, match=r"expected at most 255 bytes"):
        open_model(folder)
