"""Whole tokenizers: ids, spans, words and texts are those of PyPI's `tokenizers`."""

from __future__ import annotations

import copy
import json
import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tokenizers as judge
from tests.support.aio import run
from tests.support.hub_server import Repository, serving
from tests.text.standin.judge import PARTS, described
from tests.text.tokenizers import test_pipelines
from tests.text.tokenizers.texts import texts

from halfbyte.errors import FormatError, UnsupportedError
from halfbyte.text.standin import PACKAGE, contents, models, normalizers, pre_tokenizers, trainers
from halfbyte.text.standin.added import AddedToken
from halfbyte.text.standin.decoders import DecodeStream
from halfbyte.text.standin.tokenizer import Tokenizer


@pytest.mark.parametrize("count", [80, pytest.param(1200, marks=pytest.mark.long)])
@pytest.mark.parametrize("make", test_pipelines.PIPELINES, ids=lambda make: str(make.__name__))
def test_encodings_and_texts(
    make: Callable[[Path], judge.Tokenizer], count: int, repository: Path
) -> None:
    theirs = make(repository)
    ours = Tokenizer.from_str(theirs.to_str())
    assert ours.get_vocab() == theirs.get_vocab()
    special = [token.content for token in theirs.get_added_tokens_decoder().values()][:20]
    for index, text in enumerate(texts(count, special)):
        ours.encode_special_tokens = theirs.encode_special_tokens = index % 3 == 1
        expected, actual = theirs.encode(text), ours.encode(text)
        for part in PARTS:
            assert getattr(actual, part) == getattr(expected, part), (part, text)
        for skip in (True, False):
            texts_ = (t.decode(expected.ids, skip_special_tokens=skip) for t in (ours, theirs))
            assert len(set(texts_)) == 1, text


def small() -> judge.Tokenizer:
    """A tokenizer of some words and letters."""
    letters = "abcdefghijklmnopqrstuvwxyz"
    pieces = ["[UNK]", "[CLS]", "[SEP]", "hello", "world", *letters, *(f"##{c}" for c in letters)]
    tokenizer = judge.Tokenizer(
        judge.models.WordPiece({piece: i for i, piece in enumerate(pieces)}, unk_token="[UNK]")  # noqa: S106
    )
    tokenizer.normalizer = judge.normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = judge.pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = judge.decoders.WordPiece()
    tokenizer.post_processor = judge.processors.BertProcessing(("[SEP]", 2), ("[CLS]", 1))
    tokenizer.add_special_tokens(["[UNK]", "[CLS]", "[SEP]"])
    return tokenizer


def test_files(tmp_path: Path) -> None:
    theirs = small()
    theirs.enable_truncation(9, stride=2, strategy="only_first", direction="left")
    theirs.enable_padding(length=12, pad_id=3, pad_token="<p>", direction="left")  # noqa: S106
    theirs.save(str(tmp_path / "tokenizer.json"))
    for ours in (
        Tokenizer.from_file(str(tmp_path / "tokenizer.json")),
        Tokenizer.from_buffer((tmp_path / "tokenizer.json").read_bytes()),
        Tokenizer.from_pretrained(str(tmp_path)),
    ):
        for pretty in (False, True):
            assert ours.to_str(pretty) == theirs.to_str(pretty)
        assert (ours.truncation, ours.padding) == (theirs.truncation, theirs.padding)
        ours.save(str(tmp_path / "ours.json"))
        again = judge.Tokenizer.from_file(str(tmp_path / "ours.json"))
        for other in (pickle.loads(pickle.dumps(ours)), copy.deepcopy(ours), again):  # noqa: S301
            assert described(other.encode("hello abc")) == described(theirs.encode("hello abc"))
        ours.no_truncation()
        ours.no_padding()
        assert (ours.truncation, ours.padding) == (None, None)


HUB = """
import json, sys
from halfbyte.text.standin.tokenizer import Tokenizer
ids = [Tokenizer.from_pretrained("someone/small", **options).encode("hello").ids for options in (
    {}, {"revision": "main"})]
try:
    Tokenizer.from_pretrained("someone/other")
except Exception as error:
    print(json.dumps([ids, type(error).__name__, str(error)]))
"""


def test_it_comes_from_the_hub(tmp_path: Path) -> None:
    with serving() as hub:
        content = small().to_str().encode()
        hub.repositories["someone/small"] = Repository({"tokenizer.json": content})
        clean = {k: v for k, v in os.environ.items() if not k.startswith("HF_")}
        own = {"HF_ENDPOINT": hub.url, "HF_HOME": str(tmp_path), "HF_HUB_ETAG_TIMEOUT": "5"}
        done = subprocess.run(
            [sys.executable, "-c", HUB], env=clean | own, capture_output=True, text=True, check=True
        )
    ids, kind, message = json.loads(done.stdout.splitlines()[-1])
    assert ids == [small().encode("hello").ids] * 2
    assert kind == "DownloadError"
    assert "no such repository" in message


