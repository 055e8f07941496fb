"""The kernels' WebAssembly file as its own loader sees it: what it needs, and its memory's type.

A side module says in its section "dylink.0" how much memory and how many table entries it needs
(https://github.com/WebAssembly/tool-conventions/blob/main/DynamicLinking.md). It runs in shared
memory as well as in any other, but the type of an imported memory says which: `with_shared_memory`
changes that type and nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

CUSTOM, IMPORT = 0, 2  # numbers of sections
FUNCTION, TABLE, MEMORY, GLOBAL = range(4)  # kinds of imports
HAS_MAXIMUM, IS_SHARED, IS_64 = 1, 2, 4  # flags of limits


class Needs(NamedTuple):
    """Memory in bytes and its alignment, entries of the table, and the type of an address.

    The type is that of places in memory and table, as JavaScript calls it: "i32" or "i64".
    """

    memory: int
    alignment: int
    table: int
    address: str


class Import(NamedTuple):
    """An import: its names, its kind, and where its type stands in the file."""

    module: str
    name: str
    kind: int
    start: int
    end: int


def sections(data: bytes) -> Iterator[tuple[int, int, int]]:
    """Number, start and end of each section; raises `ValueError` if it is not a module."""
    if data[:8] != b"\0asm\1\0\0\0":
        raise ValueError("not a WebAssembly module of version 1")
    at = 8
    while at < len(data):
        number = data[at]
        size, start = leb(data, at + 1)
        at = start + size
        yield number, start, at


def leb(data: bytes, at: int) -> tuple[int, int]:
    """An unsigned LEB128 number and the offset after it."""
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if not byte & 0x80:
            return value, at


def as_leb(value: int) -> bytes:
    """An unsigned number in LEB128."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def imports(data: bytes) -> list[Import]:
    """A module's imports."""
    for number, start, end in sections(data):
        if number == IMPORT:
            return list(_imports(data, start, end))
    return []


def _imports(data: bytes, at: int, end: int) -> Iterator[Import]:
    count, at = leb(data, at)
    for _ in range(count):
        module, at = _name(data, at)
        name, at = _name(data, at)
        kind, start = data[at], at + 1
        if kind == FUNCTION:
            _, at = leb(data, start)
        elif kind in (TABLE, MEMORY):
            at = start + (kind == TABLE)
            flags, at = data[at], at + 1
            for _ in range(1 + (flags & HAS_MAXIMUM)):
                _, at = leb(data, at)
        else:
            at = start + 2
        yield Import(module, name, kind, start, at)
    if at != end:
        raise ValueError(f"import section ends at {at}, expected {end}")


def _name(data: bytes, at: int) -> tuple[str, int]:
    """A name and the offset after it."""
    size, at = leb(data, at)
    return data[at : at + size].decode(), at + size


def needs(data: bytes) -> Needs:
    """What a side module needs; raises `ValueError` if it is none."""
    for number, start, end in sections(data):
        size, at = leb(data, start)
        if number == CUSTOM and data[at : at + size] == b"dylink.0":
            return Needs(*_needs(data, at + size, end), address_type(data))
    raise ValueError("no section dylink.0: not a side module")


def address_type(data: bytes) -> str:
    """The type of an address in a module's imported memory: "i32" or "i64"."""
    return "i64" if data[_memory(data).start] & IS_64 else "i32"


def _memory(data: bytes) -> Import:
    [memory] = [entry for entry in imports(data) if entry.kind == MEMORY]
    return memory


def _needs(data: bytes, at: int, end: int) -> tuple[int, int, int]:
    while at < end:
        kind, (size, at) = data[at], leb(data, at + 1)
        if kind == 1:  # WASM_DYLINK_MEM_INFO
            memory, at = leb(data, at)
            alignment, at = leb(data, at)
            table, at = leb(data, at)
            return memory, 1 << alignment, table
        at += size
    return 0, 1, 0


def with_shared_memory(data: bytes, pages: int) -> bytes:
    """The module with an imported memory that is shared and has at most so many pages."""
    memory = _memory(data)
    least, _ = leb(data, memory.start + 1)
    limits = (
        bytes([HAS_MAXIMUM | IS_SHARED | data[memory.start] & IS_64])
        + as_leb(least)
        + as_leb(pages)
    )
    [(start, end)] = [(s, e) for number, s, e in sections(data) if number == IMPORT]
    content = data[start : memory.start] + limits + data[memory.end : end]
    head = start - len(as_leb(end - start))
    while leb(data, head)[1] != start or data[head - 1] != IMPORT:  # a number with padding
        head -= 1
    return data[:head] + as_leb(len(content)) + content + data[end:]
