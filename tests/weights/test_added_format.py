"""A new weight format is one file: `added_formats/t2_0.py`, to which no other file refers.

It has no kernels: the NumPy backend runs it, and the quantizer encodes by its definition.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.text.architectures import models
from tests.weights import test_weights

import halfbyte
from halfbyte import weights
from halfbyte.cli import quantize as main
from halfbyte.core import ops
from halfbyte.core.backends import open_program
from halfbyte.core.passes import optimize
from halfbyte.core.program import capture
from halfbyte.errors import HalfbyteError
from halfbyte.formats import MetadataValue
from halfbyte.quantize import quantize_file
from halfbyte.quantize.gguf_writer import write_gguf
from halfbyte.quantize.presets import presets
from halfbyte.text.opening import open_model
from halfbyte.weights import Q4_0, BlockFormat, Tensor, registry
from halfbyte.weights.base import F32Array
from halfbyte.weights.packed import Packed


@pytest.fixture(autouse=True)
def formats(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Register the file's formats for one test."""
    tables: list[dict[Any, Any]] = [registry.FORMATS, registry.BY_GGML_TYPE, registry.BY_DTYPE]
    before = [table.copy() for table in tables]
    folder = str(Path(__file__).with_name("added_formats"))
    monkeypatch.setattr(weights, "__path__", [*weights.__path__, folder])
    weights.register_all()
    yield
    del sys.modules["halfbyte.weights.t2_0"]
    for table, content in zip(tables, before, strict=True):
        table.clear()
        table.update(content)


def block_format(name: str) -> type[BlockFormat]:
    format_ = registry.FORMATS[name]
    assert issubclass(format_, BlockFormat)
    return format_


def numbers(*shape: int) -> F32Array:
    return np.random.default_rng(0).standard_normal(shape, np.float32)


def test_integers_and_values() -> None:
    T2_0 = block_format("T2_0")
    test_weights.test_stored_integers_are_those_read(T2_0)
    x = numbers(40, 128)
    d = np.abs(x.reshape(40, 4, 32)).max(axis=-1).repeat(32, axis=1) / 2
    assert (np.abs(T2_0.decode(T2_0.encode(x)) - x) <= 0.502 * d).all()  # d is rounded to F16
    assert not np.any(T2_0.encode(np.zeros((2, 32), np.float32)).view(T2_0.layout)["d"])


@pytest.mark.parametrize("name", ["T2_0", "N4_0"])
def test_files(name: str, tmp_path: Path) -> None:
    x, format_ = numbers(8, 64), block_format(name)
    written = Tensor("w", format_, x.shape, format_.encode(x).reshape(-1))
    write_gguf(tmp_path / "model.gguf", {"general.architecture": "none"}, [written])
    read = open_model(tmp_path / "model.gguf").tensors["w"]
    assert (read.format, read.shape) == (format_, x.shape)
    np.testing.assert_array_equal(read.data, written.data)
    np.testing.assert_array_equal(read.decode(), format_.decode(format_.encode(x)))


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("int8", [False, True])
def test_programs(int8: bool, packed: bool) -> None:
    """A matrix product and a row, with float and with int8 activations."""
    x, w = numbers(3, 64), numbers(32, 64)
    format_ = block_format("N4_0" if packed else "T2_0")
    data, layout = format_.encode(w), format_.packed
    assert (layout is not None) == packed
    tensor = Tensor("w", format_, w.shape, data.reshape(-1))
    if layout is not None:
        tensor = Tensor("w", layout, w.shape, layout.pack(data))
    with capture("one product") as program:
        held = program.weight(tensor)
        program.output("y", ops.matmul(program.input("x", "f32", x.shape), held))
        program.output("row", ops.gather(held, program.input("ids", "i32", (1,))))
    program = optimize(program, int8_activations=int8)
    assert any(i.operator is ops.matmul_int8 for i in program.instructions) == int8
    executable = open_program(program, "numpy")
    executable.array(program.inputs["x"])[...] = x
    executable.array(program.inputs["ids"])[...] = 7
    executable.run({})
    expected = x @ format_.decode(data).T
    y = executable.array(program.outputs["y"])
    np.testing.assert_allclose(y, expected, atol=0.15 if int8 else 1e-4)
    np.testing.assert_array_equal(executable.array(program.outputs["row"])[0], tensor.decode()[7])


def test_quantizer_and_models(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The command offers the type, widens a tensor that does not fit, and the model runs."""

    def narrow(metadata: dict[str, MetadataValue], tensors: dict[str, F32Array]) -> None:
        tensors["blk.1.ffn_down.weight"] *= np.float32(1e6)

    source, target = models.write(tmp_path / "m.gguf", "llama", change=narrow), tmp_path / "t.gguf"
    assert main([str(source), "--type", "t2_0", "-o", str(target), "--rtn"]) == 0
    assert "T2_0" in capsys.readouterr().out
    file = open_model(target)
    assert file.metadata["general.file_type"] == 900
    assert file.tensors["blk.0.attn_q.weight"].format.name == "T2_0"
    assert file.tensors["token_embd.weight"].format.name == "Q8_0"
    assert file.tensors["blk.1.ffn_down.weight"].format is Q4_0
    same = [
        Tensor(n, registry.FORMATS["F32"], t.shape, t.decode().reshape(-1).view(np.uint8))
        for n, t in file.tensors.items()
    ]
    write_gguf(tmp_path / "same.gguf", file.metadata, same)
    ids = models.ids("llama")
    with (
        halfbyte.load(target, backend="numpy", activations="float", cache="f32") as model,
        halfbyte.load(tmp_path / "same.gguf", backend="numpy") as plain,
    ):
        assert models.largest_difference(model.logits(ids), plain.logits(ids)) < 1e-5
    with pytest.raises(HalfbyteError, match="is T2_0 already"):
        quantize_file(target, "int4")


@pytest.mark.parametrize(("name", "number"), [("M4_0", 901), ("M4_0", 2), ("Q4_0", 902)])
def test_name_and_number_are_its_own(name: str, number: int) -> None:
    """A second format with either is refused, and nothing of the first one changes."""
    tables: list[dict[Any, Any]] = [registry.FORMATS, registry.BY_GGML_TYPE, registry.BY_DTYPE]
    before = [table.copy() for table in tables]
    second = type(name, (Q4_0,), {"name": name, "ggml_type": number})
    message = rf"weight format '{name}': .* found {number}, and '[NQ]4_0' with (2|901)$"
    with pytest.raises(HalfbyteError, match=message):
        registry.register(second)
    assert tables == before
    registry.register(Q4_0)  # the same class again is allowed
    assert tables == before


def test_search_and_presets(tmp_path: Path) -> None:
    """The search of scales uses the format's own `start` and `fit`: the bytes equal Q4_0's."""
    source = models.write(tmp_path / "m.gguf", "llama")
    for kind in ("N4_0", "Q4_0"):
        quantize_file(source, kind, tmp_path / kind, pure=True)
    one, other = (open_model(tmp_path / kind).tensors for kind in ("N4_0", "Q4_0"))
    assert {t.format.name for t in one.values()} == {"N4_0", "F32"}
    for name, tensor in other.items():
        np.testing.assert_array_equal(one[name].data, tensor.data)
    assert [*presets()][-2:] == ["T2_0", "N4_0"]
    assert block_format("N4_0").packed is not Q4_0.packed
    assert issubclass(registry.BY_DTYPE["n4_0_r16"], Packed)
