"""PDF files that the page searches: their text, and those that cannot be read."""

from __future__ import annotations

import io

import pytest
from pypdf import PdfReader, PdfWriter
from pypdf.generic import DecodedStreamObject, DictionaryObject, NameObject

from halfbyte.errors import HalfbyteError
from halfbyte.web.graphs import pdf


def written(*texts: str, lock: str = "") -> bytes:
    """A PDF file with a text on each page."""
    writer = PdfWriter()
    font = DictionaryObject({
        NameObject("/Type"): NameObject("/Font"), NameObject("/Subtype"): NameObject("/Type1"),
        NameObject("/BaseFont"): NameObject("/Helvetica"),
    })  # fmt: skip
    for text in texts:
        page = writer.add_blank_page(300, 300)
        fonts = DictionaryObject({NameObject("/F1"): writer._add_object(font)})
        page[NameObject("/Resources")] = DictionaryObject({NameObject("/Font"): fonts})
        stream = DecodedStreamObject()
        stream.set_data(f"BT /F1 12 Tf 20 200 Td ({text}) Tj ET".encode())
        page[NameObject("/Contents")] = writer._add_object(stream)
    if lock:
        writer.encrypt(lock, algorithm="RC4-128")
    target = io.BytesIO()
    writer.write(target)
    return target.getvalue()


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
