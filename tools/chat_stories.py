"""Stories about what a person names: a hero, a name, a place, a thing."""

from __future__ import annotations

import random
from typing import Any

from chat_words import name, noun, texts
from storyteller_grammar import CLOSINGS, KINDS, MEETINGS, OPENINGS, cast, fill
from storyteller_plots import PLOTS

_HEROES = [
    *KINDS, *KINDS, "robot", "dragon", "snail", "snail", "pirate", "princess", "king", "queen",
    "witch", "ghost", "elephant", "lion", "penguin", "whale", "duck", "frog", "owl", "horse", "cow",
    "unicorn", "spider", "monkey", "knight", "monster", "girl", "boy", "cloud", "teapot",
]  # fmt: skip
_PLACES = [
    "on the moon", "in a castle", "under the sea", "in the forest", "in space", "on a farm",
    "in Paris", "in London", "in a big city", "on an island", "in the desert", "in the mountains",
    "at school", "in a computer", "in the jungle", "in a cave", "on a ship", "in a pond",
    "in a garden", "in the snow", "on a train", "in a bakery", "in the kitchen", "on Mars",
]  # fmt: skip
# What is asked for, and whether it is a kind, a name, a thing or a place.
_ABOUT = [
    (" about (a |the |some |){kind}", "k"), (" about (a |the |){kind}", "k"),
    (" about {kind}s", "k"),
    (" about a {kind} (named|called) {n}", "kn"), (" about {n}( the | a ){kind}", "kn"),
    (" about a {kind} (named|called) {n}", "kn"), (" about {n}", "n"), (" with {n} in it", "n"),
    (" about {n} and (a |the |his |her ){thing}", "nt"), (" about a {kind} and a {thing}", "kt"),
    (" about a {kind} (that|who|which) (lives|is|lived) {place}", "kp"),
    (" about a {kind} {place}", "kp"), (" about {n} {place}", "np"), (" {place}", "p"),
    (" about my {kind}", "k"), (" about my {kind} {n}", "kn"),
    (" about {n}, (the|my) {kind}", "kn"),
    (" about a {kind} with a {thing}", "kt"), (" with a {thing}( in it|)", "t"),
    (" about a {kind} (called|named) {n} (and a|with a|who finds a) {thing}", "knt"),
    (" about a {kind} (called|named) {n} {place}", "knp"), (" about a {trait} {kind}", "ka"),
    (" about a {kind}(,| and) a {thing} {place}", "ktp"),
    (" about my {kind} {n} and (a |the |his |her ){thing}", "knt"),
    (" about (you|yourself|crumb)", "c"),
    (" (where|in which) {n} (finds|loses) a {thing}", "nt"),
]  # fmt: skip


_WOMEN, _MEN = ("girl", "princess", "queen", "witch"), ("boy", "king")


def asked(rng: random.Random) -> tuple[str, dict[str, str]]:
    """The end of a request (" about a {kind}") and the words that it asks for."""
    end, letters = rng.choice(_ABOUT)
    words: dict[str, str] = {}
    if letters == "c":
        return end, {"n": "Crumb", "kind": "program", "girl": ""}
    if "k" in letters:
        words["kind"] = rng.choice(_HEROES) if rng.random() < 0.5 else noun(rng)
    if "n" in letters:
        words["n"], words["girl"] = _fitting(rng, words)
    if "t" in letters:
        words["thing"] = noun(rng)
    if "p" in letters:
        words["place"] = rng.choice(_PLACES) if rng.random() < 0.7 else f"in a {noun(rng)}"
    if "a" in letters:
        words["trait"] = rng.choice(
            ["brave", "little", "lazy", "sad", "funny", "old", "hungry", "wise", "green", "tiny"]
        )
    return end, words


def _fitting(rng: random.Random, words: dict[str, str]) -> tuple[str, str]:
    """A name for the hero that is asked for."""
    while True:
        who, girl = name(rng)
        if words.get("kind") not in (_MEN if girl else _WOMEN):
            return who, girl


def make_story(rng: random.Random, words: dict[str, str]) -> dict[str, str]:
    """A story's slots, with "text", "summary" and "want"; `words` are really in it."""
    own = texts("play")["plots"]
    plots: list[dict[str, Any]] = own if "thing" in words else [*PLOTS, *own, *own]
    if "n" not in words:
        words = {**words, **dict(zip(("n", "girl"), _fitting(rng, words), strict=True))}
    while True:
        plot = rng.choice(plots)
        extra = (
            {}
            if "thing" in words or plot not in own
            else {"thing": rng.choice(texts("play")["unknown"]["toys"])}
        )
        slots = cast(rng, plot, **words, **extra)
        if slots["kind"] == words.get("kind", slots["kind"]) and slots["h"] != slots["n"]:
            break
    parts = [
        rng.choice(OPENINGS), slots["wish"], slots["obstacle"], rng.choice(MEETINGS), _talk(rng),
        slots["solution"], slots["ending"], rng.choice(CLOSINGS) if rng.random() < 0.5 else "",
    ]  # fmt: skip
    if rng.random() < 0.4:
        parts[4] = ""
    slots["text"] = " ".join(fill(part, slots) for part in parts if part)
    slots["summary"] = fill(slots.get("summary", "{wish} {solution}"), slots)
    slots["want"] = fill(slots.get("want", "{wish}"), slots)
    return {key: fill(value, slots) for key, value in slots.items()}


def _talk(rng: random.Random) -> str:
    return rng.choice([
        '"{Cannot}," said {n}. "Let me help you," said the {h}.',
        '"Why are you so sad?" asked the {h}. "{Cannot}," said {n}.',
        '"Oh dear, {cannot}!" cried {n}. "We will see," said the {h}.',
    ])  # fmt: skip
