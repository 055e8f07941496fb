"""Changed config.json files of every architecture, with weights that fit the unchanged one."""

from __future__ import annotations

import json
import random
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

from tests.formats.folders import write_safetensors
from tests.fuzz.folders import small_folder, use
from tests.fuzz.mutators import ODD, mutate_bytes, mutate_json, odd_integer
from tests.text.architectures import models

from halfbyte.errors import HalfbyteError

VALUES: tuple[Any, ...] = (
    *ODD, None, True, False, 0.0, -1.5, 0.5, 1.0, 1e-45, 1e-38, 1e38, 1e308, float("inf"),
    float("nan"), 10**400, "", "a", "\ud800", "a" * 5000, "1", [], {}, [[]], [0], [1e9] * 4,
    "linear", "llama3", "longrope", "yarn", "default", "sliding_attention", "full_attention",
    ["sliding_attention"] * 3, "LlamaForCausalLM", ["BertModel"], "silu", "gelu_new",
    "hidden_size", "num_hidden_layers", "num_key_value_heads", "head_dim", "rope_scaling",
    "rope_parameters", "sliding_window", "tie_word_embeddings", "layer_types", "n_inner",
    "text_config", "quantization_config", "partial_rotary_factor", "use_sliding_window",
    "sliding_window_pattern", "query_pre_attn_scalar", "rope_local_base_freq", "max_window_layers",
    "attention_factor", "long_factor", "model_type",
    *sorted({config["model_type"] for config in models.CONFIGS.values()}),
)  # fmt: skip


NUMBERS = (
    "max_position_embeddings", "n_positions", "rms_norm_eps", "layer_norm_epsilon", "rope_theta",
    "sliding_window", "query_pre_attn_scalar", "rope_local_base_freq", "sliding_window_pattern",
    "max_window_layers", "partial_rotary_factor", "original_max_position_embeddings", "factor",
    "low_freq_factor", "high_freq_factor", "attention_factor", "eos_token_id",
)  # fmt: skip
KINDS = ("linear", "llama3", "longrope", "su", "default")


def corpus() -> list[bytes]:
    """A line with the name of the weights, then the config."""
    return [_joined(name, json.dumps(models.config(name)).encode()) for name in models.CONFIGS]


def mutate(data: bytes, chance: random.Random) -> bytes:
    """Change a value or key; the name, and so the weights, stay."""
    name, _, config = data.partition(b"\n")
    changed = mutate_json(config, chance, VALUES) if chance.random() < 0.5 else None
    return _joined(name.decode(), changed or _number(config, chance))


def _number(config: bytes, chance: random.Random) -> bytes:
    """Change a number that no tensor's shape depends on to an extreme one."""
    try:
        tree = json.loads(config)
    except ValueError:
        return mutate_bytes(config, chance)
    if not isinstance(tree, dict):
        return mutate_bytes(config, chance)
    objects = [tree, *(value for value in tree.values() if isinstance(value, dict))]
    if len(objects) == 1 and chance.random() < 0.3:
        tree["rope_scaling"] = {name: chance.uniform(0.5, 9) for name in NUMBERS}
        tree["rope_scaling"]["original_max_position_embeddings"] = chance.choice([1, 16, 1 << 31])
        tree["rope_scaling"]["rope_type"] = chance.choice(KINDS)
        return json.dumps(tree).encode()
    values = (odd_integer(chance), 10.0 ** chance.randrange(-40, 40), chance.random())
    chance.choice(objects)[chance.choice(NUMBERS)] = chance.choice(values)
    return json.dumps(tree).encode()


def target(data: bytes) -> None:
    """Use the folder."""
    first, _, config = data.partition(b"\n")
    name = first.decode(errors="replace")
    if name not in models.CONFIGS:
        raise HalfbyteError("the name of no weights")
    use({**small_folder(), "config.json": config, "model.safetensors": _weights(name)})


def _joined(name: str, config: bytes) -> bytes:
    return name.encode() + b"\n" + config


@cache
def _weights(name: str) -> bytes:
    shapes = models.read_golden(name)[0]
    tensors = {n: models.values(f"{name}/{n}", tuple(shape)) for n, shape in shapes.items()}
    with tempfile.TemporaryDirectory() as folder:
        return write_safetensors(Path(folder, "model.safetensors"), tensors).read_bytes()
