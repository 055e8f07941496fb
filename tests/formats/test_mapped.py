"""Files that change while their model is in use: an error that names them, not a crash."""

from __future__ import annotations

import json
import mmap
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from tests.formats.folders import write_folder
from tests.onnx.session.models import FLOAT, INT64, node, proto, tensor, weight
from tests.quantize.kills import graph as large_graph
from tests.support.sampled import often, sampled

import halfbyte
from halfbyte.errors import FormatError
from halfbyte.formats import mapped
from halfbyte.formats.mapped import file_system, map_file
from halfbyte.quantize import encode, quantize_file
from halfbyte.text.opening import open_model
from halfbyte.weights import Tensor

# Runs in a process of its own, which a signal would end. Prints the outcome of each attempt.
ATTEMPTS = """
import os, sys
import numpy as np
import halfbyte
path, changed, how, kind = sys.argv[1:]
def end(text):
    print(type(text).__name__, text)
try:
    if kind == "session":
        options = halfbyte.SessionOptions()
        if how == "numpy":
            options.backend = "numpy"
        session = halfbyte.InferenceSession(path, options)
        run = lambda n: session.run(None, {"x": np.full(n, 1999)})
        run(1)
    else:
        model = halfbyte.load(path, context=64, **eval(kind))
        run = lambda n: model.generate("Once", max_tokens=n, seed=1)
        run(2)
except halfbyte.HalfbyteError as error:
    sys.exit(str(error))
before = os.path.getsize(changed)
if how == "rewritten":
    os.utime(changed, ns=(1, 1))
elif how == "replaced":
    with open(changed + ".new", "wb") as file:
        file.write(b"0" * 100)
    os.replace(changed + ".new", changed)
elif how == "grown":
    with open(changed, "ab") as file:
        file.write(b"more")
else:
    os.truncate(changed, 4096)
for count in (3, 5):
    try:
        run(count)
        print("ran")
    except halfbyte.HalfbyteError as error:
        print(error)
"""


def attempts(path: Path, changed: Path, how: str, kind: str) -> list[str]:
    command = [sys.executable, "-c", ATTEMPTS, str(path), str(changed), how, kind]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, (done.returncode, done.stderr[-500:])
    lines = done.stdout.splitlines()
    assert len(lines) == 2
    return lines


@pytest.fixture
def language_model(storyteller: Path, tmp_path: Path) -> Path:
    path = tmp_path / "m.gguf"
    quantize_file(storyteller, "fp16", path)
    return path


@pytest.fixture
def graph(tmp_path: Path) -> Path:
    """A Gather from a table, which is not packed."""
    path = tmp_path / "m.onnx"
    model = proto(
        [node("Gather", "w x")], [tensor("x", INT64, ["n"])], [tensor("y", FLOAT, ["n", 64])],
        [weight("w", np.ones((2000, 64)))],
    )  # fmt: skip
    onnx.save(model, path)
    return path


CHANGED = (
    r"m\.\w+: was changed while it was in use: expected \d+ bytes as when it was opened, found "
)
FOUND = {"truncated": "4096", "grown": r"\d+", "rewritten": "as many, which were written since"}


@pytest.mark.parametrize("how", FOUND)
@pytest.mark.parametrize(
    "kind", often(["{}", "{'backend': 'numpy'}", "session"], ["{}", "session"])
)
def test_a_file_that_was_changed_is_named(
    how: str, kind: str, language_model: Path, graph: Path
) -> None:
    path = graph if kind == "session" else language_model
    for line in attempts(path, path, how, kind):
        assert re.fullmatch(f".*{CHANGED}{FOUND[how]}; load it again", line)


def test_external_data_that_was_changed_is_named(graph: Path, tmp_path: Path) -> None:
    path, data = tmp_path / "outside.onnx", tmp_path / "m.data"
    onnx.save(
        onnx.load(graph), path, save_as_external_data=True, location=data.name, size_threshold=0
    )
    for line in attempts(path, data, "truncated", "session"):
        assert re.fullmatch(f".*{CHANGED}4096; load it again", line)


@pytest.mark.parametrize("kind", ["{}", "session"])
def test_a_file_that_takes_the_name_changes_nothing(
    kind: str, language_model: Path, graph: Path
) -> None:
    path = graph if kind == "session" else language_model
    assert attempts(path, path, "replaced", kind) == ["ran", "ran"]


