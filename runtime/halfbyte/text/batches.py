"""Texts, or pairs of them, as the tokens that an encoder reads, and batches of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from halfbyte.errors import HalfbyteError
from halfbyte.text.tokenizers import Tokenizer


@dataclass(frozen=True)
class Text:
    """Tokens of a text, or of two, and their types; `cut` if some did not fit."""

    ids: list[int]
    types: list[int]
    cut: bool = False


def single(tokenizer: Tokenizer, text: str, context: int) -> Text:
    """A text with the tokens around it, of at most `context` in all."""
    ids, after = tokenizer.encode(text), tokenizer.after
    cut = len(ids) > context
    if cut:
        ids = [*ids[: max(context - len(after), 0)], *after][:context]
    ids = ids or [tokenizer.eos]
    return Text(ids, [0] * len(ids), cut)


def pair(tokenizer: Tokenizer, query: list[int], text: str, context: int, kind: int) -> Text:
    """A query's tokens and a text, such as [CLS] query [SEP] text [SEP]; `kind` is the text's type.

    Raises
    ------
    HalfbyteError
        The query leaves no room for a text.
    """
    first, after = [*tokenizer.before, *query, *tokenizer.between], tokenizer.after
    room = context - len(first) - len(after)
    if room < 1:
        raise HalfbyteError(
            f"query: {len(query)} tokens leave no room for a text in a context of {context}"
        )
    second = tokenizer.encode(text, add_special_tokens=False)
    cut = len(second) > room
    second = [*second[:room], *after]
    return Text([*first, *second], [0] * len(first) + [kind] * len(second), cut)


def batches(texts: Sequence[Text], limit: int) -> Iterator[Sequence[Text]]:
    """Texts of up to `limit` tokens together, in order."""
    first = size = 0
    for at, text in enumerate(texts):
        if size + len(text.ids) > limit and at > first:
            yield texts[first:at]
            first, size = at, 0
        size += len(text.ids)
    if texts:
        yield texts[first:]
