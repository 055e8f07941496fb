"""safetensors: a folder whose weights are changed in the header, as JSON, or in any bytes."""

from __future__ import annotations

import random
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

from tests.formats.folders import trained_weights, write_safetensors
from tests.fuzz.folders import small_folder, use
from tests.fuzz.mutators import (
    join_header,
    mutate_bytes,
    mutate_length,
    mutate_tree,
    odd_integer,
    split_header,
)

from halfbyte.weights import BF16, F16, F32

NAME = "model.safetensors"
VALUES: tuple[Any, ...] = (
    None, True, -1, 0, 1, 1 << 48, 1 << 63, 1.5, float("nan"), "", "F32", "F16", "BF16", "I8",
    "F8_E4M3", "\ud800", "\0", "a" * 300, "model.norm.weight", "lm_head.weight", "__metadata__",
    "tensors", [], {}, [1] * 17, [0, 1 << 62], [0, 128], [32, 32], [1, 32, 32], "data_offsets",
)  # fmt: skip


@cache
def corpus() -> list[bytes]:
    """The weights of one model in each type."""
    files = []
    with tempfile.TemporaryDirectory() as folder:
        for format_ in (F32, F16, BF16):
            path = write_safetensors(Path(folder, NAME), trained_weights(), format_)
            files.append(path.read_bytes())
    return files


def mutate(data: bytes, chance: random.Random) -> bytes:
    """Change the header, an entry's numbers or the length, swap two fields, or change any bytes."""
    kind = chance.randrange(5)
    header, body = split_header(data)
    if header is None or kind == 0:
        return mutate_bytes(data, chance)
    entries = [entry for entry in header.values() if _is_entry(entry)]
    if kind == 1:
        return mutate_length(data, chance)
    if kind == 2 and entries:
        numbers = chance.choice(entries)[chance.choice(["shape", "data_offsets"])]
        at = chance.randrange(len(numbers))
        numbers[at] = odd_integer(chance, numbers[at])
    elif kind == 3 and entries:
        one, other = (chance.choice(entries) for _ in range(2))
        key = chance.choice(["dtype", "shape", "data_offsets"])
        one[key], other[key] = other[key], one[key]
    else:
        mutate_tree(header, chance, VALUES)
    return join_header(header, body, b" ", 8)


def _is_entry(entry: Any) -> bool:
    if not isinstance(entry, dict):
        return False
    numbers = (entry.get("shape"), entry.get("data_offsets"))
    return "dtype" in entry and all(
        isinstance(each, list) and each and all(type(n) is int for n in each) for each in numbers
    )


def target(data: bytes) -> None:
    """Use the folder."""
    use({**small_folder(), NAME: data})
