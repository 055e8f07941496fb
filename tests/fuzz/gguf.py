"""GGUF: fields of headers are changed one by one, or any bytes."""

from __future__ import annotations

import random
import struct
import tempfile
from functools import cache
from pathlib import Path
from typing import NamedTuple

from tests.formats.files import model_metadata, tensor, weights, write_small
from tests.fuzz.mutators import mutate_bytes, odd_integer

import halfbyte
from halfbyte.quantize.gguf_writer import write_gguf
from halfbyte.weights import F16, Q8_0

_SIZES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}


@cache
def corpus() -> list[bytes]:
    """Small models that generate, with several types of weights."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "small.gguf")
        write_small(path)
        files = [path.read_bytes()]
        for format_ in (F16, Q8_0):
            tensors = [
                tensor(
                    name, value, format_ if value.shape[-1] % 32 == 0 and value.ndim > 1 else F16
                )
                if value.ndim > 1
                else tensor(name, value)
                for name, value in weights().items()
            ]
            write_gguf(path, model_metadata(), tensors)
            files.append(path.read_bytes())
    return files


class Field(NamedTuple):
    """A number or a string's length in the header: its offset, size in bytes, and value."""

    at: int
    size: int
    value: int


def fields(data: bytes) -> list[Field]:
    """The fields of a header, as far as it can be parsed."""
    fields: list[Field] = []
    at = 4

    def number(size: int) -> int:
        nonlocal at
        if at + size > len(data):
            raise ValueError("the header ends")
        value = int.from_bytes(data[at : at + size], "little")
        fields.append(Field(at, size, value))
        at += size
        return value

    def string() -> None:
        nonlocal at
        at += number(8)

    def value_of(kind: int) -> None:
        if kind == 8:
            string()
        elif kind == 9:
            inner, count = number(4), number(8)
            for _ in range(min(count, 8)):  # the first ones; others are changed as bytes
                value_of(inner)
            if count > 8:
                raise ValueError("a long array")
        else:
            number(_SIZES.get(kind, 4))

    try:
        number(4)
        tensors, entries = number(8), number(8)
        for _ in range(entries):
            string()
            value_of(number(4))
        for _ in range(tensors):
            string()
            for _ in range(number(4)):
                number(8)
            number(4)
            number(8)
    except ValueError:
        pass
    return fields


def mutate(data: bytes, chance: random.Random) -> bytes:
    """Change a field of the header to an odd number or a float, a number near a name, or bytes."""
    header = fields(data)
    kind = chance.randrange(4)
    if kind == 0 or not header:
        return mutate_bytes(data, chance)
    if kind == 1:
        return _tensor_info(data, chance)
    field = chance.choice(header)
    changed = bytearray(data)
    if kind == 2 and field.size == 4:
        value = chance.choice([float("nan"), float("inf"), 0.0, -1.0, 1e38, 1e-45])
        changed[field.at : field.at + 4] = struct.pack("<f", value)
    else:
        value = odd_integer(chance, field.value) & ((1 << 8 * field.size) - 1)
        changed[field.at : field.at + field.size] = value.to_bytes(field.size, "little")
    return bytes(changed)


def _tensor_info(data: bytes, chance: random.Random) -> bytes:
    """Change a number near the name of a tensor or a key."""
    names = [b"token_embd.weight", b"blk.0.attn_q.weight", b"output_norm.weight", b"llama.",
             b"tokenizer.ggml.", b"general."]  # fmt: skip
    at = data.find(chance.choice(names))
    if at < 0:
        return mutate_bytes(data, chance)
    start = max(0, at - 8) + chance.randrange(64)
    size = chance.choice([1, 4, 8])
    value = odd_integer(chance) & ((1 << 8 * size) - 1)
    return data[:start] + value.to_bytes(size, "little") + data[start + size :]


def target(data: bytes) -> None:
    """Load the model and generate a little."""
    with halfbyte.load_bytes(data, "fuzz.gguf", threads=1) as model:
        model.generate("ab a", max_tokens=4)
