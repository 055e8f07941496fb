"""halfbyte under the name of Hugging Face's `tokenizers`, for packages that import it.

Results are those of PyPI's `tokenizers`, offsets included. Training, tokens drawn by chance,
`UnicodeScripts`, `tools` and regular expressions that are not known (see
:mod:`halfbyte.text.tokenizers.regexes`) are refused.
"""

from __future__ import annotations

from enum import Enum
from types import ModuleType
from typing import Any

from halfbyte.standins import Contents, StandIn, public, refused

VERSION = "0.23.3"
_NAME = "tokenizers"
PACKAGE = StandIn(_NAME, VERSION, f"halfbyte, in the place of tokenizers {VERSION}")


def install_as_tokenizers(*, force: bool = False) -> ModuleType:
    """Make `import tokenizers` import halfbyte, in this process.

    Parameters
    ----------
    force : bool
        Also if the real package is installed or imported; code that already has its classes keeps
        them.

    Returns
    -------
    module
        `tokenizers`; every call returns the same module.

    Raises
    ------
    UnsupportedError
        The real package is installed or imported.
    """
    return PACKAGE.install(contents, "install_as_tokenizers", force)


class OffsetReferential(Enum):
    """Which text spans are of."""

    ORIGINAL = "original"
    NORMALIZED = "normalized"


class OffsetType(Enum):
    """What spans count."""

    BYTE = "byte"
    CHAR = "char"


class SplitDelimiterBehavior(Enum):
    """What becomes of what splits a text."""

    REMOVED = "removed"
    ISOLATED = "isolated"
    MERGED_WITH_PREVIOUS = "merged_with_previous"
    MERGED_WITH_NEXT = "merged_with_next"
    CONTIGUOUS = "contiguous"


def contents() -> Contents:
    """`tokenizers` and its submodules."""
    from halfbyte.text.standin import (
        decoders,
        implementations,
        models,
        normalizers,
        pre_tokenizers,
        processors,
        trainers,
    )
    from halfbyte.text.standin.added import AddedToken
    from halfbyte.text.standin.components import Regex
    from halfbyte.text.standin.encoding import Encoding
    from halfbyte.text.standin.normalized import NormalizedString
    from halfbyte.text.standin.pretokenized import PreTokenizedString, Token
    from halfbyte.text.standin.tokenizer import Tokenizer

    classes: dict[str, Any] = {
        thing.__name__: thing
        for thing in (
            AddedToken, Encoding, NormalizedString, PreTokenizedString, Regex, Token, Tokenizer
        )
    }  # fmt: skip
    enums = {e.__name__: e for e in (OffsetReferential, OffsetType, SplitDelimiterBehavior)}
    whole = {name: value for name, value in public(implementations).items() if name != "MARK"}
    parts = (decoders, models, normalizers, pre_tokenizers, processors, trainers)
    words = list[str] | tuple[str]
    inputs = {
        "Offsets": tuple[int, int], "TextInputSequence": str, "PreTokenizedInputSequence": words,
        "TextEncodeInput": str | tuple[str, str], "InputSequence": str | words,
        "PreTokenizedEncodeInput": words | tuple[words, words],
        "EncodeInput": str | tuple[str, str] | words | tuple[words, words],
    }  # fmt: skip
    submodules = {part.__name__.rpartition(".")[2]: _public(part) for part in parts}
    visualizer = {name: refused(f"{_NAME}.tools", name) for name in _TOOLS}
    return {
        _NAME: {**classes, **enums, **inputs, **whole},
        f"{_NAME}.tokenizers": {**classes, "__version__": VERSION},
        **{f"{_NAME}.{name}": content for name, content in submodules.items()},
        f"{_NAME}.implementations": whole,
        f"{_NAME}.implementations.base_tokenizer": {"BaseTokenizer": whole["BaseTokenizer"]},
        f"{_NAME}.tools": visualizer,
        f"{_NAME}.tools.visualizer": visualizer,
    }


_TOOLS = ("EncodingVisualizer", "Annotation")
_HELPERS = ("model_from_state",)


def _public(module: ModuleType) -> dict[str, Any]:
    names = public(module)
    if hasattr(module, "NORMALIZERS"):
        names["NORMALIZERS"] = module.NORMALIZERS
    return {name: value for name, value in names.items() if name not in _HELPERS}
