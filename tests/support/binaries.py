"""Reading shared libraries (ELF, Mach-O and PE of 64 bits) as far as wheels need it."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any, NamedTuple

MACHINES = {
    "ELF": {62: "x86_64", 183: "aarch64"},
    "Mach-O": {0x01000007: "x86_64", 0x0100000C: "aarch64"},
    "PE": {0x8664: "x86_64", 0xAA64: "aarch64"},
}


class Binary(NamedTuple):
    """A library; `versions` are those of glibc's symbols, or the least macOS."""

    format: str
    machine: str
    exports: set[str]
    needed: set[str]
    versions: set[tuple[int, ...]]
    signed: bool = False


def read(data: bytes) -> Binary:
    """Read a library of any of the three formats."""
    if data[:6] == b"\x7fELF\2\1":
        return _elf(data)
    if data[:4] == b"\xcf\xfa\xed\xfe":
        return _mach_o(data)
    if data[:2] == b"MZ":
        return _pe(data)
    raise ValueError(f"expected ELF, Mach-O or PE of 64 bits, found {data[:6]!r}")


def _text(data: bytes, at: int) -> str:
    return data[at : data.index(b"\0", at)].decode()


def _table(layout: str, data: bytes, at: int, size: int) -> Iterator[tuple[Any, ...]]:
    return struct.iter_unpack(layout, data[at : at + size])


def _elf(data: bytes) -> Binary:
    start, *_, count = struct.unpack_from("<Q12xHH", data, 40)
    # name, type, flags, address, offset, size, link, ...
    sections = list(_table("<IIQQQQIIQQ", data, start, 64 * count))
    exports, needed, versions = set(), set(), set()
    for _, kind, _, _, at, size, link, *_ in sections:
        strings = sections[link][4]
        if kind == 11:  # dynamic symbols: name, binding and type, visibility, section, ...
            for name, _, _, section, *_ in _table("<IBBHQQ", data, at, size):
                if section:
                    exports.add(_text(data, strings + name))
        elif kind == 6:  # dynamic section
            for tag, value in _table("<qQ", data, at, size):
                if tag == 1:
                    needed.add(_text(data, strings + value))
        elif kind == 0x6FFFFFFE:  # versions needed
            for name in _versions(data, at):
                library, _, version = _text(data, strings + name).partition("_")
                assert library == "GLIBC", library
                versions.add(tuple(map(int, version.split("."))))
    machine = MACHINES["ELF"][struct.unpack_from("<H", data, 18)[0]]
    return Binary("ELF", machine, exports, needed, versions)


def _versions(data: bytes, at: int) -> Iterator[int]:
    """Offsets of the versions' names, from a list of libraries, each with a list of versions."""
    following = 1
    while following:
        _, count, _, first, following = struct.unpack_from("<HHIII", data, at)
        entry = at + first
        for _ in range(count):
            *_, name, step = struct.unpack_from("<IHHII", data, entry)
            yield name
            entry += step
        at += following


def _mach_o(data: bytes) -> Binary:
    machine, _, _, count = struct.unpack_from("<IIII", data, 4)
    exports, needed, signed = set(), set(), False
    versions: set[tuple[int, ...]] = set()
    at = 32
    for _ in range(count):
        command, size, *rest = struct.unpack_from("<6I", data, at)
        if command == 0x2:  # symbols: name, type, section, ...
            symbols, number, strings, _ = rest
            for name, kind, *_ in _table("<IBBHQ", data, symbols, 16 * number):
                if kind == 0xF:  # defined here, external
                    exports.add(_text(data, strings + name).removeprefix("_"))
            exports -= {"_mh_dylib_header", "__dso_handle"}  # the linker's own
        elif command == 0xC:
            needed.add(_text(data, at + rest[0]))
        elif command == 0x32:  # platform, least version
            versions.add((rest[1] >> 16, rest[1] >> 8 & 0xFF))
        signed |= command == 0x1D
        at += size
    return Binary("Mach-O", MACHINES["Mach-O"][machine], exports, needed, versions, signed)


def _pe(data: bytes) -> Binary:
    [header] = struct.unpack_from("<I", data, 0x3C)
    signature, machine, count = struct.unpack_from("<4sHH", data, header)
    [size] = struct.unpack_from("<H", data, header + 20)
    optional = header + 24
    [magic] = struct.unpack_from("<H", data, optional)
    assert (signature, magic) == (b"PE\0\0", 0x20B)
    # name, size in memory, address, size, offset, ...
    sections = list(_table("<8s4I16x", data, optional + size, 40 * count))

    def place(address: int) -> int:
        for _, _, start, length, at in sections:
            if start <= address < start + length:
                return int(at + address - start)
        raise ValueError(f"address {address:#x} is in no section")

    exports, needed = set(), set()
    exported, _, imported, _ = struct.unpack_from("<4I", data, optional + 112)
    if exported:
        names, addresses = struct.unpack_from("<I4xI", data, place(exported) + 24)
        for (name,) in _table("<I", data, place(addresses), 4 * names):
            exports.add(_text(data, place(name)))
    at = place(imported) if imported else 0
    while imported and (name := struct.unpack_from("<12xI", data, at)[0]):
        needed.add(_text(data, place(name)))
        at += 20
    return Binary("PE", MACHINES["PE"][machine], exports, needed, set())
