"""The parts of a tokenizer by themselves: fields, steps and descriptions."""

from __future__ import annotations

import json
import pickle
from typing import Any

import pytest
import tokenizers as judge
from tests.text.standin.judge import outcome
from tests.text.tokenizers.texts import texts

from halfbyte.errors import HalfbyteError, UnsupportedError
from halfbyte.formats.pretokenizers import SPLITS
from halfbyte.text import standin
from halfbyte.text.standin import decoders, models, normalizers, pre_tokenizers, processors
from halfbyte.text.standin.components import Regex
from halfbyte.text.standin.pretokenized import PreTokenizedString, Token

PRE_TOKENIZERS = {
    "BertPreTokenizer": [()], "Whitespace": [()], "WhitespaceSplit": [()],
    "CharDelimiterSplit": [("e",)], "Digits": [(), (True,)], "FixedLength": [(), (3,)],
    "Punctuation": [(), ("merged_with_next",), ("contiguous",)],
    "Split": [(" ", "merged_with_previous"), ("a", "removed", True), ("o", "merged_with_next")],
    "ByteLevel": [(), (False,), (True, True, False)],
    "Metaspace": [(), ("_", "first"), ("_", "never", False)],
}  # fmt: skip
DECODERS = {
    "ByteLevel": [()], "WordPiece": [(), ("@", False)], "BPEDecoder": [(), ("#",)],
    "CTC": [(), ("a", "b", False)], "Metaspace": [(), ("_", "never")], "Replace": [("a", "bc")],
    "Fuse": [()], "Strip": [(), ("a", 1, 2)], "ByteFallback": [()],
}  # fmt: skip
TOKENS = (
    ["##a", "##b", "aaa", "<0xC3>", "<0xA9>", "<0xFF>", "x", "x", "<pad>", "x"],
    ["\u2581a", "\u2581\u2581_b_", "don", "'t", " do not", " .", "a|b", "\u0120\u00c3\u00a9#"],
    ["", "<0x41>", "<0xg1>", "a"],
)


@pytest.mark.parametrize(
    ("name", "arguments"), [(n, a) for n, options in PRE_TOKENIZERS.items() for a in options]
)
def test_pre_tokenizers(name: str, arguments: tuple[Any, ...]) -> None:
    theirs = getattr(judge.pre_tokenizers, name)(*arguments)
    ours = getattr(pre_tokenizers, name)(*arguments)
    assert ours.__getstate__() == theirs.__getstate__()
    for text in texts(150):
        assert ours.pre_tokenize_str(text) == theirs.pre_tokenize_str(text), text
    for field in ours.fields:
        if field != "pattern":
            assert getattr(ours, field) == getattr(theirs, field)


@pytest.mark.parametrize(
    ("name", "arguments"), [(n, a) for n, options in DECODERS.items() for a in options]
)
def test_decoders(name: str, arguments: tuple[Any, ...]) -> None:
    theirs = getattr(judge.decoders, name)(*arguments)
    ours = getattr(decoders, name)(*arguments)
    assert json.loads(ours.__getstate__()) == json.loads(theirs.__getstate__())
    for tokens in TOKENS:
        expected = outcome(theirs.decode, tokens)
        if expected != "refused":  # the original panics where it strips an empty token
            assert ours.decode(tokens) == expected, tokens


def test_sequences() -> None:
    for module, ours in ((judge.pre_tokenizers, pre_tokenizers),):
        steps = [
            m.Sequence([m.WhitespaceSplit(), m.Sequence([m.Punctuation(), m.ByteLevel(False)])])
            for m in (module, ours)
        ]
        assert steps[1].__getstate__() == steps[0].__getstate__()
        for step in steps:
            step[0] = type(step[1])("removed")
        assert len(steps[1]) == 3
        for text in texts(60):
            assert steps[1].pre_tokenize_str(text) == steps[0].pre_tokenize_str(text)
    both = [
        m.Sequence([m.Replace("\u2581", " "), m.ByteFallback(), m.Fuse(), m.Strip(" ", 1, 0)])
        for m in (judge.decoders, decoders)
    ]
    for tokens in TOKENS:
        assert both[1].decode(tokens) == both[0].decode(tokens)


@pytest.mark.parametrize("name", ["llama3", "qwen2", "gpt-4o", "deepseek-v3"])
def test_regular_expressions_of_models(name: str) -> None:
    for pattern in SPLITS[name].patterns:
        theirs = judge.pre_tokenizers.Split(judge.Regex(pattern), "isolated")
        ours = pre_tokenizers.Split(Regex(pattern), "isolated")
        for text in texts(150):
            assert ours.pre_tokenize_str(text) == theirs.pre_tokenize_str(text), text


