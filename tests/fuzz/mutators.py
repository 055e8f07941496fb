"""Changes to the bytes of any format, and numbers that readers do not expect."""

from __future__ import annotations

import copy
import io
import json
import pickletools
import random
import struct
from collections.abc import Sequence
from typing import Any

ODD = (
    0, 1, 2, 3, 7, 63, 64, 65, 255, 256, 1 << 15, (1 << 16) - 1, 1 << 20, (1 << 31) - 1, 1 << 31,
    (1 << 32) - 1, 1 << 32, 1 << 40, 1 << 62, (1 << 63) - 1, 1 << 63, (1 << 64) - 1, -1, -2,
)  # fmt: skip


def odd_integer(chance: random.Random, value: int = 0) -> int:
    """An extreme number, or one near `value`."""
    near = (value - 1, value + 1, 2 * value, value // 2, -value, value * 1000)
    return chance.choice(near) if chance.random() < 0.3 else chance.choice(ODD)


def mutate_bytes(data: bytes, chance: random.Random) -> bytes:
    """Flip bits; set, cut, insert, repeat or move bytes; more often near the beginning."""
    if not data:
        return chance.randbytes(chance.randrange(1, 64))
    changed = bytearray(data)
    at = _place(len(data), chance)
    length = chance.choice([1, 1, 2, 4, 8, chance.randrange(1, 400)])
    kind = chance.randrange(8)
    if kind == 0:
        changed[at] ^= 1 << chance.randrange(8)
    elif kind == 1:
        changed[at] = chance.choice([0, 1, 0x0A, 0x20, 0x7F, 0x80, 0xFE, 0xFF])
    elif kind == 2:
        del changed[at : at + length]
    elif kind == 3:
        changed[at:at] = chance.randbytes(length)
    elif kind == 4:
        changed[at:at] = changed[at : at + length]
    elif kind == 5:
        del changed[at:]
    elif kind == 6:
        size = chance.choice([1, 2, 4, 8])
        number = odd_integer(chance) & ((1 << 8 * size) - 1)
        changed[at : at + size] = number.to_bytes(size, chance.choice(["little", "big"]))
    else:
        other = _place(len(data), chance)
        changed[at : at + length] = data[other : other + length]
    return bytes(changed)


def _place(length: int, chance: random.Random) -> int:
    where = chance.randrange(4)
    if where == 0:
        return chance.randrange(min(length, 64))
    if where == 1:
        return chance.randrange(min(length, 1024))
    return chance.randrange(length)


def mutate_json(data: bytes, chance: random.Random, values: Sequence[Any]) -> bytes:
    """Change values, keys or positions in the tree, or any bytes."""
    try:
        tree = json.loads(data)
    except ValueError:
        tree = None
    if not isinstance(tree, dict) or not tree or chance.random() < 0.1:
        changed = bytearray(data or b"{")
        for _ in range(chance.randint(1, 4)):
            changed[chance.randrange(len(changed))] = chance.randrange(256)
        return bytes(changed)
    for _ in range(chance.randint(1, 3)):
        mutate_tree(tree, chance, values)
    return json.dumps(tree).encode()


def split_header(data: bytes) -> tuple[dict[str, Any] | None, bytes]:
    """A JSON object after its length in 8 bytes, perhaps padded, and the bytes after it."""
    end = 8 + int.from_bytes(data[:8], "little")
    try:
        header = json.loads(data[8:end].rstrip(b"\0"))
    except ValueError:
        return None, b""
    return (header, data[end:]) if isinstance(header, dict) else (None, b"")


def join_header(header: dict[str, Any], body: bytes, pad: bytes, alignment: int) -> bytes:
    """The file of a header and a body, which begins at a multiple of `alignment`."""
    text = json.dumps(header).encode()
    text += pad * (-(8 + len(text)) % alignment)
    return struct.pack("<Q", len(text)) + text + body


def mutate_length(data: bytes, chance: random.Random) -> bytes:
    """Change the length of the header."""
    return struct.pack("<Q", odd_integer(chance, len(data)) & ((1 << 64) - 1)) + data[8:]


def mutate_tree(tree: dict[str, Any], chance: random.Random, values: Sequence[Any]) -> None:
    """Make one change somewhere in a JSON object."""
    if not tree:
        return
    parent: Any = tree
    key: Any = chance.choice(list(tree))
    while isinstance(parent[key], dict | list) and parent[key] and chance.random() < 0.85:
        parent = parent[key]
        key = chance.choice(list(parent)) if isinstance(parent, dict) else chance.randrange(
            len(parent)
        )  # fmt: skip
    way = chance.randrange(5)
    if way == 0:
        del parent[key]
    elif way == 1 and isinstance(parent, dict):
        parent[str(chance.choice(values))[:20]] = copy.deepcopy(parent[key])
    elif way == 2 and isinstance(parent, list):
        parent += [copy.deepcopy(parent[key])] * chance.choice((1, 2, 1000))
    elif way == 3 and type(parent[key]) is int:
        parent[key] += chance.choice((-1, 1, 1000))
    else:
        parent[key] = copy.deepcopy(chance.choice(values))  # later changes may reach it


_NAMES = (
    b"ctorch\nFloatStorage\n", b"ctorch\nLongStorage\n", b"ctorch\nSize\n", b"cos\nsystem\n",
    b"ccollections\nOrderedDict\n", b"ctorch._utils\n_rebuild_tensor_v2\n", b"ctorch\nfloat32\n",
    b"ctorch._utils\n_rebuild_parameter\n", b"cbuiltins\neval\n",
)  # fmt: skip
_PARTS = (
    *(bytes([opcode]) for opcode in b"N\x88\x89()t\x85\x86\x87]ae}suQRb01.\x93\x94\x81ciop"),
    b"K\0", b"K\1", b"J\xff\xff\xff\xff", b"M\xff\xff", b"\x8a\x08" + b"\xff" * 7 + b"\x7f",
    b"\x8a\xff" + b"\x7f" * 255, b"G\x7f\xf8" + bytes(6), b"X\0\0\0\0", b"X\1\0\0\0a",
    b"\x8c\x04\xff\xfe\xfd\xfc", b"q\0", b"q\1", b"h\0", b"h\1", b"r\xff\xff\xff\xff", b"\x80\2",
    b"P0\n", b"h\0" * 500, b"(" * 500, b"]" * 200 + b"a" * 199, b")" + b"\x85" * 300,
    b"N" + b"q\0h\0\x86" * 200, *_NAMES,
)  # fmt: skip


def mutate_pickle(data: bytes, chance: random.Random) -> bytes:
    """Insert, replace or remove an opcode of the first pickles, or change its number."""
    opcodes = _opcodes(data)
    if not opcodes:
        return mutate_bytes(data, chance)
    way = chance.randrange(4)
    numbers = [at for at, end in opcodes if data[at : at + 1] == b"J" and end == at + 5]
    if way == 0 and numbers:
        at = chance.choice(numbers) + 1
        old = int.from_bytes(data[at : at + 4], "little", signed=True)
        value = odd_integer(chance, old)
        if -(1 << 31) <= value < 1 << 31:
            return data[:at] + value.to_bytes(4, "little", signed=True) + data[at + 4 :]
        raw = value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True)
        return data[: at - 1] + b"\x8a" + bytes([len(raw)]) + raw + data[at + 4 :]
    at, end = chance.choice(opcodes)
    if way == 1:
        return data[:at] + chance.choice(_PARTS) + data[at:]
    if way == 2:
        return data[:at] + chance.choice(_PARTS) + data[end:]
    first, last = chance.choice(opcodes)
    return data[:at] + chance.choice([b"", data[first:last]]) + data[end:]


def _opcodes(data: bytes) -> list[tuple[int, int]]:
    """The spans of the opcodes of the first pickles, as far as they can be parsed."""
    spans: list[tuple[int, int]] = []
    stream = io.BytesIO(data)
    try:
        while data[stream.tell() :].startswith(b"\x80"):
            places = [place for _, _, place in pickletools.genops(stream)]
            spans += zip(places, [*places[1:], stream.tell()], strict=True)
    except Exception:
        return spans
    return spans
