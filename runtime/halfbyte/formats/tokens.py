"""GGUF's types of tokens, and the keys of a tokenizer whose file has pieces and scores alone."""

from __future__ import annotations

import re

import numpy as np
import numpy.typing as npt

from halfbyte.formats.model_file import MetadataValue

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6

# What GGUF has no key for: the steps of a tokenizer.json (JSON), and scores that no float32 holds.
NARROW = "halfbyte.tokenizer.float32_sums"  # scores are added as `sentencepiece` adds them
MERGES = "halfbyte.tokenizer.merges"  # of pieces with a space in them; between two is U+0000
PIPELINE = "halfbyte.tokenizer.pipeline"
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