@pytest.mark.parametrize("how", FOUND)
def test_safetensors_that_were_changed_are_named(how: str, tmp_path: Path) -> None:
    path = write_folder(tmp_path / "folder", max_position_embeddings=64) / "model.safetensors"
    for line in attempts(path.parent, path, how, "{}"):
        expected = CHANGED.replace(r"m\.", r"model\.")
        assert re.fullmatch(f".*{expected}{FOUND[how]}; load it again", line)


def test_what_is_packed_does_not_need_the_file(storyteller: Path, tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    quantize_file(storyteller, "int4", path)
    assert attempts(path, path, "truncated", "{'weights': 'packed'}") == ["ran", "ran"]


def test_between_tokens(language_model: Path) -> None:
    """A text that is being generated ends soon, and a new one does not begin."""
    with halfbyte.load(language_model) as model:
        pieces = model.stream("Once", max_tokens=100, seed=1)
        next(pieces)
        os.utime(language_model, ns=(1, 1))
        model._checked = 0.0
        with pytest.raises(FormatError, match=CHANGED):
            next(pieces)
        with pytest.raises(FormatError, match=CHANGED):
            model.generate("Tom")


@pytest.mark.parametrize("place", [0, -1])
def test_quantize_reads_the_file_it_opened(
    place: int, language_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cut within the first tensor, and at the end of the last, after which nothing is read."""
    take, name = Tensor.take, list(open_model(language_model).tensors)[place]
    monkeypatch.setattr(encode, "SLICE", 1 << 14 if place == 0 else 1 << 24)
    read: list[str] = []

    def changed(self: Tensor, first: int, count: int) -> Any:
        if self.name != name:
            return take(self, first, count)
        read.append(name)
        part = take(self, 0, count).copy() if len(read) == 1 else np.zeros(1, np.uint8)
        os.truncate(language_model, 4096)
        return part

    monkeypatch.setattr(Tensor, "take", changed)
    with pytest.raises(FormatError, match=CHANGED):
        quantize_file(language_model, "int8", tmp_path / "out.gguf")
    assert not (tmp_path / "out.gguf").exists()
    assert read == [name]


# Also outside of this process: imports everything, and forks a child for each line of its input,
# which has the arguments. The file is changed when a function is first called.
QUANTIZE = """
import importlib, json, os, sys, traceback
import halfbyte.quantize.gguf_writer, halfbyte.quantize.onnx.quantizer
from halfbyte.cli import main

def quantize(changed, how, module, name, *arguments):
    place = importlib.import_module(module)
    *holders, name = name.split(".")
    for holder in holders:
        place = getattr(place, holder)
    function = getattr(place, name)

    def change(*arguments, **options):
        setattr(place, name, function)
        if how == "rewritten":
            os.utime(changed, ns=(1, 1))
        elif how == "replaced":
            os.rename(changed, changed + ".old")
            os.symlink(os.devnull, changed)
        else:
            os.truncate(changed, 4096)
        return function(*arguments, **options)

    setattr(place, name, change)
    return main(["quantize", *arguments])

for line in sys.stdin:
    errors, *arguments = json.loads(line)
    child = os.fork()
    if child == 0:
        code = 99
        try:
            os.dup2(os.open(errors, os.O_WRONLY | os.O_CREAT), 2)
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            sys.stdin = open(os.devnull)
            code = quantize(*arguments)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""
ONNX = "halfbyte.quantize.onnx."
MOMENTS = {
    "graph": [
        (ONNX + "quantizer", "Editor"), (ONNX + "running", "open_onnx"),
        (ONNX + "running", "Running.__call__"), (ONNX + "weight_encoder", "Numbers.slices"),
        (ONNX + "quantizer", "write_model"), ("halfbyte.quantize.encode", "Codec.decode"),
    ],
    "gguf": [("halfbyte.quantize.gguf_writer", "GGUFWriter.write")],
    "folder": [("halfbyte.quantize.gguf_writer", "GGUFWriter.write")],
}  # fmt: skip
MOMENTS["external"] = MOMENTS["graph"]


@pytest.fixture(scope="module")
def quantizer() -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [sys.executable, "-c", QUANTIZE], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        yield process


@pytest.mark.parametrize("how", ["truncated", "rewritten", "replaced"])
@pytest.mark.parametrize(
    ("kind", "moment"), sampled([(kind, m) for kind in MOMENTS for m in MOMENTS[kind]], 3)
)
def test_a_file_that_is_changed_while_it_is_quantized(
    kind: str, moment: tuple[str, str], how: str,
    language_model: Path, quantizer: subprocess.Popen[str], tmp_path: Path,
) -> None:  # fmt: skip
    """No output mixes two versions; a new file under the same name changes nothing."""
    path = language_model
    if kind == "folder":
        path = write_folder(tmp_path / "folder")
    elif kind != "gguf":
        path = large_graph(tmp_path / "graph", 0)
    changed = path / "model.safetensors" if kind == "folder" else path
    if kind == "external":
        path, changed = tmp_path / "outside.onnx", tmp_path / "m.data"
        onnx.save(
            onnx.load(tmp_path / "graph.onnx"), path,
            save_as_external_data=True, location=changed.name,
        )  # fmt: skip
    target = tmp_path / "out" / f"out{'.gguf' if kind in ('gguf', 'folder') else '.onnx'}"
    target.parent.mkdir()
    arguments = [str(changed), how, *moment, str(path), "--int8", "-t", "1", "-o", str(target)]
    errors = tmp_path / "stderr"
    assert quantizer.stdin
    assert quantizer.stdout
    print(json.dumps([str(errors), *arguments]), file=quantizer.stdin, flush=True)
    code, stderr = int(quantizer.stdout.readline()), errors.read_text()
    if how == "replaced":
        assert (code, target.exists()) == (0, True), stderr
        return
    assert code == 2, (code, stderr[-500:])
    said = stderr.splitlines()[-1]
    actual = {"truncated": "4096", "rewritten": "as many, which were written since"}[how]
    assert re.fullmatch(rf"error: .*{changed.name}: was changed while .* found {actual}; .*", said)
    assert list(target.parent.iterdir()) == []


def test_files_of_a_network_are_copied(
    language_model: Path, graph: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind = file_system(graph.stat().st_dev)
    monkeypatch.setattr(mapped, "NETWORK", frozenset([kind]))
    assert map_file(graph).remote
    with halfbyte.load(language_model) as model, halfbyte.InferenceSession(graph) as session:
        text = model.generate("Once", max_tokens=5, seed=1)
        rows = session.run(None, {"x": np.full(2, 1999)})[0]
        os.truncate(language_model, 0)
        os.truncate(graph, 0)
        assert model.generate("Once", max_tokens=5, seed=1) == text
        np.testing.assert_array_equal(session.run(None, {"x": np.full(2, 1999)})[0], rows)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (
            "36 35 8:1 / / rw - ext4 /dev/a rw\n37 36 0:41 / /n\\040m rw shared:1 - nfs4 h:/ rw",
            "nfs4",
        ),
        ("36 35 8:1 / / rw - ext4 /dev/a rw", ""),
        ("nonsense\n\n", ""),
    ],
)
def test_where_linux_says_a_file_lies(
    content: str, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Path, "read_text", lambda *_, **__: content)
    assert file_system(os.makedev(0, 41)) == expected


def test_pages_of_packed_weights_are_given_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a kernel that was scaled and then packed, and of a matrix; their bytes are not needed."""
    given: list[tuple[int, int]] = []
    monkeypatch.setattr(mmap, "MADV_DONTNEED", 4, raising=False)
    monkeypatch.setattr(
        mapped.MappedFile, "madvise", lambda _, option, *span: given.append(span), raising=False
    )
    random = np.random.default_rng(0)
    kernel = random.standard_normal((512, 64, 3, 3), np.float32)  # too large to keep scaled
    matrix = random.standard_normal((512, 640), np.float32)
    ones, zeros = np.ones(512, np.float32), np.zeros(512, np.float32)
    nodes = [
        node("Conv", "x kernel", pads=[1, 1, 1, 1]),
        node("BatchNormalization", "y ones zeros zeros ones", "z"),
        node("GlobalAveragePool", "z", "p"),
        node("Flatten", "p", "f"),
        node("MatMul", "f matrix", "out"),
    ]
    constants = {"kernel": kernel, "matrix": matrix, "ones": ones, "zeros": zeros}
    model = proto(
        nodes, [tensor("x", FLOAT, (1, 64, 8, 8))], [tensor("out", FLOAT, (1, 640))],
        [weight(name, value) for name, value in constants.items()],
    )  # fmt: skip
    path = tmp_path / "model.onnx"
    onnx.save(model, path)
    session = halfbyte.InferenceSession(path)
    session.run(None, {"x": np.ones((1, 64, 8, 8), np.float32)})
    content = path.read_bytes()
    for array in (kernel, matrix):
        place = content.index(array.tobytes())
        assert any(at <= place and at + size == place + array.nbytes for at, size in given)
    assert all(at % mmap.PAGESIZE == 0 for at, _ in given)
