"""The text of PDF files, read by pypdf."""

from __future__ import annotations

import io
import logging
from collections.abc import Callable
from typing import Any

from halfbyte.errors import HalfbyteError

MAX_PAGES = 2000


def pdf_pages(name: str, data: bytes) -> list[Callable[[], str]]:
    """Functions that return the text of each page.

    Raises
    ------
    HalfbyteError
        pypdf is not there, the file is not a PDF, is encrypted, or has more than `MAX_PAGES`.
        The functions raise it for a page that cannot be read.
    """
    try:
        from pypdf import PdfReader
    except ImportError:
        raise HalfbyteError(
            f"{name}: this page was built without pypdf (pip install 'halfbyte[web]'), so it "
            "reads no PDF"
        ) from None
    logging.getLogger("pypdf").setLevel(logging.CRITICAL)  # it warns of every oddity
    reader = _readable(name, lambda: PdfReader(io.BytesIO(data)))
    count = _readable(name, lambda: len(reader.pages))
    if count > MAX_PAGES:
        raise HalfbyteError(f"{name}: {count} pages: expected at most {MAX_PAGES}")
    return [_text_of(name, reader, i) for i in range(count)]


def _text_of(name: str, reader: Any, number: int) -> Callable[[], str]:
    return lambda: str(
        _readable(f"{name}, page {number + 1}", lambda: reader.pages[number].extract_text())
    )


def _readable(what: str, work: Callable[[], Any]) -> Any:
    """What pypdf returns; a file may be broken in any way, and then it raises any exception."""
    try:
        return work()
    except Exception as error:
        raise HalfbyteError(f"{what}: not a PDF that can be read: {error}") from None
