"""Arrays that a caller feeds are read, or refused in one line before memory is allocated."""

from __future__ import annotations

import io
import random
import tracemalloc
import zipfile
from pathlib import Path

import numpy as np
import pytest

from halfbyte.errors import FormatError, HalfbyteError, MemoryBudgetError
from halfbyte.formats.npz import read_npy, read_npz

ARRAYS = {
    "x": np.arange(6, dtype=np.float32).reshape(2, 3),
    "transposed": np.asfortranarray(np.arange(12, dtype=np.int64).reshape(3, 4)),
    "text": np.array(["a", "bc"]),
    "one": np.array(3.5),
    "none": np.zeros((0, 4), np.uint8),
}


def saved(path: Path) -> Path:
    np.savez_compressed(path, **ARRAYS)  # type: ignore[arg-type]
    return path


def zipped(path: Path, content: bytes, name: str = "x.npy") -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(name, content)
    return path


def header(text: str) -> bytes:
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text.encode()


def test_arrays_are_read(tmp_path: Path) -> None:
    arrays = read_npz(saved(tmp_path / "a.npz"))
    assert list(arrays) == list(ARRAYS)
    for name, array in ARRAYS.items():
        assert (arrays[name].dtype, arrays[name].shape) == (array.dtype, array.shape)
        np.testing.assert_array_equal(arrays[name], array)
    np.save(tmp_path / "b.npy", ARRAYS["transposed"])
    np.testing.assert_array_equal(read_npy(tmp_path / "b.npy"), ARRAYS["transposed"])


HEADERS = {
    "too large": "{'descr': '<f4', 'fortran_order': False, 'shape': (1099511627776,)}",
    "too long": "{'descr': '<f4', 'fortran_order': False, 'shape': (3,)}",
    "negative": "{'descr': '<f4', 'fortran_order': False, 'shape': (-1,)}",
    "objects": "{'descr': '|O', 'fortran_order': False, 'shape': (1,)}",
    "nothing": "{'descr': '<U0', 'fortran_order': False, 'shape': (1,)}",
    "ranks": f"{{'descr': '<f4', 'fortran_order': False, 'shape': {(1,) * 60}}}",
    "token": "{'descr': '<f4', (((",
    "code": "__import__('os').system('true')",
    "type": "{'descr': 'nothing', 'fortran_order': False, 'shape': (1,)}",
}


@pytest.mark.parametrize("kind", HEADERS)
def test_a_false_header_allocates_no_memory(tmp_path: Path, kind: str) -> None:
    data = header(HEADERS[kind] + "\n") + bytes(8)
    (tmp_path / "a.npy").write_bytes(data)
    for read, path in (
        (read_npy, tmp_path / "a.npy"),
        (read_npz, zipped(tmp_path / "a.npz", data)),
    ):
        tracemalloc.start()
        refusal = f"{path.name}: cannot be read: not NumPy arrays"
        with pytest.raises(FormatError, match=refusal) as caught:
            read(path)  # type: ignore[operator]
        assert tracemalloc.get_traced_memory()[1] < 1e6
        tracemalloc.stop()
        assert str(caught.value).isprintable()


def test_a_shape_that_is_a_little_too_large(tmp_path: Path) -> None:
    """The file has as many bytes, with its header, but the array has not."""
    np.save(tmp_path / "a.npy", np.arange(4, dtype=np.float32))
    data = (tmp_path / "a.npy").read_bytes().replace(b"(4,)", b"(5,)")
    (tmp_path / "a.npy").write_bytes(data)
    for read, path in (
        (read_npy, tmp_path / "a.npy"),
        (read_npz, zipped(tmp_path / "a.npz", data)),
    ):
        with pytest.raises(FormatError, match=r"20 bytes for shape \[5\], found 16"):
            read(path)  # type: ignore[operator]


def test_a_bomb_is_not_inflated(tmp_path: Path) -> None:
    """400 MB of zeros in 400 kB."""
    path = tmp_path / "bomb.npz"
    with (
        zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive,
        archive.open("x.npy", "w", force_zip64=True) as stream,
    ):
        np.lib.format.write_array_header_1_0(
            stream, {"descr": "<f4", "fortran_order": False, "shape": (100_000_000,)}
        )
        for _ in range(100):
            stream.write(bytes(4_000_000))
    tracemalloc.start()
    with pytest.raises(MemoryBudgetError, match="400,000,128 bytes of arrays, expected at most"):
        read_npz(path)
    assert tracemalloc.get_traced_memory()[1] < 1e6
    tracemalloc.stop()


def test_damaged_files_are_refused_in_one_line(tmp_path: Path) -> None:
    whole = saved(tmp_path / "a.npz").read_bytes()
    buffer = io.BytesIO()
    np.save(buffer, ARRAYS["x"])
    chance = random.Random(0)
    messages = []
    for index in range(600):
        of_zip = bool(index % 2)
        data = bytearray(whole if of_zip else buffer.getvalue())
        for _ in range(chance.choice([1, 2, 5])):
            data[chance.randrange(len(data))] = chance.randrange(256)
        if chance.random() < 0.2:
            del data[chance.randrange(len(data)) :]
        path = tmp_path / ("b.npz" if of_zip else "b.npy")
        path.write_bytes(data)
        try:
            (read_npz if of_zip else read_npy)(path)
        except HalfbyteError as error:
            messages.append(str(error))
    assert len(messages) > 200
    assert all(len(message.splitlines()) == 1 for message in messages)
