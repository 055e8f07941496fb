"""Byte-level BPE against PyPI's `tokenizers`, for every split."""

from __future__ import annotations

import json
import time
import unicodedata
from pathlib import Path

import numpy as np
import pytest
from tests.support.sampled import sampled
from tests.text.tokenizers import hugging_face
from tests.text.tokenizers.strings import strings
from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers

from halfbyte.errors import FormatError, HalfbyteError, UnsupportedError
from halfbyte.formats import ModelFile
from halfbyte.formats.pretokenizers import SPLITS
from halfbyte.text.opening import open_model
from halfbyte.text.tokenizers import from_metadata
from halfbyte.text.tokenizers.base import BaseTokenizer
from halfbyte.text.tokenizers.composition import compose, composites
from halfbyte.text.tokenizers.unicode_classes import Splitter

COMMON = ("gpt-2", "llama-bpe", "qwen2", "smollm")
DISTINCT = {split: name for name, split in reversed(SPLITS.items())}
TEXTS = strings(5_000)


@pytest.mark.parametrize("count", [600, pytest.param(5_000, marks=pytest.mark.long)])
@pytest.mark.parametrize("name", DISTINCT.values())
def test_ids_are_those_of_tokenizers(
    name: str, count: int, repository: Path, tmp_path: Path
) -> None:
    judge = hugging_face.byte_level(SPLITS[name], hugging_face.lines(repository))
    tokenizer = hugging_face.ours(judge, tmp_path)
    assert tokenizer.vocabulary.file.metadata["tokenizer.ggml.pre"] == name
    texts = TEXTS[: count if name in COMMON else min(count, 1500)]
    assert hugging_face.differences(judge, tokenizer, texts) == []
    for text in texts[:500]:
        ids, offsets = tokenizer.encode_with_offsets(text)
        assert ids == tokenizer.encode(text)
        if not SPLITS[name].composed or unicodedata.is_normalized("NFC", text):
            assert offsets == judge.encode(text).offsets, repr(text)
            assert tokenizer.decode(ids) == text


@pytest.fixture
def judge(repository: Path) -> Tokenizer:
    return hugging_face.byte_level(SPLITS["llama-bpe"], hugging_face.lines(repository))


@pytest.fixture
def ours(judge: Tokenizer, tmp_path: Path) -> BaseTokenizer:
    return hugging_face.ours(judge, tmp_path)


def test_classes_are_those_of_tokenizers() -> None:
    """Every code point, each category that a split has, and whitespace."""
    points = [*range(0xD800), *range(0xE000, 0x33500), *range(0xE0000, 0xE0200)]
    every = "".join(map(chr, points))  # no other code point has one of these categories
    names = [rf"\p{{{name}}}" for name in ("L", "M", "N", "P", "S", "Lu", "Ll", "Lt", "Lm", "Lo")]
    for pattern in [*names, r"\s", r"[^\s\p{L}\p{N}]"]:
        judge = pre_tokenizers.Split(Regex(f"{pattern}+"), "isolated")
        expected = [part for part, _ in judge.pre_tokenize_str(every)]
        assert Splitter(f"{pattern}+").split(every) == expected, pattern
    basic = every[: every.index("\U00010000")]  # another expression, see `translate`
    judge = pre_tokenizers.Split(Regex(r"\p{L}+"), "isolated")
    assert Splitter(r"\p{L}+").split(basic) == [p for p, _ in judge.pre_tokenize_str(basic)]


def test_control_tokens_in_a_text_are_text(judge: Tokenizer, ours: BaseTokenizer) -> None:
    text = "a<|end|><|begin|>b <|end|>"
    assert ours.encode(text, parse_special=True) == judge.encode(text).ids
    plain = ours.encode(text, add_special_tokens=False)
    assert not {0, 1} & set(plain)
    assert ours.decode(plain) == text
    assert ours.decode(ours.encode(text, parse_special=True)) == "ab "
    assert ours.encode_batch([text, "a"], True, True) == [
        ours.encode(text, parse_special=True), ours.encode("a")
    ]  # fmt: skip
    ids, offsets = ours.encode_with_offsets(text, parse_special=True)
    expected = judge.encode(text)
    assert (ids, offsets) == (expected.ids, expected.offsets)


def test_added_tokens(judge: Tokenizer, tmp_path: Path) -> None:
    """Tokens that are not special are always taken, the leftmost, then the longest."""
    added = ["<tool>", "<tool", "ol>x", "fox", "字字"]
    judge.add_tokens(added)
    judge.add_special_tokens([AddedToken("<|user|>", rstrip=True), AddedToken("<m>", lstrip=True)])
    tokenizer = hugging_face.ours(judge, tmp_path)
    random = np.random.default_rng(0)
    letters = [*added, *"<|user|>", "<|user|>", "<m>", " ", "\n", "字", "a", "fo"]
    for length in range(2000):
        text = "".join(random.choice(letters, length % 20))
        ids = tokenizer.encode(text, parse_special=True)
        assert ids == judge.encode(text).ids, repr(text)
    assert tokenizer.decode(tokenizer.encode("a <tool>字字")) == "a <tool>字字"


def test_a_space_before_a_text(repository: Path, tmp_path: Path) -> None:
    split = SPLITS["gpt-2"]
    judge = hugging_face.byte_level(split, hugging_face.lines(repository), add_prefix_space=True)
    tokenizer = hugging_face.ours(judge, tmp_path)
    assert hugging_face.differences(judge, tokenizer, TEXTS[:2000]) == []


