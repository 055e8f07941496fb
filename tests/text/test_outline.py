"""Models without weights: config.json gives the shapes that the weights would have."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.formats.folders import write_json
from tests.support.sampled import sampled
from tests.text.architectures import models
from tests.text.architectures.test_folders import write

from halfbyte.cli import main
from halfbyte.errors import FormatError, TaskError, UnsupportedError
from halfbyte.formats.model_file import ModelFile
from halfbyte.text.opening import open_model
from halfbyte.text.outline import KIND, open_plannable
from halfbyte.text.planning import LEVELS, plan
from halfbyte.weights import BF16, F16, F32

CACHED = replace(LEVELS["baseline"], cache="f16")  # as of models in BF16


def matrices(file: ModelFile) -> int:
    """Weights in all matrices."""
    tensors = [t for t in file.tensors.values() if len(t.shape) > 1]
    return sum(int(np.prod(tensor.shape)) for tensor in tensors)


def folder_of(path: Path, name: str = "llama", **changes: Any) -> Path:
    """A folder with only a config.json."""
    path.mkdir()
    write_json(path / "config.json", models.config(name) | changes)
    return path


@pytest.mark.parametrize("name", sampled(models.CONFIGS, 8))
def test_shapes_are_those_of_the_weights(name: str, tmp_path: Path) -> None:
    """Of all matrices; there may be vectors that config.json does not tell."""
    whole = open_model(write(tmp_path / "whole", name, "model.safetensors"))
    try:
        plan(whole, LEVELS["baseline"])
    except TaskError:  # an encoder
        return
    outline = open_plannable(folder_of(tmp_path / "config", name))
    assert outline.kind == KIND
    # Gemma 4 may use keys as values, gpt_oss has a bias for each expert's rows, and mllama has
    # eight more tokens for images, which are left out
    more = 0.03 if name.startswith(("gemma4-experts", "gpt_oss", "mllama")) else 0.006
    assert matrices(outline) == pytest.approx(matrices(whole), rel=more)
    caches = [plan(file, CACHED).memory["KV cache"] for file in (outline, whole)]
    assert caches[0] == caches[1]


@pytest.mark.parametrize("name", ["llama", "qwen2", "gpt2", "mixtral"])
def test_an_index_tells_all_tensors(name: str, tmp_path: Path) -> None:
    """As a folder has it of which no weights were downloaded."""
    whole = open_model(write(tmp_path / "whole", name, "model.safetensors"))
    folder = folder_of(tmp_path / "config", name)
    shapes = models.read_golden(name)[0]
    index = {"weight_map": dict.fromkeys(shapes, "model-00001-of-00001.safetensors")}
    write_json(folder / "model.safetensors.index.json", index)
    shapes_of = {n: t.shape for n, t in whole.tensors.items()}
    outlined = {n: t.shape for n, t in open_plannable(folder).tensors.items()}
    if name == "mixtral":  # stacked, gate and up together or apart
        assert matrices(open_plannable(folder)) == matrices(whole)
    else:
        assert outlined == shapes_of


@pytest.mark.parametrize(
    ("given", "expected"),
    [({"dtype": "float32"}, F32), ({"torch_dtype": "float16"}, F16), ({}, BF16)],
)
def test_types_are_those_of_the_config(
    given: dict[str, str], expected: Any, tmp_path: Path
) -> None:
    config = {k: v for k, v in models.config("llama").items() if "dtype" not in k}
    (tmp_path / "config.json").write_text(json.dumps(config | given))
    file = open_plannable(tmp_path)
    assert file.tensors["token_embd.weight"].format is expected
    assert any("BF16 is assumed" in note for note in file.notes) is not given


def test_fit_plans_from_a_config(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = folder_of(tmp_path / "llama")
    assert main(["fit", str(folder), "--device", "pixel-6", "--json"]) == 0
    out, err = capsys.readouterr()
    assert "there are no weights beside it" in err
    memory = json.loads(out)["asked"]["memory"]
    whole = open_model(write(tmp_path / "whole", "llama", "model.safetensors"))
    assert memory["KV cache"] == plan(whole, CACHED).memory["KV cache"]


@pytest.mark.parametrize("weights", ["packed", "mapped", "streamed"])
def test_all_ways_of_keeping_weights_are_planned(weights: str, tmp_path: Path) -> None:
    file = open_plannable(folder_of(tmp_path / "llama"))
    level = next(level for level in LEVELS.values() if level.weights == weights)
    assert plan(file, level).total > 0


@pytest.mark.parametrize(
    ("changes", "error", "words"),
    [
        ({"quantization_config": {"bits": 4}}, UnsupportedError, "not quantized"),
        ({"head_dim": 64, "hidden_size": 1 << 19, "vocab_size": 1 << 31}, FormatError, "TB"),
        ({"hidden_size": -4}, FormatError, "hidden_size"),
        ({"model_type": "lama"}, UnsupportedError, "llama"),
    ],
)
def test_configs_that_say_no_sizes(
    changes: dict[str, Any], error: type[Exception], words: str, tmp_path: Path
) -> None:
    with pytest.raises(error, match=words):
        open_plannable(folder_of(tmp_path / "m", **changes))


@pytest.mark.parametrize(
    ("name", "changes", "words"),
    [
        ("ernie4_5_moe", {"moe_num_shared_experts": 1 << 31}, "a size is too large"),
        ("lfm2_moe", {"num_key_value_heads": 1 << 31}, "a size is too large"),
        ("gpt_neo", {"attention_types": [[["global", []], 3]]}, "'global' and 'local'"),
        ("gemma3n", {"intermediate_size": [2.9e38] * 5}, "expected 1 to"),
    ],
)
def test_sizes_that_follow_from_others(
    name: str, changes: dict[str, Any], words: str, tmp_path: Path
) -> None:
    with pytest.raises(FormatError, match=words):
        open_plannable(folder_of(tmp_path / "m", name, **changes))


def test_weights_are_read_where_there_are_any(tmp_path: Path) -> None:
    folder = write(tmp_path / "m", "llama", "model.safetensors")
    (folder / "model.safetensors").write_bytes(b"")
    with pytest.raises(FormatError):
        open_plannable(folder)
