"""`tokenizers.decoders`: steps from tokens to a text."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import groupby
from typing import Any, ClassVar

from halfbyte.errors import HalfbyteError
from halfbyte.formats.json_file import field
from halfbyte.text.standin.components import (
    REQUIRED,
    WHERE,
    Component,
    Steps,
    custom_class,
    pattern_of,
)
from halfbyte.text.tokenizers.decoders import from_letters
from halfbyte.text.tokenizers.regexes import compiled

_MARKS = (
    (" .", "."), (" ?", "?"), (" !", "!"), (" ,", ","), (" ' ", "'"), (" n't", "n't"),
    (" 'm", "'m"), (" do not", " don't"), (" 's", "'s"), (" 've", "'ve"), (" 're", "'re"),
)  # fmt: skip


class Decoder(Component):
    """A step, or several."""

    KIND = "decoder"
    TYPES: ClassVar[dict[str, type[Component]]] = {}

    def decode(self, tokens: Iterable[str]) -> str:
        """The text of tokens."""
        return "".join(self.decode_chain(list(tokens)))

    def decode_chain(self, tokens: list[str]) -> list[str]:
        """Other tokens, for the next step."""
        return list(self.use().decode_chain(tokens))

    def make(self) -> Any:
        """Nothing has to be prepared."""

    @staticmethod
    def custom(decoder: Any) -> Decoder:
        """A decoder of an object with `decode_chain(list of str)`."""
        return custom_class(Decoder, "decode_chain")(decoder)  # type: ignore[return-value]


class ByteLevel(Decoder):
    """Joins bytes."""

    TYPE = "ByteLevel"
    FIELDS: ClassVar[dict[str, Any]] = {
        "add_prefix_space": True, "trim_offsets": True, "use_regex": True
    }  # fmt: skip

    def decode_chain(self, tokens: list[str]) -> list[str]:
        return [b"".join(map(from_letters, tokens)).decode(errors="replace")]


class WordPiece(Decoder):
    """Joins pieces to words."""

    TYPE = "WordPiece"
    FIELDS: ClassVar[dict[str, Any]] = {"prefix": "##", "cleanup": True}

    def decode_chain(self, tokens: list[str]) -> list[str]:
        prefix, cleanup = self.fields.values()
        texts = []
        for index, token in enumerate(tokens):
            if index:
                token = token[len(prefix) :] if token.startswith(prefix) else " " + token
            texts.append(_clean(token) if cleanup else token)
        return texts


def _clean(text: str) -> str:
    for old, new in _MARKS:
        text = text.replace(old, new)
    return text


class BPEDecoder(Decoder):
    """Replaces the mark at the end of words by a space."""

    TYPE = "BPEDecoder"
    FIELDS: ClassVar[dict[str, Any]] = {"suffix": "</w>"}

    def decode_chain(self, tokens: list[str]) -> list[str]:
        suffix, last = self.fields["suffix"], len(tokens) - 1
        return [t.replace(suffix, "" if i == last else " ") for i, t in enumerate(tokens)]


class CTC(Decoder):
    """Joins equal neighbours, and removes the padding between others."""

    TYPE = "CTC"
    FIELDS: ClassVar[dict[str, Any]] = {
        "pad_token": "<pad>", "word_delimiter_token": "|", "cleanup": True
    }  # fmt: skip

    def decode_chain(self, tokens: list[str]) -> list[str]:
        padding, delimiter, cleanup = self.fields.values()
        texts = [token.replace(padding, "") for token, _ in groupby(tokens)]
        if cleanup:
            texts = [_clean(text).replace(delimiter, " ") for text in texts]
        return [text for text in texts if text]


class Metaspace(Decoder):
    """Replaces marks by spaces, and removes those of the first token."""

    TYPE = "Metaspace"
    FIELDS: ClassVar[dict[str, Any]] = {
        "replacement": "\u2581", "prepend_scheme": "always", "split": True
    }  # fmt: skip

    @classmethod
    def parse(cls, state: dict[str, Any]) -> Metaspace:
        if state.get("add_prefix_space") is False:  # of older files
            state = state | {"prepend_scheme": "never"}
        return super().parse(state)

    def decode_chain(self, tokens: list[str]) -> list[str]:
        mark, scheme, _ = self.fields.values()
        first = " " if scheme == "never" else ""
        return [t.replace(mark, " " if i else first) for i, t in enumerate(tokens)]


class Replace(Decoder):
    """Replaces a string, or the matches of a regular expression."""

    TYPE = "Replace"
    FIELDS: ClassVar[dict[str, Any]] = {"pattern": REQUIRED, "content": REQUIRED}

    def read(self, name: str, value: Any) -> Any:
        return pattern_of(value) if name == "pattern" else value

    def make(self) -> Any:
        field(WHERE, self.fields, "content", str, "decoder.")
        return compiled(WHERE, self.fields, "decoder.")

    def decode_chain(self, tokens: list[str]) -> list[str]:
        pattern, content = self.use(), self.fields["content"]
        return [pattern.sub(lambda _: content, token) for token in tokens]


class Fuse(Decoder):
    """Joins all tokens."""

    TYPE = "Fuse"

    def decode_chain(self, tokens: list[str]) -> list[str]:
        return ["".join(tokens)]


class Strip(Decoder):
    """Removes a character at the ends of tokens, at most so many times."""

    TYPE = "Strip"
    FIELDS: ClassVar[dict[str, Any]] = {"content": " ", "start": 0, "stop": 0}

    def __init__(self, content: str = " ", left: int = 0, right: int = 0) -> None:
        super().__init__(content, left, right)

    def decode_chain(self, tokens: list[str]) -> list[str]:
        character, start, stop = self.fields.values()
        texts = []
        for token in tokens:
            left = min(start, len(token) - len(token.lstrip(character)))
            right = min(stop, len(token) - len(token.rstrip(character)))
            texts.append(token[left : max(left, len(token) - right)])
        return texts


class ByteFallback(Decoder):
    """Joins neighbours such as <0xE2>; those that are not UTF-8 become U+FFFD each."""

    TYPE = "ByteFallback"

    def decode_chain(self, tokens: list[str]) -> list[str]:
        texts: list[str] = []
        for is_byte, group in groupby(tokens, key=lambda token: _byte(token) is not None):
            parts = list(group)
            if not is_byte:
                texts += parts
                continue
            try:
                texts.append(bytes(map(_byte, parts)).decode())  # type: ignore[arg-type]
            except UnicodeDecodeError:
                texts += ["\ufffd"] * len(parts)
        return texts


def _byte(token: str) -> int | None:
    if len(token) != 6 or not token.startswith("<0x") or not token.endswith(">"):
        return None
    digits = token[3:5]
    return int(digits, 16) if all(c in "0123456789abcdefABCDEF" for c in digits) else None


class Sequence(Steps, Decoder):
    """Steps in order."""

    TYPE = "Sequence"
    FIELDS: ClassVar[dict[str, Any]] = {"decoders": REQUIRED}
    FLAT = False

    def decode_chain(self, tokens: list[str]) -> list[str]:
        for step in self:
            tokens = step.decode_chain(tokens)
        return tokens


class DecodeStream:
    """The text of ids that arrive one by one."""

    def __init__(
        self, ids: Iterable[int] | None = None, skip_special_tokens: bool | None = False
    ) -> None:
        self._ids = list(ids or ())
        self._skip = bool(skip_special_tokens)
        self._prefix = ""
        self._known = 0

    def step(self, tokenizer: Any, id: int | Iterable[int]) -> str | None:
        """The text that an id, or several, complete; None if they complete no character."""
        decode: Callable[[list[int]], str] = lambda ids: tokenizer.decode(ids, self._skip)  # noqa: E731
        if not self._prefix and self._ids:
            text = decode(self._ids)
            if not text.endswith("\ufffd"):
                self._prefix, self._known = text, len(self._ids)
        self._ids += [id] if isinstance(id, int) else id
        text = decode(self._ids)
        if len(text.encode()) <= len(self._prefix.encode()) or text.endswith("\ufffd"):
            return None
        if not text.startswith(self._prefix):
            raise HalfbyteError(
                f"DecodeStream: expected a text that begins with {self._prefix!r}, found {text!r}"
            )
        new = text[len(self._prefix) :]
        known = len(self._ids) - self._known
        self._ids = self._ids[self._known :]
        self._prefix, self._known = decode(self._ids), known
        return new
