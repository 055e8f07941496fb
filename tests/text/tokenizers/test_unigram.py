"""SentencePiece's models, from their files, against `sentencepiece` and `tokenizers`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sentencepiece
from tests.support.sampled import sampled
from tests.text.tokenizers import hugging_face
from tests.text.tokenizers.strings import strings
from tokenizers import Tokenizer, models, pre_tokenizers

from halfbyte.errors import FormatError
from halfbyte.formats import ModelFile
from halfbyte.formats.protobuf import Message
from halfbyte.text.tokenizers import from_metadata, load_tokenizer
from halfbyte.text.tokenizers.base import BaseTokenizer, Span
from halfbyte.text.tokenizers.charsmap import Charsmap
from halfbyte.text.tokenizers.sentencepiece import SentencePieceBase

SYMBOLS = ("<x>", "<x", "ab", "bcd", "fox", "﬩\uff21")
IDENTITY: dict[str, Any] = {"normalization_rule_name": "identity"}
AS_IT_IS: dict[str, Any] = IDENTITY | {"remove_extra_whitespaces": False}
CASES: dict[str, dict[str, Any]] = {
    "unigram": {"model_type": "unigram"},  # with nmt_nfkc, SentencePiece's default
    "unigram, bytes": {"model_type": "unigram", "byte_fallback": True} | AS_IT_IS,
    "unigram, identity": {"model_type": "unigram"} | IDENTITY,
    "unigram, folded": {"model_type": "unigram", "normalization_rule_name": "nmt_nfkc_cf"},
    "unigram, no prefix": {
        "model_type": "unigram", "normalization_rule_name": "nfkc", "add_dummy_prefix": False,
        "remove_extra_whitespaces": False,
    },
    "unigram, symbols": {"model_type": "unigram", "user_defined_symbols": list(SYMBOLS)},
    "unigram, across words": {"model_type": "unigram", "split_by_whitespace": False},
    "bpe": {"model_type": "bpe"},
    "bpe, bytes": {"model_type": "bpe", "byte_fallback": True} | AS_IT_IS,
    "bpe, symbols": {
        "model_type": "bpe", "byte_fallback": True, "user_defined_symbols": [*SYMBOLS, "▁▁"]
    },
}  # fmt: skip


def train(
    repository: Path, folder: Path, **options: Any
) -> tuple[sentencepiece.SentencePieceProcessor, SentencePieceBase]:
    """The judge, and our tokenizer from the same tokenizer.model."""
    model = hugging_face.train_sentencepiece(repository, **options)
    (folder / "tokenizer.model").write_bytes(model)
    tokenizer = load_tokenizer(folder / "tokenizer.model")
    assert isinstance(tokenizer, SentencePieceBase)
    return sentencepiece.SentencePieceProcessor(model_proto=model), tokenizer


def spans(judge: sentencepiece.SentencePieceProcessor, text: str) -> list[Span]:
    """The judge's offsets, which its protobuf counts in bytes."""
    places = [i for i, character in enumerate(text) for _ in character.encode()] + [len(text)]
    message = Message(memoryview(judge.encode(text, return_type="serialized_proto")), Path(), "")
    pieces = [dict(message.message(v, "").fields()) for n, v in message.fields() if n == 2]
    return [
        (places[message.integer(p.get(4, 0))], places[message.integer(p.get(5, 0))]) for p in pieces
    ]


@pytest.mark.parametrize("count", [800, pytest.param(5_000, marks=pytest.mark.long)])
@pytest.mark.parametrize("name", CASES)
def test_ids_are_those_of_sentencepiece(
    name: str, count: int, repository: Path, tmp_path: Path
) -> None:
    judge, ours = train(repository, tmp_path, **CASES[name])
    count = count if name in ("unigram", "unigram, bytes", "bpe, bytes") else min(count, 2500)
    texts = strings(count, extra=SYMBOLS if "symbols" in name else ())
    for text, expected in zip(texts, judge.encode(texts), strict=True):
        assert ours.encode(text, add_special_tokens=False) == expected, repr(text)
    for text in texts[:500]:
        ids, offsets = ours.encode_with_offsets(text, add_special_tokens=False)
        assert ids == ours.encode(text, add_special_tokens=False)
        assert all(0 <= start <= end <= len(text) for start, end in offsets)
        assert ours._align(text)[0] == ours._normalize(text)
        if "identity" in name:
            assert offsets == spans(judge, text), repr(text)
        if "▁" not in text and ours.unknown not in ids:
            assert ours.decode(ids) == judge.decode(ids)


def test_special_tokens_of_both_kinds(repository: Path, tmp_path: Path) -> None:
    judge, ours = train(repository, tmp_path, model_type="unigram")
    assert ours.encode("a") == [*judge.encode("a"), judge.eos_id()]
    assert ours.encode("</s>a", False, True) == [judge.eos_id(), *judge.encode("a")]
    judge, ours = train(repository, tmp_path, model_type="bpe")
    assert ours.encode("a") == [judge.bos_id(), *judge.encode("a")]
    assert ours.stop_ids == {judge.bos_id(), judge.eos_id()}


