"""`packed_weights_filepath`: weights are packed once, and mapped by later sessions."""

from __future__ import annotations

import hashlib
import json
import os
import struct
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from tests.onnx.graphs import Net
from tests.onnx.session.models import HALFBYTE

from halfbyte.errors import HalfbyteError
from halfbyte.formats.mapped import is_mapped
from halfbyte.onnx import kept_weights


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    """A network with products and convolutions of some size, and a place for its weights."""
    model = tmp_path / "model.onnx"
    write(model, seed=1)
    return model, tmp_path / "packed"


def write(path: Path, seed: int) -> None:
    g = Net(17)
    generator = np.random.default_rng(seed)

    def weights(*shape: int) -> str:
        return g.array(generator.standard_normal(shape).astype(np.float32) / 16)

    x = g.x(1, 32, 12, 12)
    y = g.node("Relu", g.node("Conv", x, weights(64, 32, 3, 3), pads=[1, 1, 1, 1]))
    y = g.node("Conv", y, weights(64, 64, 5, 5), strides=[2, 2])
    y = g.node("GlobalAveragePool", y)
    y = g.node("Flatten", y)
    proto = g.proto(g.node("MatMul", y, weights(64, 512)))
    path.write_bytes(proto.SerializeToString())


def session(files: tuple[Path, Path], **options: Any) -> Any:
    chosen = HALFBYTE.SessionOptions()
    chosen.packed_weights_filepath = str(files[1])
    for name, value in options.items():
        setattr(chosen, name, value)
    return HALFBYTE.InferenceSession(str(files[0]), chosen)


def result(opened: Any) -> npt.NDArray[np.float32]:
    x = np.random.default_rng(3).standard_normal((1, 32, 12, 12)).astype(np.float32)
    y: npt.NDArray[np.float32] = opened.run(None, {opened.get_inputs()[0].name: x})[0]
    return y


def kept(opened: Any) -> list[npt.NDArray[Any]]:
    """The weights that are views of a file."""
    buffers = {b for program in opened.programs() for b in program.buffers}
    arrays = [b.value for b in buffers if isinstance(b.value, np.ndarray)]
    return [array for array in arrays if array.nbytes >= 1 << 16 and is_mapped(array)]


def test_the_second_session_maps_what_the_first_packed(files: tuple[Path, Path]) -> None:
    first = session(files)
    wanted = result(first)
    assert kept(first) == []
    second = session(files)
    np.testing.assert_array_equal(result(second), wanted)
    assert len(kept(second)) == 3
    assert files[1].stat().st_size > sum(array.nbytes for array in kept(second))


def test_the_file_is_written_once(files: tuple[Path, Path]) -> None:
    opened = session(files)
    result(opened)
    before = files[1].stat()
    result(opened)
    result(session(files))
    assert files[1].stat().st_mtime_ns == before.st_mtime_ns


@pytest.mark.parametrize("change", ["model", "backend"])
def test_others_weights_are_not_taken(files: tuple[Path, Path], change: str) -> None:
    """Those of the model before it changed, or of other kernels."""
    before = result(session(files))
    options: dict[str, Any] = {}
    if change == "model":
        write(files[0], seed=2)
        os.utime(files[0], ns=(1, 1))
    else:
        options["backend"] = "native-scalar"
    opened = session(files, **options)
    plain = HALFBYTE.InferenceSession(str(files[0]))
    np.testing.assert_allclose(result(opened), result(plain), rtol=1e-5, atol=1e-6)
    assert kept(opened) == []
    assert (change == "model") == (np.abs(result(opened) - before).max() > 1e-2)
    again = session(files, **options)
    result(again)
    assert len(kept(again)) == 3


def test_a_file_of_something_else_is_kept(files: tuple[Path, Path]) -> None:
    files[1].write_text("my diary")
    with pytest.raises(HalfbyteError, match=r"packed weights or no file.*choose another path"):
        session(files)
    assert files[1].read_text() == "my diary"


def header(path: Path) -> tuple[dict[str, Any], bytes]:
    content = path.read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    return json.loads(content[8 : 8 + length]), content[8 + length :]


