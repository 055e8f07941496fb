"""Short stories from a grammar: a hero, a wish, an obstacle, a helper, an ending.

A plot is a set of sentences with slots. The slots of a plot agree with each other (a helper that
can fly fetches things that hang high), so that every story is coherent; openings, feelings,
dialogue and closings are shared by all plots.
"""

from __future__ import annotations

import functools
import itertools
import random
import re
from collections.abc import Iterator
from typing import Any

from storyteller_plots import PLOTS


def _words(text: str) -> list[str]:
    return text.split()


GIRLS = _words(
    "Lily Mia Anna Rosa Ella Nina Lucy Ruby Daisy Poppy Molly "
    "Clara Ida Emma Tilly Bella Hazel Nora Pearl Wendy"
)
BOYS = _words(
    "Tom Ben Sam Max Leo Finn Oscar Hugo Toby Jack Otto "
    "Milo Felix Pip Theo Rufus Bruno Charlie Ned Walter"
)
KINDS = _words(
    "rabbit fox mouse bear hedgehog squirrel cat dog pig goat lamb kitten puppy badger otter deer"
)
TRAITS = _words("little brave kind shy clever cheerful curious gentle young quiet happy small")
PLACES = [
    "in a small house near the forest", "at the edge of a green meadow", "under a big old oak tree",
    "in a cosy cottage on a hill", "beside a quiet lake", "in a village by the sea",
    "on a sunny farm", "in a round house in the woods", "at the end of a long road",
    "behind a garden full of roses",
]  # fmt: skip

OPENINGS = [
    "Once upon a time, there was a {trait} {kind} named {n}. {He} lived {place}.",
    "Once there was a {trait} {kind}. {His} name was {n}, and {he} lived {place}.",
    "{n} was a {trait} {kind} who lived {place}.",
    "There was once a {trait} {kind} called {n}. {He} lived {place}.",
    "Long ago, a {trait} {kind} named {n} lived {place}.",
]
FEELINGS = [
    "{n} sat down and began to cry.", "{n} felt very sad.", "{n} did not know what to do.",
    "{n} sighed.", "A big tear ran down the face of {n}.", "{n} was sad and wanted to give up.",
]  # fmt: skip
MEETINGS = [
    "Just then, {a} {trait2} {h} came by.", "After a while, {a} {trait2} {h} came along.",
    "But {a} {trait2} {h} had seen it all.", "Then {he} met {a} {trait2} {h}.",
]  # fmt: skip
TALKS = [
    '"Why are you so sad?" asked the {h}. "Because {cannot}," said {n}. "Do not worry," said the '
    '{h}. "{Can}. I will help you."',
    '"What is the matter, {n}?" asked the {h}. "Oh, {cannot}," said {n}. The {h} smiled. "Then let '
    'me help you," it said. "{Can}."',
    '"Please help me," said {n}. "{Cannot}." The {h} thought for a moment. "{Can}," it said. "Come '
    'with me."',
    '{n} told the {h} everything. "{Cannot}," said {he}. "{Can}," said the {h}. "We will do it '
    'together."',
]  # fmt: skip
THANKS = [
    '"Thank you, dear {h}!" said {n}.', '"Thank you so much!" cried {n}.', "{n} thanked the {h}.",
    '"You are a true friend," said {n}.', "",
]  # fmt: skip
CLOSINGS = [
    "From that day on, {n} and the {h} were best friends.",
    "And {n} learned that {lesson}.",
    "Since then, {n} knows that {lesson}.",
    "{n} and the {h} stayed friends for ever.",
    "That evening {n} thought: {lesson}.",
    "And they lived happily for many years.",
]
HELPER_TRAITS = _words("wise old friendly kind big funny good grey clever merry")

TRAINING_SEED, HELDOUT_SEED = 1, 2

_SLOT = re.compile(r"\{(\w+)\}")


def cast(rng: random.Random, plot: dict[str, Any], **asked: str) -> dict[str, str]:
    """A hero and the words of a plot, for `fill`; `asked` replaces some of them."""
    girl = rng.random() < 0.5
    girl = asked.pop("girl", "yes" if girl else "") != ""
    kind = rng.choice([*KINDS, *["girl" if girl else "boy"] * 5])
    slots = {
        "n": rng.choice(GIRLS if girl else BOYS), "kind": kind, "trait": rng.choice(TRAITS),
        "place": rng.choice(PLACES), "trait2": rng.choice(HELPER_TRAITS),
        "he": "she" if girl else "he", "him": "her" if girl else "him",
        "his": "her" if girl else "his",
    }  # fmt: skip
    for name, values in plot.items():
        value = rng.choice(values)
        parts = {f"{name}_{i}": v for i, v in enumerate(value)} if isinstance(value, tuple) else {}
        slots |= parts or {name: value}
    slots |= asked
    while slots["h"].startswith("{") or slots["h"] == slots["kind"]:
        slots["h"] = fill(slots["h"], slots)
        if slots["h"] == slots["kind"]:
            slots["kind"] = rng.choice([k for k in KINDS if k != slots["h"]])
    slots["a"] = "an" if slots["trait2"][0] in "aeiou" else "a"
    return slots


def story(rng: random.Random) -> str:
    """One story, a single paragraph of plain ASCII."""
    slots = cast(rng, rng.choice(PLOTS))
    texts = [
        rng.choice(OPENINGS), slots["wish"], slots["obstacle"], rng.choice(FEELINGS),
        rng.choice(MEETINGS), rng.choice(TALKS), slots["solution"], rng.choice(THANKS),
        slots["ending"], rng.choice(CLOSINGS),
    ]  # fmt: skip
    return " ".join(fill(text, slots) for text in texts if text)


def fill(text: str, slots: dict[str, str]) -> str:
    """Replace slots, also within their values; a capital letter capitalizes the value."""

    def value(match: re.Match[str]) -> str:
        name = match[1]
        if name in slots:
            return slots[name]
        text = slots[name[0].lower() + name[1:]]
        return text[0].upper() + text[1:]

    while _SLOT.search(text):
        text = _SLOT.sub(value, text)
    return text


def stories(seed: int) -> Iterator[str]:
    """An endless sequence of stories."""
    rng = random.Random(seed)
    while True:
        yield story(rng)


@functools.cache
def heldout_stories(count: int) -> tuple[str, ...]:
    """Stories for tests, from another seed; none is among the first 200,000 of the training."""
    seen = set(itertools.islice(stories(TRAINING_SEED), 200_000))
    fresh = (text for text in stories(HELDOUT_SEED) if text not in seen)
    return tuple(itertools.islice(fresh, count))