def test_added_tokens() -> None:
    theirs, ours = small(), Tokenizer.from_str(small().to_str())
    tokens = ["New", "[X]", "hello", "", "cD"]
    options = [{}, {"lstrip": True}, {"rstrip": True}, {"single_word": True}, {"normalized": False}]
    for special in (False, True):
        for token, option in zip(tokens, options, strict=True):
            both = theirs, ours
            kinds = judge.AddedToken, AddedToken
            counts = [
                getattr(t, "add_special_tokens" if special else "add_tokens")(
                    [token, kind(token + "!", **option)] if token else [kind(token)]
                )
                for t, kind in zip(both, kinds, strict=True)
            ]
            assert counts[0] == counts[1], (token, special)
            for text in ("NEW new [X] cd cD! xNew! hello!  hello", "[X]!a  [x] ! b", "acD!"):
                assert described(ours.encode(text)) == described(theirs.encode(text)), text
            assert ours.to_str() == theirs.to_str()
    assert ours.get_vocab() == theirs.get_vocab()
    sizes = [(t.get_vocab_size(), t.get_vocab_size(with_added_tokens=False)) for t in both]
    assert sizes[0] == sizes[1]
    for number in range(ours.get_vocab_size() + 1):
        assert ours.id_to_token(number) == theirs.id_to_token(number)
    assert str(ours.get_added_tokens_decoder()) == str(
        dict(sorted(theirs.get_added_tokens_decoder().items()))
    )
    with pytest.raises(TypeError, match="AddedToken"):
        ours.add_tokens([3])  # type: ignore[list-item]
    assert AddedToken("a", special=True) != AddedToken("a")
    assert len({AddedToken("a"), AddedToken("a", lstrip=True)}) == 2


def test_a_stream_of_ids(repository: Path) -> None:
    theirs = test_pipelines.claude(repository)
    ours = Tokenizer.from_str(theirs.to_str())
    ids = theirs.encode("naïve \U0001f44d 你好 hello").ids
    stream, expected = DecodeStream(), judge.decoders.DecodeStream(skip_special_tokens=False)
    for number in ids:
        assert stream.step(ours, number) == expected.step(theirs, number)
    assert ours.decode_batch([ids, ids[:2]]) == theirs.decode_batch([ids, ids[:2]])


def test_batches_and_pairs() -> None:
    theirs, ours = small(), Tokenizer.from_str(small().to_str())
    batch = ["hello", ("hello", "a world"), ["ab", "c"]]
    expected = [described(e) for e in theirs.encode_batch(batch)]
    assert [described(e) for e in ours.encode_batch(batch)] == expected
    assert [e.ids for e in ours.encode_batch_fast(batch)] == [e["ids"] for e in expected]
    words = [["hello", "abc"], (["a", "b"], ["hello world"])]
    expected = [described(e) for e in theirs.encode_batch(words, is_pretokenized=True)]
    assert [described(e) for e in ours.encode_batch(words, is_pretokenized=True)] == expected
    assert run(ours.async_encode("hello")).ids == ours.encode("hello").ids
    for text, is_pretokenized in ((3, False), ("hello", True), (["a", 3], True)):
        with pytest.raises(TypeError, match="must be"):
            ours.encode(text, is_pretokenized=is_pretokenized)


def test_refusals(tmp_path: Path) -> None:
    ours = Tokenizer.from_str(small().to_str())
    with pytest.raises(UnsupportedError, match="training"):
        ours.train([])
    with pytest.raises(UnsupportedError, match="BpeTrainer"):
        trainers.BpeTrainer(vocab_size=3)
    with pytest.raises(UnsupportedError, match="UnicodeScripts"):
        pre_tokenizers.UnicodeScripts().pre_tokenize_str("a")
    with pytest.raises(UnsupportedError, match="by chance"):
        models.BPE({"a": 0}, [], dropout=0.1).tokenize("a")
    with pytest.raises(ValueError, match="special tokens"):
        ours.enable_truncation(1)
    path = tmp_path / "tokenizer.json"
    good = json.loads(small().to_str())
    for changed, message in (
        ({"version": "2.0"}, "version"),
        ({"normalizer": {"type": "Other"}}, "Other"),
        ({"normalizer": 3}, "expected an object"),
        ({"model": good["model"] | {"vocab": {"a": 0, "b": 0}}}, "both have id 0"),
        ({"normalizer": {"type": "Replace", "pattern": {"Regex": "(a+)+b"}, "content": ""}},
         "not known"),
        ({"post_processor": {"type": "BertProcessing", "sep": ["a"], "cls": ["b", 1]}}, "sep"),
        ({"truncation": {"max_length": "x"}}, "max_length"),
    ):  # fmt: skip
        path.write_text(json.dumps(good | changed), encoding="utf-8")
        with pytest.raises((FormatError, UnsupportedError), match=message) as caught:
            Tokenizer.from_file(str(path))
        assert str(caught.value).startswith(str(path))


