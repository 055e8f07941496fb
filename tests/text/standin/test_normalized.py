"""Spans through every normalizer are those of PyPI's `tokenizers`."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
import tokenizers as judge
from tests.text.standin.judge import outcome
from tests.text.tokenizers import hugging_face, test_pipelines

from halfbyte.text.standin.components import Regex
from halfbyte.text.standin.normalized import NormalizedString
from halfbyte.text.standin.normalizers import Replace
from halfbyte.text.standin.tokenizer import Tokenizer

CHARACTERS = (
    "e\u00e9a\u0301\u0323\u0308\u00c5A\u030a\uac00\u1100\u1161\u11a8\ufb01\u00bd\u0344\u01c4\u1e9b"
    "\u0958\u0915\u093c\u1f82\u03b1\u0345\u0f73\u2126\ufb2c\u05d1\u05bc x\ud55c\u3131\ufdfd\u0f71"
    "\u0f75 \u2581\ufeff\u0327\u200b\t\u4f60"
)
N = judge.normalizers
STEPS = {
    "NFC": lambda _: N.NFC(), "NFD": lambda _: N.NFD(), "NFKC": lambda _: N.NFKC(),
    "NFKD": lambda _: N.NFKD(), "accents": lambda _: N.Sequence([N.NFD(), N.StripAccents()]),
    "lower": lambda _: N.Sequence([N.NFKC(), N.Lowercase()]), "bert": lambda _: N.BertNormalizer(),
    "cased": lambda _: N.BertNormalizer(strip_accents=False), "nmt": lambda _: N.Nmt(),
    "strip": lambda _: N.Sequence([N.Nmt(), N.Strip(left=False), N.Strip(right=False)]),
    "marks": lambda _: N.Sequence([N.Prepend("__"), N.Replace(" ", "\u2581\u2581")]),
    "removed": lambda _: N.Replace("e", ""), "bytes": lambda _: N.ByteLevel(),
    "charsmap": lambda charsmap: N.Precompiled(charsmap),
    "several": lambda charsmap: N.Sequence([N.Precompiled(charsmap), N.NFD(), N.Prepend("x")]),
}  # fmt: skip


@pytest.fixture(scope="module")
def charsmap(repository: Path) -> bytes:
    return test_pipelines.charsmap(
        hugging_face.train_sentencepiece(repository, model_type="unigram")
    )


@pytest.mark.parametrize("count", [600, pytest.param(20_000, marks=pytest.mark.long)])
@pytest.mark.parametrize("name", STEPS)
def test_spans_of_characters(name: str, count: int, charsmap: bytes) -> None:
    theirs = judge.Tokenizer(judge.models.WordLevel({"?": 0}, "?"))
    theirs.normalizer = STEPS[name](charsmap)
    theirs.pre_tokenizer = judge.pre_tokenizers.FixedLength(1)
    ours = Tokenizer.from_str(theirs.to_str())
    assert ours.normalizer is not None
    draw = random.Random(name)
    for _ in range(count):
        text = "".join(draw.choice(CHARACTERS) for _ in range(draw.randrange(9)))
        expected = outcome(theirs.encode, text)
        if expected != "refused":  # the original panics where a step removes what is first
            assert ours.encode(text).offsets == expected.offsets, ascii(text)
            normal = theirs.normalizer.normalize_str(text)
            assert ours.normalizer.normalize_str(text) == normal, ascii(text)


@pytest.mark.parametrize(
    "pattern", [r"\s{2,}|[\n\r\t]", r"\A +| +\z", "\\A\u2581", "^\u2581+$", " +\u2581", " {2,}"]
)
def test_regular_expressions_of_transformers(pattern: str) -> None:
    theirs, ours = N.Replace(judge.Regex(pattern), "#"), Replace(Regex(pattern), "#")
    draw = random.Random(pattern)
    for _ in range(2000):
        text = "".join(draw.choice(" \u2581\n\ra") for _ in range(draw.randrange(7)))
        assert ours.normalize_str(text) == theirs.normalize_str(text), ascii(text)
    for character in " \u2581\n":
        ours.normalize_str(character * 200_000 + "x")  # quadratic time would be hours


def test_methods() -> None:
    for text in (" Hello W\u00f6rld ", "\u01c4\u00df"):
        both = judge.NormalizedString(text), NormalizedString(text)
        for step in (
            lambda s: s.nfd(), lambda s: s.filter(lambda c: c not in "l\u0308"),
            lambda s: s.prepend("<"), lambda s: s.append(">"), lambda s: s.lowercase(),
            lambda s: s.uppercase(), lambda s: s.replace("L", "_"), lambda s: s.lstrip(),
            lambda s: s.rstrip(), lambda s: s.map(lambda c: "x" if c == "<" else c),
            lambda s: s.nfkc(), lambda s: s.nfc(), lambda s: s.nfkd(), lambda s: s.strip(),
        ):  # fmt: skip
            for one in both:
                step(one)
            assert (both[1].normalized, both[1].original) == (both[0].normalized, both[0].original)
        for place in (0, 1, (1, 3), slice(0, 2)):
            assert str(both[1][place]) == str(both[0][place])
        for behavior in ("removed", "isolated", "merged_with_previous", "contiguous"):
            parts = [[(p.normalized, p.original) for p in s.split("X", behavior)] for s in both]
            assert parts[0] == parts[1]
    with pytest.raises(ValueError, match="behavior"):
        NormalizedString("a").split("a", "other")
