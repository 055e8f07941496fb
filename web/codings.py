"""Files compressed for the way to the browser: brotli where it is installed, or else gzip."""

from __future__ import annotations

import functools
import gzip
import re
from collections.abc import Callable
from pathlib import Path

try:
    import brotli
except ImportError:  # an optional package: halfbyte[web]
    brotli = None

COMPRESSED = frozenset({".css", ".html", ".js", ".json", ".mjs", ".svg", ".wasm"})
_QUALITY = 9  # of brotli: Pyodide in one second; 11 saves another tenth, and takes half a minute

# The best first. The same bytes each time.
CODINGS: dict[str, Callable[[bytes], bytes]] = {"gzip": lambda data: gzip.compress(data, mtime=0)}
if brotli is not None:
    CODINGS = {"br": lambda data: bytes(brotli.compress(data, quality=_QUALITY)), **CODINGS}


def best(accepted: str) -> str:
    """The coding for a browser with this Accept-Encoding; "" if it accepts none of ours."""
    wanted = (c for c in accepted.lower().split(",") if not re.search(r";\s*q=0(\.0*)?\s*$", c))
    names = {coding.partition(";")[0].strip() for coding in wanted}
    return next((coding for coding in CODINGS if coding in names), "")


@functools.lru_cache(maxsize=128)
def compressed(content: Path | bytes, tag: str, coding: str) -> bytes:
    """A file in this coding; `tag` tells versions of the file apart."""
    data = content.read_bytes() if isinstance(content, Path) else content
    return CODINGS[coding](data)
