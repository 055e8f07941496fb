"""Mutated tokenizer.json files: accepted, or refused with one of our errors."""

from __future__ import annotations

import json
import random as randomness
import tempfile
from pathlib import Path
from typing import Any

from tests.fuzz.mutators import mutate_json

from halfbyte.formats.tokens import LETTERS
from halfbyte.text.tokenizers import load_tokenizer

Json = dict[str, Any]
TEXTS = (
    "Hello, world! it's 123",
    " a  b\n\n<s>x</s> é字👍",
    "",
    "a" * 300,
    "\u0085\u2581\U00041234",
)
MARK = "\u2581"
BYTES = [f"<0x{byte:02X}>" for byte in range(256)]
VALUES: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 1 << 20, 1 << 62, 1.5, -1e308, "", "a", "\ud800", "\0", "a" * 5000,
    [], {}, [[]], "(a+)+$", "\\p{L}{9}", "\\s+$", "ByteLevel", "Metaspace", "Unigram", "WordPiece",
    "Sequence", "first", "Contiguous", {"Regex": "[^\\s]+"}, {"String": ""}, {"String": " "},
)  # fmt: skip


def _file(model: Json, normalizer: Any, splits: Any, decoder: Any, **others: Any) -> Json:
    names = ("<unk>", "<s>", "</s>")
    added = [
        {"id": i, "content": name, "special": True, "normalized": False, "rstrip": i == 2}
        for i, name in enumerate(names)
    ]
    return {
        "added_tokens": added, "normalizer": normalizer, "pre_tokenizer": splits,
        "post_processor": None, "decoder": decoder, "model": model, **others,
    }  # fmt: skip


def _vocabulary(*pieces: str) -> dict[str, int]:
    return {piece: index for index, piece in enumerate(("<unk>", "<s>", "</s>", *pieces))}


def corpus() -> list[bytes]:
    """A small file of each kind of pipeline."""
    word = [*"abcdehlorw,.!", "he", "ll", "hell", "##e", "##l", "##o", "wo"]
    letters = [*LETTERS.values(), "he", "ll", "hell"]
    merges = ["h e", "l l", ["he", "ll"]]
    before: Json = {"type": "ByteLevel", "add_prefix_space": False}
    spaces: Json = {"type": "Replace", "pattern": {"String": " "}, "content": MARK}
    template: Json = {
        "type": "TemplateProcessing",
        "single": [{"SpecialToken": {"id": "<s>"}}, {"Sequence": {"id": "A"}}],
        "special_tokens": {"<s>": {"ids": [1]}},
    }
    scored = [[piece, -float(index)] for index, piece in enumerate(_vocabulary(MARK, *word))]
    byte_level = {"type": "BPE", "vocab": _vocabulary(*letters), "merges": merges}
    files = (
        _file(byte_level, None, before, {"type": "ByteLevel"}, post_processor=template),
        _file(
            {"type": "BPE", "unk_token": "<unk>", "fuse_unk": True, "byte_fallback": True,
             "vocab": _vocabulary(*BYTES, MARK, *word), "merges": merges},
            {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": MARK}, spaces]},
            None,
            {"type": "Sequence", "decoders": [
                {"type": "Replace", "pattern": {"String": MARK}, "content": " "},
                {"type": "ByteFallback"}, {"type": "Fuse"},
                {"type": "Strip", "content": " ", "start": 1, "stop": 0},
            ]},
        ),
        _file(
            {"type": "Unigram", "unk_id": 0, "vocab": scored}, {"type": "NFKC"},
            {"type": "Sequence", "pretokenizers": [
                {"type": "WhitespaceSplit"},
                {"type": "Metaspace", "replacement": MARK, "prepend_scheme": "first"},
            ]},
            {"type": "Metaspace", "replacement": MARK},
        ),
        _file(
            {"type": "WordPiece", "unk_token": "<unk>", "vocab": _vocabulary(*word)},
            {"type": "BertNormalizer"}, {"type": "BertPreTokenizer"}, {"type": "WordPiece"},
        ),
        _file(
            {"type": "WordLevel", "unk_token": "<unk>", "vocab": _vocabulary("hello", "world")},
            {"type": "Lowercase"}, {"type": "Punctuation", "behavior": "Isolated"}, None,
        ),
    )  # fmt: skip
    return [json.dumps(file).encode() for file in files]


def mutate(data: bytes, random: randomness.Random) -> bytes:
    """Change values, keys or positions in the tree, or any bytes."""
    return mutate_json(data, random, VALUES)


def target(data: bytes) -> None:
    """Read a file and use it; raises `HalfbyteError` if it is refused."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "tokenizer.json"
        path.write_bytes(data)
        tokenizer = load_tokenizer(path)
        for index, text in enumerate(TEXTS):
            ids, offsets = tokenizer.encode_with_offsets(text, parse_special=index % 2 == 0)
            if ids != tokenizer.encode(text, parse_special=index % 2 == 0):
                raise AssertionError(f"other ids with offsets: {text!r}")
            if not all(0 <= start <= end <= len(text) for start, end in offsets):
                raise AssertionError(f"offsets beyond {text!r}: {offsets}")
            tokenizer.decode(ids)
