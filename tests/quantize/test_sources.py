"""Inputs of `quantize`: folders, files in parts, and files that are quantized already."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from tests.formats.files import model_metadata, tensor, weights, write_small
from tests.formats.folders import CONFIG, write_folder, write_json, write_safetensors
from tests.formats.torch_files import write_legacy, write_zip

import halfbyte
from halfbyte.cli import quantize as main
from halfbyte.quantize import quantize_file
from halfbyte.quantize.gguf_writer import write_gguf
from halfbyte.text.opening import open_model
from halfbyte.weights import BF16, F16, F32, Q4_0, Q8_0

BIN = "pytorch_model.bin"
SOURCES: list[dict[str, Any]] = [
    {}, {"shards": 2}, {"write": write_zip, "name": BIN}, {"write": write_legacy, "name": BIN},
]  # fmt: skip


@pytest.mark.parametrize("options", SOURCES)
@pytest.mark.parametrize("kind", ["int4", "bf16"])
def test_folders_give_the_bytes_of_the_gguf_file(
    options: dict[str, Any], kind: str, tmp_path: Path
) -> None:
    folder = write_folder(tmp_path / "m", **options)
    report = quantize_file(folder, kind, tmp_path / "out.gguf")
    quantize_file(write_small(tmp_path / "whole.gguf"), kind, tmp_path / "wanted.gguf")
    result, expected = open_model(tmp_path / "out.gguf"), open_model(tmp_path / "wanted.gguf")
    assert result.tensors.keys() == expected.tensors.keys()
    for name, one in expected.tensors.items():
        np.testing.assert_array_equal(result.tensors[name].data, one.data)
    assert report.bytes_before > sum(v.nbytes for v in weights().values())
    with halfbyte.load(tmp_path / "out.gguf") as model, halfbyte.load(folder) as source:
        assert model.tokenizer.encode("ab a") == source.tokenizer.encode("ab a")
    keys = {field.name for field in gguf.GGUFReader(tmp_path / "out.gguf").fields.values()}
    assert {"tokenizer.chat_template", "general.sampling.temp", "llama.block_count"} <= keys


def test_default_outputs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write_folder(tmp_path / "SmolLM-1.7B")
    assert main([str(folder), "--int8"]) == 0
    assert (tmp_path / "SmolLM-1.7B-int8.gguf").is_file()
    monkeypatch.chdir(folder)
    assert main([".", "--int4"]) == 0
    assert (tmp_path / "SmolLM-1.7B-int4.gguf").is_file()


def test_inputs_are_not_replaced(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = write_folder(tmp_path / "m", shards=2)
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    for name in before:
        assert main([str(folder), "--int8", "-o", str(folder / name)]) == 2
        assert "is an input; choose another output" in capsys.readouterr().err
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    for _ in range(2):
        assert main([str(folder), "--int8", "-o", str(folder / "out.gguf")]) == 0


def write_types(path: Path, *formats: type) -> Path:
    """A model that runs, its matrices in these formats in turn."""
    tensors = [
        tensor(name, value, formats[index % len(formats)] if value.ndim > 1 else F32)
        for index, (name, value) in enumerate(weights().items())
    ]
    write_gguf(path, model_metadata(), tensors)
    return path


@pytest.mark.parametrize("source", [F32, F16, BF16, Q8_0])
@pytest.mark.parametrize("kind", ["int4", "int8", "fp16", "bf16"])
def test_fine_types_are_taken_freely(source: type, kind: str, tmp_path: Path) -> None:
    path = write_types(tmp_path / "m.gguf", source)
    quantize_file(path, kind, tmp_path / "out.gguf")
    with halfbyte.load(tmp_path / "out.gguf") as model:
        assert np.isfinite(model.logits([1, 5, 9])).all()


def test_coarse_types_only_if_asked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, out = write_types(tmp_path / "m.gguf", Q4_0, Q8_0), tmp_path / "out.gguf"
    assert main([str(path), "--int8", "-o", str(out)]) == 2
    expected = (
        f"error: {path}: tensor 'token_embd.weight' is Q4_0 already: expected a model in F32, F16, "
        "BF16 or Q8_0; --requantize takes it, and loses more\n"
    )
    assert capsys.readouterr().err == expected
    assert not out.exists()
    assert main([str(path), "--int8", "-o", str(out), "--requantize"]) == 0
    assert "not equalized, since tensors are quantized already" in capsys.readouterr().out
    source = open_model(path)
    for name, written in open_model(out).tensors.items():
        assert written.format is (F32 if len(written.shape) == 1 else Q8_0)
        given = source.tensors[name].decode()
        bound = np.abs(given).max() / 127 if given.ndim > 1 else 0
        np.testing.assert_allclose(written.decode(), given, atol=bound)


def test_what_has_its_type_is_copied(tmp_path: Path) -> None:
    """Rounding Q4_0 again would lose precision: its blocks are copied."""
    first, path, again = (tmp_path / f"{n}.gguf" for n in ("first", "m", "again"))
    write_small(first)
    quantize_file(first, "int4", path, pure=True)
    quantize_file(path, "int4", again, pure=True, requantize=True)
    assert again.read_bytes() == path.read_bytes()


def large(format_: type, top: float) -> dict[str, np.ndarray]:
    tensors = {"a": np.ones((2, 64), np.float32), "b": np.ones((2, 64), np.float32)}
    tensors["b"][1, 5] = top
    return tensors


@pytest.mark.parametrize(
    ("source", "top", "expected"),
    [(BF16, 65536.0, "BF16"), (BF16, 3e38, "BF16"), (F32, 65536.0, "F32"), (BF16, 65280.0, "F16")],
)
def test_values_beyond_f16(
    source: type, top: float, expected: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """BF16 falls back to itself, which is as small and lossless."""
    stored = [tensor(name, value, source) for name, value in large(source, top).items()]
    write_gguf(tmp_path / "m.gguf", {}, stored)
    assert main([str(tmp_path / "m.gguf"), "--fp16", "-o", str(tmp_path / "out.gguf")]) == 0
    written = open_model(tmp_path / "out.gguf").tensors
    assert written["a"].format is F16
    assert written["b"].format.name == expected
    np.testing.assert_array_equal(written["b"].decode(), stored[1].decode())
    why = f"  b: {expected}: values up to {stored[1].decode().max():.3g} do not fit F16"
    assert (why in capsys.readouterr().out) == (expected != "F16")


@pytest.mark.long
def test_memory_does_not_grow_with_the_folder(tmp_path: Path) -> None:
    """Peak of a process that quantizes a folder of 250 MB, of which 120 MB are reordered."""
    folder = write_folder(tmp_path / "m")
    dim, heads = 5504, 43
    changes = {"hidden_size": dim, "num_attention_heads": heads, "num_key_value_heads": heads}
    sizes = {"num_hidden_layers": 1, "intermediate_size": 64, "vocab_size": 264}
    write_json(folder / "config.json", CONFIG | changes | sizes)
    square = np.full((dim, dim), 0.5, np.float32)
    layer = "model.layers.0."
    tensors = {f"{layer}self_attn.{part}_proj.weight": square for part in "qkv"}
    tensors |= {f"{layer}self_attn.o_proj.weight": square}
    tensors |= {f"{layer}mlp.{p}_proj.weight": square[:64] for p in ("gate", "up")}
    tensors |= {f"{layer}mlp.down_proj.weight": np.ascontiguousarray(square[:, :64])}
    names = [f"{layer}input_layernorm", f"{layer}post_attention_layernorm", "model.norm"]
    tensors |= {f"{name}.weight": square[0] for name in names}
    tensors["model.embed_tokens.weight"] = square[:264]
    write_safetensors(folder / "model.safetensors", tensors, BF16)
    script = (
        "import sys; from halfbyte.quantize import quantize_file\n"
        "from halfbyte.text import footprint\n"
        "quantize_file(sys.argv[1], 'int4', sys.argv[2]); print(footprint.peak_bytes())"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, folder, tmp_path / "out.gguf"],
        check=True, capture_output=True, text=True,
    )  # fmt: skip
    assert (folder / "model.safetensors").stat().st_size > 240e6
    assert int(done.stdout) < 150e6
