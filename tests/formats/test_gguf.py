"""GGUF files: others read ours, and we read theirs."""

from __future__ import annotations

import struct
from dataclasses import replace
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from tests.formats.files import model_metadata, tensor, weights, write_small

from halfbyte.errors import FormatError, OutputError
from halfbyte.formats import MetadataValue
from halfbyte.quantize.gguf_writer import GGUFWriter, TensorInfo, write_gguf
from halfbyte.text.opening import open_model
from halfbyte.weights import F32, FORMATS

ENCODED = {name: format_ for name, format_ in FORMATS.items() if not format_.in_memory}
METADATA: dict[str, MetadataValue] = {
    "general.architecture": "test",
    "t.u8": np.uint8(200), "t.i8": np.int8(-100), "t.u16": np.uint16(60_000),
    "t.i16": np.int16(-30_000), "t.u32": np.uint32(4_000_000_000), "t.i32": np.int32(-2**31),
    "t.f32": np.float32(0.1), "t.true": True, "t.false": False, "t.u64": np.uint64(2**64 - 1),
    "t.i64": np.int64(-2**63), "t.f64": np.float64(1e300), "t.text": "grüße ▁ 🙂", "t.empty": "",
    "t.numbers": np.arange(5, dtype=np.int16), "t.floats": np.array([1.5, -2], np.float64),
    "t.flags": np.array([True, False]), "t.none": np.array([], np.uint32),
    "t.texts": ["a", "", "ü"], "t.nested": [np.array([1, 2], np.uint8), ["x"], [["y"], ["z"]]],
}  # fmt: skip


