"""PyTorch's archives: the pickle, the archive's own records, or any bytes are changed."""

from __future__ import annotations

import io
import random
import struct
import tempfile
import zipfile
from functools import cache
from pathlib import Path

from tests.formats.folders import trained_weights
from tests.formats.torch_files import write_zip
from tests.fuzz.folders import small_folder, use
from tests.fuzz.mutators import mutate_bytes, mutate_pickle, odd_integer

from halfbyte.weights import BF16, F16, F32

NAME = "pytorch_model.bin"
NAMES = ("archive/data.pkl", "data.pkl", "../data.pkl", "archive/data/0", "archive/byteorder", "")
RECORDS = (b"PK\3\4", b"PK\1\2", b"PK\5\6")  # of an entry, of the directory, of its end


@cache
def corpus() -> list[bytes]:
    """The weights of one model in each type."""
    with tempfile.TemporaryDirectory() as folder:
        path, tensors = Path(folder, NAME), trained_weights()
        return [write_zip(path, tensors, format_).read_bytes() for format_ in (F32, F16, BF16)]


def mutate(data: bytes, chance: random.Random) -> bytes:
    """Rename, remove, double, compress or change an entry; change a pickle, a record, or bytes."""
    kind = chance.randrange(4)
    if kind == 0:
        return mutate_bytes(data, chance)
    if kind == 1:
        return _record(data, chance)
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            entries = [(name, archive.read(name)) for name in archive.namelist()]
    except Exception:
        return mutate_bytes(data, chance)
    pickles = [at for at, (name, _) in enumerate(entries) if name.endswith("data.pkl")]
    if kind == 2 and pickles:
        name, content = entries[pickles[0]]
        entries[pickles[0]] = name, mutate_pickle(content, chance)
        return _archive(entries)
    return _entries(entries, chance) if entries else mutate_bytes(data, chance)


def _record(data: bytes, chance: random.Random) -> bytes:
    """Change a number in one of the archive's records."""
    mark = chance.choice(RECORDS)
    places = [at for at in range(len(data)) if data.startswith(mark, at)]
    if not places:
        return mutate_bytes(data, chance)
    at = chance.choice(places) + chance.randrange(4, 46, 2)
    size = chance.choice([2, 4])
    old = int.from_bytes(data[at : at + size], "little")
    value = odd_integer(chance, old) & ((1 << 8 * size) - 1)
    return data[:at] + value.to_bytes(size, "little") + data[at + size :]


def _entries(entries: list[tuple[str, bytes]], chance: random.Random) -> bytes:
    at, way, method = chance.randrange(len(entries)), chance.randrange(5), zipfile.ZIP_STORED
    name, content = entries[at]
    if way == 0:
        del entries[at]
    elif way == 1:
        entries.insert(at, entries[at])
    elif way == 2:
        entries[at] = chance.choice(NAMES), content
    elif way == 3:
        entries[at] = name, mutate_bytes(content, chance)
    else:
        method = zipfile.ZIP_DEFLATED
    return _archive(entries, method)


def _archive(entries: list[tuple[str, bytes]], method: int = zipfile.ZIP_STORED) -> bytes:
    """Written by hand, because zipfile warns of names that appear twice."""
    body, directory = b"", b""
    for name, content in entries:
        one = io.BytesIO()
        with zipfile.ZipFile(one, "w", method) as archive:
            archive.writestr(zipfile.ZipInfo(name), content, method)
        raw = one.getvalue()
        at = raw.rindex(b"PK\1\2")
        end = raw.rindex(b"PK\5\6")
        directory += raw[at : at + 42] + struct.pack("<I", len(body)) + raw[at + 46 : end]
        body += raw[:at]
    count = len(entries)
    last = struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, count, count, len(directory), len(body), 0)
    return body + directory + last


def target(data: bytes) -> None:
    """Use the folder, which has no other weights."""
    files = {name: content for name, content in small_folder().items() if "model." not in name}
    use({**files, NAME: data})
