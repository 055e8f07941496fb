"""Files of every format, cut, stretched and overwritten: only our errors, and little memory."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from tests.formats.files import (
    header,
    model_metadata,
    tensor,
    tokenizer_bytes,
    weights,
    write_small,
    write_v0,
    write_v1,
    write_v2,
)
from tests.formats.test_gguf import METADATA

import halfbyte
from halfbyte.cli import main
from halfbyte.errors import HalfbyteError
from halfbyte.quantize.gguf_writer import write_gguf
from halfbyte.text.opening import open_model
from halfbyte.weights import FORMATS

MUTATIONS = [100, pytest.param(400, marks=pytest.mark.long)]  # of each format
MEMORY = 4 << 20  # the files are smaller than 200 kB
ADDRESS_SPACE = 600 << 20  # of a process that reads hostile files


def write_rich(path: Path) -> Path:
    """A GGUF model that runs, with every type of metadata and of tensor."""
    formats = list(FORMATS.values())
    tensors = [
        tensor(name, value, formats[index % 5 if value.ndim > 1 else 0])
        for index, (name, value) in enumerate(weights().items())
    ]
    write_gguf(path, METADATA | model_metadata(), tensors)
    return path


WRITERS: dict[str, Callable[[Path], Path]] = {
    "gguf": write_rich,
    "v0": write_v0,
    "v0 untied": lambda path: write_v0(path, tied=False),
    "v1": write_v1,
    "v2": lambda path: write_v2(path, 32),
    "v2 groups of 16": lambda path: write_v2(path, 16),
}


@contextmanager
def little_memory() -> Iterator[None]:
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < MEMORY
    finally:
        tracemalloc.stop()


def use(path: Path) -> None:
    """Open a file, decode every tensor, and load the model."""
    for part in open_model(path).tensors.values():
        part.decode()
    halfbyte.load(path, context=4, backend="numpy").close()


def mutate(data: bytearray, random: np.random.Generator) -> None:
    """One change: a byte, a bit, a number of eight bytes, bytes cut out or put in."""
    top = min(len(data), int(random.choice([64, 300, 9000, len(data)])))
    at = int(random.integers(0, top))
    kind = random.integers(5)
    if kind == 0:
        data[at] = int(random.choice([0, 1, 2, 3, 4, 8, 9, 0x7F, 0x80, 0xFF]))
    elif kind == 1:
        data[at] ^= 1 << int(random.integers(8))
    elif kind == 2:
        numbers = (0, 1 << 16, 1 << 31, 1 << 32, 1 << 60, 1 << 63, (1 << 64) - 1)
        data[at : at + 8] = numbers[random.integers(len(numbers))].to_bytes(8, "little")
    elif kind == 3:
        del data[at : at + int(random.integers(1, 9))]
    else:
        data[at:at] = random.bytes(int(random.integers(1, 9)))


@pytest.mark.parametrize("count", MUTATIONS)
@pytest.mark.parametrize("name", WRITERS)
def test_mutated_files_are_refused_or_used(name: str, count: int, tmp_path: Path) -> None:
    whole = WRITERS[name](tmp_path / "whole.bin").read_bytes()
    (tmp_path / "tokenizer.bin").write_bytes(tokenizer_bytes())
    (tmp_path / "whole-tokenizer.bin").unlink(missing_ok=True)
    path, random, refused = tmp_path / "mutant.bin", np.random.default_rng(0), 0
    use(tmp_path / "whole.bin")  # imports on demand do not count as a file's memory
    for index in range(count):
        data = bytearray(whole)
        for _ in range(random.integers(1, 4)):
            mutate(data, random)
        path.write_bytes(data)
        try:
            if index % 10:
                use(path)
            else:
                with little_memory():
                    use(path)
        except HalfbyteError as error:
            refused += 1
            message = str(error)
            assert message.startswith((str(path), str(tmp_path / "tokenizer.bin")))
            assert "\n" not in message
            assert len(message) < len(str(path)) + 600
    assert count // 4 < refused < count


@pytest.mark.parametrize("name", WRITERS)
def test_every_prefix_is_refused(name: str, tmp_path: Path) -> None:
    """All lengths of the header, then in steps; longer files too."""
    whole = WRITERS[name](tmp_path / "whole.bin").read_bytes()
    path = tmp_path / "part.bin"
    lengths = [*range(600), *range(600, min(len(whole), 12_000), 61), *range(0, len(whole), 4999)]
    for length in lengths:
        path.write_bytes(whole[:length])
        with pytest.raises(HalfbyteError, match=r"part\.bin: "):
            open_model(path)
    if name != "gguf":  # GGUF may have bytes at its end
        path.write_bytes(whole + b"\0")
        with pytest.raises(HalfbyteError, match=r"part\.bin: "):
            open_model(path)


def entry(key: bytes, kind: int, value: bytes) -> bytes:
    return struct.pack("<Q", len(key)) + key + struct.pack("<I", kind) + value


def file(entries: bytes, count: int = 1, tensors: int = 0) -> bytes:
    return b"GGUF" + struct.pack("<IQQ", 3, tensors, count) + entries


def u64(value: int) -> bytes:
    return struct.pack("<Q", value)


def pad(data: bytes) -> bytes:
    return data.ljust(500, b"\0")


LIES = {
    "string": file(entry(b"k", 8, u64(1 << 32)) + bytes(1000)),
    "strings": file(entry(b"k", 9, struct.pack("<IQ", 8, 1 << 32)) + bytes(1000)),
    "numbers": file(entry(b"k", 9, struct.pack("<IQ", 12, 1 << 60)) + bytes(1000)),
    "arrays": file(entry(b"k", 9, struct.pack("<IQ", 9, 1 << 32)) + bytes(1000)),
    "entries": file(b"", 1 << 62) + bytes(1000),
    "tensors": file(b"", 0, 1 << 62) + bytes(1000),
    "tensor": file(b"", 0, 1)
    + struct.pack("<Q1sI4QIQ", 1, b"a", 4, 1 << 40, 1 << 40, 1 << 40, 8, 0, 0)
    + bytes(1000),
    "alignment": file(entry(b"general.alignment", 4, struct.pack("<I", 1 << 31))) + bytes(1000),
    "not UTF-8, with newlines": file(entry(b"\n\xff\n", 4, bytes(4))),
    "architecture with newlines": file(entry(b"general.architecture", 8, u64(3) + b"a\nb")),
    "key with newlines": file(entry(b"a\nb", 99, bytes(4))),
    "ak42": pad(b"24ka" + struct.pack("<i7iB", 1, *[1 << 30] * 2, 9999, 1, 1, 1 << 30, 9, 1)),
    "ak42 v2": pad(b"24ka" + struct.pack("<i7iBi", 2, *[1 << 30] * 2, 9, 1, 1, 9, 9, 1, 32)),
    "tokenizer": header() + bytes(99),
}  # fmt: skip


def test_lies_are_refused_in_one_line_with_little_memory(tmp_path: Path) -> None:
    """The command line, in a process with too little memory for the sizes in the files."""
    for index, data in enumerate(LIES.values()):
        (tmp_path / f"lie-{index:02}.bin").write_bytes(data)
    script = (
        "import resource, sys; from pathlib import Path; from halfbyte.cli import main;"
        "sys.platform == 'linux' and "  # elsewhere only the whole system can be limited
        f"resource.setrlimit(resource.RLIMIT_AS, ({ADDRESS_SPACE}, {ADDRESS_SPACE}));"
        "print([main(['info', str(p)]) for p in sorted(Path(sys.argv[1]).iterdir())])"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", script, tmp_path],
        capture_output=True, text=True, check=True, env={"OPENBLAS_NUM_THREADS": "1"},
    )  # fmt: skip
    assert done.stdout == f"{[2] * len(LIES)}\n"
    lines = done.stderr.splitlines()
    assert len(lines) == len(LIES)
    for index, line in enumerate(lines):
        assert line.startswith(f"error: {tmp_path}/lie-{index:02}.bin: ")


MANY = 200_000
CROWDS = {
    "entries": b"".join(entry(b"%06d" % index, 0, b"\1") for index in range(MANY)),
    "arrays": entry(b"k", 9, struct.pack("<IQ", 9, MANY) + struct.pack("<IQ", 4, 0) * MANY),
    "tensors": b"".join(struct.pack("<Q6sIQIQ", 6, b"%06d" % i, 1, 1, 0, 0) for i in range(MANY)),
}


@pytest.mark.parametrize("name", CROWDS)
def test_crowds_are_refused(name: str, tmp_path: Path) -> None:
    """Items that take some hundred bytes in Python and a dozen in the file."""
    counts = {"entries": (0, MANY), "arrays": (0, 1), "tensors": (MANY, 0)}[name]
    path = tmp_path / "m.gguf"
    path.write_bytes(b"GGUF" + struct.pack("<IQQ", 3, *counts) + CROWDS[name])
    with pytest.raises(HalfbyteError, match="more than 131072 metadata entries, tensors and arr"):
        open_model(path)


def test_many_strings_take_memory_in_proportion(tmp_path: Path) -> None:
    count = (1 << 20) // 8
    path = tmp_path / "m.gguf"
    path.write_bytes(file(entry(b"k", 9, struct.pack("<IQ", 8, count)) + bytes(8 * count)))
    with little_memory():
        assert open_model(path).metadata["k"] == [""] * count


def test_what_is_no_file_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    (tmp_path / "folder").mkdir()
    (tmp_path / "empty").touch()
    expected = {
        "pipe": "is not a regular file",
        "loop": "cannot be read",
        "folder": "is a directory",
        "empty": "is empty (0 bytes)",
        "absent": "cannot be read: No such file or directory",
        "empty/file": "cannot be read: Not a directory",
    }
    for name, problem in expected.items():
        assert main(["info", str(tmp_path / name)]) == 2
        out, err = capsys.readouterr()
        assert out == ""
        assert err.count("\n") == 1
        assert err.startswith(f"error: {tmp_path / name}: {problem}")


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("general.architecture", "a\nb" + "c" * 1000, "architecture 'a\\nbccc"),
        ("tokenizer.ggml.model", "a\nb" + "c" * 1000, "found 'a\\nbccc"),
        ("llama.rope.freq_base", np.float64(1e300), "in float32's range, found 1e+300"),
        ("llama.attention.layer_norm_rms_epsilon", np.float64(1e-300), "found 1e-300"),
        ("llama.attention.layer_norm_rms_epsilon", ["a"] * 999, "found ['a', 'a', "),
        ("llama.attention.head_count", np.array([2, 1], np.uint32), "an integer, found ndarray"),
        ("llama.block_count", True, "expected an integer, found bool"),
        ("tokenizer.ggml.tokens", np.zeros(264, np.uint8), "'tokenizer.ggml.tokens': expected str"),
        ("tokenizer.ggml.tokens", [["a"]] * 264, "'tokenizer.ggml.tokens': expected strings"),
        ("tokenizer.ggml.tokens", [], "tokenizer has 0 tokens, but tensor"),
        ("tokenizer.ggml.scores", np.full(264, 1e300), "'tokenizer.ggml.scores': not all are fin"),
        ("tokenizer.ggml.scores", np.full(264, np.nan), "'tokenizer.ggml.scores': not all are fin"),
        ("tokenizer.ggml.scores", ["a"], "expected an array of numbers"),
        ("tokenizer.ggml.token_type", np.full(264, np.nan), "expected an array of integers"),
        ("general.alignment", "32", "expected a uint32 power of two, 8 to 65536, found 'str'"),
        ("general.alignment", np.uint64(32), "'general.alignment': expected a uint32"),
    ],
)
def test_metadata_of_wrong_kinds(
    key: str, value: object, expected: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "model.gguf"
    if key == "general.alignment":
        alignment = b"\x11" + bytes(7) + b"general.alignment"
        whole = write_small(path, general__alignment=np.uint32(32)).read_bytes()
        at = whole.index(alignment) + len(alignment)
        other = struct.pack("<IQ2s", 8, 2, b"32") if value == "32" else struct.pack("<IQ", 10, 32)
        path.write_bytes(whole[:at] + other + whole[at + 8 :])
    else:
        write_small(path, **{key: value})  # type: ignore[arg-type]
    assert main(["run", str(path), "-n", "1", "--backend", "numpy"]) == 2
    err = capsys.readouterr().err
    assert err.startswith(f"error: {path}: ")
    assert expected in err
    assert err.count("\n") == 1
    assert len(err) < len(str(path)) + 300


@pytest.mark.parametrize(
    ("values", "expected"),
    [(np.ones(3), "expected [8], found [3]"), (np.zeros(8), "expected positive numbers")],
)
def test_rotary_factors_that_do_not_fit(values: np.ndarray, expected: str, tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    tensors = [tensor(n, v) for n, v in weights().items()]
    tensors.append(tensor("rope_freqs.weight", values.astype(np.float32)))
    write_gguf(path, model_metadata(), tensors)
    with pytest.raises(HalfbyteError) as caught:
        halfbyte.load(path, backend="numpy")
    assert str(caught.value) == f"{path}: tensor 'rope_freqs.weight': {expected}"
