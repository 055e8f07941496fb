"""A disk that gets full at some byte of an output: one line of error, and files are as before.

A limit on the size of files stops a write as a full disk does. If a second file of the same command
should fail, the bytes of all its files are counted.
"""

from __future__ import annotations

import errno
import io
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.onnx.session.models import HALFBYTE, added, session
from tests.quantize.kills import graph
from tests.support.tools import largest

from halfbyte import outputs
from halfbyte.cli import main
from halfbyte.device import measure as measuring
from halfbyte.errors import OutputError
from halfbyte.outputs import write_file
from halfbyte.web import pyodide
from halfbyte.web.site import Site

Capture = pytest.CaptureFixture[str]


@contextmanager
def room(size: int) -> Iterator[None]:
    """All outputs together may take `size` bytes."""
    left = [size]

    class Disk(io.FileIO):
        def write(self, data: Any) -> int:
            taken = min(left[0], len(memoryview(data).cast("B")))
            left[0] -= taken
            if not taken:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return super().write(memoryview(data).cast("B")[:taken])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(outputs.io, "FileIO", Disk)
        yield


def contents(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def places(size: int) -> list[int]:
    """Bytes at which to fail: the first, in a header, around the end of a buffer, the last."""
    return sorted({0, 1, 40, size // 3, 8192, size // 2, size - 1} & set(range(size)))


Arguments = list[str]


def storyteller_quantized(models: Path, out: Path) -> Arguments:
    return ["quantize", str(models / "storyteller.bin"), "--int4", "-o", str(out / "out.gguf")]


def graph_quantized(models: Path, out: Path, *more: str) -> Arguments:
    options = ["--int8", "--no-compare", "--attention", "floats", *more]
    return ["quantize", str(models / "graph.onnx"), *options, "-o", str(out / "out.onnx")]


COMMANDS: dict[str, Callable[[Path, Path], Arguments]] = {
    "gguf": storyteller_quantized,
    "onnx": graph_quantized,
    "external": lambda models, out: graph_quantized(models, out, "--external"),
    "arrays": lambda models, out: [
        "run", str(models / "added.onnx"), "--size", "n=3000", "--output", str(out / "y.npz"),
    ],
    "report": lambda models, out: [
        "eval", str(models / "added.onnx"), "--json", str(out / "report.json"),
    ],
    "trace": lambda models, out: [
        "eval", str(models / "storyteller.bin"), "-w", "run", "--trace", str(out / "trace.json"),
    ],
    "plot": lambda models, out: [
        "simulate", str(models / "storyteller.bin"), "--device", "pixel-6", "--minutes", "1",
        "--draws", "2", "--plot", str(out / "run.png"),
    ],
    "profile": lambda models, out: ["device", "measure", "--name", "here", "-t", "1"],
}  # fmt: skip
SLOW = ("plot", "trace")  # fail at fewer places
TIMED = ("report", "trace")  # contain times, whose digits make lengths differ


@pytest.fixture(scope="module")
def models(storyteller: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    for path in storyteller.parent.glob("storyteller*"):
        (folder / path.name).symlink_to(path)
    (folder / "added.onnx").write_bytes(added())
    graph(folder / "graph", 0)
    return folder


@pytest.fixture
def out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of outputs; measurements of the machine are fixed."""
    folder = tmp_path / "halfbyte" / "devices"
    folder.mkdir(parents=True)
    measured = measuring.Measured({1: 1e10}, {1: 1e11}, 1e10)
    monkeypatch.setattr(measuring, "measure", lambda *_: measured)
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    return folder


@pytest.mark.parametrize("name", COMMANDS)
def test_the_output_of_a_command(name: str, models: Path, out: Path, capsys: Capture) -> None:
    """With and without an earlier output."""
    arguments = COMMANDS[name](models, out)
    assert main(arguments) == 0
    whole = contents(out)
    size = max(map(len, whole.values())) * (9 if name in TIMED else 10) // 10
    for earlier in (whole, {}):
        for path in out.iterdir():
            if not earlier:
                path.unlink()
        for place in places(size)[:: 3 if name in SLOW or not earlier else 1]:
            capsys.readouterr()
            with largest(place):
                assert main(arguments) == 2, place
            message = capsys.readouterr().err.splitlines()[-1]
            assert message.startswith(f"error: {out}/")
            assert message.endswith(": cannot be written: File too large")
            assert contents(out) == earlier, place
    assert main(arguments) == 0
    assert contents(out).keys() == whole.keys()


def test_a_second_file_of_a_command(models: Path, out: Path, capsys: Capture) -> None:
    """A report after a model, which stays; a graph after its external data, which goes with it."""
    arguments = storyteller_quantized(models, out)
    report = [*arguments, "--json", str(out / "report.json")]
    assert main(arguments) == 0
    whole = contents(out)
    for extra in (0, 1, 300):
        with room(len(whole["out.gguf"]) + extra):
            assert main(report) == 2
        message = capsys.readouterr().err.splitlines()[-1]
        assert message == f"error: {out}/report.json: cannot be written: No space left on device"
        assert contents(out) == whole
    (out / "out.gguf").unlink()
    arguments = graph_quantized(models, out, "--external")
    assert main(arguments) == 0
    whole = contents(out)
    numbers = max(map(len, whole.values()))
    for extra in (0, 1, len(whole["out.onnx"]) - 1):
        for earlier in (whole, {}):
            for name in whole.keys() - earlier.keys():
                (out / name).unlink(missing_ok=True)
            with room(numbers + extra):
                assert main(arguments) == 2
            message = capsys.readouterr().err.splitlines()[-1]
            assert message == f"error: {out}/out.onnx: cannot be written: No space left on device"
            assert contents(out) == earlier
        assert main(arguments) == 0


@pytest.mark.parametrize("size", [100, 700, 3000, 100_000])
def test_arrays_that_libraries_write(size: int, tmp_path: Path) -> None:
    """NumPy would bypass the file's buffer, and not notice that its last bytes did not fit."""
    array, path = np.arange(size, dtype=np.float32), tmp_path / "x.npy"
    write_file(path, lambda file: np.save(file, array))
    whole = path.read_bytes()
    path.write_bytes(b"before")
    for place in places(len(whole)):
        with largest(place), pytest.raises(OutputError, match=r"x\.npy: cannot .* File too large"):
            write_file(path, lambda file: np.save(file, array))
        assert contents(tmp_path) == {"x.npy": b"before"}
    device = tmp_path / "full"
    device.symlink_to("/dev/full")
    with pytest.raises(OutputError, match="full: cannot be written: No space left"):
        write_file(device, lambda file: np.save(file, array))


def test_values_that_are_dumped(models: Path, tmp_path: Path, capsys: Capture) -> None:
    """The files of an unfinished dump are whole."""
    arguments = ["eval", str(models / "graph.onnx"), "--dump-dir"]
    assert main([*arguments, str(tmp_path / "whole")]) == 0
    whole = contents(tmp_path / "whole")
    for place in places(max(map(len, whole.values()))):
        folder = tmp_path / str(place)
        with largest(place):
            assert main([*arguments, str(folder)]) == 2
        assert f"error: {folder}/" in capsys.readouterr().err
        assert contents(folder).items() < whole.items()


def test_the_trace_of_a_session(tmp_path: Path) -> None:
    options = HALFBYTE.SessionOptions()
    options.enable_profiling = True
    options.profile_file_prefix = str(tmp_path / "trace")
    for place in (0, 1, 300, 9000):
        opened = session(HALFBYTE, added(), options)
        for _ in range(99):
            opened.run(None, {"x": np.ones((1, 2), np.float32)})
        with largest(place), pytest.raises(OutputError, match=r"trace_.*: File too large"):
            opened.end_profiling()
        assert contents(tmp_path) == {}


def test_the_page_as_files(models: Path, tmp_path: Path) -> None:
    """Files that are copied, and files that are generated."""
    content = (models / "added.onnx").read_bytes() * 9
    (tmp_path / "source").write_bytes(content)
    for site in (Site({"a/b": tmp_path / "source"}), Site({"a/b": content})):
        for place in places(len(content)):
            with largest(place), pytest.raises(OutputError, match=r"out: cannot .* too large"):
                site.export(tmp_path / "out")
            assert contents(tmp_path) == {"source": content}
            assert len(list(tmp_path.iterdir())) == 1


def test_pyodide_in_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No partial file stays there, and complete files are used."""
    monkeypatch.setattr(pyodide, "PACKAGES", ())
    parts = {name: name.encode() * 5000 for name in pyodide.CORE if name != pyodide.LOCK}
    parts[pyodide.LOCK] = b'{"packages": {}}'
    hashes = {name: pyodide.hashlib.sha256(data).hexdigest() for name, data in parts.items()}
    monkeypatch.setattr(pyodide, "CORE", hashes)
    for source in ("from_cdn", "from_wheel"):
        monkeypatch.setattr(pyodide, source, lambda folder: pyodide.fill(folder, parts.get))
    for place in (0, 1, 60_000, 84_999):
        with largest(place), pytest.raises(pyodide.DownloadError, match="File too large"):
            pyodide.get_pyodide(tmp_path)
        assert contents(tmp_path).items() < parts.items()
    pyodide.get_pyodide(tmp_path)
    assert contents(tmp_path) == parts