@pytest.mark.parametrize("change", ["shape", "size", "type", "offsets", "cut"])
def test_a_file_that_was_tampered_with(files: tuple[Path, Path], change: str) -> None:
    """Nothing is read beyond an array; where a kernel does not take one, definitions compute."""
    wanted = result(session(files))
    about, data = header(files[1])
    for name, entry in about.items():
        if name == "__metadata__":
            continue
        if change == "shape":
            entry["shape"] = [int(np.prod(entry["shape"]))]
        elif change == "size":
            entry["shape"] = [entry["shape"][0] * 2, entry["shape"][1] // 2, *entry["shape"][2:]]
        elif change == "type":
            entry["dtype"] = "I32"
        elif change == "offsets":
            entry["data_offsets"] = [0, 64]
    text = json.dumps(about).encode()
    cut = -64 if change == "cut" else None
    files[1].write_bytes(struct.pack("<Q", len(text)) + text + data[:cut])
    if change in ("shape", "size"):
        np.testing.assert_allclose(result(session(files)), wanted, rtol=1e-5, atol=1e-6)
        return
    with pytest.raises(HalfbyteError):
        result(session(files))


LAYOUTS = "1", "c7609875f3306d0e"  # the number of the format, and a digest of all layouts


def test_another_layout_has_another_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If this fails, the number at the end of `kept_weights._FORMAT` has to change with it."""
    monkeypatch.setattr(kept_weights, "_LEAST", 0)
    monkeypatch.setattr(kept_weights, "ALIGNMENT", 1)
    g = Net(17)
    x = g.x(1, 32, 9, 9)
    outputs = [
        g.node("Conv", x, counted(g, 40, 32, 3, 3), pads=[1] * 4),  # Winograd's
        g.node("Conv", x, counted(g, 40, 32, 2, 2)),
        g.node("Conv", x, counted(g, 40, 16, 2, 2), group=2),
        g.node("Conv", x, counted(g, 32, 1, 3, 3), group=32),
        g.node("ConvTranspose", x, counted(g, 32, 20, 3, 3)),
        g.node("ConvTranspose", x, counted(g, 32, 20, 2, 2), strides=[2, 2]),
        g.node("MatMul", x, counted(g, 9, 20)),
        g.node("Gemm", g.node("Flatten", x), counted(g, 20, 2592), transB=1),
    ]
    sequence = g.node("Reshape", x, g.array(np.array([9, 9, 32])))
    for kind, gates in (("LSTM", 4), ("GRU", 3)):
        w, r = counted(g, 1, gates * 20, 32), counted(g, 1, gates * 20, 20)
        outputs.append(g.node(kind, sequence, w, r, hidden_size=20))
    model = tmp_path / "all.onnx"
    model.write_bytes(g.proto(*outputs).SerializeToString())
    opened = session((model, tmp_path / "packed"), backend="native-scalar")
    opened.run(None, g.feeds)
    about, data = header(tmp_path / "packed")
    owner = about.pop("__metadata__")
    assert len(about) >= 10
    listed = json.dumps(about, sort_keys=True).encode()
    assert (owner["format"][-1], hashlib.sha256(listed + data).hexdigest()[:16]) == LAYOUTS


def counted(g: Net, *shape: int) -> str:
    return g.array(np.arange(1, 1 + np.prod(shape), dtype=np.float32).reshape(shape))


def test_where_nothing_can_be_written(files: tuple[Path, Path]) -> None:
    opened = session((files[0], files[1] / "absent" / "packed"))
    with pytest.raises(HalfbyteError, match="absent"):
        result(opened)
    assert result(opened).shape == (1, 512)


def test_models_without_a_file(files: tuple[Path, Path]) -> None:
    options = HALFBYTE.SessionOptions()
    options.packed_weights_filepath = files[1]
    with pytest.raises(HalfbyteError, match="in a file of this machine only"):
        HALFBYTE.InferenceSession(files[0].read_bytes(), options)
    value = HALFBYTE.OrtValue.ortvalue_from_numpy(np.zeros(3, np.float32))
    options.add_initializer("w", value)
    with pytest.raises(HalfbyteError):
        HALFBYTE.InferenceSession(str(files[0]), options)
