"""Comparisons of the stand-in with PyPI's `tokenizers`."""

from __future__ import annotations

from typing import Any

PARTS = (
    "ids", "tokens", "offsets", "word_ids", "type_ids", "special_tokens_mask", "attention_mask",
    "sequence_ids", "n_sequences",
)  # fmt: skip


def described(encoding: Any) -> dict[str, Any]:
    """All that an encoding says."""
    values = {name: getattr(encoding, name) for name in PARTS}
    places = range(0, 40, 3)
    for number in (0, 1):
        values[f"characters of {number}"] = [
            (encoding.char_to_token(at, number), encoding.char_to_word(at, number)) for at in places
        ] if number < encoding.n_sequences else []  # fmt: skip
        values[f"words of {number}"] = [
            (encoding.word_to_tokens(at, number), encoding.word_to_chars(at, number))
            for at in places
        ] if number < encoding.n_sequences else []  # fmt: skip
    values["of tokens"] = [
        (encoding.token_to_chars(i), encoding.token_to_word(i), encoding.token_to_sequence(i))
        for i in range(len(encoding.ids))
    ]
    values["overflowing"] = [described(other) for other in encoding.overflowing]
    return values


def outcome(call: Any, *arguments: Any, **keywords: Any) -> Any:
    """What a call returns, or "refused"; panics of the original are not of class Exception."""
    try:
        return call(*arguments, **keywords)
    except KeyboardInterrupt:
        raise
    except BaseException:
        return "refused"
