"""Control tokens in a conversation: a template's count, a message's are text."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from halfbyte.formats.tokens import CONTROL
from halfbyte.text.tokenizers import Tokenizer

_GUARD = "\ufdd0"  # a noncharacter: Unicode leaves it to programs for just such use


class ControlTokens:
    """Tells a template's control tokens from text that spells one.

    A guard goes into the spelling before the template sees it, behind its first character, and
    comes out again when the text has been cut at the control tokens. So a template's conditions on
    a message's text hold, and the text is tokenized together with what stands beside it.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        vocabulary = tokenizer.vocabulary
        self._tokens, control = vocabulary.tokens, vocabulary.of_type(CONTROL)
        # A spelling of one character has no place for a guard, and is text wherever it stands.
        self._ids = {token: i for token, i in control.items() if len(token) > 1}
        self._lstrip, self._rstrip = map(vocabulary.stripping, ("lstrip", "rstrip"))
        self._tokenizer = tokenizer
        longest_first = sorted(self._ids, key=len, reverse=True)
        any_of = "|".join(map(re.escape, longest_first)) or "(?!)"
        self._cut = re.compile(f"({any_of})")
        self._start = re.compile(f"(?=(?:{any_of})).|{_GUARD}", re.DOTALL)

    def text(self, token: int) -> str:
        """How a token is spelled."""
        return self._tokens[token] if 0 <= token < len(self._tokens) else ""

    def protect(self, value: Any) -> Any:
        """The same value, its texts (however deep) guarded."""
        if isinstance(value, str):
            return self._guard(value)
        if isinstance(value, Mapping):
            return {key: self.protect(item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [self.protect(item) for item in value]
        return value

    def begins(self, text: str) -> bool:
        """Whether a text begins with a control token, so that what is before it stands alone."""
        return self._cut.match(text) is not None

    def encode(self, text: str) -> list[int]:
        """Token ids of a template's output."""
        ids: list[int] = []
        parts = self._cut.split(text)  # text, token, text, ..., text
        for place, part in enumerate(parts):
            if place % 2:
                ids.append(self._ids[part])
                continue
            if place and ids[-1] in self._rstrip:
                part = part.lstrip()
            if place + 1 < len(parts) and self._ids[parts[place + 1]] in self._lstrip:
                part = part.rstrip()
            if part:
                ids += self._tokenizer.encode(self.plain(part), add_special_tokens=False)
        return ids

    def plain(self, text: str) -> str:
        """The text without guards."""
        return re.sub(f"{_GUARD}({_GUARD}?)", r"\1", text)

    def _guard(self, text: str) -> str:
        """A guard behind the first character of each spelling; guards of the text's own doubled."""
        return self._start.sub(rf"\g<0>{_GUARD}", text)
