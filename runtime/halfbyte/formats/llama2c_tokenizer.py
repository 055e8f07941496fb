"""Reader of llama2.c's tokenizer files, translated to GGUF's tokenizer keys.

Layout: int32 max_token_length, then for each token float32 score, int32 length, UTF-8 bytes, to
the end of the file. It is a SentencePiece vocabulary in which the space mark U+2581 is written as
a space, and <s> and </s> (ids 1 and 2) have a newline on each side.
"""

from __future__ import annotations

import struct
from dataclasses import replace
from pathlib import Path

import numpy as np

from halfbyte.errors import FormatError
from halfbyte.formats.mapped import map_file
from halfbyte.formats.model_file import MetadataValue, ModelFile
from halfbyte.formats.tokens import sentencepiece_metadata

UNKNOWN, BOS, EOS = 0, 1, 2
_ENTRY = struct.Struct("<fi")


def read_tokenizer(path: Path, data: memoryview) -> dict[str, MetadataValue]:
    """The tokenizer under GGUF's keys; raises `FormatError`."""
    scores, pieces = _read_entries(path, data)
    if len(pieces) <= EOS:
        raise FormatError(f"{path}: {len(pieces)} tokens, expected at least <unk>, <s>, </s>")
    pieces[BOS], pieces[EOS] = pieces[BOS].strip("\n"), pieces[EOS].strip("\n")
    return sentencepiece_metadata(
        [piece.replace(" ", "\u2581") for piece in pieces], np.array(scores, np.float32),
        unknown=UNKNOWN, bos=BOS, eos=EOS,
    )  # fmt: skip


def _read_entries(path: Path, data: memoryview) -> tuple[list[float], list[str]]:
    scores: list[float] = []
    pieces: list[str] = []
    at = 4
    while at < len(data):
        where = f"{path}: token {len(pieces)}"
        if at + _ENTRY.size > len(data):
            raise FormatError(f"{where}: truncated at offset {at}")
        score, length = _ENTRY.unpack_from(data, at)
        at += _ENTRY.size
        if not 0 <= length <= len(data) - at:
            raise FormatError(f"{where}: length {length}, expected 0 to {len(data) - at}")
        try:
            pieces.append(str(data[at : at + length], "utf-8"))
        except UnicodeDecodeError:
            raise FormatError(f"{where}: not UTF-8; is this a llama2.c tokenizer file?") from None
        scores.append(score)
        at += length
    return scores, pieces


def with_tokenizer(model: ModelFile, file: Path | None) -> ModelFile:
    """The model with a llama2.c tokenizer in its metadata.

    It is `file`, or the first of ``<stem>-tokenizer.bin``, ``tokenizer.bin``, ``tok<size>.bin``
    beside the model with as many tokens as the model. If there is none, the model gets a note.

    Raises
    ------
    FormatError
        The file is damaged, or no file has as many tokens as the model.
    """
    embedding = model.tensors.get("token_embd.weight")
    size = embedding.shape[0] if embedding is not None else None
    names = (f"{model.path.stem}-tokenizer.bin", "tokenizer.bin", f"tok{size}.bin")
    beside = [model.path.with_name(name) for name in names]
    candidates = [file] if file is not None else [path for path in beside if path.is_file()]
    mismatches = []
    for path in candidates:
        tokenizer = read_tokenizer(path, memoryview(map_file(path)))
        tokens = tokenizer["tokenizer.ggml.tokens"]
        if size is None or len(tokens) == size:  # type: ignore[arg-type]
            others = {k: v for k, v in model.metadata.items() if not k.startswith("tokenizer.")}
            return replace(model, metadata={**others, **tokenizer})
        mismatches.append(f"{path} has {len(tokens)} tokens")  # type: ignore[arg-type]
    if mismatches:
        raise FormatError(f"{model.path} has {size} tokens, but {', '.join(mismatches)}")
    note = f"no tokenizer found: looked for {', '.join(names)} beside the model"
    return replace(model, notes=(*model.notes, note))
