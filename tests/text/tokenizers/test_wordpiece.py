"""WordPiece against PyPI's `tokenizers`."""

from __future__ import annotations

import unicodedata
from pathlib import Path
from typing import Any

import pytest
from tests.text.tokenizers import hugging_face
from tests.text.tokenizers.strings import strings
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers

from halfbyte.text.opening import open_model
from halfbyte.text.tokenizers.base import BaseTokenizer
from halfbyte.text.tokenizers.wordpiece import longest_matches

OLD = unicodedata.ucd_3_2_0
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


def known(character: str) -> bool:
    """Whether the judge, whose categories are from 2015, has the same for a character as we.

    Python has the categories of Unicode 3.2 besides its own.
    """
    return OLD.category(character) not in ("Cn",) and OLD.category(
        character
    ) == unicodedata.category(character)


def texts(count: int) -> list[str]:
    """Hard strings without characters that are newer than the judge."""
    alphabets = {c for text in strings(0) for c in text}
    return [
        "".join(c for c in text if known(c) or c in alphabets or ord(c) > 0x1F000)
        if index % 5 == 0
        else text
        for index, text in enumerate(strings(count))
    ]


def vocabulary(repository: Path) -> dict[str, int]:
    trained = Tokenizer(models.WordPiece(unk_token="[UNK]"))  # noqa: S106
    trained.normalizer = normalizers.BertNormalizer()
    trained.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    trainer = trainers.WordPieceTrainer(vocab_size=900, special_tokens=SPECIAL, show_progress=False)
    trained.train_from_iterator(hugging_face.lines(repository), trainer)
    return dict(trained.get_vocab())


@pytest.fixture
def judge(repository: Path) -> Tokenizer:
    return hugging_face.word_piece(vocabulary(repository))


@pytest.fixture
def ours(judge: Tokenizer, tmp_path: Path) -> BaseTokenizer:
    judge.add_special_tokens(["[MASK]"])
    return hugging_face.ours(judge, tmp_path)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"strip_accents": False},
        {"lowercase": False},
        {"lowercase": False, "strip_accents": True},
    ],
)
def test_ids_are_those_of_tokenizers(
    options: dict[str, Any], repository: Path, tmp_path: Path
) -> None:
    judge = hugging_face.word_piece(vocabulary(repository), **options)
    ours = hugging_face.ours(judge, tmp_path)
    assert hugging_face.differences(judge, ours, texts(4000 if options else 10_000)) == []
    for text in texts(500):
        ids, offsets = ours.encode_with_offsets(text, add_special_tokens=False)
        expected = judge.encode(text, add_special_tokens=False)
        assert (ids, offsets) == (expected.ids, expected.offsets), repr(text)


def test_every_character_is_treated_as_by_tokenizers(judge: Tokenizer, ours: BaseTokenizer) -> None:
    characters = [chr(code) for code in range(0x110000) if not 0xD800 <= code < 0xE000]
    checked = [character for character in characters if known(character)]
    assert len(checked) > 90_000
    for character in checked:
        text = f"a{character}b"
        normal = judge.normalizer.normalize_str(text)
        words = [word for word, _ in judge.pre_tokenizer.pre_tokenize_str(normal)]
        assert ours._words(ours._normalize(text)) == words, hex(ord(character))


@pytest.mark.parametrize("size", [1, 4, 5])
def test_the_longest_tokens_are_found(size: int) -> None:
    """At the beginning of a word and after it, up to the length of the longest token."""
    token = "bcdef"[:size]
    first, rest = {"a": 1, token: 2}, {"x": 3, token: 4}
    for word, ids in (("a" + token, [1, 4]), (token + "x", [2, 3]), ("a" + token + "x", [1, 4, 3])):
        assert [piece[0] for piece in longest_matches(word, first, rest, size)] == ids


def test_text_returns_in_lower_case(ours: BaseTokenizer) -> None:
    assert ours.decode(ours.encode("The Fox ran home")) == "the fox ran home"
    decoder = ours.stream()
    pieces = [decoder.push(token) for token in ours.encode("The Fox ran")]
    assert "".join(pieces) == "the fox ran"


def test_control_tokens_in_a_text(judge: Tokenizer, ours: BaseTokenizer) -> None:
    text = "a[SEP]b [MASK]"
    assert ours.encode(text, parse_special=True) == judge.encode(text).ids
    assert ours.encode(text)[1:-1].count(SPECIAL.index("[SEP]")) == 0


def test_a_megabyte_without_a_space_is_one_unknown(ours: BaseTokenizer) -> None:
    assert ours.encode("a" * 1_000_000, add_special_tokens=False) == [ours.unknown]
    assert len(ours.encode("a" * 100, add_special_tokens=False)) > 1
    assert ours.encode("a" * 101, add_special_tokens=False) == [ours.unknown]


@pytest.mark.data
def test_bge_against_tokenizers(data: Path, tmp_path: Path) -> None:
    """The real vocabulary, and back through tokenizer.json to the same tokens."""
    metadata = open_model(data / "gguf-vocab/ggml-vocab-bert-bge.gguf").metadata
    tokens = metadata["tokenizer.ggml.tokens"]
    assert isinstance(tokens, list)
    vocab = {
        token if token.startswith("[") and token.endswith("]")
        else token[1:] if token.startswith("▁") else "##" + token: index
        for index, token in enumerate(map(str, tokens))
    }  # fmt: skip
    judge = hugging_face.word_piece(vocab)
    ours = hugging_face.ours(judge, tmp_path)
    assert ours.vocabulary.tokens == tokens
    assert hugging_face.differences(judge, ours, texts(10_000)) == []
