"""Damaged or malicious tokenizer files: an error of one line, and no other effect."""

from __future__ import annotations

import copy
import json
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.text.tokenizers import hugging_face

import halfbyte
from halfbyte.errors import FormatError, HalfbyteError, UnsupportedError
from halfbyte.formats import ModelFile
from halfbyte.formats.pretokenizers import SPLITS
from halfbyte.text.tokenizers import from_metadata
from halfbyte.weights import F32, Tensor

Json = dict[str, Any]


@pytest.fixture(scope="module")
def sound(repository: Path) -> Json:
    """A valid byte-level tokenizer.json."""
    split = SPLITS["gpt-2"]
    data: Json = json.loads(hugging_face.byte_level(split, hugging_face.lines(repository)).to_str())
    return data


def refused(path: Path) -> str:
    """The message with which a file is refused, with little memory."""
    tracemalloc.start()
    with pytest.raises(HalfbyteError) as caught:
        halfbyte.load_tokenizer(path)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1 << 25
    message = str(caught.value)
    assert "\n" not in message
    assert message.startswith(str(path))
    return message


def set_model(name: str, value: object) -> Callable[[Json], None]:
    return lambda data: data["model"].update({name: value})


def add_merge(value: object) -> Callable[[Json], None]:
    return lambda data: data["model"]["merges"].append(value)


def add_token(**changes: object) -> Callable[[Json], None]:
    token = {"id": 2000, "content": "<new>", "special": False} | changes
    return lambda data: data["added_tokens"].append(token)


def deep(data: Json) -> None:
    nested: Json = {"type": "Sequence", "processors": []}
    data["post_processor"] = nested
    for _ in range(200):
        nested["processors"].append({"type": "Sequence", "processors": []})
        nested = nested["processors"][0]


