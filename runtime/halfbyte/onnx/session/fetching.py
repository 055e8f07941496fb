"""Sessions for models at an address."""

from __future__ import annotations

import warnings
from collections.abc import Callable

from halfbyte import download
from halfbyte.download import Place, Progress, Source
from halfbyte.download.transfer import U8
from halfbyte.onnx.session.errors import InvalidProtobuf
from halfbyte.onnx.session.options import SessionOptions
from halfbyte.onnx.session.placing import memory_apart
from halfbyte.onnx.session.session import InferenceSession


async def open_session(
    url: str,
    sess_options: SessionOptions | None = None,
    *,
    progress: Progress | None = None,
    sha256: str | None = None,
    keep: bool = True,
    source: Callable[[], Source] | None = None,
) -> InferenceSession:
    """Fetch an ONNX model into memory and open it there.

    In a browser it is kept in the origin's storage, and a model that runs on several threads is
    fetched into the memory that they share, not into Pyodide's heap.

    Parameters
    ----------
    url : str
        Address of an ONNX file without external data; in a browser it may be relative to the page.
    sess_options : SessionOptions, optional
    progress, sha256, keep, source
        See :func:`halfbyte.download.fetch`.

    Raises
    ------
    DownloadError
        The server refused, the network failed for good, or the hash differs.
    HalfbyteError
        As for :class:`InferenceSession`. A file that is not a model is not kept.

    Warns
    -----
    UserWarning
        The browser could not keep the file.
    """
    place = SessionPlace(sess_options or SessionOptions())
    file = await download.fetch(
        url, progress=progress, sha256=sha256, keep=keep, source=source, place=place
    )
    try:
        session = InferenceSession(file.data, sess_options)
    except InvalidProtobuf:
        await download.forget(url)
        raise
    if file.note:
        warnings.warn(file.note, stacklevel=2)
    return session


class SessionPlace(Place):
    """The memory of a session with these options for its file."""

    def __init__(self, options: SessionOptions) -> None:
        self._memory = memory_apart(options)

    def check(self, size: int) -> None:
        """Refuse a size for which neither memory has room."""
        if self._memory is None or size > self._memory.room:
            super().check(size)

    def allocate(self, size: int, start: U8) -> U8:
        """Bytes in that memory, or in NumPy's if it has too few."""
        if self._memory is not None:
            try:
                return self._memory.unset(size)  # type: ignore[no-any-return]
            except MemoryError:
                pass
        return super().allocate(size, start)
