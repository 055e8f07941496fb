"""PyTorch files: both containers, and pickles that ask for more than tensors."""

from __future__ import annotations

import io
import os
import pickle
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.formats import torch_files
from tests.formats.torch_files import (
    Call,
    Name,
    Reference,
    pickled,
    rebuilt,
    state_dict,
    write_legacy,
    write_zip,
)

from halfbyte.errors import HalfbyteError
from halfbyte.formats.checkpoints.shards import read_weights
from halfbyte.formats.mapped import map_file
from halfbyte.weights import BF16, F16, F32

Array = np.ndarray[Any, Any]
RANDOM = np.random.default_rng(0)
TENSORS: dict[str, Array] = {
    "matrix": RANDOM.standard_normal((3, 5), np.float32),
    "transposed": np.asfortranarray(RANDOM.standard_normal((4, 6), np.float32)),
    "channels last": RANDOM.standard_normal((4, 3, 2, 5), np.float32).transpose(0, 3, 1, 2),
    "columns first": RANDOM.standard_normal((3, 1, 2, 5), np.float32).transpose(3, 1, 0, 2),
    "vector": RANDOM.standard_normal(7, np.float32),
    "row": RANDOM.standard_normal((1, 5), np.float32),
    "cube": RANDOM.standard_normal((2, 3, 4), np.float32),
}
WRITERS: dict[str, Callable[..., Path]] = {"zip": write_zip, "legacy": write_legacy}


@pytest.fixture(params=WRITERS)
def write(request: pytest.FixtureRequest) -> Callable[..., Path]:
    return WRITERS[request.param]


def read(path: Path) -> dict[str, Array]:
    return {n: t.decode() for n, t in read_weights(path, map_file(path)).tensors.items()}


@pytest.mark.parametrize("format_", [F32, F16, BF16])
def test_tensors(write: Callable[..., Path], format_: type, tmp_path: Path) -> None:
    path = write(tmp_path / "m.bin", TENSORS, format_)
    checkpoint = read_weights(path, map_file(path))
    assert checkpoint.kind == "PyTorch"
    assert list(checkpoint.tensors) == list(TENSORS)
    for name, values in TENSORS.items():
        tensor = checkpoint.tensors[name]
        assert (tensor.format, tensor.shape) == (format_, values.shape)
        flat = np.ascontiguousarray(values).reshape(1, -1)
        rounded = format_.decode(format_.encode(flat)).reshape(values.shape)
        np.testing.assert_array_equal(tensor.decode(), rounded)
        np.testing.assert_array_equal(tensor.take(1, 2), tensor.rows[1:3])
    assert not checkpoint.tensors["matrix"].data.flags.owndata


def test_a_file_is_not_run(write: Callable[..., Path], tmp_path: Path) -> None:
    """A function that Python's pickle would call is not called, and the error names it."""

    class Evil:
        def __reduce__(self) -> tuple[Any, ...]:
            return os.mkdir, (str(tmp_path / "run"),)

    path = tmp_path / "m.bin"
    content = pickle.dumps({"a": Evil()}, 2)
    if write is write_zip:
        write_zip(path, {}, **{"data.pkl": content})
    else:
        start = [pickled(torch_files.MAGIC), pickled(1001), pickled({"little_endian": True})]
        path.write_bytes(b"".join(start) + content)
    assert "pickle asks for 'posix.mkdir', which tensors do not need" in refused(path)
    assert not (tmp_path / "run").exists()
    pickle.loads(content)  # noqa: S301 - it would have run
    assert (tmp_path / "run").exists()


@pytest.mark.parametrize(
    "name",
    [
        "os system", "builtins eval", "builtins getattr", "builtins __import__", "nt system",
        "torch load", "torch.storage _load_from_bytes", "torch._utils _rebuild_tensor_v3",
        "torch.serialization __dict__", "collections OrderedDict.__init__", "numpy ndarray",
        "_codecs encode", "functools partial", "copyreg _reconstructor", "operator attrgetter",
    ],
)  # fmt: skip
@pytest.mark.parametrize("by_stack", [False, True])
def test_names_are_refused_by_name(name: str, by_stack: bool, tmp_path: Path) -> None:
    module, _, inner = name.partition(" ")
    content = f"c{module}\n{inner}\n".encode()
    if by_stack:
        parts = (b"\x8c" + bytes([len(t)]) + t.encode() for t in (module, inner))
        content = b"".join(parts) + b"\x93"
    path = write_zip(tmp_path / "m.bin", {}, **{"data.pkl": b"\x80\x04" + content + b"."})
    assert f"pickle asks for '{module}.{inner}', which tensors do not need" in refused(path)


