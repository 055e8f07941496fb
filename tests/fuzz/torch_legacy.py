"""PyTorch's files from before 1.6: pickles and storages one after another, changed."""

from __future__ import annotations

import random
import tempfile
from functools import cache
from pathlib import Path

from tests.formats.folders import trained_weights
from tests.formats.torch_files import write_legacy
from tests.fuzz.mutators import mutate_bytes, mutate_pickle
from tests.fuzz.torch_zip import NAME, target  # noqa: F401 - the same folder

from halfbyte.weights import BF16, F16, F32


@cache
def corpus() -> list[bytes]:
    """The weights of one model in each type."""
    with tempfile.TemporaryDirectory() as folder:
        path, tensors = Path(folder, NAME), trained_weights()
        return [write_legacy(path, tensors, format_).read_bytes() for format_ in (F32, F16, BF16)]


def mutate(data: bytes, chance: random.Random) -> bytes:
    """Change an opcode or its number, or any bytes."""
    return mutate_bytes(data, chance) if chance.random() < 0.3 else mutate_pickle(data, chance)
