"""A tokenizer.json whose pipeline GGUF has no exact name for, under keys of our own.

`halfbyte.tokenizer.pipeline` (JSON) has the steps with Sequences opened, the model's fields without
vocabulary and merges, and which ids are of tokens that were added: all (`added`), control tokens
(`special`), those that are in no vocabulary (`only_added`), those looked for in normalized text,
and those that are whole words.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from halfbyte.errors import FormatError, UnsupportedError
from halfbyte.formats.huggingface.added import Added
from halfbyte.formats.huggingface.pipelines import (
    Pipeline,
    merges_of,
    pieces_of,
    scored_pieces,
    steps,
)
from halfbyte.formats.json_file import field
from halfbyte.formats.model_file import MetadataValue
from halfbyte.formats.tokens import MERGES, PIPELINE, SCORES

_STEPS = (
    ("normalizer", "normalizers"), ("pre_tokenizer", "pretokenizers"), ("decoder", "decoders")
)  # fmt: skip
_KNOWN = {  # the tokenizer checks what they have inside
    "normalizer": "NFC NFD NFKC NFKD BertNormalizer Lowercase Nmt Precompiled Prepend Replace Strip"
    " StripAccents",
    "pre_tokenizer": "BertPreTokenizer ByteLevel CharDelimiterSplit Digits Metaspace Punctuation"
    " Split Whitespace WhitespaceSplit",
    "decoder": "BPEDecoder ByteFallback ByteLevel Fuse Metaspace Replace Strip WordPiece",
    "model": "BPE Unigram WordLevel WordPiece",
}
_BULKY = ("vocab", "merges")


def read_as_it_is(path: Path, data: dict[str, Any], kind: str) -> Pipeline:
    """Vocabulary, merges and scores; what is done with them is in :func:`own_keys`."""
    model = field(path, data, "model", dict)
    if kind == "Unigram":
        pieces, scores = scored_pieces(path, model)
        return Pipeline("huggingface", pieces, {}, {}, np.array(scores, np.float32))
    pieces = pieces_of(path, model)
    if kind == "BPE":
        merges_of(path, model, pieces)
    return Pipeline("huggingface", pieces, {})


def own_keys(
    path: Path, data: dict[str, Any], kind: str, added: Sequence[Added], count: int
) -> dict[str, MetadataValue]:
    """The steps of a tokenizer.json with `count` tokens.

    Raises
    ------
    FormatError
        A step is not as it should be.
    UnsupportedError
        A step that is not known.
    """
    model = field(path, data, "model", dict)
    options = {name: value for name, value in model.items() if name not in _BULKY}
    found: dict[str, Any] = {"model": options | {"type": kind}}
    _check(path, "model", kind)
    for name, inner in _STEPS:
        found[name] = steps(path, data, name, inner)
        for step in found[name]:
            _check(path, name, step["type"])
    metadata: dict[str, MetadataValue] = {}
    if kind == "Unigram":
        pieces, scores = scored_pieces(path, model)
        with np.errstate(over="ignore"):
            rounded = np.array(scores, np.float32).astype(np.float64).tolist() != scores
        if rounded:
            metadata[SCORES] = np.array(scores + [0.0] * (count - len(scores)), np.float64)
    else:
        pieces = pieces_of(path, model)
        if kind == "BPE":
            metadata |= _merges(path, merges_of(path, model, pieces))
    found["added"] = [token.id for token in added]
    found["only_added"] = [token.id for token in added if token.content not in pieces]
    found["special"] = [token.id for token in added if token.special]
    found["normalized"] = [token.id for token in added if token.normalized]
    found["single_word"] = [token.id for token in added if token.single_word]
    text = json.dumps(found, ensure_ascii=False, separators=(",", ":"))
    try:
        text.encode()
    except UnicodeEncodeError:
        raise FormatError(f"{path}: a string in its steps is half of a surrogate pair") from None
    return metadata | {PIPELINE: text}


def _check(path: Path, name: str, kind: str) -> None:
    if kind not in _KNOWN[name].split():
        known = ", ".join(_KNOWN[name].split())
        raise UnsupportedError(f"{path}: {name}: expected one of {known}, found {kind[:40]!r}")


def _merges(path: Path, merges: list[tuple[str, str]]) -> dict[str, MetadataValue]:
    """Under GGUF's key, or, where a piece has a space in it, under one of our own."""
    for key, separator in (("tokenizer.ggml.merges", " "), (MERGES, "\0")):
        if not any(separator in left or separator in right for left, right in merges):
            return {key: [separator.join(pair) for pair in merges]}
    raise UnsupportedError(f"{path}: 'model.merges': pieces with a space, and some with U+0000")
