"""Mutated tokenizer.model files of SentencePiece: accepted, or refused with one of our errors."""

from __future__ import annotations

import random as randomness
import struct
import tempfile
from pathlib import Path

from tests.fuzz.tokenizer_json import MARK, TEXTS

from halfbyte.text.tokenizers import load_tokenizer


def _field(number: int, content: bytes) -> bytes:
    return bytes([number << 3 | 2]) + _integer(len(content)) + content


def _integer(value: int) -> bytes:
    encoded = bytearray()
    while value > 127:
        encoded.append(value & 127 | 128)
        value >>= 7
    return bytes([*encoded, value])


def _piece(text: str, score: float, kind: int = 1) -> bytes:
    body = _field(1, text.encode()) + b"\x15" + struct.pack("<f", score)
    return _field(1, body + b"\x18" + bytes([kind]))


def corpus() -> list[bytes]:
    """A unigram model and BPE with bytes."""
    special = _piece("<unk>", 0, 2) + _piece("<s>", 0, 3) + _piece("</s>", 0, 3)
    words = [MARK, *"abcdehlorw", "he", "ll", "hell", f"{MARK}a", f"{MARK}hell", "<x>"]
    pieces = b"".join(_piece(word, -float(at)) for at, word in enumerate(words[:-1]))
    own = _piece(words[-1], 0, 4)
    bytes_ = b"".join(_piece(f"<0x{byte:02X}>", 0, 6) for byte in range(256))
    trie = struct.pack("<4I", 1 << 10, 0, 0, 0)
    charsmap = struct.pack("<I", len(trie)) + trie + b"a\0"
    return [
        special + pieces + own + _field(2, b"\x18\x01") + _field(3, _field(2, charsmap)),
        special + bytes_ + pieces + own + _field(2, b"\x18\x02") + _field(3, b"\x18\x01\x20\x00"),
    ]


def mutate(data: bytes, random: randomness.Random) -> bytes:
    """Move, repeat, remove or cut fields, or change bytes in one."""
    fields = _fields(data)
    for _ in range(random.randint(1, 3)):
        if not fields:
            return bytes(random.randrange(256) for _ in range(20))
        at = random.randrange(len(fields))
        way = random.randrange(5)
        if way == 0:
            del fields[at]
        elif way == 1:
            fields.insert(random.randrange(len(fields)), fields[at])
        elif way == 2:
            fields[at] = fields[at][: random.randrange(len(fields[at]) + 1)]
        else:
            changed = bytearray(fields[at] or b"\n")
            changed[random.randrange(len(changed))] = random.choice((0, 1, 127, 128, 255))
            fields[at] = bytes(changed)
    return b"".join(fields)


def _fields(data: bytes) -> list[bytes]:
    """The fields of the outermost message, as far as they can be parsed."""
    fields = []
    at = 0
    while at < len(data):
        end, size, shift = at + 1, 0, 0
        while end < len(data) and shift < 35:
            size |= (data[end] & 127) << shift
            shift += 7
            end += 1
            if data[end - 1] < 128:
                break
        fields.append(data[at : min(end + size, len(data))])
        at += max(1, len(fields[-1]))
    return fields


def target(data: bytes) -> None:
    """Read a file and use it; raises `HalfbyteError` if it is refused."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "tokenizer.model"
        path.write_bytes(data)
        tokenizer = load_tokenizer(path)
        for text in TEXTS:
            ids, offsets = tokenizer.encode_with_offsets(text)
            if ids != tokenizer.encode(text):
                raise AssertionError(f"other ids with offsets: {text!r}")
            if not all(0 <= start <= end <= len(text) for start, end in offsets):
                raise AssertionError(f"offsets beyond {text!r}: {offsets}")
            tokenizer.decode(ids)
