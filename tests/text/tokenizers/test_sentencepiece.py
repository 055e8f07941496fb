"""SentencePiece BPE from GGUF's keys, against the `sentencepiece` package.

`test_unigram` compares both of its kinds of tokenizer.model with it on many more strings.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from heapq import heappop
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sentencepiece
from tests.text.tokenizers.strings import strings

from halfbyte.errors import FormatError, HalfbyteError
from halfbyte.formats import MetadataValue, ModelFile
from halfbyte.text.tokenizers import from_metadata, merging
from halfbyte.text.tokenizers.sentencepiece import SentencePieceTokenizer
from halfbyte.weights import F32, Tensor

STRINGS = strings(3000)


def train(repository: Path, **options: Any) -> sentencepiece.SentencePieceProcessor:
    """A vocabulary trained on the held-out stories and some other scripts."""
    text = (repository / "tests/data/storyteller-heldout.txt").read_text(encoding="utf-8")
    lines = [*text.split("\n\n"), "äöü ß é hello привет мир 你好世界 日本語 👍🙂 <s> a  b   c"] * 2
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines), model_writer=model, model_type="bpe", vocab_size=700,
        byte_fallback=True, normalization_rule_name="identity", remove_extra_whitespaces=False,
        character_coverage=0.999, minloglevel=2, hard_vocab_limit=False, **options,
    )  # fmt: skip
    return sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())


def vocabulary(
    judge: sentencepiece.SentencePieceProcessor, user_defined: Sequence[str] = ()
) -> dict[str, MetadataValue]:
    """The same vocabulary under GGUF's keys."""
    count = judge.get_piece_size()
    types = np.ones(count, np.int32)
    for index in range(count):
        if judge.is_byte(index):
            types[index] = 6
        elif judge.is_control(index):
            types[index] = 3
        elif judge.is_unknown(index):
            types[index] = 2
    types[[judge.piece_to_id(piece) for piece in user_defined]] = 4
    return {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": [judge.id_to_piece(i) for i in range(count)],
        "tokenizer.ggml.scores": np.array([judge.get_score(i) for i in range(count)], np.float32),
        "tokenizer.ggml.token_type": types,
    }


def make(metadata: dict[str, MetadataValue]) -> SentencePieceTokenizer:
    tokenizer = from_metadata(ModelFile(Path("m.gguf"), "GGUF v3", metadata, {}))
    assert isinstance(tokenizer, SentencePieceTokenizer)
    return tokenizer


@pytest.fixture(scope="module")
def judge(repository: Path) -> sentencepiece.SentencePieceProcessor:
    return train(repository)


@pytest.fixture(scope="module")
def ours(judge: sentencepiece.SentencePieceProcessor) -> SentencePieceTokenizer:
    return make(vocabulary(judge))


def test_text_returns(ours: SentencePieceTokenizer) -> None:
    for text in STRINGS:
        if "▁" not in text:  # the mark itself is indistinguishable from a space
            assert ours.decode(ours.encode(text)) == text, repr(text)


def test_streaming_never_shows_half_a_character(ours: SentencePieceTokenizer) -> None:
    random = np.random.default_rng(1)
    for text in STRINGS[:500]:
        ids = ours.encode(text)
        decoder = ours.stream()
        pieces = [decoder.push(token) for token in ids]
        assert decoder.flush() == ""
        assert "".join(pieces) == ours.decode(ids)
        assert "\ufffd" in text or "\ufffd" not in "".join(pieces)
    for _ in range(200):  # any ids, even of broken UTF-8
        ids = random.integers(0, ours.vocab_size, 30).tolist()
        decoder = ours.stream()
        assert "".join([*map(decoder.push, ids), decoder.flush()]) == ours.decode(ids)


def test_stream_continues_a_text(ours: SentencePieceTokenizer) -> None:
    ids = ours.encode("Once upon a time there was a fox")
    for split in range(1, len(ids)):
        decoder = ours.stream(ids[:split])
        rest = "".join(map(decoder.push, ids[split:]))
        assert ours.decode(ids[:split]) + rest == "Once upon a time there was a fox"


def test_special_tokens(ours: SentencePieceTokenizer) -> None:
    assert ours.encode("") == [ours.bos]
    assert ours.encode("a")[0] == ours.bos
    assert ours.bos not in ours.encode("<s>", add_special_tokens=False)
    assert ours.decode([ours.bos, *ours.encode("a", add_special_tokens=False), ours.eos]) == "a"
    assert ours.stop_ids >= {ours.bos, ours.eos}
    with pytest.raises(HalfbyteError, match=f"expected 0 to {ours.vocab_size - 1}"):
        ours.decode([ours.vocab_size])