CHANGES: dict[str, tuple[Callable[[Json], object], str]] = {
    "a merge of nothing": (add_merge(["", "a"]), "merges a piece with nothing"),
    "a merge into itself": (add_merge("a "), "merges a piece with nothing"),
    "a merge of an unknown piece": (add_merge(["zzzz", "a"]), "'zzzz' is not in the vocabulary"),
    "a merge that makes none": (add_merge(["z", "q"]), "'zq' is not in the vocabulary"),
    "a merge of three": (add_merge("a b c"), "expected two pieces, found 'a b c'"),
    "a merge of numbers": (add_merge([1, 2]), "expected two pieces"),
    "merges that are none": (set_model("merges", 7), "'model.merges': expected an array, found an"),
    "an id beyond": (lambda m: m["model"]["vocab"].update(x=1 << 60), "expected 0 to 1048575"),
    "an id below": (lambda m: m["model"]["vocab"].update(x=-1), "has id -1, expected 0 to"),
    "an id that is none": (lambda m: m["model"]["vocab"].update(x=True), "has id True, expected"),
    "an id twice": (lambda m: m["model"]["vocab"].update(xyz=5), "both have id 5"),
    "no vocabulary": (lambda m: m["model"].pop("vocab"), "'model.vocab': expected an object"),
    "an empty one": (
        lambda m: m.update(model={"type": "BPE", "vocab": {}, "merges": []}, added_tokens=[]),
        "'model.vocab': is empty",
    ),
    "half a surrogate pair": (
        lambda m: m["model"]["vocab"].update({"\ud800": 1500}), "half of a surrogate pair"
    ),
    "no model": (lambda m: m.pop("model"), "'model': expected an object, found nothing"),
    "another model": (set_model("type", "CharLevel"), "model: expected one of BPE, "),
    "chance": (set_model("dropout", 0.1), "'model.dropout': '0.1'"),
    "an added token with another's id": (add_token(id=5), "has id 5, but in the vocabulary"),
    "an added token with another id": (add_token(content="a", id=2000), "has id 2000, but in the"),
    "an added token far away": (add_token(id=1 << 40), "added token '<new>': id 1099511627776"),
    "an added token of nothing": (add_token(content=""), "added token 2000 is empty"),
    "an added token without an id": (add_token(id=None), "'added_tokens.id': expected an integer"),
    "a normalizer": (
        lambda m: m.update(normalizer={"type": "Reverse"}), "normalizer: expected one of "
    ),
    "a normalizer without what it replaces": (
        lambda m: m.update(normalizer={"type": "Replace", "content": ""}),
        "'normalizer.pattern': expected a string or a regular expression, found 'None'",
    ),
    "a normalizer that never ends": (
        lambda m: m.update(
            normalizer={"type": "Replace", "pattern": {"Regex": "(a+)+$"}, "content": ""}
        ),
        "'normalizer.pattern': regular expression '(a+)+$' is not known",
    ),
    "a charsmap that is none": (
        lambda m: m.update(normalizer={"type": "Precompiled", "precompiled_charsmap": "é"}),
        "'normalizer.precompiled_charsmap': not base64",
    ),
    "a step without a type": (lambda m: m.update(normalizer={}), "'normalizer.type': expected"),
    "a pre-tokenizer": (
        lambda m: m["pre_tokenizer"]["pretokenizers"].append({"type": "UnicodeScripts"}),
        "found 'UnicodeScripts'",
    ),
    "a pre-tokenizer that does what is not known": (
        lambda m: m["pre_tokenizer"]["pretokenizers"].append(
            {"type": "Punctuation", "behavior": "Doubled"}
        ),
        "'pre_tokenizer.behavior': 'Doubled' is not known",
    ),
    "a mark that is none": (
        lambda m: m["pre_tokenizer"]["pretokenizers"].append(
            {"type": "Metaspace", "prepend_scheme": "twice"}
        ),
        "is not a Metaspace",
    ),
    "a decoder": (lambda m: m.update(decoder={"type": "CTC"}, pre_tokenizer=None), "found 'CTC'"),
    "an unknown token that is none": (
        lambda m: m["model"].update({"unk_token": "[UNK]", "type": "WordPiece"}),
        "'model.unk_token': '[UNK]' is not",
    ),
    "an unknown token's id that is none": (
        lambda m: m.update(
            model={"type": "Unigram", "vocab": [["a", -1.0]], "unk_id": []}, added_tokens=[]
        ),
        "'model.unk_id': expected an integer, found an array",
    ),
    "bytes of a word too long": (
        lambda m: m["model"].update(
            {"unk_token": "a", "type": "WordPiece", "max_input_chars_per_word": 1 << 40}
        ),
        "'model.max_input_chars_per_word': 1099511627776",
    ),
    "a template of an unknown token": (
        lambda m: m["post_processor"].update(special_tokens={}), "no ids for '<|begin|>'"
    ),
    "a template's id far away": (
        lambda m: m["post_processor"]["special_tokens"]["<|begin|>"].update(ids=[1 << 33]),
        "id 8589934592",
    ),
    "deep": (deep, "nested more than 64 deep"),
}  # fmt: skip


@pytest.mark.parametrize("name", CHANGES)
def test_a_tokenizer_json_that_contradicts(name: str, sound: Json, tmp_path: Path) -> None:
    change, expected = CHANGES[name]
    data = copy.deepcopy(sound)
    change(data)
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(data), encoding="utf-8")
    assert expected in refused(path)


CONTENTS = {
    "an open end": (b'{"model": {"vocab"', "not JSON: Expecting"),
    "nothing in it": (b"{}", "'model': expected an object, found nothing"),
    "Latin-1": (b'{"\xe9": 1}', "JSON is not UTF-8 at offset 2"),
    "brackets": (b'{"a":' + b"[" * 100_000, "JSON is nested too deep"),
    "more brackets": (b'{"a":' + b"[" * 3_000_000, "at most 2097152 objects and arrays"),
    "a long number": (b'{"a":' + b"9" * 10_000 + b"}", "not JSON: "),
}


@pytest.mark.parametrize("name", CONTENTS)
def test_invalid_json(name: str, tmp_path: Path) -> None:
    content, expected = CONTENTS[name]
    path = tmp_path / "tokenizer.json"
    path.write_bytes(content)
    assert expected in refused(path)


def piece(text: bytes, score: bytes = b"\x15\0\0\0\0", kind: int = 1) -> bytes:
    """A SentencePiece of a model."""
    body = b"\x0a" + bytes([len(text)]) + text + score + b"\x18" + bytes([kind])
    return b"\x0a" + bytes([len(body)]) + body


