"""llama2.c's files of every version: numbers of the header, the tokenizer, or any bytes."""

from __future__ import annotations

import random
import tempfile
from functools import cache
from pathlib import Path

from tests.formats.files import tokenizer_bytes, write_v0, write_v1, write_v2
from tests.fuzz.folders import use
from tests.fuzz.mutators import mutate_bytes, odd_integer

NAME = "m.bin"


@cache
def corpus() -> list[bytes]:
    """The same model in each version, after the length of a tokenizer and the tokenizer."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, NAME)
        models = [write_v0(path, tied=tied).read_bytes() for tied in (True, False)]
        models.append(write_v1(path).read_bytes())
        models += [write_v2(path, group).read_bytes() for group in (16, 32)]
    return [_joined(tokenizer_bytes(), model) for model in models]


def mutate(data: bytes, chance: random.Random) -> bytes:
    """Change a number of the model or the tokenizer, the size of the file, or any bytes."""
    tokenizer, model = _parts(data)
    kind = chance.randrange(6)
    if kind == 0:
        return _joined(mutate_bytes(tokenizer, chance), model)
    if kind == 1:
        return _joined(_number(tokenizer, 4 * chance.randrange(20), chance), model)
    if kind == 2:
        return _joined(tokenizer, mutate_bytes(model, chance))
    start = 8 if model.startswith(b"24ka") else 0
    changed = _number(model, start + 4 * chance.randrange(8), chance)
    if kind == 3:  # a file of another size, which may fit
        size = chance.choice([len(model) // 2, 2 * len(model), chance.randint(0, 2 * len(model))])
        changed = changed[:size].ljust(size, b"\1")
    elif kind == 4 and start:  # there is a number of one byte between
        changed = _number(model, chance.choice([4, 36, 37]), chance)
    return _joined(tokenizer, changed)


def _number(data: bytes, at: int, chance: random.Random) -> bytes:
    old = int.from_bytes(data[at : at + 4], "little")
    value = odd_integer(chance, old) & ((1 << 32) - 1)
    return data[:at] + value.to_bytes(4, "little") + data[at + 4 :]


def _joined(tokenizer: bytes, model: bytes) -> bytes:
    return len(tokenizer).to_bytes(4, "little") + tokenizer + model


def _parts(data: bytes) -> tuple[bytes, bytes]:
    end = 4 + int.from_bytes(data[:4], "little")
    return data[4:end], data[end:]


def target(data: bytes) -> None:
    """Use the file with its tokenizer."""
    tokenizer, model = _parts(data)
    use({NAME: model, "tokenizer.bin": tokenizer}, NAME)
