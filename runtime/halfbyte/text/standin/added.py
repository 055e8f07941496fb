"""Tokens added to a vocabulary, which are cut out of a text before it is tokenized."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from halfbyte.formats.huggingface.added import read_added
from halfbyte.text.standin.components import WHERE
from halfbyte.text.standin.models import Model
from halfbyte.text.standin.normalizers import Normalizer
from halfbyte.text.tokenizers.added import AddedTokens, Cut


class AddedToken:
    """A token that is added, and where it is found.

    Parameters
    ----------
    content : str
        Its text.
    single_word : bool
        Not inside a longer word.
    lstrip, rstrip : bool
        With the whitespace before or after it.
    normalized : bool
        In normalized text; by default for tokens that are not special.
    special : bool
        `decode` leaves it out.
    """

    content: str
    single_word: bool
    lstrip: bool
    rstrip: bool
    special: bool

    def __init__(
        self, content: str | None = None, single_word: bool = False, lstrip: bool = False,
        rstrip: bool = False, normalized: bool | None = None, special: bool = False,
    ) -> None:  # fmt: skip
        self.content = content or ""
        self.single_word, self.lstrip, self.rstrip = single_word, lstrip, rstrip
        self.special, self._normalized = special, normalized

    @property
    def normalized(self) -> bool:
        """Whether it is found in normalized text."""
        return not self.special if self._normalized is None else self._normalized

    def fields(self) -> dict[str, Any]:
        """Its fields in tokenizer.json."""
        names = ("content", "single_word", "lstrip", "rstrip", "normalized", "special")
        return {name: getattr(self, name) for name in names}

    def __str__(self) -> str:
        return self.content

    def __repr__(self) -> str:
        flags = ("rstrip", "lstrip", "single_word", "normalized", "special")
        shown = ", ".join(f"{flag}={getattr(self, flag)}" for flag in flags)
        return f'AddedToken("{self.content}", {shown})'

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AddedToken) and self.fields() == other.fields()

    def __hash__(self) -> int:
        return hash(self.content)

    def __getstate__(self) -> dict[str, Any]:
        return dict(self.__dict__)

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)


class AddedVocabulary:
    """The added tokens of a tokenizer."""

    def __init__(self) -> None:
        self.ids: dict[str, int] = {}
        self.tokens: dict[int, AddedToken] = {}
        self.special: set[str] = set()
        self.encode_special = False  # special tokens in a text are text
        self._normalized: dict[int, str] = {}  # where it differs from the content
        self._finders: tuple[AddedTokens, AddedTokens] | None = None

    def add(self, tokens: Iterable[AddedToken], model: Model, normalizer: Normalizer | None) -> int:
        """Add tokens, and return how many are new or changed."""
        size, last = len(model.ids), max(self.tokens, default=-1)
        following = max(size, last + 1)
        count = 0
        for token in tokens:
            content = token.content
            if not content or self.tokens.get(self.ids.get(content, -1)) == token:
                continue
            number = self.ids.get(content, model.token_to_id(content))
            if number is None:
                number, following = following, following + 1
            if token.normalized and normalizer is not None:
                self._normalize(number, content, normalizer)
            self.ids[content] = number
            if token.special:
                self.special.add(content)
            self.tokens[number] = token
            count += 1
        self._finders = None
        return count

    def normalize(self, normalizer: Normalizer | None) -> None:
        """Look for tokens in the text of another normalizer."""
        self._normalized.clear()
        for number, token in self.tokens.items():
            if token.normalized and normalizer is not None:
                self._normalize(number, token.content, normalizer)
        self._finders = None

    def _normalize(self, number: int, content: str, normalizer: Normalizer) -> None:
        normalized = normalizer.normalize_str(content)
        if normalized != content:
            self._normalized[number] = normalized

    def text(self, number: int) -> str | None:
        """The text of a token, as it is found."""
        token = self.tokens.get(number)
        return None if token is None else self._normalized.get(number, token.content)

    def cut(self, text: str, normalized: bool) -> Iterator[Cut]:
        """Spans of a text: of a token, or (None) of the text between."""
        if self._finders is None:
            self._finders = self._finder(False), self._finder(True)
        hidden = self.encode_special and {self.ids[content] for content in self.special}
        return self._finders[normalized].cut(text, hidden or ())

    def _finder(self, normalized: bool) -> AddedTokens:
        ids: dict[str, int] = {}
        for number, token in self.tokens.items():
            content = token.content
            if normalized:
                content = self._normalized.get(number, content)
            if token.normalized == normalized and content:
                ids.setdefault(content, number)
        flags = (
            frozenset(number for number in ids.values() if getattr(self.tokens[number], flag))
            for flag in ("single_word", "lstrip", "rstrip")
        )
        return AddedTokens(ids, *flags)

    def state(self) -> list[dict[str, Any]]:
        """The tokens in tokenizer.json."""
        return [{"id": n} | token.fields() for n, token in sorted(self.tokens.items())]


def tokens_of(values: Iterable[Any], special: bool) -> list[AddedToken]:
    """Tokens of strings and tokens; raises `TypeError`."""
    if isinstance(values, str):
        raise TypeError(f"expected a list of tokens, found str: {values[:80]}")
    tokens = []
    for value in values:
        if isinstance(value, str):
            tokens.append(AddedToken(value, special=special))
        elif isinstance(value, AddedToken):
            value.special = value.special or special
            tokens.append(_copied(value))
        else:
            raise TypeError(
                f"expected str or AddedToken, found {type(value).__name__}: {str(value)[:80]}"
            )
    return tokens


def _copied(token: AddedToken) -> AddedToken:
    copy = AddedToken()
    copy.__dict__.update(token.__dict__)
    return copy


def token_of_state(state: Any) -> tuple[int, AddedToken]:
    """A token of tokenizer.json, and its id."""
    added = read_added(WHERE, state)
    return added.id, AddedToken(
        added.content, added.single_word, added.lstrip, added.rstrip, added.normalized,
        added.special,
    )  # fmt: skip
