"""A tokenizer.json for whose pipeline GGUF has no exact name, under keys of our own.

`halfbyte.tokenizer.pipeline` (JSON) has the steps with Sequences flattened, the model's fields
without vocabulary and merges, and ids of added tokens: all (`added`), control tokens (`special`),
tokens outside the vocabulary (`only_added`), tokens searched for in normalized text
(`normalized`), and tokens that must be whole words (`single_word`).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from halfbyte.errors import FormatError, UnsupportedError
from halfbyte.formats.huggingface.added import Added
from halfbyte.formats.huggingface.pipelines import Pipeline, steps
from halfbyte.formats.huggingface.vocabulary import merges_of, pieces_of, scored_pieces
from halfbyte.formats.json_file import field
from halfbyte.formats.model_file import MetadataValue
from halfbyte.formats.tokens import MERGES, PIPELINE, SCORES

_STEPS = (
    ("normalizer", "normalizers"), ("pre_tokenizer", "pretokenizers"), ("decoder", "decoders")
)  # fmt: skip
_KNOWN = {  # their fields are checked by the tokenizer
    "normalizer": "NFC NFD NFKC NFKD BertNormalizer Lowercase Nmt Precompiled Prepend Replace Strip"
    " StripAccents",
    "pre_tokenizer": "BertPreTokenizer ByteLevel CharDelimiterSplit Digits Metaspace Punctuation"
    " Split Whitespace WhitespaceSplit",
    "decoder": "BPEDecoder ByteFallback ByteLevel Fuse Metaspace Replace Strip WordPiece",
    "model": "BPE Unigram WordLevel WordPiece",
}
_BULKY = ("vocab", "merges")


def read_as_it_is(path: Path, data: dict[str, Any], kind: str) -> Pipeline:
    """Vocabulary and scores; :func:`own_keys` has merges and steps."""
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
        A step is malformed.
    UnsupportedError
        A step is not known.
    """
    model = field(path, data, "model", dict)
    options = {name: value for name, value in model.items() if name not in _BULKY}
    pipeline: dict[str, Any] = {"model": options | {"type": kind}}
    _check(path, "model", kind)
    for name, inner in _STEPS:
        pipeline[name] = steps(path, data, name, inner)
        for step in pipeline[name]:
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
    pipeline["added"] = [token.id for token in added]
    pipeline["only_added"] = [token.id for token in added if token.content not in pieces]
    pipeline["special"] = [token.id for token in added if token.special]
    pipeline["normalized"] = [token.id for token in added if token.normalized]
    pipeline["single_word"] = [token.id for token in added if token.single_word]
    text = json.dumps(pipeline, ensure_ascii=False, separators=(",", ":"))
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
    """Merges under GGUF's key or, if a piece contains a space, under one of our own."""
    for key, separator in (("tokenizer.ggml.merges", " "), (MERGES, "\0")):
        if not any(separator in left or separator in right for left, right in merges):
            return {key: [separator.join(pair) for pair in merges]}
    raise UnsupportedError(f"{path}: 'model.merges': pieces with a space, and some with U+0000")
