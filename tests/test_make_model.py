"""The tool that writes random models of well-known shapes."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import gguf
import numpy as np
import pytest

import halfbyte
from halfbyte.weights import FORMATS


@pytest.fixture(scope="module")
def tool(repository: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("make_model", repository / "tools/make_model.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules["make_model"] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", FORMATS)
def test_tiny_models_run(name: str, tmp_path: Path, repository: Path) -> None:
    path = tmp_path / "tiny.gguf"
    command = [sys.executable, repository / "tools/make_model.py", "--shape", "tiny"]
    subprocess.run([*command, "--type", name, "-o", path], check=True, capture_output=True)
    kinds = {t.name: t.tensor_type.name for t in gguf.GGUFReader(path).tensors}
    assert kinds["blk.2.ffn_up.weight"] == name
    assert kinds["blk.0.attn_norm.weight"] == "F32"
    assert kinds["token_embd.weight"] == ("Q8_0" if name == "Q4_0" else name)
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
        infos = tool._tensors(tool.SHAPES[name], FORMATS["F16"])
        return sum(int(np.prod(info.shape)) for info in infos)

    assert parameters("smollm2-135m") == 134_515_008
    assert parameters("llama-1b") == 1_235_814_400
