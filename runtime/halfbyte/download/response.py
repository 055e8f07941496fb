"""The head of a server's response: the range of bytes, their number, the file's version."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from halfbyte.errors import HalfbyteError

Header = Callable[[str], "str | None"]  # a header's value by its name

_CONTENT_RANGE = re.compile(r"bytes (\d{1,18})-(\d{1,18})/(\d{1,18}|\*)")
_SHA256 = re.compile(r'"?([0-9a-f]{64})"?')


class DownloadError(HalfbyteError):
    """A model could not be fetched; the message says from where and why."""


class ConnectionLostError(Exception):
    """The transfer was interrupted; another attempt may resume it."""


class MismatchError(ConnectionLostError):
    """The response does not match the request or the bytes so far: the next attempt starts over."""


@dataclass(frozen=True)
class Version:
    """Identifies a version of a file; "" for what the server does not say."""

    etag: str = ""
    modified: str = ""

    @property
    def condition(self) -> str:
        """The value for If-Range: a strong ETag, or the date."""
        return self._strong or self.modified

    def same(self, other: Version) -> bool | None:
        """Whether two responses have the same bytes; None if they do not tell."""
        if self._strong and other._strong:
            return self.etag == other.etag
        if self.modified and other.modified:
            return self.modified == other.modified
        return None

    def differs(self, other: Version) -> bool:
        """Whether two responses have different contents, by the first field that both have."""
        tags = (self.etag.removeprefix("W/"), other.etag.removeprefix("W/"))
        for mine, others in (tags, (self.modified, other.modified)):
            if mine and others:
                return mine != others
        return False

    @property
    def _strong(self) -> str:
        return "" if self.etag.startswith("W/") else self.etag


@dataclass(frozen=True)
class Head:
    """A response before its body.

    Attributes
    ----------
    status : int
    begin, end : int
        The range of the file in the body; `end` is None if the server does not say.
    total : int
        Bytes of the whole file, or None.
    version : Version
    framed : bool
        Whether the end of a body without a length can be recognized, so that a cut is noticed.
    sha256 : str
        Hash of the whole file, if the server gives it.
    """

    status: int
    begin: int = 0
    end: int | None = None
    total: int | None = None
    version: Version = Version()
    framed: bool = False
    sha256: str = ""


def read_head(status: int, start: int, header: Header, *, framed: bool, sha256: str = "") -> Head:
    """Parse the head of a response to a request for the bytes from `start` on.

    A page of another origin may see neither Content-Range nor ETag. Then the body must be the rest
    of the file, by Content-Length, and Last-Modified gives the version.

    Raises
    ------
    MismatchError
        A number is malformed, as in headers that were cut.
    """
    version = Version((header("ETag") or "").strip(), (header("Last-Modified") or "").strip())
    if status == 206 and (text := header("Content-Range")):
        match = _CONTENT_RANGE.fullmatch(text.strip())
        if match is None:
            raise MismatchError(f"Content-Range {text[:80]!r}: expected bytes FIRST-LAST/ALL")
        begin, end = int(match[1]), int(match[2]) + 1
        total = None if match[3] == "*" else int(match[3])
        if not begin < end <= (end if total is None else total):
            raise MismatchError(f"Content-Range {text[:80]!r}: ends before it begins")
        return Head(status, begin, end, total, version, framed, sha256)
    first = start if status == 206 else 0
    length = None if framed else _length(header)
    whole = None if length is None else first + length
    return Head(status, first, whole, whole, version, framed, sha256)


def sha256_of(header: Header) -> str:
    """The hash that the Hugging Face hub gives for a large file, or ""."""
    match = _SHA256.fullmatch((header("X-Linked-ETag") or "").strip())
    return match[1] if match else ""


def _length(header: Header) -> int | None:
    text = header("Content-Length")
    if text is None:
        return None
    text = text.strip()
    if not (text.isascii() and text.isdecimal() and len(text) <= 18):
        raise MismatchError(f"Content-Length {text[:80]!r}: expected a number")
    return int(text)
