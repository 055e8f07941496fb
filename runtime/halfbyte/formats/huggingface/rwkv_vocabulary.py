"""RWKV's list of tokens: in each line an id, a literal of Python, and its number of bytes."""

from __future__ import annotations

import ast
from contextlib import suppress
from pathlib import Path

import numpy as np

from halfbyte.errors import FormatError
from halfbyte.formats.mapped import map_file
from halfbyte.formats.model_file import MetadataValue
from halfbyte.formats.tokens import CONTROL, NORMAL

FILE = "rwkv_vocab_v20230424.txt"
_LONGEST_LINE = 1 << 15


def read_rwkv_vocabulary(path: Path) -> dict[str, MetadataValue]:
    """The tokenizer under the keys that llama.cpp's converter writes.

    Token 0 begins and ends texts. An empty line ends an answer, as in llama.cpp.

    Raises
    ------
    FormatError
        A line is not of a token, or ids do not count from 1.
    """
    contents = [_content(path, i, line) for i, line in enumerate(_lines(path), 1)]
    metadata: dict[str, MetadataValue] = {
        "tokenizer.ggml.model": "rwkv",
        "tokenizer.ggml.tokens": ["<s>", *(repr(content)[2:-1] for content in contents)],
        "tokenizer.ggml.token_type": np.array([CONTROL, *[NORMAL] * len(contents)], np.int32),
        "tokenizer.ggml.bos_token_id": np.uint32(0),
        "tokenizer.ggml.eos_token_id": np.uint32(0),
    }
    if b"\n\n" in contents:
        metadata["tokenizer.ggml.eot_token_id"] = np.uint32(1 + contents.index(b"\n\n"))
    return metadata


def _lines(path: Path) -> list[str]:
    try:
        text = bytes(map_file(path)).decode()
    except UnicodeDecodeError:
        raise FormatError(f"{path}: is not UTF-8") from None
    return text.split("\n")[: None if not text.endswith("\n") else -1]


def _content(path: Path, number: int, line: str) -> bytes:
    """The bytes of a line's token."""
    index, _, rest = line.partition(" ")
    literal, _, size = rest.rpartition(" ")
    content: object = None
    if index == str(number) and len(line) <= _LONGEST_LINE and literal[:1] in ("'", '"', "b"):
        with suppress(SyntaxError, ValueError):
            content = ast.literal_eval(literal)
    content = content.encode() if isinstance(content, str) else content
    if not isinstance(content, bytes) or not content or size.strip() != str(len(content)):
        raise FormatError(
            f"{path}: line {number}: expected {number}, a token as a literal of Python, and its "
            f"number of bytes, found {line[:80]!r}"
        )
    return content
