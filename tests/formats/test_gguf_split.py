"""GGUF models in several files, as PyPI's gguf writes them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from tests.formats.files import model_metadata, tensor, weights, write_small

import halfbyte
from halfbyte.cli import main
from halfbyte.errors import FormatError, HalfbyteError, UnsupportedError
from halfbyte.formats.gguf_split import names_of_parts
from halfbyte.quantize import quantize_file
from halfbyte.quantize.gguf_writer import write_gguf
from halfbyte.text.loading import load_parts
from halfbyte.text.opening import open_bytes, open_model


@pytest.fixture
def shards(tmp_path: Path) -> list[Path]:
    """A complete model in files of at most seven tensors, the first without any."""
    writer = gguf.GGUFWriter(
        tmp_path / "m.gguf", "llama", split_max_tensors=7, small_first_shard=True
    )
    for key, value in model_metadata().items():
        if isinstance(value, np.ndarray):
            writer.add_array(key, value.tolist())
        elif isinstance(value, list):
            writer.add_array(key, value)
        elif isinstance(value, str):
            writer.add_string(key, value) if key != "general.architecture" else None
        elif isinstance(value, np.floating):
            writer.add_float32(key, float(value))
        else:
            writer.add_uint32(key, int(value))  # type: ignore[call-overload]
    for name, values in weights().items():
        writer.add_tensor(name, values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    paths = sorted(tmp_path.glob("m-*.gguf"))
    assert len(paths) == 4
    return paths


def test_any_part_opens_the_whole(shards: list[Path], tmp_path: Path) -> None:
    whole = open_model(write_small(tmp_path / "whole.gguf"))
    for path in shards:
        file = open_model(path)
        assert file.path == shards[0]
        assert file.kind == "GGUF v3 in 4 files"
        assert file.size == sum(p.stat().st_size for p in shards)
        assert file.tensors.keys() == whole.tensors.keys()
        for name, read in file.tensors.items():
            np.testing.assert_array_equal(read.data, whole.tensors[name].data)
        assert not [key for key in file.metadata if key.startswith("split.")]


def test_it_runs_and_becomes_one_file(shards: list[Path], tmp_path: Path) -> None:
    whole = write_small(tmp_path / "whole.gguf")
    with halfbyte.load(shards[2], backend="numpy") as split, halfbyte.load(whole) as one:
        logits, expected = split.logits([1, 5, 9]), one.logits([1, 5, 9])
        np.testing.assert_allclose(logits, expected, atol=1e-4)
    quantize_file(shards[1], "fp16", tmp_path / "out.gguf")
    again = open_model(tmp_path / "out.gguf")
    assert again.kind == "GGUF v3"
    assert len(again.tensors) == len(weights())


def refused(path: Path) -> str:
    with pytest.raises(HalfbyteError) as caught:
        open_model(path)
    return str(caught.value)


def test_missing_parts(shards: list[Path], capsys: pytest.CaptureFixture[str]) -> None:
    shards[1].unlink()
    assert main(["info", str(shards[2])]) == 2
    expected = "is part 3 of 4, and 1 of them are missing beside it: m-00002-of-00004.gguf"
    assert capsys.readouterr().err == f"error: {shards[2]}: {expected}\n"


def test_parts_under_other_names(shards: list[Path], tmp_path: Path) -> None:
    first = shards[0].rename(tmp_path / "model.gguf")
    assert "expected a name such as model-00001-of-00004.gguf" in refused(first)
    first.rename(shards[0])
    shards[1].rename(tmp_path / "aside")
    shards[2].rename(shards[1])
    (tmp_path / "aside").rename(shards[2])
    assert refused(shards[0]) == f"{shards[1]}: metadata 'split.no': expected 1, found 2"
    assert "is part 3 of 4, expected the name m-00003-of-00004.gguf" in refused(shards[1])


@pytest.mark.parametrize(
    ("part", "changes", "expected"),
    [
        (2, {"split.count": np.uint16(3)}, "metadata 'split.count': expected 2, found 3"),
        (2, {"split.no": np.uint16(0)}, "metadata 'split.no': expected 1, found 0"),
        (1, {"split.no": "0"}, "metadata 'split.no': expected an integer, found str"),
        (1, {"split.count": np.uint16(5000)}, "'split.count': expected 0 to 1024, found 5000"),
        (1, {"split.tensors.count": np.int32(9)}, "9 tensors, but the 2 files have 2"),
    ],
)
def test_parts_that_contradict_each_other(
    part: int, changes: dict[str, str | np.generic], expected: str, tmp_path: Path
) -> None:
    for index in (1, 2):
        metadata = {"split.no": np.uint16(index - 1), "split.count": np.uint16(2)}
        if index == part:
            metadata |= changes  # type: ignore[arg-type]
        tensors = [tensor(f"t{index}", np.ones(4, np.float32))]
        write_gguf(tmp_path / f"m-{index:05}-of-00002.gguf", metadata, tensors)
    assert expected in refused(tmp_path / "m-00001-of-00002.gguf")


def test_a_tensor_in_two_parts(tmp_path: Path) -> None:
    for index in (1, 2):
        metadata = {"split.no": np.uint16(index - 1), "split.count": np.uint16(2)}
        path = tmp_path / f"m-{index:05}-of-00002.gguf"
        write_gguf(path, metadata, [tensor("twice", np.ones(4, np.float32))])
    assert refused(path) == f"{path}: tensor 'twice': is in an earlier file too"


def test_a_part_in_memory_is_refused(shards: list[Path]) -> None:
    with pytest.raises(UnsupportedError, match="is one of 4 files of a model: open it by path"):
        open_bytes(shards[0].read_bytes(), "m-00001-of-00004.gguf")


def test_parts_in_memory(shards: list[Path]) -> None:
    """In any order, as a page has them; all of them are needed."""
    parts = {path.name: path.read_bytes() for path in reversed(shards)}
    with halfbyte.load(shards[0]) as one, load_parts(parts) as split:
        options: Any = {"max_tokens": 8, "temperature": 0}
        assert split.generate([1, 5], **options) == one.generate([1, 5], **options)
    del parts[shards[2].name]
    with pytest.raises(FormatError, match="is one of 4 files of a model, found 3"):
        load_parts(parts)


def test_addresses_of_parts() -> None:
    first = "https://x.org/a/m-00001-of-00003.gguf?download=true"
    others = [first.replace("-00001-", f"-0000{i}-") for i in (2, 3)]
    assert names_of_parts(others[0]) == [first, *others]
    assert names_of_parts("https://x.org/m.gguf?x=1") == ["https://x.org/m.gguf?x=1"]
