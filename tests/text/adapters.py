"""Adapters of the tiny models of `architectures`: in PEFT's format and in llama.cpp's.

Goldens (`architectures/goldens/lora-<name>.json`, written by `make judge`) hold logits by `peft`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from tests.formats.files import tensor
from tests.formats.folders import write_json, write_safetensors
from tests.text.architectures import models

from halfbyte.formats import MetadataValue
from halfbyte.quantize.gguf_writer import write_gguf

F32Array = models.F32Array

_ALL = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
# Settings of adapter_config.json, by the model
CONFIGS: dict[str, dict[str, Any]] = {
    "llama": {"r": 4, "lora_alpha": 8, "target_modules": [*_ALL, "lm_head"]},
    "llama-tied-biases": {  # ranks and scales of their own
        "r": 3, "lora_alpha": 4, "target_modules": [*_ALL], "use_rslora": True,
        "rank_pattern": {"q_proj": 5, "layers.1.mlp.up_proj": 2},
        "alpha_pattern": {"v_proj": 9, "layers.1.mlp.up_proj": 1},
    },
    "gpt2": {  # transposed matrices, q, k and v in one
        "r": 2, "lora_alpha": 4, "target_modules": ["c_attn", "c_proj", "c_fc"],
        "fan_in_fan_out": True,
    },
    "phi3": {
        "r": 8, "lora_alpha": 8,
        "target_modules": ["qkv_proj", "o_proj", "gate_up_proj", "down_proj"],
    },
    "gemma2": {"r": 4, "lora_alpha": 16, "target_modules": ["q_proj", "v_proj", "down_proj"]},
}  # fmt: skip


def modules(name: str) -> dict[str, tuple[int, int]]:
    """Outputs and inputs of the modules that a model's adapter changes."""
    found = {}
    for source, shape in models.read_golden(name)[0].items():
        module = source.removesuffix(".weight")
        if module != source and module.rpartition(".")[2] in CONFIGS[name]["target_modules"]:
            out, inputs = shape[::-1] if CONFIGS[name].get("fan_in_fan_out") else shape
            found[module] = (out, inputs)
    return found


def peft_tensors(name: str) -> dict[str, F32Array]:
    """The tensors of an adapter under PEFT's names."""
    tensors = {}
    for module, (out, inputs) in modules(name).items():
        patterns = CONFIGS[name].get("rank_pattern", {})
        ranks = (r for end, r in patterns.items() if module.endswith(end))
        rank = next(ranks, CONFIGS[name]["r"])
        for side, shape in (("A", (rank, inputs)), ("B", (out, rank))):
            key = f"base_model.model.{module}.lora_{side}.weight"
            tensors[key] = models.values(f"lora/{name}/{module}.{side}", shape)
    return tensors


def write_peft(folder: Path, name: str, **changed: Any) -> Path:
    """The adapter as PEFT saves it, with `changed` settings."""
    folder.mkdir(parents=True)
    config = {"peft_type": "LORA", "task_type": "CAUSAL_LM", "bias": "none", **CONFIGS[name]}
    write_json(folder / "adapter_config.json", config | changed)
    write_safetensors(folder / "adapter_model.safetensors", peft_tensors(name))
    return folder


def write_gguf_adapter(
    path: Path, changes: Mapping[str, tuple[F32Array, F32Array]], alpha: float = 8.0,
    **changed: MetadataValue | None,
) -> Path:  # fmt: skip
    """An adapter as llama.cpp has it: A and B by names of matrices.

    `changed` are keys of its metadata, ``__`` for a dot; None leaves a key out.
    """
    metadata: dict[str, MetadataValue | None] = {
        "general.architecture": "llama", "general.type": "adapter", "adapter.type": "lora",
        "adapter.lora.alpha": np.float32(alpha),
    }  # fmt: skip
    metadata |= {key.replace("__", "."): value for key, value in changed.items()}
    tensors = []
    for name, (a, b) in changes.items():
        tensors += [tensor(f"{name}.lora_a", a), tensor(f"{name}.lora_b", b)]
    write_gguf(path, {k: v for k, v in metadata.items() if v is not None}, tensors)
    return path


def changes_of(shapes: Mapping[str, tuple[int, int]], rank: int) -> dict[str, Any]:
    """A and B, of this rank, of matrices of these shapes."""
    return {
        name: (models.values(f"a {name}", (rank, k)), models.values(f"b {name}", (m, rank)))
        for name, (m, k) in shapes.items()
    }
