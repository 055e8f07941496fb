"""Changes that any format's bytes can have, and numbers that readers do not expect."""

from __future__ import annotations

import random

ODD = (
    0, 1, 2, 3, 7, 63, 64, 65, 255, 256, 1 << 15, (1 << 16) - 1, 1 << 20, (1 << 31) - 1, 1 << 31,
    (1 << 32) - 1, 1 << 32, 1 << 40, 1 << 62, (1 << 63) - 1, 1 << 63, (1 << 64) - 1, -1, -2,
)  # fmt: skip


def odd_integer(chance: random.Random, value: int = 0) -> int:
    """A number at the edge of something, or next to `value`."""
    near = (value - 1, value + 1, 2 * value, value // 2, -value, value * 1000)
    return chance.choice(near) if chance.random() < 0.3 else chance.choice(ODD)


def mutate_bytes(data: bytes, chance: random.Random) -> bytes:
    """Bits flipped, bytes set, cut, put in, repeated or moved; more often near the beginning."""
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
