"""halfbyte makes trained models small and runs them wherever Python runs."""

from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

from halfbyte.errors import HalfbyteError
from halfbyte.loading import load, load_bytes, load_url
from halfbyte.model import LanguageModel
from halfbyte.tokenizers import load_tokenizer

if TYPE_CHECKING:
    from halfbyte.session import InferenceSession, SessionOptions, install_as_onnxruntime

try:
    __version__ = version("halfbyte")
except PackageNotFoundError:  # imported from the sources, without an installation
    __version__ = "0+unknown"

__all__ = [
    "HalfbyteError",
    "InferenceSession",
    "LanguageModel",
    "SessionOptions",
    "__version__",
    "install_as_onnxruntime",
    "load",
    "load_bytes",
    "load_tokenizer",
    "load_url",
]

_OF_SESSION = {"InferenceSession", "SessionOptions", "install_as_onnxruntime"}


def __getattr__(name: str) -> Any:
    """What graphs need is imported when it is asked for: language models do not wait for it."""
    if name not in _OF_SESSION:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from halfbyte import session

    return getattr(session, name)
