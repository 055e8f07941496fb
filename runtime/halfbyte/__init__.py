"""halfbyte makes trained models small and runs them wherever Python runs."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from halfbyte.errors import HalfbyteError

if TYPE_CHECKING:
    from halfbyte.onnx.session import InferenceSession, SessionOptions
    from halfbyte.onnx.session.fetching import open_session
    from halfbyte.onnx.standin import install_as_onnxruntime
    from halfbyte.text.encoder import TextEncoder
    from halfbyte.text.encoder_loading import load_encoder
    from halfbyte.text.loading import load, load_bytes, load_url
    from halfbyte.text.model import LanguageModel
    from halfbyte.text.standin import install_as_tokenizers
    from halfbyte.text.tokenizers import load_tokenizer

    __version__: str

__all__ = [
    "HalfbyteError",
    "InferenceSession",
    "LanguageModel",
    "SessionOptions",
    "TextEncoder",
    "__version__",
    "install_as_onnxruntime",
    "install_as_tokenizers",
    "load",
    "load_bytes",
    "load_encoder",
    "load_tokenizer",
    "load_url",
    "open_session",
]

# Imported on first use: a program waits only for the parts that it uses, and a command that is
# interrupted while importing can say so.
_PLACES = {
    "InferenceSession": "onnx.session",
    "LanguageModel": "text.model",
    "SessionOptions": "onnx.session",
    "TextEncoder": "text.encoder",
    "install_as_onnxruntime": "onnx.standin",
    "install_as_tokenizers": "text.standin",
    "load": "text.loading",
    "load_bytes": "text.loading",
    "load_encoder": "text.encoder_loading",
    "load_tokenizer": "text.tokenizers",
    "load_url": "text.loading",
    "open_session": "onnx.session.fetching",
}


def __getattr__(name: str) -> Any:
    if name == "__version__":
        value: Any = _version()
    elif name in _PLACES:
        value = getattr(import_module(f"halfbyte.{_PLACES[name]}"), name)
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