def test_streaming_never_shows_half_a_character(ours: BaseTokenizer) -> None:
    random = np.random.default_rng(1)
    for text in TEXTS[:300]:
        ids = ours.encode(text)
        decoder = ours.stream()
        pieces = [decoder.push(token) for token in ids]
        assert decoder.flush() == ""
        assert "".join(pieces) == text
        assert "\ufffd" in text or "\ufffd" not in "".join(pieces)
    for _ in range(200):
        ids = random.integers(0, ours.vocab_size, 30).tolist()
        decoder = ours.stream()
        assert "".join([*map(decoder.push, ids), decoder.flush()]) == ours.decode(ids)
    with pytest.raises(HalfbyteError, match=f"expected 0 to {ours.vocab_size - 1}"):
        ours.decode([ours.vocab_size])


def test_surrogates_become_question_marks(ours: BaseTokenizer) -> None:
    assert ours.decode(ours.encode("a\udcffb\ud800")) == "a?b?"


@pytest.mark.parametrize(
    "unit", sampled(["abcdefgh", "\n ", "𠀀漢", "é\u0323\u0301", "0123", "!?", " \t"], 3)
)
def test_a_megabyte_without_an_end(unit: str, repository: Path, tmp_path: Path) -> None:
    """Quadratic time would be hours."""
    judge = hugging_face.byte_level(SPLITS["qwen2"], hugging_face.lines(repository))
    tokenizer = hugging_face.ours(judge, tmp_path)
    text = "".join(np.random.default_rng(0).choice(list(unit), 200_000))
    start = time.process_time()
    ids = tokenizer.encode(text, add_special_tokens=False)
    assert tokenizer.decode(ids) == compose(text)
    assert time.process_time() - start < 30
    assert (
        tokenizer.encode(text[:3000], False)
        == judge.encode(text[:3000], add_special_tokens=False).ids
    )


def test_composition_is_that_of_tokenizers() -> None:
    judge = normalizers.NFC()
    random = np.random.default_rng(0)
    marks = [chr(c) for c in range(0x3100) if unicodedata.category(chr(c))[0] == "M"]
    runs = ["".join(random.choice([*marks, *"aq\u0344"], 200)) for _ in range(200)]
    for text in [*TEXTS, *runs]:
        composed = judge.normalize_str(text)
        assert compose(text) == composed
        if len(text) < 60:
            assert "".join(part for part, _, _ in composites(text)) == composed


def test_an_unknown_split_is_refused_by_its_expression(judge: Tokenizer, tmp_path: Path) -> None:
    judge.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(r"(\p{L}a?)+b"), "isolated"),
            pre_tokenizers.ByteLevel(False, use_regex=False),
        ]
    )
    with pytest.raises(UnsupportedError) as caught:
        hugging_face.ours(judge, tmp_path)
    assert r"(\\p{L}a?)+b" in str(caught.value)


@pytest.mark.parametrize("name", [None, "default", "my-own"])
def test_an_unknown_name_is_refused(name: str | None, ours: BaseTokenizer) -> None:
    metadata = dict(ours.vocabulary.file.metadata)
    del metadata["tokenizer.ggml.pre"]
    if name:
        metadata["tokenizer.ggml.pre"] = name
    with pytest.raises(UnsupportedError, match=repr(name) if name else "nothing"):
        from_metadata(ModelFile(Path("m.gguf"), "GGUF v3", metadata, {}))


def test_merges_that_make_no_token(ours: BaseTokenizer) -> None:
    for merge in ("a zzz", "a", " a", "a ", ""):
        metadata = {**ours.vocabulary.file.metadata, "tokenizer.ggml.merges": [merge]}
        with pytest.raises(FormatError, match="does not make a token of two parts"):
            from_metadata(ModelFile(Path("m.gguf"), "GGUF v3", metadata, {}))


@pytest.mark.data
def test_gpt_2_against_tokenizers(data: Path, tmp_path: Path) -> None:
    """The real vocabulary, and back through tokenizer.json to the same metadata."""
    file = open_model(data / "gguf-vocab/ggml-vocab-gpt-2.gguf")
    tokens, merges = (file.metadata[f"tokenizer.ggml.{name}"] for name in ("tokens", "merges"))
    assert isinstance(tokens, list)
    assert isinstance(merges, list)
    vocab = {str(token): index for index, token in enumerate(tokens)}
    judge = Tokenizer(models.BPE(vocab, [tuple(str(m).split(" ")) for m in merges]))  # type: ignore[misc]
    judge.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    judge.add_special_tokens(["<|endoftext|>"])
    tokenizer = hugging_face.ours(judge, tmp_path)
    assert hugging_face.differences(judge, tokenizer, TEXTS) == []
    metadata = tokenizer.vocabulary.file.metadata
    for name in ("model", "pre", "tokens", "merges"):
        assert metadata[f"tokenizer.ggml.{name}"] == file.metadata[f"tokenizer.ggml.{name}"]
    types = (m["tokenizer.ggml.token_type"] for m in (metadata, file.metadata))
    np.testing.assert_array_equal(*types)
    assert json.loads((tmp_path / "tokenizer.json").read_text())["model"]["type"] == "BPE"
