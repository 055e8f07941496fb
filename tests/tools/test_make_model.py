"""The tool that writes random models of well-known shapes."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import gguf
import numpy as np
import pytest
from tests.support.sampled import often
from tests.support.tools import load_tool

import halfbyte
from halfbyte.quantize.presets import presets
from halfbyte.text.opening import open_model
from halfbyte.weights import FORMATS

PARTS = ("attn_v", "ffn_down")


@pytest.fixture(scope="module")
def tool(repository: Path) -> ModuleType:
    return load_tool(repository, "make_model")


@pytest.mark.parametrize(
    "name", often([*(n for n in presets() if n in FORMATS), "Q4_K_M"], ["F32", "Q4_0", "Q4_K_M"])
)
def test_tiny_models_run(name: str, tmp_path: Path, repository: Path) -> None:
    path = tmp_path / "tiny.gguf"
    command = [sys.executable, repository / "tools/make_model.py", "--shape", "tiny-256"]
    subprocess.run([*command, "--type", name, "-o", path], check=True, capture_output=True)
    kinds = {t.name: t.tensor_type.name for t in gguf.GGUFReader(path).tensors}
    kind = presets()[name]
    assert kinds["blk.1.ffn_up.weight"] == name.removesuffix("_M") == kind.format.name
    assert kinds["blk.0.attn_norm.weight"] == "F32"
    assert kinds["token_embd.weight"] == (kind.head or kind.format).name
    if name == "Q4_K_M":  # the first and the last eighth, and every third between
        some = [f"blk.{layer}.{part}.weight" for layer in (0, 3, 6, 7) for part in PARTS]
        sixes = {n for n, type_ in kinds.items() if type_ == "Q6_K"}
        assert sixes == {*some, "token_embd.weight"}
    with halfbyte.load(path) as model:
        logits = model.logits([1, 2, 3])
        assert model.tokenizer.decode(model.tokenizer.encode("a text")) == "a text"
    assert np.isfinite(logits).all()
    assert logits.std() > 0.1


def test_shapes_are_those_of_the_models(tool: ModuleType) -> None:
    small = tool.SHAPES["smollm2-135m"]
    assert (small.dim, small.layers, small.heads, small.kv_heads) == (576, 30, 9, 3)
    assert (small.ffn, small.vocabulary) == (1536, 49152)

    def parameters(name: str) -> int:
        infos = tool._tensors(tool.SHAPES[name], tool.presets()["F16"])
        return sum(int(np.prod(info.shape)) for info in infos)

    assert parameters("smollm2-135m") == 134_515_008
    assert parameters("llama-1b") == 1_235_814_400
    assert parameters("qwen2-0.5b") == 494_032_768
    assert parameters("qwen3-0.6b") == 596_049_920
    assert parameters("gemma3-1b") == 999_885_952
    assert parameters("gpt2") == 124_439_808
    assert parameters("llama-160m") + 32000 * 768 == 162_417_408
    head = 32000 * 4096  # which these have of their own
    assert parameters("mistral-7b") + head == 7_241_732_096
    assert parameters("phi3-mini") + 32064 * 3072 == 3_821_079_552


OTHERS = ["qwen2-0.5b", "qwen3-0.6b", "gemma3-1b", "phi3-mini", "gpt2", "7-of-64"]


@pytest.mark.parametrize("name", OTHERS)
def test_other_architectures_run(
    name: str, tool: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two layers of each, in few dimensions, with its tensors and metadata."""
    small = {"dim": 64, "layers": 2, "ffn": 96, "vocabulary": 400, "context": 64}
    heads = {"heads": 4, "kv_heads": 4 if name in ("gpt2", "phi3-mini") else 2, "width": 0}
    monkeypatch.setitem(tool.SHAPES, name, replace(tool.SHAPES[name], **small, **heads))
    tool.make_model(tmp_path / "m.gguf", name, "Q8_0")
    with halfbyte.load(tmp_path / "m.gguf") as model:
        logits = model.logits([1, 2, 3])
    assert np.isfinite(logits).all()
    assert logits.std() > 0.1


@pytest.mark.parametrize("name", ["Q2_K", "Q5_1", "IQ1_M", "IQ3_S", "MXFP4", "NVFP4"])
def test_random_blocks_are_weights_of_the_usual_size(
    name: str, tool: ModuleType, tmp_path: Path
) -> None:
    tool.make_model(tmp_path / "m.gguf", "tiny-256", name, blocks=True)
    tensors = open_model(tmp_path / "m.gguf").tensors
    assert {t.format.name for t in tensors.values() if len(t.shape) > 1} == {name}
    spread = 16 * tensors["blk.0.ffn_up.weight"].decode().std()
    assert 0.5 < spread < 2
    with halfbyte.load(tmp_path / "m.gguf") as model:
        logits = model.logits([1, 2, 3])
    assert np.isfinite(logits).all()


@pytest.mark.parametrize(
    ("name", "weight", "megabytes"),
    [
        ("smollm2-135m", "F32", 538.060032), ("smollm2-135m", "F16", 269.100288),
        ("smollm2-135m", "BF16", 269.100288), ("smollm2-135m", "Q8_0", 143.025408),
        ("smollm2-135m", "Q4_0", 89.941248), ("llama-1b", "F16", 2471.763968),
    ],
)  # fmt: skip
def test_sizes_in_bytes(tool: ModuleType, name: str, weight: str, megabytes: float) -> None:
    """A norm has 4 bytes a weight, a Q8_0 matrix 34 and a Q4_0 matrix 18 per 32."""
    size = sum(info.size for info in tool._tensors(tool.SHAPES[name], tool.presets()[weight]))
    assert size == round(megabytes * 1e6)


def test_vocabularies_hold_no_token_twice(tool: ModuleType) -> None:
    for shape in tool.SHAPES.values():
        tokens, types = tool.vocabulary(shape.vocabulary)
        assert len(set(tokens)) == len(tokens) == len(types) == shape.vocabulary
        assert set(types[259:].tolist()) == {1}


def test_a_seed_gives_the_same_bytes(tool: ModuleType, tmp_path: Path) -> None:
    made: list[bytes] = []
    for seed in (1, 1, 2):
        path = tmp_path / f"{len(made)}.gguf"
        tool.make_model(path, "tiny", "Q4_0", seed)
        made.append(path.read_bytes())
    assert made[0] == made[1] != made[2]


def test_weights_keep_the_size_of_activations(tool: ModuleType, tmp_path: Path) -> None:
    tool.make_model(tmp_path / "m.gguf", "tiny", "F32")
    for name, found in open_model(tmp_path / "m.gguf").tensors.items():
        values = found.decode()
        if values.ndim == 1:
            assert np.all(values == 1), name
        else:
            assert values.std() == pytest.approx(found.columns**-0.5, rel=0.1), name


def test_outputs_that_cannot_be_written(tmp_path: Path, repository: Path) -> None:
    path = tmp_path / "absent" / "m.gguf"
    command = [sys.executable, repository / "tools/make_model.py", "--shape", "tiny", "-o", path]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    problem = "cannot be written: No such file or directory"
    assert done.stderr == f"make_model.py: {path}: {problem}\n"
    done = subprocess.run([*command, "--seed", "-1"], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.endswith("argument --seed: expected 0 or more, found -1\n")
