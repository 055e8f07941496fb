"""Damaged tokenizer.json files are refused with a sentence, or read; nothing else happens."""

from __future__ import annotations

import copy
import json
import random
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import tokenizers as judge
from tests.text.standin.test_tokenizer import small
from tests.text.tokenizers import test_pipelines

from halfbyte.errors import FormatError, HalfbyteError
from halfbyte.text.standin.tokenizer import Tokenizer

VALUES = (None, 0, -1, 3.5, "x", "", [], {}, [1], {"a": 1}, True, 10**12, ["a", "b"], [["a"]])


def padded(repository: Path) -> judge.Tokenizer:
    """A tokenizer that truncates, pads and has templates."""
    tokenizer = small()
    tokenizer.enable_padding(length=8)
    tokenizer.enable_truncation(9, stride=1)
    tokenizer.post_processor = judge.processors.TemplateProcessing(
        "[CLS] $A [SEP]", "[CLS] $A [SEP] $B:1", [("[CLS]", 1), ("[SEP]", 2)]
    )
    return tokenizer


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The paths of parts, of the first twelve in each object or array."""
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, part in list(items)[:12]:
        yield (*path, key)
        if isinstance(part, dict | list):
            yield from places(part, (*path, key))


@pytest.mark.parametrize("count", [60, pytest.param(2000, marks=pytest.mark.long)])
@pytest.mark.parametrize(
    "make", [padded, test_pipelines.clip, test_pipelines.albert, test_pipelines.gemma]
)
def test_damaged_files(
    make: Callable[[Path], judge.Tokenizer], count: int, repository: Path
) -> None:
    data = json.loads(make(repository).to_str())
    paths, draw = list(places(data)), random.Random(0)
    outcomes: Counter[str] = Counter()
    for _ in range(count):
        damaged = copy.deepcopy(data)
        *parents, last = draw.choice(paths)
        parent = damaged
        for key in parents:
            parent = parent[key]
        parent[last] = draw.choice(VALUES)
        try:
            tokenizer = Tokenizer.from_str(json.dumps(damaged))
            tokenizer.decode(tokenizer.encode("Hello w\u00f6rld </s> ab", "x").ids)
            outcomes["read"] += 1
        except HalfbyteError:
            outcomes["refused"] += 1
        except ValueError as error:  # of truncation to fewer tokens than there are special ones
            assert "max_length" in str(error) or "truncation" in str(error)  # noqa: PT017
    assert min(outcomes["read"], outcomes["refused"]) > 0


@pytest.mark.parametrize("length", [10**12, 1 << 24])
def test_a_length_that_no_memory_has(length: int) -> None:
    data = json.loads(padded(Path()).to_str())
    data["padding"]["strategy"] = {"Fixed": length}
    with pytest.raises(FormatError, match="length: expected 0 to"):
        Tokenizer.from_str(json.dumps(data))
