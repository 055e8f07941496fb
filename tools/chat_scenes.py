"""Small talk, stories, what is unknown and what is remembered: scenes of a conversation."""

from __future__ import annotations

import re
from collections.abc import Callable

from chat_games import (
    animals,
    calendar,
    guess_animal,
    joke,
    numbers,
    poem,
    riddle,
    table,
    would_rather,
)
from chat_stories import asked, make_story
from chat_talk import Talk, after, shows
from chat_words import answer, name, names, question, some, texts


def small_talk(talk: Talk, greets: bool = False) -> None:
    """Something of chat/small_talk.toml, and what its answer offers."""
    entries = texts("small_talk")["talk"]
    entry = entries[0] if greets else talk.rng.choice(entries)
    words = some(talk.rng)
    text = talk.say(talk.rng.choice(entry["user"]), entry["bot"], **words)
    for user, bot in entry.get("then", []):
        text = talk.say(user, bot)
    if re.search("who are you|your name", text) and talk.chance(0.6):
        introduce(talk, bare=True)
    after(talk, text, words["noun"])


@shows("story")
def tell_story(talk: Talk, user: str = "", about: str = "") -> None:
    """A story, and questions about it."""
    own = texts("play")["story"]
    words: dict[str, str] = {}
    end = ""
    if not user:
        user = talk.rng.choice(own["requests"])
        if talk.chance(0.85) and "time" not in user:
            end, words = asked(talk.rng)
    elif about[:1].isupper() and about in {*names()[0], *names()[1]}:
        words = {"n": about}
    elif about:
        words = {"kind": about} if talk.chance(0.5) else {"thing": about}
    slots = make_story(talk.rng, words)
    talk.say(user + end, slots["text"], **slots)
    for _ in range(talk.rng.choice((0, 1, 1, 2, 3))):
        if talk.size < 1500:
            ask_about(talk, slots)
    if talk.chance(0.1) and talk.size < 1200:
        tell_story(talk, talk.rng.choice(own["again"]))


def ask_about(talk: Talk, slots: dict[str, str]) -> None:
    """One question about the story that was told."""
    own = texts("play")["story"]
    kind = talk.rng.choice(list(own["about"]))
    talk.say(talk.rng.choice(own["about"][kind]["ask"]), own["about"][kind]["answers"], **slots)


def unknown(talk: Talk) -> None:
    """A question that Crumb cannot answer; it offers a story or a poem instead."""
    own = texts("play")["unknown"]
    words = some(talk.rng)
    kind = talk.rng.choice(own["more"])
    what = answer(talk.rng, kind, words)
    text = talk.say(talk.rng.choice(own["questions"]), own["answers"], **words, what=what)
    bare = re.sub("^(an?|the) ", "", what)
    after(talk, text, bare if kind in ("{topic}", "{name}") else bare.removesuffix("s"))


def introduce(talk: Talk, bare: bool = False) -> None:
    """A person's name; it may be asked for later."""
    if "name" in talk.known:
        return
    own = texts("scenes")["name"]
    talk.known["name"] = who = name(talk.rng)[0]
    tell = own["tell"].replace("(", "(|", 1) if bare else own["tell"]
    after(talk, talk.say(tell, own["answers"], who=who), who)


def pet(talk: Talk) -> None:
    """A person's animal and its name."""
    own = texts("scenes")["pet"]
    kind = talk.rng.choice([*texts("knowledge")["animals"], *own["others"]])
    it = name(talk.rng)[0]
    if talk.chance(0.5):
        talk.say(own["have"], own["asks"], pet=kind)
        talk.say(own["name"], own["names"], pet=kind, it=it)
    else:
        after(talk, talk.say(own["both"], own["boths"], pet=kind, it=it), it)
    talk.known |= {"pet": kind, "it": it}


def recall(talk: Talk) -> None:
    """Questions about what was said before."""
    own, known = texts("scenes"), talk.known
    choice = talk.rng.choice(("name", "pet", "said", "said"))
    if choice == "name":
        answers = own["name"]["known" if "name" in known else "unknown"]
        talk.say(own["name"]["ask"], answers, who=known.get("name", ""))
    elif choice == "pet" and "pet" in known:
        talk.say(own["pet"]["ask"], own["pet"]["known"], pet=known["pet"], it=known["it"])
    elif talk.turns and len(talk.turns[-1][0]) < 60:
        last = talk.turns[-1][0]
        talk.turns.append((question(talk.rng, own["said"]["ask"], {}), f'You said: "{last}"'))


SCENES: list[tuple[Callable[[Talk], None], float]] = [
    (small_talk, 40), (tell_story, 9), (unknown, 14), (joke, 6), (riddle, 6), (poem, 5),
    (would_rather, 2), (guess_animal, 4), (animals, 5), (numbers, 5), (calendar, 1), (introduce, 3),
    (pet, 2), (recall, 4),
    *((table(name), table_["weight"]) for name, table_ in texts("scenes")["tables"].items()),
]  # fmt: skip
