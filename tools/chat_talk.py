"""A conversation with Crumb as it grows, and what follows when Crumb has offered something."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from typing import Any

from chat_words import answer, question, some, texts

SHOWS: dict[str, Callable[[Talk, str, str], None]] = {}
"""Scenes that Crumb offers: "story", "joke" ...; called with a question and what it is about."""
_OFFER = re.compile(r"(story|joke|riddle|poem)[^.!?]*\?$")


class Talk:
    """A conversation: `turns` of (question, answer), and what it has been about."""

    def __init__(self, rng: random.Random) -> None:
        self.rng, self.turns = rng, list[tuple[str, str]]()
        self.known: dict[str, str] = {}  # the person's name, their pet and its name
        self.told: set[str] = set()  # jokes, riddles and facts

    def say(self, user: str, bot: str | list[str], **slots: str) -> str:
        """Add a question and an answer, filled with `slots` and random words."""
        bot = bot if isinstance(bot, str) else self.rng.choice(bot)
        words = {**some(self.rng), **slots}
        text = answer(self.rng, bot, words).replace(" / ", "  \n")  # a line break in Markdown
        self.turns.append((question(self.rng, user, words), text))
        return text

    def pick(self, items: list[Any]) -> Any:
        """One of the items that was not picked before."""
        fresh = [item for item in items if str(item) not in self.told] or items
        item = self.rng.choice(fresh)
        self.told.add(str(item))
        return item

    def chance(self, share: float) -> bool:
        """Whether a thing happens that happens in a share of all cases."""
        return self.rng.random() < share

    @property
    def size(self) -> int:
        """Characters so far."""
        return sum(len(user) + len(bot) for user, bot in self.turns)


def shows(kind: str) -> Callable[[Callable[[Talk, str, str], None]], Callable[..., None]]:
    """Register a scene that Crumb offers."""

    def register(scene: Callable[[Talk, str, str], None]) -> Callable[..., None]:
        SHOWS[kind] = scene
        return scene

    return register


def after(talk: Talk, text: str, about: str = "") -> None:
    """Accept or decline what an answer has offered; `about` is the thing that it named."""
    scenes = texts("scenes")
    if not _OFFER.search(text) or not talk.chance(0.4):
        return
    last = text.rsplit(". ", 1)[-1].rsplit("! ", 1)[-1]
    kinds = [kind for kind in SHOWS if kind in last]
    if talk.chance(0.12):
        talk.say(scenes["no"], scenes["declined"])
    elif len(kinds) == 1:
        named = re.search(rf"about (it|(an? )?{re.escape(about)}\b)", text)
        SHOWS[kinds[0]](talk, scenes["yes"], about if named else "")
    else:
        kind = talk.rng.choice(kinds or ["joke"])
        SHOWS[kind](talk, scenes["wanted"].replace("{wanted}", kind), "")
