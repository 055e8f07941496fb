"""halfbyte makes trained models small and runs them wherever Python runs."""

from importlib.metadata import PackageNotFoundError, version

from halfbyte.errors import HalfbyteError
from halfbyte.loading import load, load_bytes, load_url
from halfbyte.model import LanguageModel
from halfbyte.tokenizers import load_tokenizer

try:
    __version__ = version("halfbyte")
except PackageNotFoundError:  # imported from the sources, without an installation
    __version__ = "0+unknown"

__all__ = [
    "HalfbyteError",
    "LanguageModel",
    "__version__",
    "load",
    "load_bytes",
    "load_tokenizer",
    "load_url",
]