def refused(path: Path) -> str:
    with pytest.raises(HalfbyteError) as caught:
        read_weights(path, map_file(path))
    message = str(caught.value)
    assert message.startswith(f"{path}: ")
    assert "\n" not in message
    assert len(message) < len(str(path)) + 400
    return message


FLOATS = Reference(("storage", Name("torch", "FloatStorage"), "0", "cpu", 6))


def data(value: object) -> bytes:
    return pickled({"a": value})


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (data(rebuilt(FLOATS, 1, (2, 3), (3, 1))), "6 elements expected from element 1"),
        (data(rebuilt(FLOATS, 0, (7,), (1,))), "7 elements expected from element 0, its storage"),
        (data(rebuilt(FLOATS, 0, (1 << 40, 1 << 40), (0, 0))), "elements expected from element 0"),
        (data(rebuilt(FLOATS, 0, (6,), (0,))), "strides [0] of shape [6]: expected a tensor that"),
        (data(rebuilt(FLOATS, 0, (2, 2), (3, 1))), "strides [3, 1] of shape [2, 2]"),
        (data(rebuilt(FLOATS, 0, (2, 3), (1,))), "a call with arguments that do not fit"),
        (data(rebuilt(FLOATS, 0, (2, -3), (3, 1))), "a call with arguments that do not fit"),
        (data(rebuilt(FLOATS, -1, (2, 3), (3, 1))), "a call with arguments that do not fit"),
        (data(rebuilt(FLOATS, 0, (1 << 62,), (1,))), "a call with arguments that do not fit"),
        (data(rebuilt(FLOATS, 0, (1,) * 99, (1,) * 99)), "a call with arguments that do not fit"),
        (data(Call(Name("torch._utils", "_rebuild_tensor_v2"), (1, 2))), "arguments that do not"),
        (data(Call(Name("torch", "FloatStorage"), ())), "something that is not a function"),
        (data(Reference(("storage", 1, "0", "cpu", 6))), "not a storage of PyTorch"),
        (data(Reference(("module", 1))), "not a storage of PyTorch"),
        (
            data(rebuilt(Reference((*FLOATS.identity[:4], 1 << 60)), 0, (2,), (1,))),
            "not a storage of PyTorch",
        ),
        (
            data(rebuilt(Reference((*FLOATS.identity[:2], "1", "cpu", 6)), 0, (6,), (1,))),
            "storage '1' is missing",
        ),
        (
            data(rebuilt(Reference((*FLOATS.identity[:4], 5)), 0, (5,), (1,))),
            "storage '0': 20 bytes expected, 24 found",
        ),
        (pickled({"epoch": 3}), "expected a dict of tensors, or one under 'state_dict' or 'model'"),
        (pickled([1, 2]), "expected a dict of tensors"),
        (b"\x80\x02}(((ttK\x01u.", "key of type tuple, expected str or int"),
        (b"\x80\x02}(K\x01u.", "a key without a value"),
        (b"\x80\x02K\x01(u.", "expected a dict on the stack"),
        (b"\x80\x02.", "nothing is on the stack"),
        (b"\x80\x02(.", "nothing is on the stack"),
        (b"\x80\x02t.", "no mark is on the stack"),
        (b"\x80\x02h\x05.", "nothing was remembered as 5"),
        (b"\x80\x02X\xff\xff\xff\xffab.", "string of 4294967295 bytes, expected at most 65536"),
        (b"\x80\x02X\x02\0\0\0\xff\xff.", "string that is not UTF-8"),
        (b"\x80\x02K", "truncated: 1 bytes expected, 0 found"),
        (b"\x80\x02cos", "no end of line"),
        (b"\x80\x02I1\n.", "pickle opcode b'I' at offset"),
        (b"\x80\x02ios\nsystem\n.", "pickle opcode b'i' at offset"),
        (b"\x80\x02\x82\x01.", "pickle opcode b'\\x82' at offset"),  # an extension's code
        (b"\x80\x02" + b"}0" * (1 << 20) + b"N.", "pickle: expected at most 2097152 steps"),
    ],
)
def test_pickles_that_lie(content: bytes, expected: str, tmp_path: Path) -> None:
    entries = {"data.pkl": content, "data/0": bytes(24)}
    assert expected in refused(write_zip(tmp_path / "m.bin", {}, **entries))