@pytest.mark.parametrize("fallback", [False, True])
def test_unigram_in_a_tokenizer_json(fallback: bool, repository: Path, tmp_path: Path) -> None:
    options = {"model_type": "unigram", "byte_fallback": fallback}
    model = hugging_face.train_sentencepiece(repository, **options, **IDENTITY)
    judge = hugging_face.unigram(sentencepiece.SentencePieceProcessor(model_proto=model))
    ours = hugging_face.ours(judge, tmp_path)
    texts = [re.sub(r"[^\S ]|▁|<", "", text) for text in strings(5_000)]
    assert hugging_face.differences(judge, ours, texts) == []


def test_ties_and_the_score_of_unknown_characters(tmp_path: Path) -> None:
    """Of equal sums, the one with the longest last token; unknown is ten below the worst."""
    scores = {"<unk>": 0.0, "▁": -1.0, "a": -6.0, "aa": -6.0, "ab": -1.0, "bz": -15.0, "aba": -2.0}
    scores |= {"c": -1.0, "d": -1.0, "cd": -2.0, "dc": -2.0, "cdc": -3.0, "dcd": -3.0}
    judge = Tokenizer(models.Unigram(list(scores.items()), 0, False))
    judge.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace("▁", "always")]
    )
    ours = hugging_face.ours(judge, tmp_path)
    texts = ["aaa", "aaaaa", "abz", "abzab", "aabaa", "zabz", "zz a zz"]
    assert hugging_face.differences(judge, ours, texts) == []
    random = np.random.default_rng(0)
    texts = ["".join(random.choice(list("aabzcdcdcd "), length % 25 + 1)) for length in range(2000)]
    assert hugging_face.differences(judge, ours, texts) == []


def test_sentencepiece_bpe_in_a_tokenizer_json(repository: Path, tmp_path: Path) -> None:
    model = hugging_face.train_sentencepiece(
        repository, model_type="bpe", byte_fallback=True, **AS_IT_IS
    )
    source = sentencepiece.SentencePieceProcessor(model_proto=model)
    every = range(source.get_piece_size())
    judge = hugging_face.sentencepiece_bpe(
        [source.id_to_piece(i) for i in every], [source.get_score(i) for i in every]
    )
    ours = hugging_face.ours(judge, tmp_path)
    texts = [
        text.replace("<", "") or "a" for text in strings(5_000)
    ]  # there, names of tokens are not text
    assert hugging_face.differences(judge, ours, texts) == []


@pytest.mark.parametrize("options", sampled([AS_IT_IS | {"byte_fallback": True}, {}], 2))
def test_a_megabyte_without_a_space(
    options: dict[str, Any], repository: Path, tmp_path: Path
) -> None:
    judge, ours = train(repository, tmp_path, model_type="unigram", **options)
    for unit in ("abcdefgh", "é字", "\u0e33\u0327e"):
        text = "".join(np.random.default_rng(0).choice(list(unit), 200_000))
        assert ours.encode(text, False) == judge.encode(text)


def test_a_damaged_charsmap(repository: Path, tmp_path: Path) -> None:
    """Any charsmap gives an error or some text."""
    _, ours = train(repository, tmp_path, model_type="unigram")
    key = "tokenizer.ggml.precompiled_charsmap"
    whole = np.asarray(ours.vocabulary.file.metadata[key]).tobytes()
    for size in (1, 4, 5, 1000, len(whole) // 2):
        with pytest.raises(FormatError, match="with a trie of"):
            Charsmap(whole[:size], "m.gguf")
    random = np.random.default_rng(0)
    outcomes = set()
    for _ in range(30):
        damaged = np.frombuffer(whole, np.uint8).copy()
        damaged[random.integers(4, len(whole), 20_000)] = random.integers(0, 256, 20_000)
        try:
            metadata = {**ours.vocabulary.file.metadata, key: damaged}
            other = from_metadata(ModelFile(Path("m.gguf"), "GGUF v3", metadata, {}))
            other.encode_batch(strings(50))
            outcomes.add("text")
        except FormatError as error:
            outcomes.add("error" if str(error).startswith(f"m.gguf: metadata '{key}': ") else "?")
    assert outcomes == {"text", "error"}


@pytest.mark.data
def test_llama_2_against_tokenizers(data: Path, tmp_path: Path) -> None:
    """The real vocabulary, through merges."""
    path = data / "gguf-vocab/ggml-vocab-llama-spm.gguf"
    reference = load_tokenizer(path)
    assert isinstance(reference, BaseTokenizer)
    vocabulary = reference.vocabulary
    judge = hugging_face.sentencepiece_bpe(vocabulary.tokens, vocabulary.scores)
    ours = hugging_face.ours(judge, tmp_path)
    texts = [
        text.replace("<", "") or "a" for text in strings(5_000)
    ]  # there, names of tokens are not text
    assert hugging_face.differences(judge, ours, texts) == []
    for text in texts:
        assert ours.encode(text, False) == reference.encode(text, False)
