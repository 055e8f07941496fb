"""torchless' files: the header is changed as JSON, also its numbers in strings, or any bytes."""

from __future__ import annotations

import random
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

from tests.formats.folders import write_folder
from tests.fuzz.folders import use
from tests.fuzz.mutators import (
    ODD,
    join_header,
    mutate_bytes,
    mutate_length,
    mutate_tree,
    odd_integer,
    split_header,
)
from tests.fuzz.runner import REPOSITORY
from tests.support.tools import load_tool

from halfbyte.formats.torchless import ALIGNMENT

VALUES: tuple[Any, ...] = (
    None, True, -1, 0, 1, 32, 64, 1 << 48, 1 << 63, 1.5, float("nan"), "", "None", "0", "1e999",
    "999999999999", "1e-99", "٣", "silu", "f32", "int8", "int4", "\ud800", "\0", "a" * 300, "a b",
    "model.norm.weight", "lm_head.weight", "sliding_window", "scale_offset", [], {}, [32], [[]],
    [1] * 5, [1 << 40, 1 << 40], [32, 32], *(str(number) for number in ODD),
)  # fmt: skip


@cache
def corpus() -> list[bytes]:
    """One model, with and without int8, with and without a sliding window."""
    make = load_tool(REPOSITORY, "make_torchless").make_torchless
    files = []
    for int8, window in ((False, None), (True, None), (True, 8)):
        with tempfile.TemporaryDirectory() as name:
            folder, path = Path(name, "folder"), Path(name, "m.bin")
            make(write_folder(folder, model_type="mistral", sliding_window=window), path, int8=int8)
            files.append(path.read_bytes())
    return files


def mutate(data: bytes, chance: random.Random) -> bytes:
    """Change the length, an offset of a tensor, a size of the model, the header, or any bytes."""
    kind = chance.randrange(5)
    header, body = split_header(data)
    if header is None or kind == 0:
        return mutate_bytes(data, chance)
    if kind == 1:
        return mutate_length(data, chance)
    tensors = list(_inner(header, "tensors").values())
    entry = chance.choice(tensors) if tensors else None
    sizes = _inner(header, "metadata")
    if kind == 2 and isinstance(entry, dict):
        key = chance.choice(["offset", "scale_offset", "scale_size"])
        old = entry.get(key)
        entry[key] = odd_integer(chance, old if isinstance(old, int) else 0)
    elif kind == 3 and sizes:
        sizes[chance.choice(list(sizes))] = chance.choice(VALUES)
    else:
        mutate_tree(header, chance, VALUES)
    return join_header(header, body, b"\0", ALIGNMENT)


def _inner(header: dict[str, Any], name: str) -> dict[str, Any]:
    value = header.get(name)
    return value if isinstance(value, dict) else {}


def target(data: bytes) -> None:
    """Use the file."""
    use({"m.bin": data}, "m.bin")
