"""halfbyte makes trained models small and runs them wherever Python runs."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from halfbyte.errors import HalfbyteError

if TYPE_CHECKING:
    from halfbyte.loading import load, load_bytes, load_url
    from halfbyte.model import LanguageModel
    from halfbyte.session import InferenceSession, SessionOptions, install_as_onnxruntime
    from halfbyte.tokenizers import load_tokenizer

    __version__: str

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

# What is imported when it is asked for: each part waits for itself alone, and a command that is
# interrupted meanwhile can say so.
_PLACES = {
    "InferenceSession": "session",
    "LanguageModel": "model",
    "SessionOptions": "session",
    "install_as_onnxruntime": "session",
    "load": "loading",
    "load_bytes": "loading",
    "load_tokenizer": "tokenizers",
    "load_url": "loading",
}
_MODULES = {"formats", "loading", "model", "session", "tokenizers"}


def __getattr__(name: str) -> Any:
    if name == "__version__":
        value: Any = _version()
    elif name in _PLACES:
        value = getattr(import_module(f"halfbyte.{_PLACES[name]}"), name)
    elif name in _MODULES:
        value = import_module(f"halfbyte.{name}")
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("halfbyte")
    except PackageNotFoundError:  # imported from the sources, without an installation
        return "0+unknown"
