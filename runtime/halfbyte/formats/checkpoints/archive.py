"""Reader of zip archives whose entries are stored uncompressed, so that they can be mapped.

Layout (APPNOTE.TXT, PKWARE): each entry is a local header and its bytes; at the end come the
central directory, which lists the entries, and a record with its position. Archives beyond 4 GB
have additional larger fields (zip64). As PyTorch writes them, entries are neither compressed nor
encrypted. Checksums (CRC-32) are not compared, since that would read the whole file.
"""

from __future__ import annotations

import struct
from pathlib import Path

from halfbyte.errors import FormatError, UnsupportedError
from halfbyte.formats.mapped import Pages, refuse_overlaps

MAGIC = b"PK\x03\x04"

_END = struct.Struct("<4s4H2LH")  # ..., entries, size and offset of the directory, comment's length
_END_64_PLACE = struct.Struct("<4sLQL")
_END_64 = struct.Struct("<4sQ2H2L4Q")
_ENTRY = struct.Struct("<4s6H3L5H2L")
_LOCAL = struct.Struct("<4s5H3L2H")
_FULL_32 = 0xFFFFFFFF
_MAX_ENTRIES = 1 << 17
_ENCRYPTED = 1


def read_archive(path: Path, pages: Pages) -> dict[str, tuple[int, int]]:
    """Name of every entry -> begin and end of its bytes.

    Raises
    ------
    FormatError
        Truncated or inconsistent.
    UnsupportedError
        Compressed or encrypted entries, or more than 131,072.
    """
    count, size, at = _directory(path, pages)
    if count > _MAX_ENTRIES:
        raise UnsupportedError(f"{path}: {count} entries, expected at most {_MAX_ENTRIES}")
    directory = bytes(pages[at : at + min(size, len(pages) - at)])
    entries: dict[str, tuple[int, int]] = {}
    place = 0
    for index in range(count):
        if place + _ENTRY.size > len(directory):
            raise FormatError(f"{path}: zip: directory ends at entry {index} of {count}")
        name, start, end, place = _entry(path, pages, directory, place, at)
        if name in entries:
            raise FormatError(f"{path}: zip: entry {name[:80]!r} appears twice")
        entries[name] = start, end
    refuse_overlaps(path, [(start, end, n) for n, (start, end) in entries.items()], "entry")
    return entries


def _directory(path: Path, pages: Pages) -> tuple[int, int, int]:
    """Number of entries, size and offset of the central directory."""
    first = max(0, len(pages) - _END.size - 0xFFFF)
    tail = bytes(pages[first:])
    place = tail.rfind(b"PK\x05\x06")
    if place < 0 or len(tail) - place < _END.size:
        raise FormatError(f"{path}: zip: truncated: no directory at the end of the file")
    *_, count, size, at, _ = _END.unpack_from(tail, place)
    place -= _END_64_PLACE.size
    if place >= 0 and tail[place : place + 4] == b"PK\x06\x07":
        _, _, place, _ = _END_64_PLACE.unpack_from(tail, place)
        record = bytes(pages[place : place + _END_64.size])
        if len(record) < _END_64.size or not record.startswith(b"PK\x06\x06"):
            raise FormatError(f"{path}: zip: no zip64 record at offset {place}")
        *_, count, size, at = _END_64.unpack(record)
    if at + size > len(pages):
        raise FormatError(
            f"{path}: zip: truncated: a directory of {size} bytes expected at offset {at}, the "
            f"file has {len(pages)}"
        )
    return count, size, at


def _entry(
    path: Path, pages: Pages, directory: bytes, place: int, limit: int
) -> tuple[str, int, int, int]:
    """Name, start and end of an entry's bytes, and the place of the next in the directory."""
    (
        magic, _, _, flags, method, _, _, _, packed, size, name_size, extra_size, comment_size,
        _, _, _, at,
    ) = _ENTRY.unpack_from(directory, place)  # fmt: skip
    place += _ENTRY.size
    name = directory[place : place + name_size].decode("utf-8", "replace")
    where = f"{path}: zip entry {name[:80]!r}"
    if magic != b"PK\x01\x02":
        raise FormatError(f"{path}: zip: expected an entry of the directory, found none")
    if method or flags & _ENCRYPTED or packed != size:
        raise UnsupportedError(f"{where}: is compressed or encrypted; PyTorch stores it as it is")
    extra = directory[place + name_size : place + name_size + extra_size]
    if _FULL_32 in (size, at):
        size, at = _large(where, extra, size, packed, at)
    start = _local(where, pages, at)
    if start + size > limit:
        raise FormatError(
            f"{where}: truncated: {size} bytes expected at offset {start}, {limit - start} found"
        )
    return name, start, start + size, place + name_size + extra_size + comment_size


def _large(where: str, extra: bytes, size: int, packed: int, at: int) -> tuple[int, int]:
    """Size and offset from the extra field 1, which has them as 64-bit numbers."""
    while len(extra) >= 4:
        kind, length = struct.unpack_from("<2H", extra)
        if kind == 1:
            wanted = [value == _FULL_32 for value in (size, packed, at)]
            if length >= 8 * sum(wanted) and len(extra) >= 4 + length:
                numbers = iter(struct.unpack_from(f"<{sum(wanted)}Q", extra, 4))
                size, _, at = (
                    next(numbers) if large else value
                    for large, value in zip(wanted, (size, packed, at), strict=True)
                )
                return size, at
        extra = extra[4 + length :]
    raise FormatError(f"{where}: no zip64 sizes")


def _local(where: str, pages: Pages, at: int) -> int:
    """The offset of the bytes after a local header."""
    header = bytes(pages[at : at + _LOCAL.size])
    if len(header) < _LOCAL.size or not header.startswith(MAGIC):
        raise FormatError(f"{where}: no header at offset {at}")
    *_, name_size, extra_size = _LOCAL.unpack(header)
    return at + _LOCAL.size + int(name_size) + int(extra_size)
