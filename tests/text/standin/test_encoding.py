"""Truncation, padding and special tokens in all combinations, as by PyPI's `tokenizers`."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
import tokenizers as judge
from tests.text.standin.judge import described, outcome
from tests.text.tokenizers import test_pipelines
from tests.text.tokenizers.texts import texts

from halfbyte.text.standin import processors
from halfbyte.text.standin.encoding import Encoding
from halfbyte.text.standin.tokenizer import Tokenizer

SEP, CLS = ("</s>", 2), ("<s>", 1)


def processor(module: Any, number: int, trim: bool, prefix: bool) -> Any:
    """One of the kinds."""
    pair = "<s> $A </s> $B:1 </s>:1"
    template = {"single": "<s> $A </s>", "pair": pair, "special_tokens": [SEP, CLS]}
    options = {"trim_offsets": trim, "add_prefix_space": prefix}
    return (
        lambda: None,
        lambda: module.BertProcessing(SEP, CLS),
        lambda: module.RobertaProcessing(SEP, CLS, **options),
        lambda: module.TemplateProcessing(**template),
        lambda: module.TemplateProcessing(["$0"], ["$B:3", "<s>", "$A:1"], [SEP, CLS]),
        lambda: module.ByteLevel(**options),
        lambda: module.Sequence(
            [module.ByteLevel(**options), module.TemplateProcessing(**template)]
        ),
    )[number]()  # fmt: skip


def encoded(tokenizer: Any, batch: list[Any], words: bool, special: bool) -> list[Any]:
    """All that the encodings of a batch say."""
    return [described(e) for e in tokenizer.encode_batch(batch, words, special)]


@pytest.fixture(scope="module")
def tokenizers(repository: Path) -> list[tuple[judge.Tokenizer, Tokenizer]]:
    makes = test_pipelines.unigram, test_pipelines.whisper, test_pipelines.characters
    theirs = [make(repository) for make in makes]
    return [(one, Tokenizer.from_str(one.to_str())) for one in theirs]


@pytest.mark.parametrize("seed", [0, *(pytest.param(n, marks=pytest.mark.long) for n in (1, 2, 3))])
def test_options(seed: int, tokenizers: list[tuple[judge.Tokenizer, Tokenizer]]) -> None:
    draw = random.Random(seed)
    some = texts(300, ["<s>", "</s>"])
    compared = 0
    for _ in range(150):
        theirs, ours = draw.choice(tokenizers)
        for one in (theirs, ours):
            one.no_truncation()
            one.no_padding()
        number, trim, prefix = draw.randrange(7), draw.random() < 0.5, draw.random() < 0.5
        theirs.post_processor = processor(judge.processors, number, trim, prefix)
        ours.post_processor = processor(processors, number, trim, prefix)
        added = ours.num_special_tokens_to_add(True)
        assert added == theirs.num_special_tokens_to_add(True)
        if draw.random() < 0.7:
            options = {
                "max_length": added + draw.choice([1, 2, 3, 5, 8, 16]),
                "stride": draw.choice([0, 0, 1, 2]), "direction": draw.choice(["left", "right"]),
                "strategy": draw.choice(["longest_first", "only_first", "only_second"]),
            }  # fmt: skip
            both = [outcome(t.enable_truncation, **options) for t in (theirs, ours)]
            assert both[0] == both[1], options
        if draw.random() < 0.5:
            padding = {
                "length": draw.choice([None, 10, 30]), "direction": draw.choice(["left", "right"]),
                "pad_to_multiple_of": draw.choice([None, 8, 0]), "pad_id": 3, "pad_type_id": 2,
            }  # fmt: skip
            theirs.enable_padding(**padding)
            ours.enable_padding(**padding)
        words, special = draw.random() < 0.3, draw.random() < 0.7
        cut = [draw.choice(some)[: draw.choice([0, 3, 20, 60, 200])] for _ in range(6)]
        inputs = [cut[:2], cut[2:5]] if words else cut[:2]
        batch = [tuple(inputs), *(inputs[:1] if draw.random() < 0.5 else [])]
        results = [outcome(encoded, t, batch, words, special) for t in (theirs, ours)]
        assert results[0] == results[1], (batch, number, ours.truncation, ours.padding)
        compared += results[0] != "refused"
    assert compared > 75


@pytest.mark.parametrize("prefix", [True, False])
def test_spans_without_spaces(
    prefix: bool, tokenizers: list[tuple[judge.Tokenizer, Tokenizer]]
) -> None:
    """The space that was put before each of several words is not in its span."""
    theirs, ours = tokenizers[1]
    for one, module in ((theirs, judge.processors), (ours, processors)):
        one.no_truncation()
        one.no_padding()
        one.post_processor = processor(module, 2, trim=True, prefix=prefix)
    for words in ([" a", " word", "  two ", "b"], [" ", "  "]):
        expected = theirs.encode(words, is_pretokenized=True)
        assert ours.encode(words, is_pretokenized=True).offsets == expected.offsets


def test_methods(tokenizers: list[tuple[judge.Tokenizer, Tokenizer]]) -> None:
    theirs, ours = tokenizers[1]
    for one in (theirs, ours):
        one.no_truncation()
        one.no_padding()
        one.post_processor = None
    both = [[t.encode("a long text of words", "and another") for t in (theirs, ours)] for _ in "ab"]
    for pair in both:
        for encoding in pair:
            encoding.pad(40, direction="left", pad_id=7, pad_token="x")  # noqa: S106
        assert described(pair[1]) == described(pair[0])
        for encoding in pair:
            encoding.truncate(9, stride=3, direction="left")
            encoding.set_sequence_id(1)
        assert described(pair[1]) == described(pair[0])
        assert len(pair[1]) == len(pair[0])
    for grows in (True, False):
        expected = judge.Encoding.merge([pair[0] for pair in both], grows)
        assert described(Encoding.merge([p[1] for p in both], grows)) == described(expected)
    with pytest.raises(ValueError, match="direction"):
        both[0][1].pad(90, direction="up")
    with pytest.raises(ValueError, match="stride"):
        both[0][1].truncate(2, stride=2)
    both[0][1].truncate(0)
    assert both[0][1].ids == []
    assert len(both[0][1].overflowing[0]) == 9