MODELS = {
    "an endless integer": (b"\x0a" + b"\xff" * 20, "endless integer at offset 1"),
    "a length beyond": (b"\x0a\xff\xff\xff\xff\x0f", "4294967295 bytes expected, 0 found"),
    "a kind that does not exist": (piece(b"a") + b"\x0b", "is of unknown kind 3"),
    "a piece that is none": (b"\x0a\x02\x08\x05", "piece 0: expected bytes, found an integer"),
    "not UTF-8": (piece(b"\xff"), "piece 0: a string is not UTF-8"),
    "a score of NaN": (piece(b"a", b"\x15\0\0\xc0\x7f"), "piece 0: score nan is not finite"),
    "a short score": (piece(b"a", b"\x12\x01\0"), "piece 0: expected a float, found 1 bytes"),
    "a type": (piece(b"a", kind=9), "piece 0: type 9, expected 1 to 6"),
    "twice": (piece(b"a") + piece(b"b") + piece(b"a"), "piece 'a' appears twice"),
    "words": (
        piece(b"a") + b"\x12\x02\x18\x03",
        "expected model type unigram or bpe, found 'word'",
    ),
    "suffixes": (piece(b"a") + b"\x12\x03\xc0\x01\x01", "expected escaped whitespace"),
}


@pytest.mark.parametrize("name", MODELS)
def test_a_tokenizer_model_that_is_damaged(name: str, tmp_path: Path) -> None:
    content, expected = MODELS[name]
    path = tmp_path / "tokenizer.model"
    path.write_bytes(content)
    assert expected in refused(path)


def test_a_tokenizer_model_cut_anywhere(repository: Path, tmp_path: Path) -> None:
    """A truncated file is refused, or has fewer pieces."""
    model = hugging_face.train_sentencepiece(repository, model_type="bpe")
    path = tmp_path / "tokenizer.model"
    random = np.random.default_rng(0)
    for size in random.integers(1, len(model), 60).tolist():
        path.write_bytes(model[:size])
        try:
            halfbyte.load_tokenizer(path)
        except (FormatError, UnsupportedError) as error:
            message = str(error)
        else:
            message = str(path)
        assert message.startswith(str(path))
        assert "\n" not in message


def test_a_folder_with_more_tokens_than_the_model(sound: Json, tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text(json.dumps(sound), encoding="utf-8")
    (tmp_path / "config.json").write_text('{"vocab_size": 100}', encoding="utf-8")
    count = len(sound["model"]["vocab"])
    expected = f"{tmp_path}: the tokenizer has {count} tokens for 100 rows of the embedding, and "
    assert refused(tmp_path).startswith(expected)


def test_a_special_token_that_does_not_exist(sound: Json, tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text(json.dumps(sound), encoding="utf-8")
    (tmp_path / "tokenizer_config.json").write_text('{"eos_token": "<none>"}', encoding="utf-8")
    assert "'eos_token': '<none>' is not in the vocabulary" in refused(tmp_path)
    (tmp_path / "tokenizer_config.json").write_text('{"eos_token": 5}', encoding="utf-8")
    assert "'eos_token': expected a string, found an integer" in refused(tmp_path)


@pytest.mark.parametrize("kind", ["gpt2", "t5", "bert", "llama"])
def test_metadata_of_another_size(kind: str) -> None:
    embedding = Tensor("token_embd.weight", F32, (9, 1), np.zeros(36, np.uint8))
    tokens = {"tokenizer.ggml.model": kind, "tokenizer.ggml.tokens": ["a"] * 12}
    file = ModelFile(Path("m.gguf"), "GGUF v3", dict(tokens), {embedding.name: embedding})
    with pytest.raises(FormatError, match=r"tokenizer has 12 tokens, but tensor .* has 9 rows"):
        from_metadata(file)


def test_a_token_that_makes_every_step_long() -> None:
    tokens = {"tokenizer.ggml.model": "t5", "tokenizer.ggml.tokens": ["a" * 5000]}
    with pytest.raises(UnsupportedError, match="a token of 5000 characters"):
        from_metadata(ModelFile(Path("m.gguf"), "GGUF v3", dict(tokens), {}))
