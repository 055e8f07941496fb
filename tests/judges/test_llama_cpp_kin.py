"""Architectures of llama.cpp whose originals `transformers` does not have, compared with llama.cpp.

Each is a tiny model of another architecture under its name, with what it has otherwise.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from tests.formats.folders import write_json
from tests.judges.test_llama_cpp import log_softmax
from tests.judges.test_llama_cpp_architectures import log_probabilities
from tests.text.architectures import models
from tests.text.architectures.test_folders import write

import halfbyte
from halfbyte.errors import FormatError, UnsupportedError
from halfbyte.formats import MetadataValue
from halfbyte.formats.huggingface.names import naming
from halfbyte.quantize import quantize_file
from halfbyte.text import architectures

Change = Callable[[dict[str, MetadataValue], dict[str, models.F32Array]], object]
BOUND = 2e-5
LENGTHS = [1, 5, 20, 40]
LAYERS = range(3)
MINICPM = {
    "model_type": "minicpm", "scale_emb": 12, "scale_depth": 1.4, "dim_model_base": 16,
    "architectures": ["MiniCPMForCausalLM"], "auto_map": {"AutoConfig": "c.MiniCPMConfig"},
    "tie_word_embeddings": False,
}  # fmt: skip


def own(name: str, *shape: int) -> models.F32Array:
    return models.values(f"kin/{name}", shape)


def unscaled(metadata: dict[str, MetadataValue], _: object) -> None:
    """Factors of MiniCPM's old files, which have none in their metadata."""
    for key in ("attention.scale", "embedding_scale", "residual_scale", "logit_scale"):
        metadata.pop(f"minicpm.{key}")


def fused(metadata: dict[str, MetadataValue], tensors: dict[str, models.F32Array]) -> None:
    """Queries, keys and values of as many heads in one matrix; a head of its own."""
    for layer in LAYERS:
        parts = [tensors.pop(f"blk.{layer}.attn_{n}.weight") for n in "qkv"]
        biases = [tensors.pop(f"blk.{layer}.attn_{n}.bias") for n in "qkv"]
        more = (own(f"kv{layer}", 64, 32), own(f"b{layer}", 64))
        tensors[f"blk.{layer}.attn_qkv.weight"] = np.concatenate([parts[0], more[0]])
        tensors[f"blk.{layer}.attn_qkv.bias"] = np.concatenate([biases[0], more[1]])
    tensors["output.weight"] = own("output", 264, 32)
    metadata["qwen.attention.head_count_kv"] = np.uint32(4)
    metadata["qwen.feed_forward_length"] = np.uint32(128)  # of gate and up


def biased(_: object, tensors: dict[str, models.F32Array]) -> None:
    for layer in LAYERS:
        tensors[f"blk.{layer}.attn_output.bias"] = own(f"o{layer}", 32)


def recurrent(
    metadata: dict[str, MetadataValue], tensors: dict[str, models.F32Array], *, plain: bool = False
) -> None:
    """RWKV 7 in place of attention, with gates and norms of heads, or `plain` without both."""
    for key in [key for key in metadata if ".attention." in key or ".rope." in key]:
        del metadata[key]
    ranks = {"decay": 12, "iclr": 8, "value_residual_mix": 4, "gate": 0 if plain else 20}
    metadata |= {f"arwkv7.attention.{name}_lora_rank": np.uint32(r) for name, r in ranks.items()}
    metadata |= {"arwkv7.attention.head_count": np.uint32(0)}
    metadata |= {"arwkv7.attention.layer_norm_rms_epsilon": np.float32(1e-5)}
    # llama.cpp adds to memory that it has not set where heads are smaller
    metadata |= {"arwkv7.wkv.head_size": np.uint32(32), "arwkv7.token_shift_count": np.uint32(1)}
    tensors.setdefault("output.weight", own("output", 264, 32))
    for name in [name for name in tensors if re.search("attn_(q|k|v|output)", name)]:
        del tensors[name]
    for layer in LAYERS:
        shapes = {"lerp_fused": (6 - plain, 1, 1, 32)}
        shapes |= dict.fromkeys(("receptance", "key", "value", "output"), (32, 32))
        shapes |= dict.fromkeys(("w0", "a0", "v0", "k_k", "k_a", "r_k"), (32,))
        values = "value_residual_mix" if layer else "iclr"  # where they are not used
        for part, name in {"w": "decay", "a": "iclr", "v": values}.items():
            shapes |= {f"{part}1": (ranks[name], 32), f"{part}2": (32, ranks[name])}
        if not plain:
            shapes |= {"g1": (20, 32), "g2": (32, 20), "ln": (32,)}
            tensors[f"blk.{layer}.time_mix_ln.bias"] = own(f"ln{layer}", 32)
        for name, shape in shapes.items():
            tensors[f"blk.{layer}.time_mix_{name}.weight"] = own(f"{name}{layer}", *shape)


KIN: list[tuple[str, str, Change | None]] = [
    ("internlm2", "llama", None),
    ("xverse", "llama", None),
    ("refact", "llama", None),
    ("qwen", "qwen2", fused),
    ("pangu-embedded", "qwen2", biased),
    ("maincoder", "qwen3", None),
    ("minicpm", "granite", lambda metadata, _: metadata.pop("minicpm.attention.scale")),
    ("minicpm", "granite", unscaled),
    ("arwkv7", "llama", recurrent),
    ("arwkv7", "llama", partial(recurrent, plain=True)),
]


def compared(path: Path, name: str) -> float:
    """The largest difference of log-probabilities."""
    ids = models.ids(name)
    theirs = log_probabilities(path, ids, LENGTHS)
    with halfbyte.load(path) as model:
        ours = log_softmax(model.logits(ids))[np.array(LENGTHS) - 1]
    return float(np.abs(theirs - ours).max())


@pytest.mark.parametrize(("architecture", "name", "change"), KIN)
def test_distributions_agree(
    architecture: str, name: str, change: Change | None, tmp_path: Path
) -> None:
    path = models.write(tmp_path / "m.gguf", name, architecture=architecture, change=change)
    assert compared(path, name) < BOUND


def test_folder_of_minicpm(tmp_path: Path) -> None:
    """Factors have other names in config.json, and the numbers that they follow from."""
    folder = write(tmp_path / "m", "llama", "model.safetensors")
    write_json(folder / "config.json", {**models.config("llama"), **MINICPM})
    quantize_file(folder, "fp16", tmp_path / "m.gguf", keep=[("*", "F32")])
    assert compared(tmp_path / "m.gguf", "llama") < BOUND


@pytest.mark.parametrize("kind", ["arwkv7", "internlm2", "qwen", "refact", "xverse"])
def test_folders_of_others_are_refused(kind: str) -> None:
    with pytest.raises(UnsupportedError, match=f"model_type '{kind}': expected a GGUF file"):
        naming({"model_type": kind}, architectures.model_types())


def test_widths_of_two_matrices(tmp_path: Path) -> None:
    def odd(metadata: dict[str, MetadataValue], tensors: dict[str, models.F32Array]) -> None:
        fused(metadata, tensors)
        metadata["qwen.feed_forward_length"] = np.uint32(1)

    path = models.write(tmp_path / "m.gguf", "qwen2", architecture="qwen", change=odd)
    with pytest.raises(FormatError, match="feed_forward_length': expected 2 to"):
        halfbyte.load(path)