def test_every_type_of_metadata_returns(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    write_gguf(path, METADATA, [])
    metadata = open_model(path).metadata
    assert list(metadata) == list(METADATA)
    for key, want in METADATA.items():
        value = metadata[key]
        if isinstance(want, np.ndarray | np.generic):
            assert value.dtype == want.dtype  # type: ignore[union-attr]
            np.testing.assert_array_equal(value, want)  # type: ignore[arg-type]
        elif key != "t.nested":
            assert value == want
            assert type(value) is type(want)
    nested = metadata["t.nested"]
    assert isinstance(nested, list)
    np.testing.assert_array_equal(nested[0], [1, 2])  # type: ignore[arg-type]
    assert nested[1:] == [["x"], [["y"], ["z"]]]


def test_gguf_reads_our_files(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    flat = {k: v for k, v in METADATA.items() if k not in ("t.nested", "t.none")}
    x = np.random.default_rng(0).standard_normal((6, 256), np.float32)
    tensors = [tensor(f"{name}.weight", x, format_) for name, format_ in ENCODED.items()]
    tensors.append(tensor("bias", x[0]))
    write_gguf(path, flat, tensors)
    reader = gguf.GGUFReader(path)
    for key, want in flat.items():
        got = reader.fields[key].contents()
        if isinstance(want, np.ndarray):
            want = want.tolist()
        assert got == want, key
    read = {t.name: t for t in reader.tensors}
    for written in tensors:
        tensor_read = read[written.name]
        assert tensor_read.tensor_type.name == written.format.name
        assert tensor_read.shape.tolist() == list(written.shape[::-1])
        np.testing.assert_array_equal(tensor_read.data.view(np.uint8).ravel(), written.data)


def test_we_read_files_of_gguf(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_uint32("llama.block_count", 7)
    writer.add_string("general.name", "ü")
    writer.add_array("tokenizer.ggml.tokens", ["a", "b"])
    writer.add_array("tokenizer.ggml.scores", [0.5, 1.5])
    writer.add_bool("tokenizer.ggml.add_bos_token", False)
    x = np.random.default_rng(0).standard_normal((5, 256), np.float32)
    for name, format_ in ENCODED.items():
        kind = gguf.GGMLQuantizationType[name]
        writer.add_tensor(name, format_.encode(x), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    file = open_model(path)
    assert file.kind == "GGUF v3"
    assert file.metadata["llama.block_count"] == 7
    assert file.metadata["general.name"] == "ü"
    assert file.metadata["tokenizer.ggml.tokens"] == ["a", "b"]
    assert file.metadata["tokenizer.ggml.add_bos_token"] is False
    for name, format_ in ENCODED.items():
        read = file.tensors[name]
        assert (read.format, read.shape) == (format_, (5, 256))
        np.testing.assert_array_equal(read.data, format_.encode(x).reshape(-1))


@pytest.mark.parametrize("alignment", [8, 32, 64, 4096])
def test_alignment(tmp_path: Path, alignment: int) -> None:
    path = tmp_path / "m.gguf"
    x = np.arange(9, dtype=np.float32)
    tensors = [tensor(n, x) for n in ("a", "b", "c")]
    write_gguf(path, {"general.alignment": np.uint32(alignment)}, tensors)
    file = open_model(path)
    starts = [t.data.ctypes.data % 4096 % alignment for t in file.tensors.values()]
    assert starts == [0, 0, 0]
    assert [t.decode().tolist() for t in file.tensors.values()] == [x.tolist()] * 3
    assert [t.data.tolist() for t in gguf.GGUFReader(path).tensors] == [x.tolist()] * 3


def test_offsets_are_aligned_as_the_file_says(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    x = np.arange(9, dtype=np.float32)  # 36 bytes: the second tensor begins at 40
    write_gguf(path, {"general.alignment": np.uint32(8)}, [tensor(n, x) for n in ("a", "b")])
    key = b"general.alignment" + struct.pack("<I", 4)
    data = path.read_bytes()
    assert data.count(key + struct.pack("<I", 8)) == 1
    path.write_bytes(data.replace(key + struct.pack("<I", 8), key + struct.pack("<I", 32)))
    with pytest.raises(FormatError, match="tensor 'b': offset 40 is not a multiple of 32"):
        open_model(path)


def test_tensors_are_views_of_the_file(tmp_path: Path) -> None:
    """Tensors are mapped read-only: not copied, and not writable."""
    file = open_model(write_small(tmp_path / "m.gguf"))
    addresses = sorted(t.data.ctypes.data for t in file.tensors.values())
    assert addresses[-1] - addresses[0] < (tmp_path / "m.gguf").stat().st_size
    assert not any(t.data.flags.writeable or t.data.flags.owndata for t in file.tensors.values())
    file.forget()  # pages come back
    want = weights()["blk.0.attn_q.weight"]
    np.testing.assert_array_equal(file.tensors["blk.0.attn_q.weight"].decode(), want)


def test_content_decides_not_the_name(tmp_path: Path) -> None:
    path = write_small(tmp_path / "m.gguf")
    moved = path.rename(tmp_path / "model.bin")
    assert open_model(moved).kind == "GGUF v3"


def test_an_incomplete_file_is_removed(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    infos = [TensorInfo("a", F32, (4, 4))]
    with pytest.raises(ValueError, match="'a': 32 bytes were never written"):  # noqa: SIM117
        with GGUFWriter(path, model_metadata(), infos) as writer:
            writer.write(bytes(32))
    assert list(tmp_path.iterdir()) == []


def test_every_type_that_gguf_writes(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    numbers: dict[str, Any] = {
        "uint8": np.uint8(255), "int8": np.int8(-128), "uint16": np.uint16(65535),
        "int16": np.int16(-32768), "uint32": np.uint32(2**32 - 1), "int32": np.int32(-2**31),
        "uint64": np.uint64(2**64 - 1), "int64": np.int64(-2**63), "float32": np.float32(1.5e38),
        "float64": np.float64(-1e-308),
    }  # fmt: skip
    for name, number in numbers.items():
        getattr(writer, f"add_{name}")(name, number.item())
    writer.add_bool("bool", True)
    writer.add_string("string", "▁é🙂")
    writer.add_array("flags", [True, False, True])
    writer.add_array("strings", ["", "▁", "a" * 1000])
    writer.add_array("nested", [[1, 2], [3]])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    metadata = open_model(path).metadata
    for name, number in numbers.items():
        assert metadata[name] == number
        assert type(metadata[name]) is type(number)
    assert metadata["bool"] is True
    assert metadata["string"] == "▁é🙂"
    assert metadata["flags"].tolist() == [True, False, True]  # type: ignore[union-attr]
    assert metadata["strings"] == ["", "▁", "a" * 1000]
    assert [part.tolist() for part in metadata["nested"]] == [[1, 2], [3]]  # type: ignore[union-attr]


def test_copying_a_file_changes_no_byte(tmp_path: Path) -> None:
    """Metadata and tensors are written as they were read, in the same order."""
    x = np.random.default_rng(0).standard_normal((3, 2, 256), np.float32)
    tensors = [tensor(name, x, format_) for name, format_ in ENCODED.items()]
    alignment = {"general.alignment": np.uint32(128)}
    first, second = tmp_path / "1.gguf", tmp_path / "2.gguf"
    write_gguf(first, METADATA | alignment, tensors)
    file = open_model(first)
    write_gguf(second, file.metadata, file.tensors.values())
    assert second.read_bytes() == first.read_bytes()
    assert {t.shape for t in file.tensors.values()} == {(3, 2, 256)}


def test_version_2_and_an_empty_array_at_the_end(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    entry = struct.pack("<Q1sIIQ", 1, b"k", 9, 4, 0)
    path.write_bytes(b"GGUF" + struct.pack("<IQQ", 2, 0, 1) + entry)
    file = open_model(path)
    assert file.kind == "GGUF v2"
    assert file.metadata["k"].tolist() == []  # type: ignore[union-attr]


def test_a_failed_write_keeps_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(b"before")
    infos = [TensorInfo("a", F32, (4,))]

    def interrupted() -> None:
        with GGUFWriter(path, {}, infos) as writer:
            writer.write(bytes(8))
            assert path.read_bytes() == b"before"
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    with pytest.raises(ValueError, match="20 bytes written where 16 are left"):  # noqa: SIM117
        with GGUFWriter(path, {}, infos) as writer:
            writer.write(bytes(20))
    with pytest.raises(TypeError, match="metadata 'k': int has no GGUF type"):
        GGUFWriter(path, {"k": 3}, [])  # type: ignore[dict-item]
    assert path.read_bytes() == b"before"
    assert list(tmp_path.iterdir()) == [path]


def test_targets_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").touch()
    for name, problem in {
        "folder": "not a regular file",
        "absent/m.gguf": "No such file or directory",
        "file/m.gguf": "Not a directory",
        "x" * 256: "File name too long",
    }.items():
        with pytest.raises(OutputError) as caught:
            write_gguf(tmp_path / name, {}, [])
        assert str(caught.value) == f"{tmp_path / name}: cannot be written: {problem}"
    with pytest.raises(OutputError, match="name of 64 bytes, expected at most 63"):
        write_gguf(tmp_path / "m", {}, [tensor("ü" * 32, np.ones(1, np.float32))])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "folder"]


def test_links_and_long_names_are_written(tmp_path: Path) -> None:
    target, link = tmp_path / ("x" * 255), tmp_path / "link"
    link.symlink_to(target)
    write_gguf(link, {"k": "v"}, [])
    assert link.is_symlink()
    assert open_model(target).metadata == {"k": "v"}


def test_an_opened_file_is_read_only_until_it_is_closed(tmp_path: Path) -> None:
    metadata: dict[str, MetadataValue] = {"general.name": "a"}
    write_gguf(tmp_path / "m.gguf", metadata, [])
    file = open_model(tmp_path / "m.gguf")
    other = tensor("w", np.ones((1, 32), np.float32))
    for change in (
        lambda: file.tensors.__setitem__("w", other),  # type: ignore[attr-defined]
        lambda: file.metadata.pop("general.name"),  # type: ignore[attr-defined]
        lambda: file.notes.append("note"),  # type: ignore[attr-defined]
        lambda: setattr(file, "notes", ("note",)),
    ):
        with pytest.raises(AttributeError):
            change()
    given = {"w": other}
    copy = replace(file, tensors=given)
    given.clear()
    assert list(copy.tensors) == ["w"]
    named = replace(copy, notes=["note"])
    copy.close()  # closes the copies made by `replace` too
    assert not named.tensors
    assert not named.parts
    assert dict(named.metadata) == metadata
