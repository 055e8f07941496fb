"""Downloads of models: with progress, resumed after interruptions, kept in the browser's storage.

The bytes go straight into one array, of which the model's tensors are views. In Pyodide `fetch`
delivers them and the browser's storage keeps them, so that a second visit needs no network;
elsewhere urllib delivers them and nothing is kept.

`transfer` puts one file into one array over as many responses as it takes; `response` parses each
response's headers; `http` (urllib) and `browser` (`fetch`) deliver the bytes; `kept` stores files
in the browser; `hub` pulls from the Hugging Face hub with the hub's own library.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from halfbyte.download.response import ConnectionLostError, DownloadError, Version
from halfbyte.download.transfer import (
    Place,
    Progress,
    Source,
    Transfer,
    in_time,
    read_first,
    sha256_of,
)

__all__ = [
    "Download", "DownloadError", "Place", "Progress", "Source", "fetch", "forget", "read_start",
]  # fmt: skip

T = TypeVar("T")
IN_BROWSER = sys.platform == "emscripten"


@dataclass(frozen=True)
class Download:
    """A file's bytes.

    Attributes
    ----------
    data : uint8 [size]
        The bytes.
    kept : bool
        Whether they came from the browser's storage, without the network.
    note : str
        Why they could not be kept; "" if they were, or were not supposed to be.
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
    place: Place | None = None,
) -> Download:
    """The bytes at an address, or those kept from an earlier visit.

    Parameters
    ----------
    url : str
        http or https; in a browser also relative to the page, `blob:` and `data:`.
    progress : callable, optional
        Called with bytes done and bytes in total (None if the server does not say).
    sha256 : str, optional
        The expected hash; natively also taken from the Hugging Face hub's response.
    keep : bool
        In a browser, keep the bytes for the next visit, and use those kept, unless they are
        damaged or have changed on the server. Elsewhere without effect.
    source : callable, optional
        Returns a :class:`Source` for each attempt; by default the platform's.
    place : Place, optional
        Allocates memory for the file, which may be another than NumPy's.

    Raises
    ------
    DownloadError
        The server refused, the transfer failed finally, or the hash differs.
    MemoryBudgetError
        The file, or what it is for, does not fit; at most the beginning was fetched.
    """
    progress = progress or (lambda done, total: None)
    keep, sha256 = keep and IN_BROWSER, (sha256 or "").lower()
    if keep:
        from halfbyte.download import kept

        if (data := await kept.find(url, progress, sha256, place)) is not None:
            return Download(data, kept=True)
    transfer = Transfer(url, progress, source or _platform_source(), sha256, place)
    if keep:
        steps = kept.Partial(url)
        if begun := await steps.restore(place or Place()):
            transfer.resume(*begun)
        transfer.arrived = steps.arrived
    data = await transfer.fetch()
    if keep:
        await steps.forget()
    if transfer.sha256 and (actual := sha256_of(data)) != transfer.sha256:
        raise DownloadError(f"{url}: expected sha256 {transfer.sha256}, found {actual}")
    note = await kept.keep(url, data, transfer.head, transfer.sha256) if keep else ""
    return Download(data, note=note)


async def read_start(
    url: str,
    read: Callable[[int, bytes], T | None],
    *,
    keep: bool = True,
    source: Callable[[], Source] | None = None,
) -> T | None:
    """What `read` makes of a file's size and first bytes; for the other arguments see `fetch`.

    It is called with more and more of them, at most about `START`, until it returns something.
    None also if the size is unknown.
    """
    if keep and IN_BROWSER:
        from halfbyte.download import browser, kept

        if (file := await kept.file(url)) is not None:
            return await browser.read_start(file, read)
    response = (source or _platform_source())()
    try:
        head = await in_time(response.open(url, 0, Version()))
        if head.status != 200 or head.total is None:
            return None
        return await read_first(response.chunks(), head.total, read)
    except ConnectionLostError:
        return None
    finally:
        await response.close()


async def forget(url: str) -> None:
    """Remove the bytes that the browser keeps for an address; elsewhere nothing is kept."""
    if IN_BROWSER:
        from halfbyte.download import kept

        await kept.forget(url)


def _platform_source() -> Callable[[], Source]:
    if IN_BROWSER:
        from halfbyte.download.browser import FetchSource

        return FetchSource
    from halfbyte.download.http import UrllibSource

    return UrllibSource