def test_parts_may_be_exchanged() -> None:
    theirs, ours = small(), Tokenizer.from_str(small().to_str())
    theirs.normalizer = judge.normalizers.Sequence(
        [judge.normalizers.NFD(), judge.normalizers.Replace("l", "L")]
    )
    ours.normalizer = normalizers.Sequence([normalizers.NFD(), normalizers.Replace("l", "L")])
    theirs.pre_tokenizer = judge.pre_tokenizers.Whitespace()
    ours.pre_tokenizer = pre_tokenizers.Whitespace()
    theirs.normalizer[1].content = ours.normalizer[1].content = "w"
    theirs.post_processor = ours.post_processor = None
    theirs.decoder = ours.decoder = None
    for text in ("hello wörld", ""):
        assert described(ours.encode(text)) == described(theirs.encode(text))
        assert described(ours.encode(text, "b")) == described(theirs.encode(text, "b"))
    assert ours.decode([3, 4]) == theirs.decode([3, 4])
    assert ours.num_special_tokens_to_add(True) == theirs.num_special_tokens_to_add(True) == 0


@pytest.mark.parametrize(
    ("part", "wrong"),
    [
        ("model", None),
        ("normalizer", "NFC"),
        ("pre_tokenizer", normalizers.NFC()),
        ("post_processor", judge.processors.ByteLevel()),
        ("decoder", pre_tokenizers.Metaspace()),
    ],
)
def test_parts_of_another_kind_are_refused(part: str, wrong: object) -> None:
    theirs, ours = small(), Tokenizer.from_str(small().to_str())
    before = ours.to_str()
    with pytest.raises(TypeError):
        setattr(theirs, part, None if wrong is None else object())
    with pytest.raises(TypeError, match=f"Tokenizer.{part}: expected a {part}, found"):
        setattr(ours, part, wrong)
    assert ours.to_str() == before


@pytest.mark.parametrize(
    "use",
    [
        lambda m, t: t.decode([3.5]),
        lambda m, t: t.decode("34"),
        lambda m, t: t.add_tokens("xyz"),
        lambda m, t: t.add_special_tokens("[X]"),
        lambda m, t: m.normalizers.Sequence(["NFC"]),
        lambda m, t: m.pre_tokenizers.Sequence([m.normalizers.NFC()]),
        lambda m, t: m.normalizers.Sequence([m.normalizers.NFC()]).__setitem__(0, "NFC"),
        lambda m, t: m.processors.BertProcessing(("a", "x"), ("b", 1)),
        lambda m, t: m.processors.RobertaProcessing((1, 1), ("b", 1)),
    ],
)  # fmt: skip
def test_wrong_types_are_refused_at_once(use: Callable[[Any, Any], object]) -> None:
    stand_in = PACKAGE.modules(contents())["tokenizers"]
    for module in (judge, stand_in):
        with pytest.raises(TypeError):
            use(module, module.Tokenizer.from_str(small().to_str()))


@pytest.mark.parametrize("byte_fallback", [False, True])
def test_characters_without_tokens_move_spans(byte_fallback: bool) -> None:
    pieces = ["y", "u", "\u4e2d", "<0xC3>", "<0xA9>", "<", "0", "x", "C", "3", ">", "<0", "<0x",
              "<0xC", "<0xC3"]  # fmt: skip
    vocab = {piece: i for i, piece in enumerate(pieces)}
    merges = [("<", "0"), ("<0", "x"), ("<0x", "C"), ("<0xC", "3"), ("<0xC3", ">")]
    theirs = judge.Tokenizer(judge.models.BPE(vocab, merges, byte_fallback=byte_fallback))
    ours = Tokenizer.from_str(theirs.to_str())
    for text in ("you", "\xe9ou", "yo\xe9\u4e2du", "ooo\u4e2d", "o<0xC3>\xe9u", "u<0xC3>\xe9"):
        assert described(ours.encode(text)) == described(theirs.encode(text)), text
