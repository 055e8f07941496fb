"""Download the page's models that see and hear into a cache folder, and print its path.

    python tools/get_senses.py

PP-OCRv4 (Apache 2.0) finds and reads text in pictures, Silero's detector (MIT) finds speech. The
page has them if they are in the cache folder; they are not part of the package.
"""

from __future__ import annotations

import sys
import zipfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from tools.from_wheel import fill

from halfbyte.web.site import SENSES, senses_folder

READING = "rapidocr-onnxruntime==1.4.4"
HEARING = "silero-vad==6.2.3"
FINDER, READER, LISTENER = SENSES.values()
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
    """The folder, filled if it is incomplete; raises `OSError` or `ValueError`."""
    folder = folder or senses_folder()
    fill(folder, READING, READING_FILES)
    return fill(folder, HEARING, HEARING_FILES)


def main() -> None:
    """The command line."""
    try:
        print(get_senses())
    except (OSError, ValueError, KeyError, zipfile.BadZipFile) as error:
        raise SystemExit(f"get_senses: {error}") from None


if __name__ == "__main__":
    main()
