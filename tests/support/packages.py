"""Packages of other projects from PyPI and npm, pinned, in a cache folder."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tarfile
import tempfile
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Package:
    """A pure Python wheel, or what npm packs."""

    name: str
    version: str
    sha256: str


# Detects the type of a file. Its model is in the wheel; it imports onnxruntime.
MAGIKA = Package(
    "magika", "1.0.3", "938d8e033953f2ddeb8c35dc423aa289ca116bfa7a71a778f6e77460f9025803"
)
CLICK = Package(
    "click", "8.5.1", "8bb5376d2006950386f8c6427613334a2acadc5f559cb80e638d00b4df957e37"
)
# Checks a page's accessibility. The sha256 is that of its script.
AXE = Package(
    "axe-core", "4.14.1", "29348999450cdf2849a8e70b7912fc2da85a849da39c0d0d5394f51d4a9ed95c"
)


def cache_folder() -> Path:
    """The folder of the packages."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "halfbyte" / "wheels"


def npm_pack(name: str, version: str) -> Path:
    """The archive of a package, which npm fetches once and compares with its registry's hash."""
    folder = cache_folder()
    path = folder / f"{name}-{version}.tgz"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        command = ["npm", "pack", "--silent", f"{name}@{version}"]
        subprocess.run([*command, "--pack-destination", folder], check=True, capture_output=True)
    return path


def axe() -> str:
    """The script of axe-core."""
    path = npm_pack(AXE.name, AXE.version)
    with tarfile.open(path) as archive:
        script = archive.extractfile("package/axe.min.js")
        assert script is not None
        content = script.read()
    assert hashlib.sha256(content).hexdigest() == AXE.sha256
    return content.decode()


def fetch(package: Package) -> Path:
    """The wheel, from the cache or by pip; fails if its sha256 differs."""
    folder = cache_folder()
    path = folder / f"{package.name}-{package.version}-py3-none-any.whl"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder) as work:
            command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
            options = ["--only-binary", ":all:", "--platform", "any", "--dest", work]
            requirement = f"{package.name}=={package.version}"
            done = subprocess.run(
                [*command, *options, requirement], capture_output=True, text=True, check=False
            )
            assert done.returncode == 0, done.stderr
            (Path(work) / path.name).replace(path)
    sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
    assert sha256 == package.sha256, f"{path}: sha256 {sha256}, expected {package.sha256}"
    return path
