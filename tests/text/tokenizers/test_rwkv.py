"""RWKV's tokenizer against a search through all tokens."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tests.text.tokenizers import hugging_face
from tests.text.tokenizers.strings import strings

import halfbyte
from halfbyte.errors import FormatError
from halfbyte.formats import MetadataValue
from halfbyte.formats.huggingface.rwkv_vocabulary import FILE
from halfbyte.quantize.gguf_writer import write_gguf
from halfbyte.text.tokenizers import Tokenizer


def contents(repository: Path) -> list[bytes]:
    """Bytes, words, and parts of characters, as RWKV's own list has them."""
    words = {word for line in hugging_face.lines(repository) for word in line.split()}
    longer = {b"\n\n", b"\r\n", b"\t\t", b"  ", b"\xe4\xbd", b"\xbd\xa0", b"'", b"\"'", b"\\x4"}
    longer |= {(" " * (i % 2) + w).encode() for i, w in enumerate(sorted(words)[:3000])}
    longer |= {c.encode() for text in strings(30) for c in text}
    longer.discard(b"<s>")  # the name of token 0
    return [*(bytes([i]) for i in range(256)), *sorted(longer - {bytes([i]) for i in range(256)})]


def write_list(folder: Path, tokens: list[bytes]) -> Path:
    """A list of tokens, spelled as strings where they are."""
    lines = []
    for number, token in enumerate(tokens, 1):
        try:
            literal = repr(token.decode())
        except UnicodeDecodeError:
            literal = repr(token)
        lines.append(f"{number} {literal} {len(token)}\n")
    (folder / FILE).write_text("".join(lines), encoding="utf-8")
    return folder


def expected(text: str, tokens: list[bytes]) -> list[int]:
    """The longest token at each place, token i at place i - 1 of the list."""
    utf8, at, found = text.encode(), 0, []
    ids = {token: i for i, token in enumerate(tokens, 1)}
    while at < len(utf8):
        size = next(n for n in range(40, 0, -1) if utf8[at : at + n] in ids)
        found.append(ids[utf8[at : at + size]])
        at += min(size, len(utf8) - at)
    return found


@pytest.fixture
def tokens(repository: Path) -> list[bytes]:
    return [token for token in contents(repository) if len(token) <= 40]


@pytest.fixture
def ours(tokens: list[bytes], tmp_path: Path) -> Tokenizer:
    return halfbyte.load_tokenizer(write_list(tmp_path, tokens))


def test_longest_tokens(ours: Tokenizer, tokens: list[bytes]) -> None:
    for text in strings(1200):
        ids = ours.encode(text)
        assert ids == expected(text, tokens), repr(text)
        assert ours.decode(ids) == text
        again, spans = ours.encode_with_offsets(text)
        assert again == ids
        assert spans == sorted(spans)
        for token, (start, end) in zip(ids, spans, strict=True):  # or a part of a character
            assert text[start:end] in ours.decode([token]) or end - start == 1


def test_special_tokens(ours: Tokenizer) -> None:
    assert ours.encode("<s>", parse_special=True) == [0]
    assert 0 not in ours.encode("<s>")
    assert ours.decode([0]) == ""
    assert (ours.bos, ours.eos) == (0, 0)
    assert ours.stop_ids == {0, ours.encode("\n\n")[0]}


def test_parts_of_characters_are_joined(ours: Tokenizer) -> None:
    stream = ours.stream()
    assert "".join(map(stream.push, ours.encode("a你👍b"))) == "a你👍b"
    assert stream.flush() == ""


def gguf(path: Path, tokens: list[str], **more: MetadataValue) -> Path:
    metadata: dict[str, MetadataValue] = {
        "general.architecture": "rwkv7", "tokenizer.ggml.model": "rwkv",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": np.array([3, *[1] * (len(tokens) - 1)], np.int32),
    }  # fmt: skip
    write_gguf(path, metadata | more, [])
    return path


def test_bytes_without_a_token(tmp_path: Path) -> None:
    """They are the unknown token, if there is one."""
    listed = ["<s>", "a", "ab", r"\xe4", "[PAD4]"]
    assert halfbyte.load_tokenizer(gguf(tmp_path / "m.gguf", listed)).encode("xabä") == [2]
    path = gguf(tmp_path / "n.gguf", listed, **{"tokenizer.ggml.unknown_token_id": np.uint32(0)})
    tokenizer = halfbyte.load_tokenizer(path)
    assert tokenizer.encode_with_offsets("xaba") == ([0, 2, 1], [(0, 1), (1, 3), (3, 4)])


@pytest.mark.parametrize("token", ["a\\", r"\x4", r"\xg0", "\\\\\\"])
def test_escapes_that_are_cut_short(token: str, tmp_path: Path) -> None:
    path = gguf(tmp_path / "m.gguf", ["<s>", token])
    with pytest.raises(FormatError, match=r"tokens': .*: expected .* a character after each"):
        halfbyte.load_tokenizer(path)


LINES = [
    "3 'a' 1", "2 'a' 2", "2 a 1", "2 'a'", "", "2 '' 0", "2 b'a' + b'b' 2", "2 'a", "2 ['a'] 1",
    "2 __import__('os') 1", f"2 {'-' * 9999}1 1", "2 '" + "a" * 40000 + "' 40000",
]  # fmt: skip


@pytest.mark.parametrize("line", LINES, ids=range(len(LINES)))
def test_lines_that_are_not_of_a_token(line: str, tmp_path: Path) -> None:
    (tmp_path / FILE).write_text(f"1 'b' 1\n{line}\n", encoding="utf-8")
    with pytest.raises(FormatError, match="line 2: expected 2, a token as a literal of Python"):
        halfbyte.load_tokenizer(tmp_path)


def test_list_that_is_not_text(tmp_path: Path) -> None:
    (tmp_path / FILE).write_bytes(b"1 '\xff' 1\n")
    with pytest.raises(FormatError, match="is not UTF-8"):
        halfbyte.load_tokenizer(tmp_path)