def test_wrapped_tensors_and_what_is_beside(tmp_path: Path) -> None:
    """Trainers also save epochs and optimizers; other types matter only if they are needed."""
    longs = Reference(("storage", Name("torch", "LongStorage"), "1", "cpu", 2))
    parameter = Call(
        Name("torch._utils", "_rebuild_parameter"),
        (rebuilt(FLOATS, 2, (2, 2), (2, 1)), True, Call(Name("collections", "OrderedDict"), ())),
    )
    tensors = {"a": parameter, "mask": rebuilt(longs, 0, (2,), (1,)), "n": 3}
    value = {"epoch": 3, "model": tensors, "shape": Call(Name("torch", "Size"), ((2, 3),))}
    content = np.arange(6, dtype=np.float32).tobytes()
    entries = {"data.pkl": pickled(value), "data/0": content, "data/1": bytes(16)}
    path = write_zip(tmp_path / "m.pt", {}, **entries)
    checkpoint = read_weights(path, map_file(path))
    assert checkpoint.tensors["a"].decode().tolist() == [[2, 3], [4, 5]]
    assert checkpoint.unusable == {"mask": "dtype 'I64', expected one of F32, F16, BF16"}


def test_compressed_archives_are_refused(tmp_path: Path) -> None:
    """Zip bombs are harmless, since nothing is decompressed."""
    zeros = {"a": np.zeros((1000, 1000), np.float32)}
    path = write_zip(tmp_path / "m.bin", zeros, F32, zipfile.ZIP_DEFLATED)
    assert path.stat().st_size < 20_000
    assert "is compressed or encrypted; PyTorch stores it as it is" in refused(path)


def test_archives_that_lie(tmp_path: Path) -> None:
    path = write_zip(tmp_path / "m.bin", TENSORS)
    whole = path.read_bytes()
    directory = whole.index(b"PK\x01\x02")
    end = whole.index(b"PK\x05\x06")
    second = whole.index(b"PK\x01\x02", directory + 1)

    def spoiled(at: int, value: bytes) -> str:
        path.write_bytes(whole[:at] + value + whole[at + len(value) :])
        return refused(path)

    assert "no header at offset 99999" in spoiled(directory + 42, struct.pack("<I", 99999))
    assert "is compressed or encrypted" in spoiled(directory + 20, struct.pack("<I", 1))
    huge = struct.pack("<2I", 1 << 31, 1 << 31)
    assert "truncated: 2147483648 bytes expected" in spoiled(directory + 20, huge)
    assert "no zip64 sizes" in spoiled(directory + 20, b"\xff" * 8)
    assert "is compressed or encrypted" in spoiled(directory + 8, b"\1")
    assert "begins at offset" in spoiled(second + 42, whole[directory + 42 : directory + 46])
    assert "directory ends at entry" in spoiled(end + 10, struct.pack("<H", 60000))
    assert "a directory of" in spoiled(end + 16, struct.pack("<I", 1 << 31))
    assert "expected an entry of the directory, found none" in spoiled(directory, b"PK\x01\x03")
    path.write_bytes(whole.replace(b"archive/data.pkl", b"archive/data.pki"))
    assert "PyTorch's has one data.pkl in a folder" in refused(path)
    path.write_bytes(whole.replace(b"archive/data/1", b"archive/data/0"))
    assert "entry 'archive/data/0' appears twice" in refused(path)
    path.write_bytes(whole.replace(b"byteorderlittle", b"byteorderbigbig"))
    assert "byte order b'bigbig'" in refused(path)


