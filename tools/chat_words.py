"""Words for conversations: the texts in chat/, nouns and names from free packages, and typing."""

from __future__ import annotations

import random
import re
import tomllib
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from storyteller_grammar import BOYS, GIRLS, fill

SIZE = "five"  # million parameters, as the texts say
_COLOURS = ["red", "blue", "green", "yellow", "pink", "purple", "black", "white", "orange", "grey"]
_FOLDER = Path(__file__).with_name("chat")
_ABSTRACT = re.compile(r"(ness|ity|[ts]ion|ment|ism|[ae]nce|ship|ology|ing|age|[aeiou]cy|s)$")
_CHOICE = re.compile(r"\(([^()]*)\)")
_ARTICLE = re.compile(r"\b([Aa]) (?=[aeiou])")


@cache
def texts(name: str) -> Any:
    """A file of chat/."""
    return tomllib.loads((_FOLDER / f"{name}.toml").read_text())


@cache
def words(name: str) -> list[str]:
    """Nouns, adjectives or verbs: the lists of the package wonderwords (MIT), without bad words."""
    folder = files("wonderwords") / "assets"
    bad = set((folder / "profanitylist.txt").read_text().split())
    lines = (folder / f"{name}list.txt").read_text().split()
    fit = [w for w in lines if w.isalpha() and w.islower() and w not in bad and 3 <= len(w) <= 10]
    return [w for w in fit if name != "noun" or not _ABSTRACT.search(w)]


@cache
def names() -> tuple[list[str], list[str]]:
    """First names of girls and boys: the storyteller's, and the package names's (MIT)."""

    def first(kind: str) -> list[str]:
        lines = (files("names") / f"dist.{kind}.first").read_text().splitlines()
        return [line.split()[0].capitalize() for line in lines[:400]]

    return GIRLS * 5 + first("female"), BOYS * 5 + first("male")


def name(rng: random.Random) -> tuple[str, str]:
    """A first name, and "yes" for that of a girl or ""."""
    girl = rng.random() < 0.5
    return rng.choice(names()[0 if girl else 1]), "yes" if girl else ""


def noun(rng: random.Random) -> str:
    """Any noun."""
    return rng.choice(words("noun"))


def some(rng: random.Random) -> dict[str, str]:
    """Random words for the slots of a text."""
    animals = list(texts("knowledge")["animals"])
    return {
        "noun": noun(rng), "noun2": noun(rng), "adjective": rng.choice(words("adjective")),
        "verb": rng.choice(words("verb")), "animal": rng.choice(animals),
        "animal2": rng.choice(animals),
        "name": name(rng)[0], "size": SIZE,
        "toy": rng.choice(texts("play")["unknown"]["toys"]), "colour": rng.choice(_COLOURS),
        "topic": rng.choice(texts("play")["unknown"]["topics"]),
        "fact": rng.choice(texts("knowledge")["facts"]),
    }  # fmt: skip


def chosen(rng: random.Random, text: str) -> str:
    """The text with one part of each (a|b|c)."""
    while _CHOICE.search(text):
        text = _CHOICE.sub(lambda match: rng.choice(match[1].split("|")), text, count=1)
    return " ".join(text.split())


def answer(rng: random.Random, text: str, slots: dict[str, str]) -> str:
    """A text of Crumb's."""
    return _ARTICLE.sub(r"\1n ", fill(chosen(rng, text), slots))


def question(rng: random.Random, text: str, slots: dict[str, str]) -> str:
    """A text as a person types it: often in lower case, without full stops, with a slip."""
    text = chosen(rng, text)
    if rng.random() < 0.08:
        text = _slip(rng, text)
    text = _ARTICLE.sub(r"\1n ", fill(text, slots))
    if rng.random() < 0.5:
        text = text.rstrip("?.!") or text
    if rng.random() < 0.1:
        text = (
            rng.choice(
                ["ok, ", "hey, ", "um ", "please ", "so, ", "and ", "crumb, ", "hi, ", "hello! "]
            )
            + text
        )
    if rng.random() < 0.08:
        text += rng.choice([" please", "!", " :)", "??", " now", " crumb"])
    return text.lower() if rng.random() < 0.5 else text[0].upper() + text[1:]


def _slip(rng: random.Random, text: str) -> str:
    """One letter missing, doubled or exchanged with the next; never inside a slot."""
    places = [m.start() for m in re.finditer(r"(?<=[a-z])[a-z](?=[a-z])(?![^{]*\})", text)]
    if not places:
        return text
    i = rng.choice(places)
    middle = rng.choice(["", text[i] * 2, text[i + 1] + text[i]])
    return text[:i] + middle + text[i + (2 if middle and middle[0] != text[i] else 1) :]
