"""Fetching a model: with progress, resumed where it broke off, kept in the browser's storage.

The bytes go straight to where they stay: one array, which the model's tensors are views of. In
Pyodide `fetch` delivers them and the origin's private file system keeps them, so that a second
visit needs no network; elsewhere urllib delivers them and nothing is kept.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from halfbyte.download.response import DownloadError
from halfbyte.download.transfer import Progress, Source, Transfer

__all__ = ["Download", "DownloadError", "Progress", "Source", "fetch", "forget"]

IN_BROWSER = sys.platform == "emscripten"


@dataclass(frozen=True)
class Download:
    """Bytes that arrived.

    Attributes
    ----------
    data : uint8 [size]
        Them.
    kept : bool
        Whether they came out of the browser's storage, without the network.
    note : str
        Why they could not be kept; "" where they were, or were not to be.
    """

    data: npt.NDArray[np.uint8]
    kept: bool = False
    note: str = ""


async def fetch(
    url: str,
    *,
    progress: Progress | None = None,
    sha256: str | None = None,
    keep: bool = True,
    source: Callable[[], Source] | None = None,
) -> Download:
    """The bytes behind an address, or those kept at an earlier visit.

    Parameters
    ----------
    url : str
        http or https; in a browser also relative to the page, `blob:` and `data:`.
    progress : callable, optional
        Called with bytes done and bytes in all (None where the server does not say).
    sha256 : str, optional
        What the bytes must hash to; natively also taken from the Hugging Face hub's answer.
    keep : bool
        In a browser, keep the bytes for the next visit, and use those kept, unless they are
        damaged or the server has others. Elsewhere without effect.
    source : callable, optional
        Makes a :class:`Source` for each attempt; the platform's own unless given.

    Raises
    ------
    DownloadError
        The server refused, the transfer broke off for good, or the bytes are not those named.
    MemoryBudgetError
        The file does not fit the browser's heap; nothing was fetched.
    """
    progress = progress or (lambda done, total: None)
    keep, sha256 = keep and IN_BROWSER, (sha256 or "").lower()
    if keep:
        from halfbyte.download import kept

        if (data := await kept.find(url, progress, sha256)) is not None:
            return Download(data, kept=True)
    transfer = Transfer(url, progress, source or _platform_source(), sha256)
    data = await transfer.fetch()
    if transfer.sha256 and (found := _hash(data)) != transfer.sha256:
        raise DownloadError(f"{url}: expected sha256 {transfer.sha256}, found {found}")
    note = await kept.keep(url, data, transfer.head, transfer.sha256) if keep else ""
    return Download(data, note=note)


async def forget(url: str) -> None:
    """Remove what the browser keeps under an address; elsewhere nothing is kept."""
    if IN_BROWSER:
        from halfbyte.download import kept

        await kept.forget(url)


def _hash(data: npt.NDArray[np.uint8]) -> str:
    return hashlib.sha256(data.data).hexdigest()


def _platform_source() -> Callable[[], Source]:
    if IN_BROWSER:
        from halfbyte.download.browser import FetchSource

        return FetchSource
    from halfbyte.download.http import UrllibSource

    return UrllibSource
