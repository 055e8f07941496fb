"""Every family of tokenizers inside Pyodide, whose `re` and Unicode tables are its own."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.browser.conftest import Python
from tests.text.tokenizers.hugging_face import byte_level, lines, train_sentencepiece, word_piece
from tests.text.tokenizers.strings import strings

import halfbyte
from halfbyte.formats.pretokenizers import SPLITS


def _byte_level(name: str) -> Callable[[Path], bytes]:
    return lambda root: byte_level(SPLITS[name], lines(root)).to_str().encode()


def _word_piece(root: Path) -> bytes:
    words = sorted({word for line in lines(root)[:200] for word in line.lower().split()})
    letters = [mark + chr(code) for code in range(33, 127) for mark in ("", "##")]
    pieces = dict.fromkeys(["[PAD]", "[UNK]", "[CLS]", "[SEP]", *letters, *words])
    return word_piece({piece: i for i, piece in enumerate(pieces)}).to_str().encode()


FAMILIES: dict[str, tuple[str, Callable[[Path], bytes]]] = {
    **{name: ("tokenizer.json", _byte_level(name)) for name in ("gpt-2", "llama-bpe", "qwen2")},
    "wordpiece": ("tokenizer.json", _word_piece),
    "unigram": ("tokenizer.model", lambda root: train_sentencepiece(root, model_type="unigram")),
    "bpe": (
        "tokenizer.model",
        lambda root: train_sentencepiece(root, model_type="bpe", byte_fallback=True),
    ),
}


@pytest.mark.parametrize("family", FAMILIES)
def test_ids_equal_the_native_ones(
    family: str, python: Python, repository: Path, tmp_path: Path
) -> None:
    name, make = FAMILIES[family]
    content = make(repository)
    (tmp_path / name).write_bytes(content)
    native = halfbyte.load_tokenizer(tmp_path / name)
    texts = strings(300)
    asked = json.dumps(json.dumps(texts))  # lone surrogates survive in escapes
    result = python.run(f"""
import base64, json, halfbyte
from pathlib import Path
path = Path("/tmp/{name}")
path.write_bytes(base64.b64decode("{base64.b64encode(content).decode()}"))
tokenizer = halfbyte.load_tokenizer(path)
ids = [tokenizer.encode(text) for text in json.loads({asked})]
[ids, [tokenizer.decode(text) for text in ids]]
""")
    ids = [native.encode(text) for text in texts]
    assert result == [ids, [native.decode(text) for text in ids]]