def test_fields() -> None:
    ours, theirs = normalizers.BertNormalizer(lowercase=False), judge.normalizers.BertNormalizer()
    theirs.lowercase = False
    assert ours.__getstate__() == theirs.__getstate__()
    assert repr(ours) == repr(theirs)
    assert ours.normalize_str("\u00c9a") == theirs.normalize_str("\u00c9a") == "\u00c9a"
    ours.strip_accents = theirs.strip_accents = True
    assert ours.normalize_str("\u00c9a") == theirs.normalize_str("\u00c9a") == "Ea"
    again = pickle.loads(pickle.dumps(ours))  # noqa: S301
    assert again.__getstate__() == ours.__getstate__()
    for wrong in ({"lower": True}, {"clean_text": True, "x": 1}):
        with pytest.raises(TypeError, match="expected clean_text"):
            normalizers.BertNormalizer(**wrong)
    with pytest.raises(TypeError, match="content must be given"):
        normalizers.Replace("a")
    bert = processors.BertProcessing(("[SEP]", 1), cls_token=("[CLS]", 0))
    assert (bert.sep, bert.cls) == (("[SEP]", 1), ("[CLS]", 0))
    with pytest.raises(HalfbyteError, match=r"\[S\]"):
        processors.TemplateProcessing("$A [S]")


def test_parts_of_programs() -> None:
    """Objects with the methods of a part."""

    class Own:
        def normalize(self, text: Any) -> None:
            text.replace("a", "bb")

        def pre_tokenize(self, text: Any) -> None:
            text.split(lambda _, part: [part[:2], part[2:]])

        def decode_chain(self, tokens: list[str]) -> list[str]:
            return [token.upper() for token in tokens]

    modules = standin.PACKAGE.modules(standin.contents())
    results = []
    for module in (judge, modules["tokenizers"]):
        tokenizer = module.Tokenizer(module.models.WordLevel({"bb": 0, "c": 1, "?": 2}, "?"))
        tokenizer.normalizer = module.normalizers.Normalizer.custom(Own())
        tokenizer.pre_tokenizer = module.pre_tokenizers.PreTokenizer.custom(Own())
        tokenizer.decoder = module.decoders.Decoder.custom(Own())
        encoding = tokenizer.encode("ac")
        results.append((encoding.ids, encoding.offsets, tokenizer.decode([0, 1])))
    assert results[0] == results[1]
    with pytest.raises(UnsupportedError, match="custom"):
        tokenizer.to_str()


def test_a_split_text() -> None:
    results = []
    for kind, token in ((judge.PreTokenizedString, judge.Token), (PreTokenizedString, Token)):
        text = kind("\u00e9a bc")
        text.split(lambda _, part: part.split(" ", "removed"))
        text.normalize(lambda part: part.uppercase())
        before = [text.get_splits(*options) for options in (
            (), ("original", "byte"), ("normalized", "char"), ("normalized", "byte"))]  # fmt: skip
        text.tokenize(lambda part, make=token: [make(3, part, (0, len(part)))] * (part != "BC"))
        encoding = text.to_encoding(type_id=3, word_idx=None)
        results.append(
            (before, encoding.ids, encoding.tokens, encoding.type_ids, encoding.word_ids)
        )
    assert results[0] == results[1]


def test_models() -> None:
    vocab, merges = {"a": 0, "b": 1, "ab": 2, "?": 3}, [("a", "b")]
    pairs = [
        (judge.models.BPE(vocab, merges, unk_token="?"), models.BPE(vocab, merges, unk_token="?")),  # noqa: S106
        (judge.models.WordLevel(vocab, "?"), models.WordLevel(vocab, "?")),
        (judge.models.WordPiece(vocab, unk_token="?"), models.WordPiece(vocab, unk_token="?")),  # noqa: S106
        (judge.models.Unigram([("?", 0.0), ("a", -1.0), ("ab", -1.5)], 0, False),
         models.Unigram([("?", 0.0), ("a", -1.0), ("ab", -1.5)], 0, False)),
    ]  # fmt: skip
    for theirs, ours in pairs:
        assert json.loads(ours.__getstate__()) == json.loads(theirs.__getstate__())
        for word in ("abab", "xay", "ab"):
            expected = [token.as_tuple() for token in theirs.tokenize(word)]
            assert [token.as_tuple() for token in ours.tokenize(word)] == expected, (ours, word)
        for token, number in vocab.items():
            assert ours.token_to_id(token) == theirs.token_to_id(token)
            assert ours.id_to_token(number) == theirs.id_to_token(number)
        with pytest.raises(UnsupportedError, match="training"):
            ours.get_trainer()
