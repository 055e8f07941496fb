"""Vocabularies and merges in the models of tokenizer.json."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from halfbyte.errors import FormatError
from halfbyte.formats import json_file

MAX_TOKENS = 1 << 20


def pieces_of(path: Path, model: dict[str, Any]) -> dict[str, int]:
    """The vocabulary of BPE or WordPiece: an object from tokens to ids."""
    vocab = json_file.field(path, model, "vocab", dict, "model.")
    taken: dict[int, str] = {}
    for token, index in vocab.items():
        if type(index) is not int or not 0 <= index < MAX_TOKENS:
            raise FormatError(
                f"{path}: 'model.vocab': {token[:80]!r} has id {repr(index)[:40]}, expected 0 to "
                f"{MAX_TOKENS - 1}"
            )
        if index in taken:
            raise FormatError(
                f"{path}: 'model.vocab': {token[:80]!r} and {taken[index][:80]!r} both have id "
                f"{index}"
            )
        taken[index] = token
    return dict(vocab)


def merges_of(path: Path, model: dict[str, Any], pieces: dict[str, int]) -> list[tuple[str, str]]:
    """The merges: pairs of pieces whose union is a piece."""
    merges: list[tuple[str, str]] = []
    for index, entry in enumerate(json_file.field(path, model, "merges", list, "model.")):
        pair = entry.split(" ") if isinstance(entry, str) else entry
        where = f"{path}: 'model.merges[{index}]'"
        if not isinstance(pair, list) or [type(part) for part in pair] != [str, str]:
            raise FormatError(f"{where}: expected two pieces, found {str(entry)[:80]!r}")
        left, right = pair
        prefix = model.get("continuing_subword_prefix") or ""
        if not left or not right:
            raise FormatError(f"{where}: {str(entry)[:80]!r}: merges a piece with nothing")
        for piece in (left, right, left + right[len(str(prefix)) :]):
            if piece not in pieces:
                raise FormatError(f"{where}: {piece[:80]!r} is not in the vocabulary")
        merges.append((left, right))
    return merges


def scored_pieces(path: Path, model: dict[str, Any]) -> tuple[dict[str, int], list[float]]:
    """The vocabulary of Unigram: pieces and their scores, in the order of their ids."""
    entries = json_file.field(path, model, "vocab", list, "model.")
    pieces: dict[str, int] = {}
    scores: list[float] = []
    for index, entry in enumerate(entries[: MAX_TOKENS + 1]):
        if not isinstance(entry, list) or [type(value) for value in entry] not in (
            [str, float], [str, int]
        ):  # fmt: skip
            raise FormatError(f"{path}: 'model.vocab[{index}]': expected a piece and its score")
        if entry[0] in pieces:
            raise FormatError(f"{path}: 'model.vocab[{index}]': {entry[0]!r} appears twice")
        pieces[entry[0]] = index
        scores.append(float(entry[1]))
    if len(pieces) > MAX_TOKENS:
        raise FormatError(f"{path}: 'model.vocab': more than {MAX_TOKENS} tokens")
    return pieces, scores