def test_large_archives(tmp_path: Path) -> None:
    """zip64, which PyTorch writes for files beyond 4 GB; here forced on a small one."""
    small = write_zip(tmp_path / "small.bin", TENSORS)
    path = tmp_path / "large.bin"
    with zipfile.ZipFile(small) as source, zipfile.ZipFile(path, "w") as target:
        for name in source.namelist():
            with target.open(name, "w", force_zip64=True) as file:
                file.write(source.read(name))
    content = bytearray(path.read_bytes())
    # Python does not write the directory's zip64 form: write it by hand.
    start, end = content.index(b"PK\x01\x02"), content.index(b"PK\x05\x06")
    entries, directory = bytes(content[start:end]), b""
    while entries:
        names, extra, comment = struct.unpack_from("<3H", entries, 28)
        sizes, at = struct.unpack_from("<I", entries, 24)[0], struct.unpack_from("<I", entries, 42)
        field = struct.pack("<2H3Q", 1, 24, sizes, sizes, at[0])
        head = bytearray(entries[: 46 + names])
        head[20:28] = b"\xff" * 8
        head[30:32] = struct.pack("<H", len(field))
        head[42:46] = b"\xff" * 4
        directory += bytes(head) + field
        entries = entries[46 + names + extra + comment :]
    count = struct.unpack_from("<H", content, end + 10)[0]
    size = len(directory)
    record = struct.pack("<4sQ2H2L4Q", b"PK\6\6", 44, 45, 45, 0, 0, count, count, size, start)
    place = struct.pack("<4sLQL", b"PK\6\7", 0, start + size, 1)
    last = struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, 0xFFFF, 0xFFFF, *[0xFFFFFFFF] * 2, 0)
    path.write_bytes(bytes(content[:start]) + directory + record + place + last)
    with zipfile.ZipFile(io.BytesIO(path.read_bytes())) as judge:
        assert judge.testzip() is None
    for name, values in read(path).items():
        np.testing.assert_array_equal(values, TENSORS[name])


def test_legacy_files_that_lie(tmp_path: Path) -> None:
    path = write_legacy(tmp_path / "m.bin", {"a": np.ones(6, np.float32)})
    whole = path.read_bytes()
    path.write_bytes(whole[:-1])
    assert "truncated: storage '90' of 24 bytes expected at offset" in refused(path)
    path.write_bytes(whole[:-32] + struct.pack("<Q", 7) + whole[-24:])
    assert "storage '90': expected 6 elements, found 7" in refused(path)
    path.write_bytes(whole.replace(b"\x8a\x0a\x6c\xfc", b"\x8a\x0a\x6c\xfd", 1))
    assert "a pickle, but not of PyTorch: it has no magic number" in refused(path)
    at = whole.index(b"little_endian") + len(b"little_endian")
    path.write_bytes(whole[:at] + b"\x89" + whole[at + 1 :])
    assert "expected a file of a little-endian machine" in refused(path)
    path.write_bytes(whole.replace(b"X\2\0\0\00090e.", b"X\2\0\0\00091e."))
    assert "storage '91': no tensor needs it, or it is twice" in refused(path)


def test_every_prefix_is_refused(write: Callable[..., Path], tmp_path: Path) -> None:
    whole = write(tmp_path / "whole", TENSORS).read_bytes()
    path = tmp_path / "part"
    for length in range(1, len(whole), 7):
        path.write_bytes(whole[:length])
        refused(path)


def test_mutated_files_are_refused_or_read(write: Callable[..., Path], tmp_path: Path) -> None:
    whole = write(tmp_path / "whole", TENSORS).read_bytes()
    path, random, wrong = tmp_path / "mutant", np.random.default_rng(1), 0
    read_well = 0
    for _ in range(600):
        content = bytearray(whole)
        for at in random.integers(2, len(content), 3):
            content[at] = random.choice([0, 1, 0x7F, 0xFF, ord("("), ord("R"), ord("b")])
        path.write_bytes(content)
        try:
            read(path)
        except HalfbyteError as error:
            wrong += str(error).startswith(f"{path}: ")
        else:
            read_well += 1
    assert 100 < wrong == 600 - read_well


def test_state_dicts_are_as_pytorch_writes_them() -> None:
    """Python reads the pickles that these tests write."""

    class Reader(pickle.Unpickler):
        def find_class(self, module: str, name: str) -> Any:
            return dict if name == "OrderedDict" else lambda *arguments: arguments

        def persistent_load(self, identity: Any) -> Any:
            return identity[0]

    call = rebuilt(FLOATS, 0, (2, 3), (3, 1))
    content = pickled({"a": call, "b": [1, None, True, (2.0 > 1, "x")]})
    assert Reader(io.BytesIO(content)).load() == {
        "a": ("storage", 0, (2, 3), (3, 1), False, {}), "b": [1, None, True, (True, "x")],
    }  # fmt: skip
    assert b"_metadata" in state_dict({"a": call})
