"""`tokenizers.processors`: steps that put special tokens around texts."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from operator import index
from typing import Any, ClassVar

from halfbyte.errors import FormatError
from halfbyte.formats.json_file import field, optional
from halfbyte.formats.tokens import LETTERS
from halfbyte.text.standin.components import REQUIRED, WHERE, Component, Steps
from halfbyte.text.standin.encoding import Encoding
from halfbyte.text.tokenizers.unicode_classes import WHITESPACE

_SPACES = LETTERS[ord(" ")] + WHITESPACE
_PIECE = re.compile(r"(\$[ABab]?|\$\d+|[^$:][^:]*)(?::(\d+))?")


class PostProcessor(Component):
    """A step, or several."""

    KIND = "post_processor"
    TYPES: ClassVar[dict[str, type[Component]]] = {}

    def num_special_tokens_to_add(self, is_pair: bool) -> int:
        """How many tokens are added to a text, or to two."""
        return 0

    def process(
        self, encoding: Encoding, pair: Encoding | None = None, add_special_tokens: bool = True
    ) -> Encoding:
        """One encoding of one or two."""
        encodings = [encoding.copy(), *([] if pair is None else [pair.copy()])]
        for number, one in enumerate(encodings):
            for part in (one, *one.overflowing):
                part.set_sequence_id(number)
            one.type_ids = [number] * len(one)
        return Encoding.merge(self.steps(encodings, add_special_tokens), growing_offsets=False)

    def steps(self, encodings: list[Encoding], add_special_tokens: bool) -> list[Encoding]:
        """The encodings to merge."""
        return encodings

    def make(self) -> None:
        """Check the fields."""


class _Around(PostProcessor):
    """A token before a text, and one after each."""

    FIELDS: ClassVar[dict[str, Any]] = {"sep": REQUIRED, "cls": REQUIRED}
    same_types = False  # all types are 0
    twice = False  # the separator is also before the second text

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        if "cls_token" in keywords:
            keywords["cls"] = keywords.pop("cls_token")
        super().__init__(*arguments, **keywords)

    def read(self, name: str, value: Any) -> Any:
        if name not in ("sep", "cls"):
            return value
        token, number = value
        if not isinstance(token, str):
            raise TypeError(f"{self.TYPE}: {name}: expected a token and its id")
        return [token, index(number)]

    def shown(self, name: str, value: Any) -> Any:
        return tuple(value) if name in ("sep", "cls") else value

    def make(self) -> None:
        for name in ("sep", "cls"):
            pair = field(WHERE, self.fields, name, list, "post_processor.")
            if [type(value) for value in pair] != [str, int]:
                raise FormatError(f"{WHERE}: 'post_processor.{name}': expected a token and its id")

    def num_special_tokens_to_add(self, is_pair: bool) -> int:
        return (4 if self.twice else 3) if is_pair else 2

    def _put(self, encoding: Encoding, number: int) -> Encoding:
        (sep, sep_id), (cls, cls_id) = self.fields["sep"], self.fields["cls"]
        type_id = 0 if self.same_types else number
        before = Encoding.special([cls_id], [cls], 0)
        if number:
            before = Encoding.special([sep_id], [sep], type_id) if self.twice else Encoding()
        inner = encoding.copy()
        inner.overflowing = []
        inner.special_tokens_mask = [0] * len(inner)
        inner.attention_mask = [1] * len(inner)
        inner.set_sequence_id(number)
        if self.same_types:
            inner.type_ids = [0] * len(inner)
        after = Encoding.special([sep_id], [sep], type_id)
        return Encoding.merge([before, inner, after], growing_offsets=False)

    def steps(self, encodings: list[Encoding], add_special_tokens: bool) -> list[Encoding]:
        if not add_special_tokens:
            return encodings
        done = []
        for number, encoding in enumerate(encodings):
            whole = self._put(encoding, number)
            whole.overflowing = [self._put(part, number) for part in encoding.overflowing]
            done.append(whole)
        return done


class BertProcessing(_Around):
    """[CLS] a [SEP] b [SEP]."""

    TYPE = "BertProcessing"


class RobertaProcessing(_Around):
    """<s> a </s> </s> b </s>, with spans that leave spaces out."""

    TYPE = "RobertaProcessing"
    FIELDS: ClassVar[dict[str, Any]] = {
        "sep": REQUIRED, "cls": REQUIRED, "trim_offsets": True, "add_prefix_space": True
    }  # fmt: skip
    same_types = twice = True

    def steps(self, encodings: list[Encoding], add_special_tokens: bool) -> list[Encoding]:
        if self.fields["trim_offsets"]:
            _trim_all(encodings, self.fields["add_prefix_space"])
        for encoding in encodings:
            encoding.type_ids = [0] * len(encoding)
        return super().steps(encodings, add_special_tokens)


class ByteLevel(PostProcessor):
    """Leaves spaces out of spans."""

    TYPE = "ByteLevel"
    FIELDS: ClassVar[dict[str, Any]] = {
        "add_prefix_space": True, "trim_offsets": True, "use_regex": True
    }  # fmt: skip

    def read(self, name: str, value: Any) -> Any:
        return self.FIELDS[name] if value is None else value

    def steps(self, encodings: list[Encoding], add_special_tokens: bool) -> list[Encoding]:
        if self.fields["trim_offsets"]:
            _trim_all(encodings, self.fields["add_prefix_space"])
        for number, encoding in enumerate(encodings):
            encoding.set_sequence_id(number)
        return encodings


def _trim_all(encodings: Iterable[Encoding], prefix: bool) -> None:
    for encoding in encodings:
        for part in (encoding, *encoding.overflowing):
            part.offsets = list(_trimmed(part, prefix))


def _trimmed(encoding: Encoding, prefix: bool) -> Iterator[tuple[int, int]]:
    for at, (token, (start, end)) in enumerate(zip(encoding.tokens, encoding.offsets, strict=True)):
        left = len(token) - len(token.lstrip(_SPACES))
        right = len(token) - len(token.rstrip(_SPACES))
        if left == 1 and prefix and (at == 0 or start == 0):
            left = 0  # that space was not in the text
        if left:
            start = min(start + left, end)
        if right and end >= right:
            end = max(end - right, start)
        yield start, end


class TemplateProcessing(PostProcessor):
    """Special tokens where a template has them.

    A template is a string such as "[CLS] $A [SEP] $B:1 [SEP]:1", or a list of its parts.
    """

    TYPE = "TemplateProcessing"
    FIELDS: ClassVar[dict[str, Any]] = {
        "single": None, "pair": None, "special_tokens": None
    }  # fmt: skip

    def __init__(self, single: Any = None, pair: Any = None, special_tokens: Any = None) -> None:
        super().__init__(single or "$0", pair or "$A:0 $B:1", special_tokens or ())
        self.use()

    def read(self, name: str, value: Any) -> Any:
        if name == "special_tokens":
            return dict(sorted(map(_special_token, value)))
        return [_piece(part) for part in (value.split() if isinstance(value, str) else value)]

    def shown(self, name: str, value: Any) -> Any:
        return value if name == "special_tokens" else _template_shown(value)

    def make(self) -> None:
        known = optional(WHERE, self.fields, "special_tokens", {}, dict, "post_processor.")
        for entry in known.values():
            ids, tokens = entry.get("ids"), entry.get("tokens")
            kinds = {type(value) for value in ids} | {type(value) for value in tokens}
            if not kinds <= {int, str} or len(ids) != len(tokens):
                raise FormatError(
                    f"{WHERE}: 'post_processor.special_tokens': expected as many ids as tokens"
                )
        for name in ("single", "pair"):
            for piece in field(WHERE, self.fields, name, list, "post_processor."):
                ((kind, entry),) = piece.items()
                field(WHERE, entry, "type_id", int, f"post_processor.{name}.")
                if kind not in ("SpecialToken", "Sequence") or (
                    kind == "Sequence" and entry.get("id") not in ("A", "B")
                ):
                    raise FormatError(
                        f"{WHERE}: 'post_processor.{name}': {str(piece)[:80]} is not a part of a "
                        "template"
                    )
                if kind == "SpecialToken" and entry["id"] not in known:
                    raise FormatError(
                        f"{WHERE}: 'post_processor.{name}': {str(entry['id'])[:40]!r} is not among "
                        "the special tokens"
                    )

    def num_special_tokens_to_add(self, is_pair: bool) -> int:
        known = self.fields["special_tokens"]
        entries = (p.get("SpecialToken") for p in self.fields["pair" if is_pair else "single"])
        return sum(len(known[entry["id"]]["ids"]) for entry in entries if entry)

    def steps(self, encodings: list[Encoding], add_special_tokens: bool) -> list[Encoding]:
        known, done = self.fields["special_tokens"], []
        for piece in self.fields["pair" if len(encodings) > 1 else "single"]:
            ((kind, entry),) = piece.items()
            if kind == "SpecialToken":
                if add_special_tokens:
                    token = known[entry["id"]]
                    done.append(Encoding.special(token["ids"], token["tokens"], entry["type_id"]))
                continue
            number = int(entry["id"] == "B")
            if number < len(encodings):
                encoding = encodings[number]
                encoding.type_ids = [entry["type_id"]] * len(encoding)
                encoding.set_sequence_id(number)
                done.append(encoding.copy())
        return done


def _piece(text: Any) -> dict[str, Any]:
    """A part of a template, as in tokenizer.json."""
    if isinstance(text, dict):
        return text
    match = _PIECE.fullmatch(text)
    if match is None:
        raise ValueError(f"TemplateProcessing: {text[:40]!r} is not a part of a template")
    name, type_id = match[1], int(match[2] or 0)
    if not name.startswith("$"):
        return {"SpecialToken": {"id": name, "type_id": type_id}}
    if name[1:].isdecimal():
        name, type_id = "$A", int(match[2] or name[1:])
    return {"Sequence": {"id": name[1:].upper() or "A", "type_id": type_id}}


def _special_token(value: Any) -> tuple[str, dict[str, Any]]:
    if isinstance(value, dict):
        entry = {name: value.get(name) for name in ("id", "ids", "tokens")}
        return str(value.get("id")), entry
    if isinstance(value, str):
        raise TypeError("special_tokens: expected tokens with their ids")
    token, number = value if isinstance(value[0], str) else value[::-1]
    return token, {"id": token, "ids": [int(number)], "tokens": [token]}


def _template_shown(pieces: list[dict[str, Any]]) -> list[str]:
    shown = []
    for piece in pieces:
        ((kind, entry),) = piece.items()
        sign = "$" if kind == "Sequence" else ""
        shown.append(f"{sign}{entry['id']}:{entry['type_id']}")
    return shown


class Sequence(Steps, PostProcessor):
    """Steps in order."""

    TYPE = "Sequence"
    FIELDS: ClassVar[dict[str, Any]] = {"processors": REQUIRED}

    def num_special_tokens_to_add(self, is_pair: bool) -> int:
        return sum(step.num_special_tokens_to_add(is_pair) for step in self)

    def steps(self, encodings: list[Encoding], add_special_tokens: bool) -> list[Encoding]:
        for step in self:
            encodings = step.steps(encodings, add_special_tokens)
        return encodings
