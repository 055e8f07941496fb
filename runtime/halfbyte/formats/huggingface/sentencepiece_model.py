"""Reader of SentencePiece's tokenizer.model, translated to GGUF's tokenizer keys.

The file is a protobuf message: pieces (text, score, type), settings of training and of
normalization
(https://github.com/google/sentencepiece/blob/master/src/sentencepiece_model.proto).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from halfbyte.errors import FormatError, UnsupportedError
from halfbyte.formats.mapped import map_file
from halfbyte.formats.model_file import MetadataValue
from halfbyte.formats.protobuf import Message
from halfbyte.formats.tokens import NARROW

_PIECE, _TRAINER, _NORMALIZER = 1, 2, 3  # fields of the message
_UNIGRAM, _BPE = 1, 2  # model types
_KINDS = {_UNIGRAM: "t5", _BPE: "llama", 3: "word", 4: "char"}
_TYPES = range(1, 7)  # the same numbers as GGUF's
_MAX_PIECES = 1 << 20
_MAX_BYTES = 1 << 26


@dataclass
class _Model:
    """The fields of a file that are used, with the defaults of its schema."""

    tokens: list[str] = field(default_factory=list)
    scores: list[float] = field(default_factory=list)
    types: list[int] = field(default_factory=list)
    kind: int = _UNIGRAM
    ids: dict[str, int] = field(
        default_factory=lambda: {"unknown": 0, "bos": 1, "eos": 2, "padding": -1}
    )
    charsmap: bytes = b""
    add_dummy_prefix: bool = True
    remove_extra_whitespaces: bool = True
    escape_whitespaces: bool = True
    treat_whitespace_as_suffix: bool = False


def read_sentencepiece(path: Path) -> dict[str, MetadataValue]:
    """The tokenizer under GGUF's keys.

    Raises
    ------
    FormatError
        Damaged, or not such a file.
    UnsupportedError
        A kind of model for which GGUF has no name.
    """
    pages = memoryview(map_file(path))
    if len(pages) > _MAX_BYTES:
        raise FormatError(f"{path}: expected at most {_MAX_BYTES} bytes, found {len(pages)}")
    model = _Model()
    whole = Message(pages, path, "SentencePiece model")
    for number, value in whole.fields():
        if number == _PIECE:
            _read_piece(whole.message(value, f"piece {len(model.tokens)}"), model)
        elif number == _TRAINER:
            _read_trainer(whole.message(value, "trainer_spec"), model)
        elif number == _NORMALIZER:
            _read_normalizer(whole.message(value, "normalizer_spec"), model)
    _check(path, model)
    return _metadata(model)


def _read_piece(message: Message, model: _Model) -> None:
    if len(model.tokens) == _MAX_PIECES:
        raise message.error(f"expected at most {_MAX_PIECES} pieces")
    token, score, kind = "", 0.0, 1
    for number, value in message.fields():
        if number == 1:
            token = message.text(value)
        elif number == 2:
            score = message.number(value)
        elif number == 3:
            kind = message.integer(value)
    if kind not in _TYPES:
        raise message.error(f"type {kind}, expected 1 to 6")
    if not np.isfinite(score):
        raise message.error(f"score {score} is not finite")
    model.tokens.append(token)
    model.scores.append(score)
    model.types.append(kind)


def _read_trainer(message: Message, model: _Model) -> None:
    ids = {40: "unknown", 41: "bos", 42: "eos", 43: "padding"}
    for number, value in message.fields():
        if number == 3:
            model.kind = message.integer(value)
        elif number == 24:
            model.treat_whitespace_as_suffix = bool(message.integer(value))
        elif number in ids:
            model.ids[ids[number]] = message.integer(value)


def _read_normalizer(message: Message, model: _Model) -> None:
    for number, value in message.fields():
        if number == 2:
            model.charsmap = bytes(message.bytes(value))
        elif number == 3:
            model.add_dummy_prefix = bool(message.integer(value))
        elif number == 4:
            model.remove_extra_whitespaces = bool(message.integer(value))
        elif number == 5:
            model.escape_whitespaces = bool(message.integer(value))


def _check(path: Path, model: _Model) -> None:
    if not model.tokens:
        raise FormatError(f"{path}: not a SentencePiece model: it has no pieces")
    if len(set(model.tokens)) < len(model.tokens):
        seen: set[str] = set()
        again = next(token for token in model.tokens if token in seen or seen.add(token))  # type: ignore[func-returns-value]
        raise FormatError(f"{path}: piece {again!r} appears twice")
    if model.kind not in (_UNIGRAM, _BPE):
        name = _KINDS.get(model.kind, str(model.kind))
        raise UnsupportedError(f"{path}: expected model type unigram or bpe, found '{name}'")
    if model.treat_whitespace_as_suffix or not model.escape_whitespaces:
        raise UnsupportedError(
            f"{path}: expected escaped whitespace before words, found it after them or not escaped"
        )


def _metadata(model: _Model) -> dict[str, MetadataValue]:
    count = len(model.tokens)
    metadata: dict[str, MetadataValue] = {
        "model": _KINDS[model.kind],
        "pre": "default",
        "tokens": model.tokens,
        "scores": np.array(model.scores, np.float32),
        "token_type": np.array(model.types, np.int32),
        "add_space_prefix": model.add_dummy_prefix,
        "remove_extra_whitespaces": model.remove_extra_whitespaces,
    }
    for name, number in model.ids.items():
        if 0 <= number < count:
            metadata[f"{name}_token_id"] = np.uint32(number)
    metadata["add_bos_token"] = model.kind == _BPE and "bos_token_id" in metadata
    metadata["add_eos_token"] = model.kind == _UNIGRAM and "eos_token_id" in metadata
    if model.charsmap:
        metadata["precompiled_charsmap"] = np.frombuffer(model.charsmap, np.uint8)
    keyed = {f"tokenizer.ggml.{name}": value for name, value in metadata.items()}
    if model.kind == _UNIGRAM:
        keyed[NARROW] = True
    return keyed
