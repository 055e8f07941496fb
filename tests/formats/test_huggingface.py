"""Hugging Face folders: the same model as the GGUF file, and what is refused."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.formats.files import weights, write_small
from tests.formats.folders import (
    CONFIG,
    trained_weights,
    write_folder,
    write_json,
    write_safetensors,
)
from tests.formats.torch_files import write_legacy, write_zip

import halfbyte
from halfbyte.cli import main
from halfbyte.errors import UnsupportedError
from halfbyte.formats.derived import DerivedTensor
from halfbyte.text.opening import open_bytes, open_model
from halfbyte.weights import BF16, F16, F32

BIN = "pytorch_model.bin"
KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "safetensors": ("safetensors", {}),
    "safetensors shards": ("safetensors in 3 files", {"shards": 3}),
    "zip": ("PyTorch", {"write": write_zip, "name": BIN}),
    "zip shards": ("PyTorch in 2 files", {"write": write_zip, "name": BIN, "shards": 2}),
    "legacy": ("PyTorch", {"write": write_legacy, "name": BIN}),
    "legacy as safetensors": ("PyTorch", {"write": write_legacy}),
    "another name": ("safetensors", {"name": "weights.safetensors"}),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("format_", [F32, F16, BF16])
def test_folders_are_the_model_of_the_gguf_file(kind: str, format_: type, tmp_path: Path) -> None:
    label, options = KINDS[kind]
    file = open_model(write_folder(tmp_path / "m", format_, **options))
    assert file.kind == f"Hugging Face, {label}"
    wanted = weights()
    assert file.tensors.keys() == wanted.keys()
    assert next(iter(file.tensors)) == "token_embd.weight"
    for name, values in wanted.items():
        read = file.tensors[name]
        assert read.format is (format_ if values.ndim > 1 else F32)
        rounded = format_.decode(format_.encode(values.reshape(1, -1))).reshape(values.shape)
        np.testing.assert_array_equal(read.decode(), rounded)
        assert not read.data.ctypes.data % read.format.block_bytes


def test_only_moved_elements_are_copied(tmp_path: Path) -> None:
    file = open_model(write_folder(tmp_path / "m"))
    derived = {n for n, t in file.tensors.items() if isinstance(t, DerivedTensor)}
    assert {n for n in derived if ".attn_q." in n or ".attn_k." in n} == {
        f"blk.{layer}.attn_{part}.weight" for layer in (0, 1) for part in "qk"
    }
    assert all("norm" in n or "attn_q" in n or "attn_k" in n for n in derived)
    tensor = file.tensors["blk.0.attn_q.weight"]
    rows = [tensor.take(first, 5) for first in range(0, 32, 5)]
    np.testing.assert_array_equal(np.concatenate(rows), tensor.rows)


@pytest.mark.parametrize("format_", [F32, F16, BF16])
def test_it_runs(format_: type, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    folder, whole = write_folder(tmp_path / "m", format_), write_small(tmp_path / "whole.gguf")
    with halfbyte.load(folder) as model, halfbyte.load(whole) as one:
        ids = one.tokenizer.encode("ab a")
        assert model.tokenizer.encode("ab a") == ids
        bound = {F32: 1e-4, F16: 0.1, BF16: 0.5}[format_]
        np.testing.assert_allclose(model.logits(ids), one.logits(ids), atol=bound)
    assert main(["run", str(folder), "ab", "-n", "3", "--temp", "0"]) == 0
    assert main(["info", str(folder)]) == 0
    out = capfd.readouterr().out
    assert f"{folder}: Hugging Face, safetensors" in out
    assert "14 F32" in out or format_.name in out


def test_metadata(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "SmolLM-1.7B", head_dim=16)
    metadata = open_model(folder).metadata
    assert metadata["general.architecture"] == "llama"
    assert metadata["general.name"] == "SmolLM-1.7B"
    assert metadata["llama.context_length"] == 16
    assert metadata["tokenizer.chat_template"] == "{{ messages[0]['content'] }}"
    assert metadata["tokenizer.ggml.eos_token_id"] == 2
    assert metadata["tokenizer.ggml.eot_token_id"] == 1
    assert metadata["general.sampling.temp"] == np.float32(0.6)
    write_json(folder / "generation_config.json", {"do_sample": False, "temperature": 0.6})
    assert "general.sampling.temp" not in open_model(folder).metadata
    cached = tmp_path / "models--org--Some-Model/snapshots/0123abcd"
    cached.parent.mkdir(parents=True)
    folder.rename(cached)
    assert open_model(cached).metadata["general.name"] == "Some-Model"


def test_a_head_of_its_own(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "m", tie_word_embeddings=False)
    assert open_model(folder).tensors["output.weight"].shape == (264, 32)


def test_a_folder_without_a_tokenizer(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = write_folder(tmp_path / "m")
    (folder / "tokenizer.json").unlink()
    file = open_model(folder)
    assert file.notes == ("no tokenizer found: looked for tokenizer.json and tokenizer.model",)
    assert main(["run", str(folder)]) == 2
    assert capsys.readouterr().err.startswith(f"error: {folder}: ")


@pytest.mark.parametrize("options", [{}, {"shards": 3}], ids=["one file", "shards"])
def test_a_file_of_the_folder_opens_the_model(options: dict[str, Any], tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "m", **options)
    path = sorted(folder.glob("*.safetensors"))[-1]
    file = open_model(path)
    assert file.path == folder
    assert file.tensors.keys() == weights().keys()
    with pytest.raises(UnsupportedError, match="holds only tensors, without the model's config"):
        open_bytes(path.read_bytes(), "model.safetensors")
    (folder / "config.json").unlink()
    with pytest.raises(halfbyte.HalfbyteError, match=r"tensors: expected config\.json beside it"):
        open_model(path)


def test_content_decides_not_the_name(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "m", name="pytorch_model.bin")
    assert open_model(folder).kind == "Hugging Face, safetensors"
    write_zip(folder / "model.pt", trained_weights())
    assert open_model(folder / "model.pt").kind == "Hugging Face, PyTorch"


def refused(folder: Path, capsys: pytest.CaptureFixture[str]) -> str:
    """`quantize` and `info` print the same line, and nothing is written."""
    before = sorted(path.name for path in folder.parent.iterdir())
    messages = set()
    for command in (["quantize", str(folder), "--int8"], ["info", str(folder)]):
        assert main(command) == 2
        out, err = capsys.readouterr()
        assert out == ""
        assert err.count("\n") == 1
        messages.add(err)
    assert len(messages) == 1
    assert sorted(path.name for path in folder.parent.iterdir()) == before
    return messages.pop()


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        (
            {"hidden_size": 48},
            "'model.embed_tokens.weight' has shape [264, 32], but {}/config.json asks for [264, 48",
        ),
        (
            {"num_attention_heads": 4, "head_dim": 16},
            "q_proj.weight' has shape [32, 32], but {}/config.json asks for [64, 32]",
        ),
        ({"num_key_value_heads": 2}, "k_proj.weight' has shape [16, 32], but {}/config.json asks"),
        ({"intermediate_size": 65}, "gate_proj.weight' has shape [64, 32], but {}/config.json"),
        ({"vocab_size": 300}, "'model.embed_tokens.weight' has shape [264, 32], but {}/config.js"),
        ({"num_hidden_layers": 3}, "layer 2 is missing, but {}/config.json says num_hidden_laye"),
        ({"num_hidden_layers": 1}, "layer 1 is there, but {}/config.json says num_hidden_layers"),
        ({"model_type": "llama5"}, "model_type 'llama5': expected one of"),
        ({"hidden_act": "relu"}, "key 'hidden_act': expected 'silu', found 'relu'"),
        ({"hidden_size": -5}, "key 'hidden_size': expected 1 to"),
        ({"hidden_size": "32"}, "key 'hidden_size': expected an integer, found '32'"),
        ({"quantization_config": {"quant_method": "gpt"}}, "quant_method 'gpt': expected one of"),
        ({"quantization_config": "none"}, "'quantization_config': expected an object, found str"),
        ({"model_type": None}, "key 'model_type': expected a string, found nothing"),
    ],
)
def test_configs_that_contradict_the_tensors(
    changes: dict[str, object], expected: str, tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    folder = write_folder(tmp_path / "m")
    config = {k: v for k, v in (CONFIG | changes).items() if v is not None}
    write_json(folder / "config.json", config)
    assert expected.format(folder) in refused(folder, capsys)


Tensors = dict[str, Any]
NAME = "model.layers.1.mlp.up_proj.weight"


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda t: t.pop(NAME), "layer 1 has no tensor for 'ffn_up.weight', which other layers"),
        (lambda t: t.pop("model.norm.weight"), "no tensor for 'output_norm.weight'"),
        (lambda t: t.pop("model.embed_tokens.weight"), "no tensor for 'token_embd.weight'"),
        (lambda t: t.update({"model.extra.weight": t[NAME]}), "model_type 'llama' has no such te"),
        (
            lambda t: t.update({"norm.weight": t["model.norm.weight"]}),
            "'norm.weight': there is another for 'output_norm.weight'",
        ),
        (lambda t: t.update({NAME: t[NAME][None]}), "has shape [1, 64, 32], but"),
    ],
)
def test_tensors_that_do_not_make_a_model(
    change: Callable[[Tensors], object], expected: str, tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    folder, tensors = write_folder(tmp_path / "m"), trained_weights()
    change(tensors)
    write_safetensors(folder / "model.safetensors", tensors)
    assert expected in refused(folder, capsys)


def test_an_untied_head_that_is_missing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = write_folder(tmp_path / "m")
    write_json(folder / "config.json", CONFIG | {"tie_word_embeddings": False})
    expected = "no tensor for 'output.weight': config.json does not tie it to the embedding"
    assert expected in refused(folder, capsys)


def test_a_type_that_no_model_has(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = write_folder(tmp_path / "m")
    path = folder / "model.safetensors"
    content = path.read_bytes()
    path.write_bytes(content.replace(b'"dtype": "F32"', b'"dtype": "I32"'))
    expected = "tensor 'model.embed_tokens.weight': dtype 'I32', expected one of F32, F16, BF16"
    assert expected in refused(folder, capsys)


def shard(folder: Path, number: int) -> Path:
    return folder / f"model-{number:05}-of-00003.safetensors"


def remap(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    index = folder / "model.safetensors.index.json"
    value = json.loads(index.read_text())
    change(value["weight_map"])
    write_json(index, value)


@pytest.mark.parametrize(
    ("spoil", "expected"),
    [
        (
            lambda f: shard(f, 2).unlink(),
            "index.json: 1 of 3 files are missing: model-00002-of-00003.safetensors",
        ),
        (
            lambda f: shard(f, 3).write_bytes(shard(f, 3).read_bytes()[:-1]),
            "model-00003-of-00003.safetensors: truncated: ",
        ),
        (lambda f: shutil.copy(shard(f, 1), shard(f, 2)), "expected here by model.safetensors.ind"),
        (
            lambda f: remap(f, lambda m: m.update(nothing=shard(f, 1).name)),
            "tensor 'nothing': expected here by model.safetensors.index.json, found nothing",
        ),
        (lambda f: remap(f, lambda m: m.update(a="../m.safetensors")), "a name in the same folder"),
        (lambda f: remap(f, lambda m: m.update(a="/dev/zero")), "a name in the same folder"),
        (lambda f: remap(f, lambda m: m.update(a=5)), "file 5: expected a name in the same folder"),
        (lambda f: remap(f, dict.clear), "key 'weight_map': expected names of tensors and files"),
        (
            lambda f: write_safetensors(
                shard(f, 3), trained_weights() | {"lm_head.weight": np.ones((1, 1), np.float32)}
            ),
            "is in an earlier file too",
        ),
        (
            lambda f: (f / "model.safetensors.index.json").write_text("{"),
            "model.safetensors.index.json: not JSON",
        ),
    ],
)
def test_shards_that_do_not_fit(
    spoil: Callable[[Path], object], expected: str, tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    folder = write_folder(tmp_path / "m", shards=3)
    spoil(folder)
    assert expected in refused(folder, capsys)


def test_folders_without_a_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = write_folder(tmp_path / "m")
    (folder / "model.safetensors").write_bytes(b"version https://git-lfs.github.com/spec/v1\n")
    assert "a pointer of Git LFS; `git lfs pull` fetches the file itself" in refused(folder, capsys)
    (folder / "model.safetensors").unlink()
    assert "expected weights in model.safetensors or pytorch_model.bin" in refused(folder, capsys)
    (folder / "config.json").write_text('{"model_type": "llama", "model_type": "gpt2"}')
    assert "config.json: not JSON: key 'model_type' appears twice" in refused(folder, capsys)
    (folder / "config.json").unlink()
    assert "is a directory, expected a model file, or a Hugging Face folder" in refused(
        folder, capsys
    )
    write_folder(folder)
    write_json(folder / "generation_config.json", {"temperature": "warm"})
    assert "generation_config.json: 'temperature': expected a number, found 'warm'" in refused(
        folder, capsys
    )
