"""`tokenizers.pre_tokenizers`: steps that split a text."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, ClassVar, cast

from halfbyte.errors import FormatError
from halfbyte.formats.json_file import field
from halfbyte.formats.pretokenizers import GPT2
from halfbyte.formats.tokens import LETTERS, write_bytes
from halfbyte.text.standin.components import (
    REQUIRED,
    WHERE,
    Component,
    Steps,
    custom_class,
    pattern_of,
)
from halfbyte.text.standin.normalized import NormalizedString, behavior_of, behavior_shown
from halfbyte.text.standin.pretokenized import PreTokenizedString
from halfbyte.text.standin.pretokenized import Split as Part
from halfbyte.text.tokenizers import splitting

Span = tuple[int, int]
Piece = splitting.Piece
Splitter = Callable[[Piece], Iterator[Piece]]


class PreTokenizer(Component):
    """A step, or several."""

    KIND = "pre_tokenizer"
    TYPES: ClassVar[dict[str, type[Component]]] = {}

    def make(self) -> Splitter:
        return splitting.make_splitter(WHERE, self.state())

    def pieces(self, whole: str, pieces: list[Piece]) -> list[Piece]:
        """The parts of parts of a text."""
        step = self.use()
        return [part for piece in pieces for part in step(piece) if part[0]]

    def pre_tokenize(self, pretok: PreTokenizedString) -> None:
        """Split the parts without tokens."""
        parts: list[Part] = []
        for part in pretok.parts:
            if part.tokens is not None:
                parts.append(part)
                continue
            old = part.normalized
            whole = old.whole
            for text, spans, _ in self.pieces(whole, [(old.text, old.spans, True)]):
                new = NormalizedString.part(whole, text, cast(list[Span], spans))
                parts.append(Part(new))
        pretok.parts = parts

    def pre_tokenize_str(self, s: str) -> list[tuple[str, Span]]:
        """The parts of a text, and their spans."""
        pretok = PreTokenizedString(s)
        self.pre_tokenize(pretok)
        return [(text, span) for text, span, _ in pretok.get_splits()]

    @staticmethod
    def custom(pretok: Any) -> PreTokenizer:
        """A pre-tokenizer of an object with `pre_tokenize(PreTokenizedString)`."""
        component = custom_class(PreTokenizer, "pre_tokenize")(pretok)
        component.pieces = lambda whole, pieces: _by_object(pretok, whole, pieces)  # type: ignore[attr-defined]
        component.pre_tokenize = pretok.pre_tokenize  # type: ignore[attr-defined]
        return cast(PreTokenizer, component)


def _by_object(step: Any, whole: str, pieces: list[Piece]) -> list[Piece]:
    pretok = PreTokenizedString(whole)
    pretok.parts = [
        Part(NormalizedString.part(whole, text, cast(list[Span], spans)))
        for text, spans, _ in pieces
    ]
    step.pre_tokenize(pretok)
    return [(part.normalized.text, part.normalized.spans, True) for part in pretok.parts]


class BertPreTokenizer(PreTokenizer):
    """Splits at spaces and around punctuation."""

    TYPE = "BertPreTokenizer"


class Whitespace(PreTokenizer):
    """Words, and what is between them without spaces."""

    TYPE = "Whitespace"


class WhitespaceSplit(PreTokenizer):
    """Splits at spaces."""

    TYPE = "WhitespaceSplit"


class UnicodeScripts(PreTokenizer):
    """Refused: it needs a table of scripts."""

    TYPE = "UnicodeScripts"


class CharDelimiterSplit(PreTokenizer):
    """Splits at a character."""

    TYPE = "CharDelimiterSplit"
    FIELDS: ClassVar[dict[str, Any]] = {"delimiter": REQUIRED}


class Digits(PreTokenizer):
    """Splits digits from the rest, or from each other."""

    TYPE = "Digits"
    FIELDS: ClassVar[dict[str, Any]] = {"individual_digits": False}


class _WithBehavior(PreTokenizer):
    def read(self, name: str, value: Any) -> Any:
        if name == "pattern":
            return pattern_of(value)
        return behavior_of(value) if name == "behavior" else value

    def shown(self, name: str, value: Any) -> Any:
        return behavior_shown(value) if name == "behavior" else value


class Punctuation(_WithBehavior):
    """Splits around punctuation."""

    TYPE = "Punctuation"
    FIELDS: ClassVar[dict[str, Any]] = {"behavior": "Isolated"}


class Split(_WithBehavior):
    """Splits at a string, or at the matches of a regular expression."""

    TYPE = "Split"
    FIELDS: ClassVar[dict[str, Any]] = {
        "pattern": REQUIRED, "behavior": REQUIRED, "invert": False
    }  # fmt: skip


class FixedLength(PreTokenizer):
    """Parts of equally many characters."""

    TYPE = "FixedLength"
    FIELDS: ClassVar[dict[str, Any]] = {"length": 5}

    def make(self) -> Splitter:
        length = field(WHERE, self.fields, "length", int, "pre_tokenizer.")
        if length < 1:
            raise FormatError(
                f"{WHERE}: 'pre_tokenizer.length': expected 1 or more, found {length}"
            )

        def step(piece: Piece) -> Iterator[Piece]:
            text, spans, first = piece
            for at in range(0, len(text), length):
                yield text[at : at + length], spans and spans[at : at + length], first

        return step


class ByteLevel(PreTokenizer):
    """Optionally splits like GPT-2; bytes become visible characters."""

    TYPE = "ByteLevel"
    FIELDS: ClassVar[dict[str, Any]] = {
        "add_prefix_space": True, "trim_offsets": True, "use_regex": True
    }  # fmt: skip

    @staticmethod
    def alphabet() -> list[str]:
        """The visible characters."""
        return list(LETTERS.values())

    def make(self) -> Splitter:
        prefix, _, use_regex = self.fields.values()
        words = splitting.make_splitter(
            WHERE, {"type": "Split", "pattern": {"Regex": GPT2}, "behavior": "Isolated"}
        )

        def step(piece: Piece) -> Iterator[Piece]:
            if prefix and not piece[0].startswith(" "):
                piece = _prepended(piece, " ")
            for text, spans, first in words(piece) if use_regex else (piece,):
                utf8 = text.encode()
                if spans and len(utf8) > len(text):
                    spans = [span for c, span in zip(text, spans, strict=True) for _ in c.encode()]
                yield write_bytes(utf8), spans, first

        return step


def _prepended(piece: Piece, character: str) -> Piece:
    """The character has the span of the one that was first; nothing precedes an empty text."""
    text, spans, first = piece
    if not text:
        return piece
    return character + text, spans and [spans[0], *spans], first


class Metaspace(PreTokenizer):
    """Marks spaces, puts a mark before a text without one, and begins a part at each mark."""

    TYPE = "Metaspace"
    FIELDS: ClassVar[dict[str, Any]] = {
        "replacement": "\u2581", "prepend_scheme": "always", "split": True
    }  # fmt: skip

    @classmethod
    def parse(cls, state: dict[str, Any]) -> Metaspace:
        if state.get("add_prefix_space") is False:  # of older files
            if state.get("prepend_scheme", "never") != "never":
                raise FormatError(
                    f"{WHERE}: 'pre_tokenizer.prepend_scheme': contradicts 'add_prefix_space'"
                )
            state = state | {"prepend_scheme": "never"}
        if state.get("split") is None:
            state = state | {"split": True}
        return super().parse(state)

    def make(self) -> Splitter:
        mark, scheme, split = self.fields.values()
        if not isinstance(mark, str) or len(mark) != 1:
            raise FormatError(f"{WHERE}: 'pre_tokenizer.replacement': expected one character")
        if scheme not in ("always", "first", "never"):
            raise ValueError(
                f"prepend_scheme: expected 'always', 'first' or 'never', found {str(scheme)[:40]!r}"
            )
        words = splitting.make_splitter(
            WHERE, {"type": "Split", "pattern": {"String": mark}, "behavior": "MergedWithNext"}
        )

        def step(piece: Piece) -> Iterator[Piece]:
            text, spans, first = piece
            piece = text.replace(" ", mark), spans, first
            begins = scheme == "always" or (scheme == "first" and bool(spans and spans[0][0] == 0))
            if begins and not piece[0].startswith(mark):
                piece = _prepended(piece, mark)
            return words(piece) if split else iter((piece,))

        return step


class Sequence(Steps, PreTokenizer):
    """Steps in order."""

    TYPE = "Sequence"
    FIELDS: ClassVar[dict[str, Any]] = {"pretokenizers": REQUIRED}

    def __init__(self, pre_tokenizers: Iterable[Any]) -> None:
        super().__init__(pre_tokenizers)

    def pieces(self, whole: str, pieces: list[Piece]) -> list[Piece]:
        for step in self:
            pieces = step.pieces(whole, pieces)
        return pieces
