"""The regular expressions of tokenizer.json: those that are known, and plain ones.

A regular expression from a file may take exponential time, so only those are run whose time is
proportional to the text. Known ones are those of the model families
(:mod:`halfbyte.formats.pretokenizers`). Plain ones have no choice, group or lookaround, and their
only unbounded repeat is at the end.
"""

from __future__ import annotations

import re
from functools import lru_cache
from pathlib import Path
from typing import Any

from halfbyte.errors import FormatError, UnsupportedError
from halfbyte.formats.pretokenizers import KNOWN
from halfbyte.text.tokenizers.unicode_classes import translate

_ATOM = (
    r"(?:\[\^?(?:\\[swdrnt.\-\[\]]|\\u[0-9A-Fa-f]{4}|\\p\{\w+\}|[^\\\[\]&])+\]|\\p\{\w+\}|\\[sSdwrnt.\-]|\\u[0-9A-Fa-f]{4}"
    r"|[^\\\[\]{}()|.^$*+?])"
)
_PLAIN = re.compile(
    rf"(?:{_ATOM}\?)?(?:{_ATOM}(?:\{{\d\}})?)*(?:{_ATOM}(?:[+*?]|\{{\d(?:,\d?)?\}})?)"
)
_CLASS = re.compile(r"\\p\{(\w+)\}")
_CATEGORIES = frozenset((
    "C", "Cc", "Cf", "Cn", "Co", "Cs", "L", "Ll", "Lm", "Lo", "Lt", "Lu", "M", "Mc",
    "Me", "Mn", "N", "Nd", "Nl", "No", "P", "Pc", "Pd", "Pe", "Pf", "Pi", "Po", "Ps",
    "S", "Sc", "Sk", "Sm", "So", "Z", "Zl", "Zp", "Zs",
))  # fmt: skip


def compiled(path: Path, step: dict[str, Any], where: str) -> re.Pattern[str]:
    """The pattern of a step: a string or a regular expression.

    Raises
    ------
    FormatError
        The pattern is neither.
    UnsupportedError
        A regular expression that is neither known nor plain.
    """
    pattern = step.get("pattern")
    if isinstance(pattern, dict) and len(pattern) == 1:
        kind, text = next(iter(pattern.items()))
        if isinstance(text, str) and kind == "String" and text:
            return re.compile(re.escape(text))
        if isinstance(text, str) and kind == "Regex":
            if not is_known(text):
                raise UnsupportedError(
                    f"{path}: '{where}pattern': regular expression {text[:200]!r} is not known"
                )
            return _compiled(text)
    raise FormatError(
        f"{path}: '{where}pattern': expected a string or a regular expression, found "
        f"{str(pattern)[:80]!r}"
    )


def is_known(pattern: str) -> bool:
    """Whether a regular expression is known or plain."""
    if pattern.replace("\r", r"\r").replace("\n", r"\n") in KNOWN:
        return True
    if len(pattern) > 1000 or not _PLAIN.fullmatch(pattern):
        return False
    return _CATEGORIES.issuperset(_CLASS.findall(pattern))


@lru_cache(32)
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(translate(pattern))
