"""llama2.c's files of every version: the header's numbers, the tokenizer beside, any bytes."""

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
    """The same model in each version, behind a tokenizer and that one's length."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, NAME)
        made = [write_v0(path, tied=tied).read_bytes() for tied in (True, False)]
        made.append(write_v1(path).read_bytes())
        made += [write_v2(path, group).read_bytes() for group in (16, 32)]
    return [_joined(tokenizer_bytes(), model) for model in made]


def mutate(data: bytes, chance: random.Random) -> bytes:
    """A number of the model's or the tokenizer's; the file cut or filled up; any bytes."""
    words, model = _parts(data)
    kind = chance.randrange(6)
    if kind == 0:
        return _joined(mutate_bytes(words, chance), model)
    if kind == 1:
        return _joined(_number(words, 4 * chance.randrange(20), chance), model)
    if kind == 2:
        return _joined(words, mutate_bytes(model, chance))
    start = 8 if model.startswith(b"24ka") else 0
    changed = _number(model, start + 4 * chance.randrange(8), chance)
    if kind == 3:  # a file of another size, which may fit
        size = chance.choice([len(model) // 2, 2 * len(model), chance.randint(0, 2 * len(model))])
        changed = changed[:size].ljust(size, b"\1")
    elif kind == 4 and start:  # the number between is one byte
        changed = _number(model, chance.choice([4, 36, 37]), chance)
    return _joined(words, changed)


def _number(data: bytes, at: int, chance: random.Random) -> bytes:
    old = int.from_bytes(data[at : at + 4], "little")
    value = odd_integer(chance, old) & ((1 << 32) - 1)
    return data[:at] + value.to_bytes(4, "little") + data[at + 4 :]


def _joined(words: bytes, model: bytes) -> bytes:
    return len(words).to_bytes(4, "little") + words + model


def _parts(data: bytes) -> tuple[bytes, bytes]:
    end = 4 + int.from_bytes(data[:4], "little")
    return data[4:end], data[end:]


def target(data: bytes) -> None:
    """Use the file, its tokenizer beside it."""
    words, model = _parts(data)
    use({NAME: model, "tokenizer.bin": words}, NAME)
