"""PDF files that the page searches: their text, and those that cannot be read."""

from __future__ import annotations

import io

import pytest
from pypdf import PdfReader
from tests.support.pdf_files import written

from halfbyte.errors import HalfbyteError
from halfbyte.web.graphs import pdf


def test_text_of_pages() -> None:
    data = written("The first page.", "The second.")
    assert len(PdfReader(io.BytesIO(data)).pages) == 2
    assert [page() for page in pdf.pdf_pages("a.pdf", data)] == ["The first page.", "The second."]


@pytest.mark.parametrize("data", [b"", b"%PDF-1.7\nno", written("x")[:300], written("x", lock="y")])
def test_files_that_cannot_be_read(data: bytes) -> None:
    with pytest.raises(HalfbyteError, match=r"^a\.pdf.*: not a PDF that can be read: "):
        [page() for page in pdf.pdf_pages("a.pdf", data)]


def test_too_many_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pdf, "MAX_PAGES", 1)
    with pytest.raises(HalfbyteError, match=r"a\.pdf: 2 pages: expected at most 1"):
        pdf.pdf_pages("a.pdf", written("one", "two"))
