"""A further architecture is one file: `added/parallel.py`, which no other file knows.

It passes the cases of the package's own, with logits that are computed here in float64.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from tests.text.architectures import models, test_folders, test_goldens, test_quantized

import halfbyte
from halfbyte.errors import UnsupportedError
from halfbyte.formats.huggingface.names import naming
from halfbyte.quantize import quantize_file
from halfbyte.text import architectures
from halfbyte.text.opening import open_model

F64 = npt.NDArray[np.float64]

NAME = "parallel"
CONFIG = {"model_type": NAME, "head_dim": 12, "num_hidden_layers": 2}


@pytest.fixture(autouse=True)
def architecture(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Adds the architecture, and its model to those of the cases."""
    with monkeypatch.context() as patch:
        folder = str(Path(__file__).with_name("added"))
        patch.setattr(architectures, "__path__", [*architectures.__path__, folder])
        patch.setitem(models.CONFIGS, NAME, CONFIG)
        shapes = {name: list(value.shape) for name, value in weights().items()}
        golden = (shapes, list(range(models.CONTEXT)), logits()[:, : models.COLUMNS])
        patch.setattr(models, "read_golden", lambda name: golden)
        yield


def weights() -> dict[str, models.F32Array]:
    """Tensors under the names of a made-up Hugging Face folder."""
    c = models.config(NAME)
    dim, hidden, head = c["hidden_size"], c["intermediate_size"], c["head_dim"]
    width, kv = c["num_attention_heads"] * head, c["num_key_value_heads"] * head
    shapes = {"embed_tokens.weight": (c["vocab_size"], dim), "final_norm.weight": (dim,)}
    for layer in range(c["num_hidden_layers"]):
        shapes |= {
            f"layers.{layer}.{name}.weight": shape
            for name, shape in {
                "norm": (dim,), "attention.queries": (width, dim), "attention.keys": (kv, dim),
                "attention.values": (kv, dim), "attention.out": (width, dim),
                "mlp.wide": (hidden, dim), "mlp.gain": (hidden,), "mlp.narrow": (dim, hidden),
            }.items()
        }  # fmt: skip
    return {name: models.values(f"{NAME}/{name}", shape) for name, shape in shapes.items()}


def logits() -> models.F32Array:
    """Logits [tokens, vocabulary] of the model's text, from the formulas."""
    c, w = models.config(NAME), {name: v.astype(np.float64) for name, v in weights().items()}
    x, head = w["embed_tokens.weight"][models.ids(NAME)], c["head_dim"]

    def norm(x: F64, gain: F64) -> F64:
        return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + c["rms_norm_eps"]) * gain

    def heads(x: F64) -> F64:
        return x.reshape(len(x), -1, head).swapaxes(0, 1)

    for layer in range(c["num_hidden_layers"]):
        part = {n.split(".", 2)[2]: v for n, v in w.items() if n.startswith(f"layers.{layer}.")}
        h = norm(x, part["norm.weight"])
        q, k, v = (
            heads(h @ part[f"attention.{n}.weight"].T) for n in ("queries", "keys", "values")
        )
        k, v = (np.repeat(y, len(q) // len(y), axis=0) for y in (k, v))
        scores = np.exp(q @ k.swapaxes(1, 2) / head**0.5) * np.tri(len(x))
        mixed = (scores / scores.sum(axis=-1, keepdims=True)) @ v
        wide = h @ part["mlp.wide.weight"].T
        wide *= (1 + np.tanh((2 / np.pi) ** 0.5 * (wide + 0.044715 * wide**3))) / 2
        x = x + mixed.swapaxes(0, 1).reshape(len(x), -1) @ part["attention.out.weight"]
        wide *= part["mlp.gain.weight"]
        x = x + wide @ part["mlp.narrow.weight"].T
    y: models.F32Array = norm(x, w["final_norm.weight"]) @ w["embed_tokens.weight"].T
    return y.astype(np.float32)


@pytest.mark.parametrize("backend", ["numpy", "native"])
def test_logits_of_a_file(backend: str, tmp_path: Path) -> None:
    test_goldens.test_logits(NAME, backend, tmp_path)


@pytest.mark.parametrize("file", test_folders.WRITERS)
def test_logits_of_a_folder(file: str, tmp_path: Path) -> None:
    test_folders.test_logits(NAME, file, tmp_path)


def test_cases_of_every_architecture(tmp_path: Path) -> None:
    test_goldens.test_passes_and_batches_change_nothing(NAME, tmp_path)
    test_folders.test_tensors_are_those_of_the_gguf_file(NAME, tmp_path)
    test_folders.test_streamed_tensors_are_converted_again(NAME, tmp_path)


@pytest.mark.parametrize("kind", ["int8", "int4"])
def test_packing_changes_nothing(kind: str, tmp_path: Path) -> None:
    test_quantized.test_packing_changes_nothing(NAME, kind, tmp_path)


def test_equalizing_is_exact(tmp_path: Path) -> None:
    """By its own table: here `ffn_up` too reads a layer's first norm."""
    test_quantized.test_equalizing_is_exact(NAME, tmp_path)


def test_generates_from_folder_and_file(tmp_path: Path) -> None:
    folder = test_folders.write(tmp_path / "m", NAME, "model.safetensors")
    report = quantize_file(folder, "fp16", keep=[("*", "F32")])
    with halfbyte.load(folder) as model, halfbyte.load(report.output) as file:
        text = model.generate("ab", max_tokens=8, temperature=0)
        assert len(text) > 2
        assert file.generate("ab", max_tokens=8, temperature=0) == text


def test_messages_know_it(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match=r"expected one of \[.*'parallel'"):
        naming({"model_type": "parallels"}, architectures.model_types())
    path = models.write(tmp_path / "model.gguf", NAME, architecture="parallels")
    with pytest.raises(UnsupportedError, match=r"expected one of \[.*'parallel'"):
        architectures.find(open_model(path))
    notes = quantize_file(path, "int8").notes
    assert any("needs architecture" in note and NAME in note for note in notes)
