"""Fetching natively: urllib in a thread, so that the event loop stays alive."""

from __future__ import annotations

import asyncio
import http.client
import urllib.error
import urllib.request
from collections.abc import AsyncIterator
from typing import Any

from halfbyte.download.transfer import ConnectionLostError, DownloadError, whole_length

CHUNK = 1 << 20  # bytes
TIMEOUT = 60  # seconds without a byte


class UrllibSource:
    """A response of urllib."""

    def __init__(self) -> None:
        self.status = 0
        self.length: int | None = None
        self._response: Any = None

    async def open(self, url: str, start: int) -> None:
        """Ask for the bytes from `start` on."""
        if not url.startswith(("http://", "https://")):
            raise DownloadError(f"{url}: expected an address that begins with http:// or https://")
        await asyncio.to_thread(self._open, url, start)

    def _open(self, url: str, start: int) -> None:
        headers = {"Range": f"bytes={start}-"} if start else {}
        request = urllib.request.Request(url, headers=headers)  # noqa: S310 - checked above
        try:
            self._response = urllib.request.urlopen(request, timeout=TIMEOUT)  # noqa: S310
        except urllib.error.HTTPError as error:
            self._response = error
        except (OSError, http.client.HTTPException) as error:
            raise ConnectionLostError(str(getattr(error, "reason", error))) from None
        except ValueError as error:
            raise DownloadError(f"{url}: {error}") from None
        self.status = self._response.status
        self.length = whole_length(start, self.status, self._response.headers.get)

    async def chunks(self) -> AsyncIterator[bytes]:
        """Pieces as they arrive."""
        while True:
            try:
                chunk = await asyncio.to_thread(self._response.read, CHUNK)
            except http.client.IncompleteRead as error:
                yield error.partial
                return
            except (OSError, http.client.HTTPException) as error:
                raise ConnectionLostError(str(error)) from None
            if not chunk:
                return
            yield chunk

    async def close(self) -> None:
        """Close the connection."""
        self._response.close()
