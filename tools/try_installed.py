"""Check an installed halfbyte: all native backends against NumPy, on the shipped model.

    python tools/try_installed.py [--native]        --native: fail where there are no kernels

It prints a line per model and backend, with the number of tokens and a digest of the logits.
"""

from __future__ import annotations

import hashlib
import sys
import tempfile
from collections.abc import Iterator
from importlib.resources import as_file, files
from pathlib import Path

import halfbyte
from halfbyte.core.backends import available
from halfbyte.quantize import quantize_file
from halfbyte.text.loading import load

TOKENS = 48


def models(folder: Path) -> Iterator[Path]:
    """The shipped model, as it is and quantized."""
    with as_file(files("halfbyte") / "data") as data:
        yield data / "storyteller.bin"
        for scheme in ("int8", "int4"):
            target = folder / f"{scheme}.gguf"
            quantize_file(data / "storyteller.bin", scheme, target)
            yield target


def run(path: Path, backend: str) -> tuple[list[int], str]:
    """Tokens of a greedy generation, and a digest of the logits of all of them."""
    with load(path, backend=backend) as model:
        generation = model.generation(temperature=0, max_tokens=TOKENS)
        list(generation)
        ids = list(generation.ids)
        model.reset()
        return ids, hashlib.sha256(model.logits(ids).tobytes()).hexdigest()[:16]


def main() -> None:
    """Compare all backends; exit at the first difference."""
    backends = available()
    print(f"halfbyte {halfbyte.__version__}: {', '.join(backends)}")
    if "--native" in sys.argv and len(backends) < 2:
        raise SystemExit("try_installed: expected native backends, found only numpy")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        for path in models(Path(folder)):
            expected, _ = run(path, "numpy")
            for backend in backends:
                actual, digest = run(path, backend)
                print(f"{path.stem} {backend} {len(actual)} tokens {digest}")
                if actual != expected:
                    raise SystemExit(
                        f"try_installed: {path.name}, {backend}: expected {expected}, as of "
                        f"numpy, found {actual}"
                    )


if __name__ == "__main__":
    main()
