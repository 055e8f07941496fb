"""GGUF's types of tokens, and the keys of a tokenizer whose file has pieces and scores alone."""

from __future__ import annotations

import json
import re
from typing import Any

import numpy as np
import numpy.typing as npt

from halfbyte.errors import FormatError, printable
from halfbyte.formats.model_file import MetadataValue

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6

# What GGUF has no key for: the steps of a tokenizer.json (JSON), and scores that no float32 holds.
NARROW = "halfbyte.tokenizer.float32_sums"  # scores are added as `sentencepiece` adds them
MERGES = "halfbyte.tokenizer.merges"  # of pieces with a space in them; between two is U+0000
PIPELINE = "halfbyte.tokenizer.pipeline"
# Its lists of added tokens' ids.
PIPELINE_IDS = ("only_added", "normalized", "single_word", "added", "special")
SCORES = "halfbyte.tokenizer.scores"

BYTE_TOKEN = re.compile(r"<0x[0-9A-F]{2}>")

# The characters that byte-level BPE writes bytes as: those of Latin-1 that can be seen are
# themselves, the others follow U+0100.
_VISIBLE = (*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100))
_HIDDEN = (byte for byte in range(256) if byte not in _VISIBLE)
LETTERS = {byte: chr(byte) for byte in _VISIBLE} | {
    byte: chr(0x100 + index) for index, byte in enumerate(_HIDDEN)
}


def write_bytes(content: bytes) -> str:
    """Bytes as byte-level BPE writes them."""
    return content.decode("latin-1").translate(LETTERS)


_MAX_PADDING = 4096  # rows beyond twice the tokens: more are no padding
_DROPPED_ROLES = ("padding", "mask", "eot", "eom")  # whose token no model needs to be fed


def padding(index: int) -> str:
    """The token of an id that has none, as llama.cpp's converter names it."""
    return f"[PAD{index}]"


def fit_vocabulary(
    where: str, metadata: dict[str, MetadataValue], rows: int, notes: list[str]
) -> None:
    """Give a vocabulary as many tokens as the embedding has rows, as llama.cpp's converter does.

    Rows without a token get one that no text has and that decodes as nothing: a model may still
    choose it. Added tokens without a row are left out, so that what spells them is text, and no
    text has an id that the model lacks.

    Parameters
    ----------
    where : str
        The model, for messages.
    metadata : dict
        ``tokenizer.ggml.*``; changed in place.
    rows : int
        Of the embedding.
    notes : list of str
        What was done is said here.

    Raises
    ------
    FormatError
        A token without a row is no added one, or begins, ends or separates texts; or there are many
        more rows than tokens.
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
    made = [padding(index) for index in range(count, rows)]
    metadata["tokenizer.ggml.tokens"] = [*tokens[:rows], *made]
    fills = {"tokenizer.ggml.token_type": UNUSED, "tokenizer.ggml.scores": 0, SCORES: 0}
    for name, fill in fills.items():
        values = metadata.get(name)
        if isinstance(values, np.ndarray) and len(values) == count:
            more = np.full(len(made), fill, values.dtype)
            metadata[name] = np.concatenate([values[:rows], more])
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
    """Whether tokens from `rows` on may be left out; roles that name them go."""
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
    """SentencePiece BPE with byte fallback, as Llama 2's, under GGUF's keys."""
    kinds = [BYTE if BYTE_TOKEN.fullmatch(piece) else NORMAL for piece in pieces]
    kinds[unknown], kinds[bos], kinds[eos] = UNKNOWN, CONTROL, CONTROL
    return {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": pieces,
        "tokenizer.ggml.scores": scores,
        "tokenizer.ggml.token_type": np.array(kinds, np.int32),
        "tokenizer.ggml.bos_token_id": np.uint32(bos),
        "tokenizer.ggml.eos_token_id": np.uint32(eos),
        "tokenizer.ggml.unknown_token_id": np.uint32(unknown),
        "tokenizer.ggml.add_bos_token": True,
        "tokenizer.ggml.add_eos_token": False,
        "tokenizer.ggml.add_space_prefix": True,
    }
