"""Control tokens in a conversation: those that the template writes; in messages they are text."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from halfbyte.formats.tokens import CONTROL
from halfbyte.text.tokenizers import Tokenizer

_GUARD = "\ufdd0"  # a noncharacter, which Unicode reserves for such internal use


class ControlTokens:
    """Tells a template's control tokens from text that spells one.

    Before the template sees a message, a guard is put after the first character of each spelling;
    it is removed when the template's output has been cut at its control tokens. So a template's
    conditions on a message still hold, and the text between two control tokens is tokenized as one.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        vocabulary = tokenizer.vocabulary
        self._tokens, control = vocabulary.tokens, vocabulary.of_type(CONTROL)
        # A spelling of one character has no room for a guard, and is always text.
        self._ids = {token: i for token, i in control.items() if len(token) > 1}
        self._lstrip, self._rstrip = map(vocabulary.stripping, ("lstrip", "rstrip"))
        self._tokenizer = tokenizer
        longest_first = sorted(self._ids, key=len, reverse=True)
        any_of = "|".join(map(re.escape, longest_first)) or "(?!)"
        self._cut = re.compile(f"({any_of})")
        self._start = re.compile(f"(?=(?:{any_of})).|{_GUARD}", re.DOTALL)

    def text(self, token: int) -> str:
        """The spelling of a token."""
        return self._tokens[token] if 0 <= token < len(self._tokens) else ""

    def protect(self, value: Any) -> Any:
        """The value with guards in all of its texts, however deep."""
        if isinstance(value, str):
            return self._guard(value)
        if isinstance(value, Mapping):
            return {key: self.protect(item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [self.protect(item) for item in value]
        return value

    def begins(self, text: str) -> bool:
        """Whether a text begins with a control token: the text before it is tokenized by itself."""
        return self._cut.match(text) is not None

    def encode(self, text: str) -> list[int]:
        """Token ids of a template's output."""
        ids: list[int] = []
        parts = self._cut.split(text)  # text, token, text, ..., text
        for index, part in enumerate(parts):
            if index % 2:
                ids.append(self._ids[part])
                continue
            if index and ids[-1] in self._rstrip:
                part = part.lstrip()
            if index + 1 < len(parts) and self._ids[parts[index + 1]] in self._lstrip:
                part = part.rstrip()
            if part:
                ids += self._tokenizer.encode(self.plain(part), add_special_tokens=False)
        return ids

    def plain(self, text: str) -> str:
        """The text without guards."""
        return re.sub(f"{_GUARD}({_GUARD}?)", r"\1", text)

    def _guard(self, text: str) -> str:
        """Put a guard after the first character of each spelling; double the text's own guards."""
        return self._start.sub(rf"\g<0>{_GUARD}", text)
