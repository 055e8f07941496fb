"""Patterns of RegexFullMatch: Python's `re` where both agree, and patterns that are refused."""

from __future__ import annotations

import random
import re
import time

import pytest

from halfbyte.errors import HalfbyteError
from halfbyte.onnx.reference._regex import Pattern

ATOMS = ["a", "b", ".", "[ab]", "[^a]", "[a-c1]", "(a|b)", "(?:ab|c)", r"\d", r"\w", r"\S", r"\.",
         "1", "(a*)", "(a|)", r"\x41", "[^\\d]"]  # fmt: skip
REPEATS = ["", "", "*", "+", "?", "{2}", "{1,2}", "{2,}", "*?", "{0,3}"]


def test_random_patterns_match_like_re() -> None:
    rng = random.Random(0)
    matched = 0
    for _ in range(4000):
        parts = [rng.choice(ATOMS) + rng.choice(REPEATS) for _ in range(rng.randint(1, 4))]
        pattern = rng.choice(["", "^", r"\b", "(?i)"]) + "".join(parts) + rng.choice(["", "$"])
        text = "".join(rng.choice("abcA1. ") for _ in range(rng.randint(0, 6)))
        expected = re.compile(pattern, re.ASCII).fullmatch(text) is not None
        assert Pattern(pattern).full_match(text) == expected, (pattern, text)
        matched += expected
    assert matched > 300


@pytest.mark.parametrize(("pattern", "text"), [
    ("[[:alpha:]]+", "abc"), (r"\p{Lu}\pL+", "Ärger"), (r"\Qa.b\E", "a.b"), ("(?P<n>a)b", "ab"),
    ("a{,3}", "a{,3}"), ("a{", "a{"), ("(?s).", "\n"), ("(?i:a)b", "Ab"), ("[]a]+", "]a"),
    (r"\x{1F600}", "😀"), (r"(?m)a$\n^b", "a\nb"), ("(?i)[k-m]", "L"), (r"\101", "A"),
])  # fmt: skip
def test_re2s_own_syntax(pattern: str, text: str) -> None:
    assert Pattern(pattern).full_match(text)
    assert not Pattern(pattern).full_match(text + "!")


def test_a_pattern_that_hangs_re_takes_no_time() -> None:
    start = time.process_time()
    assert not Pattern("(a+)+(a|a)*b").full_match("a" * 2000)
    assert time.process_time() - start < 1


@pytest.mark.parametrize("pattern", [
    "(", ")", "[", "[z-a]", "*", r"\1", "(?=a)", "(?<=a)", "\\", "(?", "[[:word", r"\x{110000}",
    "a{2000}", "((a{1000}){1000}){1000}", "(" * 5000, "a" + "*" * 5000, r"\p{Greek}", r"\y",
])  # fmt: skip
def test_others_are_refused(pattern: str) -> None:
    with pytest.raises(HalfbyteError, match="pattern "):
        Pattern(pattern)
