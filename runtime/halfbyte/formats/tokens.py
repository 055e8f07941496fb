"""GGUF's token types, and the keys of tokenizers whose files only have pieces and scores."""

from __future__ import annotations

import json
import re
from typing import Any

import numpy as np
import numpy.typing as npt

from halfbyte.errors import FormatError, printable
from halfbyte.formats.model_file import MetadataValue

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6

# Keys of our own where GGUF has none
BETWEEN = "halfbyte.tokenizer.between_token_ids"  # of two texts that are read together
NARROW = "halfbyte.tokenizer.float32_sums"  # scores are added in float32, as by `sentencepiece`
MERGES = "halfbyte.tokenizer.merges"  # of pieces that contain a space; U+0000 separates the two
PIPELINE = "halfbyte.tokenizer.pipeline"  # the steps of a tokenizer.json, as JSON
PIPELINE_IDS = ("only_added", "normalized", "single_word", "added", "special")  # its lists of ids
SCORES = "halfbyte.tokenizer.scores"  # float64, if float32 would round them

BYTE_TOKEN = re.compile(r"<0x[0-9A-F]{2}>")

# The characters that byte-level BPE writes bytes as: visible ones of Latin-1 as themselves, the
# others from U+0100 on.
_VISIBLE = (*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100))
_HIDDEN = (byte for byte in range(256) if byte not in _VISIBLE)
LETTERS = {byte: chr(byte) for byte in _VISIBLE} | {
    byte: chr(0x100 + index) for index, byte in enumerate(_HIDDEN)
}


def write_bytes(content: bytes) -> str:
    """Bytes as byte-level BPE writes them."""
    return content.decode("latin-1").translate(LETTERS)


_MAX_PADDING = 4096  # rows beyond twice the tokens: more cannot be padding
_DROPPED_ROLES = ("padding", "mask", "eot", "eom")  # roles whose tokens need not be fed to a model


def padding(index: int) -> str:
    """The name that llama.cpp's converter gives to an id without a token."""
    return f"[PAD{index}]"


def fit_vocabulary(
    where: str, metadata: dict[str, MetadataValue], rows: int, notes: list[str]
) -> None:
    """Give a vocabulary as many tokens as the embedding has rows, as llama.cpp's converter does.

    A row without a token gets one that no text contains and that decodes as nothing: the model may
    still choose it. Added tokens without a row are dropped, so that their spelling is plain text
    and no text has an id that the model lacks.

    Parameters
    ----------
    where : str
        The model, for messages.
    metadata : dict
        ``tokenizer.ggml.*``; changed in place.
    rows : int
        Rows of the embedding.
    notes : list of str
        Descriptions of changes are appended here.

    Raises
    ------
    FormatError
        A token without a row is not an added one, or begins, ends or separates texts; or there are
        many more rows than tokens.
    """
    tokens: Any = metadata["tokenizer.ggml.tokens"]
    count = len(tokens)
    if not rows <= 2 * count + _MAX_PADDING:
        raise FormatError(f"{where}: {rows} rows of the embedding for {count} tokens")
    if count < rows:
        notes.append(
            f"{rows - count} rows of the embedding have no token: chosen, they decode as nothing"
        )
    elif count > rows:
        _check_dropped(where, metadata, rows)
        some = ", ".join(map(repr, tokens[rows : rows + 3])) + (", ..." if count > rows + 3 else "")
        notes.append(
            f"{count - rows} tokens have no row in the embedding, so they are text: "
            f"{printable(some, 200)}"
        )
    more = [padding(index) for index in range(count, rows)]
    metadata["tokenizer.ggml.tokens"] = [*tokens[:rows], *more]
    fills = {"tokenizer.ggml.token_type": UNUSED, "tokenizer.ggml.scores": 0, SCORES: 0}
    for name, fill in fills.items():
        values = metadata.get(name)
        if isinstance(values, np.ndarray) and len(values) == count:
            filled = np.full(len(more), fill, values.dtype)
            metadata[name] = np.concatenate([values[:rows], filled])
    for key, values in metadata.items():
        if key.endswith("strip_token_ids") and isinstance(values, np.ndarray):
            metadata[key] = values[values.astype(np.int64) < rows]
    steps = metadata.get(PIPELINE)
    if isinstance(steps, str) and count > rows:
        data = json.loads(steps)
        for name in PIPELINE_IDS:
            data[name] = [index for index in data.get(name, []) if index < rows]
        metadata[PIPELINE] = json.dumps(data)


def _check_dropped(where: str, metadata: dict[str, MetadataValue], rows: int) -> None:
    """Check that tokens from `rows` on may be dropped, and drop roles that refer to them."""
    tokens: Any = metadata["tokenizer.ggml.tokens"]
    types = metadata.get("tokenizer.ggml.token_type")
    for index in range(rows, len(tokens)):
        kind = int(types[index]) if isinstance(types, np.ndarray) else NORMAL
        if kind not in (CONTROL, USER_DEFINED, UNUSED):
            raise FormatError(
                f"{where}: the tokenizer has {len(tokens)} tokens for {rows} rows of the "
                f"embedding, and {tokens[index]!r:.80} is not an added one"
            )
    for key, value in list(metadata.items()):
        match = _ROLE.fullmatch(key)
        if match is None or not isinstance(value, np.integer) or int(value) < rows:
            continue
        if match[1] not in _DROPPED_ROLES:
            raise FormatError(
                f"{where}: metadata '{key}': expected a token with a row in the embedding, of "
                f"which there are {rows}, found {value}"
            )
        del metadata[key]


_ROLE = re.compile(r"tokenizer\.ggml\.(\w+)_token_id")


def sentencepiece_metadata(
    pieces: list[str], scores: npt.NDArray[np.float32], *, unknown: int, bos: int, eos: int
) -> dict[str, MetadataValue]:
    """SentencePiece BPE with byte fallback, as in Llama 2, under GGUF's keys."""
    types = [BYTE if BYTE_TOKEN.fullmatch(piece) else NORMAL for piece in pieces]
    types[unknown], types[bos], types[eos] = UNKNOWN, CONTROL, CONTROL
    return {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": pieces,
        "tokenizer.ggml.scores": scores,
        "tokenizer.ggml.token_type": np.array(types, np.int32),
        "tokenizer.ggml.bos_token_id": np.uint32(bos),
        "tokenizer.ggml.eos_token_id": np.uint32(eos),
        "tokenizer.ggml.unknown_token_id": np.uint32(unknown),
        "tokenizer.ggml.add_bos_token": True,
        "tokenizer.ggml.add_eos_token": False,
        "tokenizer.ggml.add_space_prefix": True,
    }