def test_a_long_word_takes_steps_in_proportion(
    judge: sentencepiece.SentencePieceProcessor,
    ours: SentencePieceTokenizer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A megabyte without a space: a quadratic merge would take hours. Each merge queues two."""
    steps = 0

    def counted(heap: list[tuple[float, int, str]]) -> tuple[float, int, str]:
        nonlocal steps
        steps += 1
        return heappop(heap)

    monkeypatch.setattr(merging, "heappop", counted)
    text = "".join(np.random.default_rng(0).choice(list("abcdefgh"), 1_000_000))
    ids = ours.encode(text, add_special_tokens=False)
    assert len(text) // 10 < steps < 3 * len(text)
    assert ours.decode(ids) == text
    assert ours.encode(text[:5000], add_special_tokens=False) == judge.encode(text[:5000])
    spaces = " " * 100_000
    assert ours.decode(ours.encode(spaces)) == spaces


@pytest.mark.parametrize(
    ("options", "flags"),
    [
        ({"add_dummy_prefix": False}, {"add_space_prefix": False}),
        ({"allow_whitespace_only_pieces": True}, {}),
        ({"split_by_whitespace": False}, {}),  # tokens with a space inside
        ({"split_digits": True, "max_sentencepiece_length": 64}, {}),
    ],
)
def test_other_kinds_of_vocabulary(
    repository: Path, options: dict[str, bool], flags: dict[str, bool]
) -> None:
    judge = train(repository, **options)
    tokenizer = make(
        {**vocabulary(judge), **{f"tokenizer.ggml.{key}": value for key, value in flags.items()}}
    )
    for text in STRINGS[::2]:
        ids = tokenizer.encode(text, add_special_tokens=False)
        assert ids == judge.encode(text), repr(text)
        assert tokenizer.decode(ids) == judge.decode(ids)


def test_user_defined_tokens_are_cut_out_first(repository: Path) -> None:
    """The leftmost, then the longest; they overlap, hold spaces, and lie inside words."""
    symbols = ["<x>", "<x", "x>y", "ab", "bcd", "▁▁", "▁▁▁▁", "<0x41>z", "[]\\^-"]
    judge = train(repository, user_defined_symbols=symbols)
    tokenizer = make(vocabulary(judge, symbols))
    random = np.random.default_rng(0)
    letters = [*symbols, "  ", *"abcdxyz<> ▁\n🙂[]^-\\"]
    used = set()
    for length in range(1500):
        text = "".join(random.choice(letters, length % 30))
        ids = tokenizer.encode(text, add_special_tokens=False)
        assert ids == judge.encode(text), repr(text)
        assert tokenizer.decode(ids) == text.replace("▁", " ")
        used.update(ids)
    assert used >= {judge.piece_to_id(symbol) for symbol in symbols}


def test_special_tokens_that_a_model_asks_for(
    judge: sentencepiece.SentencePieceProcessor,
) -> None:
    flags: dict[str, MetadataValue] = {
        "tokenizer.ggml.add_bos_token": False, "tokenizer.ggml.add_eos_token": True,
        "tokenizer.ggml.bos_token_id": np.uint32(5), "tokenizer.ggml.eos_token_id": np.uint32(6),
        "tokenizer.ggml.eot_token_id": np.uint32(7),
    }  # fmt: skip
    tokenizer = make(vocabulary(judge) | flags)
    assert tokenizer.encode("a") == [*judge.encode("a"), 6]
    assert (tokenizer.bos, tokenizer.eos) == (5, 6)
    assert tokenizer.stop_ids == {5, 6, 7}


def test_surrogates_become_question_marks(ours: SentencePieceTokenizer) -> None:
    """The command line passes on bytes that are not UTF-8 as surrogates."""
    assert ours.decode(ours.encode("a\udcffb")) == "a?b"


def test_without_byte_tokens_a_strange_character_is_unknown(
    judge: sentencepiece.SentencePieceProcessor,
) -> None:
    metadata = vocabulary(judge)
    types = np.asarray(metadata["tokenizer.ggml.token_type"])
    tokenizer = make(metadata | {"tokenizer.ggml.token_type": np.where(types == 6, 3, types)})
    ids = tokenizer.encode("a🜀b", add_special_tokens=False)
    assert tokenizer.unknown in ids
    assert tokenizer.decode(ids) == "ab"


def test_a_tokenizer_of_another_size(judge: sentencepiece.SentencePieceProcessor) -> None:
    embedding = Tensor("token_embd.weight", F32, (9, 1), np.zeros(36, np.uint8))
    file = ModelFile(Path("m.gguf"), "GGUF v3", vocabulary(judge), {embedding.name: embedding})
    count = judge.get_piece_size()
    with pytest.raises(FormatError) as caught:
        from_metadata(file)
    expected = f"tokenizer has {count} tokens, but tensor 'token_embd.weight' has 9 rows"
    assert str(caught.value) == f"m.gguf: {expected}"
