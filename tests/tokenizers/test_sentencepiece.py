"""SentencePiece BPE against the `sentencepiece` package, on strings that others do not try."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
import sentencepiece

from halfbyte.errors import HalfbyteError
from halfbyte.formats import ModelFile, open_model
from halfbyte.tokenizers import from_metadata
from halfbyte.tokenizers.sentencepiece import SentencePieceTokenizer

STRINGS = 3000
ALPHABETS = (
    "abcdefghijklmnopqrstuvwxyz ",
    "ABC abc 019 .,;:!?\"'()-",
    "  \t\n\r\u00a0\u2003\u3000a",
    "äöüßéñçå ",
    "привет мир ",
    "你好世界\uff0c",
    "日本語テキスト",
    "한국어 ",
    "مرحبا ",
    "👍👩\u200d👩\u200d👧\u200d👦🇩🇪🙂 ",
    "e\u0301a\u0308\u200b\u200d\ufeff ",
    "▁ ▁a",
    "<>s/0xAunk ",
    "\x00\x01\x7f\u0085 ",
)


@pytest.fixture(scope="module")
def judge(repository: Path) -> sentencepiece.SentencePieceProcessor:
    """A vocabulary trained on the held-out stories and some other scripts."""
    text = (repository / "tests/data/storyteller-heldout.txt").read_text(encoding="utf-8")
    lines = [*text.split("\n\n"), "äöü ß é hello привет мир 你好世界 日本語 👍🙂 <s> a  b   c"] * 2
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines), model_writer=model, model_type="bpe", vocab_size=700,
        byte_fallback=True, normalization_rule_name="identity", remove_extra_whitespaces=False,
        character_coverage=0.999, minloglevel=2, hard_vocab_limit=False,
    )  # fmt: skip
    return sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())


@pytest.fixture(scope="module")
def ours(judge: sentencepiece.SentencePieceProcessor) -> SentencePieceTokenizer:
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
    metadata = {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": [judge.id_to_piece(i) for i in range(count)],
        "tokenizer.ggml.scores": np.array([judge.get_score(i) for i in range(count)], np.float32),
        "tokenizer.ggml.token_type": types,
    }
    tokenizer = from_metadata(ModelFile(Path("m.gguf"), "GGUF v3", metadata, {}))
    assert isinstance(tokenizer, SentencePieceTokenizer)
    return tokenizer


def strings() -> list[str]:
    """Random strings over alphabets that are hard, and over all of Unicode."""
    random = np.random.default_rng(0)
    made = ["", " ", "  ", "a", " a", "a ", "▁", "<s>", "</s>", "<unk>", "<0x41>", "\n", "🙂" * 5]
    for index in range(STRINGS):
        if index % 5 == 0:
            codes = random.integers(1, 0x11000, random.integers(1, 20))
            made.append("".join(chr(c) for c in codes if not 0xD800 <= c < 0xE000))
        else:
            letters = list("".join(random.choice(ALPHABETS, 2)))
            made.append("".join(random.choice(letters, random.integers(1, 60))))
    return made


def test_ids_are_those_of_sentencepiece(
    judge: sentencepiece.SentencePieceProcessor, ours: SentencePieceTokenizer
) -> None:
    for text in strings():
        assert ours.encode(text, add_special_tokens=False) == judge.encode(text), repr(text)


def test_text_returns(ours: SentencePieceTokenizer) -> None:
    for text in strings():
        if "▁" not in text:  # the mark itself is indistinguishable from a space
            assert ours.decode(ours.encode(text)) == text, repr(text)


def test_streaming_never_shows_half_a_character(ours: SentencePieceTokenizer) -> None:
    random = np.random.default_rng(1)
    for text in strings()[:500]:
        ids = ours.encode(text)
        decoder = ours.stream()
        pieces = [decoder.push(token) for token in ids]
        assert decoder.flush() == ""
        assert "".join(pieces) == ours.decode(ids)
        assert "\ufffd" not in "".join(pieces)
    for _ in range(200):  # any ids at all, broken UTF-8 too
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


def test_a_long_word_is_merged_in_reasonable_time(
    judge: sentencepiece.SentencePieceProcessor, ours: SentencePieceTokenizer
) -> None:
    """A quadratic merge of 300,000 characters without a space would take hours."""
    text = "".join(np.random.default_rng(0).choice(list("abcdefgh"), 300_000))
    ids = ours.encode(text, add_special_tokens=False)
    assert ours.decode(ids) == text
    assert ours.encode(text[:5000], add_special_tokens=False) == judge.encode(text[:5000])


@pytest.mark.data
def test_llama_2_gives_the_ids_of_llama_cpp(data: Path) -> None:
    path = data / "gguf-vocab" / "ggml-vocab-llama-spm.gguf"
    tokenizer = from_metadata(open_model(path))
    inputs, outputs = (path.with_name(path.name + end).read_bytes() for end in (".inp", ".out"))
    texts = inputs.decode().split("\n__ggml_vocab_test__\n")
    lines = outputs.decode().split("\n")
    assert len(texts) == len(lines) > 40
    for text, line in zip(texts, lines, strict=True):
        assert tokenizer.encode(text, add_special_tokens=False) == [int(n) for n in line.split()]
