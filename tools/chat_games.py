"""Jokes, riddles, poems, games, and what Crumb knows: scenes of a conversation."""

from __future__ import annotations

from collections.abc import Callable

from chat_talk import Talk, shows
from chat_words import noun, texts


@shows("joke")
def joke(talk: Talk, user: str = "", about: str = "") -> None:
    """A joke in one answer or in two, others after it, and why it is funny."""
    own = texts("scenes")["joke"]
    topic, ask, end, why = talk.pick(texts("knowledge")["jokes"])
    lead = ""
    if not user and talk.chance(0.3):
        user = own["about"]
        if talk.chance(0.3):
            user, lead = user.replace("topic", "noun"), own["unlike"]
    user = user or own["ask"]
    if talk.chance(0.5):
        talk.say(user, lead + ask, topic=topic)
        talk.say(own["guess"], own["ends"], end=end)
    else:
        talk.say(user, f"{lead}{ask} {end}", topic=topic)
    if talk.chance(0.15):
        talk.say(own["explain"], own["why"], why=why)
    if talk.chance(0.3) and talk.size < 1300:
        joke(talk, own["again"])


@shows("riddle")
def riddle(talk: Talk, user: str = "", about: str = "") -> None:
    """A riddle, with wrong answers, a hint, and the right answer."""
    own = texts("scenes")["riddle"]
    riddles = texts("knowledge")["riddles"]
    ask, right, hint = talk.pick(riddles)
    slots = {"riddle": ask, "right": right, "hint": hint, "bare": right.split(" ", 1)[1]}
    text = talk.say(user or own["ask"], own["asks"], **slots)
    for _ in range(talk.rng.choice((0, 1, 1, 2))):
        if talk.chance(0.5):
            text = talk.say(own["hint"], own["hints"], **slots)
            continue
        other = talk.rng.choice(riddles)[1].split(" ", 1)[1]
        wrong = other if talk.chance(0.4) else noun(talk.rng)
        if wrong != slots["bare"]:
            text = talk.say(own["wrong"], own["wrongs"], wrong=wrong, **slots)
    if text.endswith("give up?") and talk.chance(0.6):
        text = talk.say(own["yes"], own["solutions"], **slots)
    elif talk.chance(0.5):
        text = talk.say(own["right"], own["rights"], **slots)
    else:
        text = talk.say(own["give_up"], own["solutions"], **slots)
    if text.endswith("riddle?") and talk.size < 1200 and talk.chance(0.6):
        riddle(talk, texts("scenes")["yes"])


@shows("poem")
def poem(talk: Talk, user: str = "", about: str = "") -> None:
    """A poem or a haiku about a thing."""
    own, play = texts("scenes")["poem"], texts("play")
    animals = list(texts("knowledge")["animals"])
    thing = about or (talk.rng.choice(animals) if talk.chance(0.2) else noun(talk.rng))
    parts = ["poem_begins", "poem_ends"]
    if not user and talk.chance(0.2):
        user, parts = own["haiku"], ["haiku_begins", "haiku_middles", "haiku_ends"]
    text = " / ".join(talk.rng.choice(play[part]) for part in parts)
    talk.say(user or own["ask"], text, noun=thing)
    if talk.chance(0.25):
        poem(talk, own["again"])


def would_rather(talk: Talk) -> None:
    """A question what one would rather do, and a comment on the choice."""
    own = texts("scenes")["rather"]
    first, second = talk.pick(texts("play")["rather"])
    talk.say(own["ask"], own["asks"], first=first, second=second)
    place = talk.rng.choice(("first", "second"))
    choice, other = (first, second) if place == "first" else (second, first)
    talk.say(own["choose"], own["chosen"], choice=choice, other=other, place=place)


def guess_animal(talk: Talk, user: str = "") -> None:
    """Crumb guesses the animal that a person thinks of, with yes and no."""
    own, node = texts("scenes")["guess"], texts("play")["guess"]
    user, lead = user or own["ask"], own["lead"]
    while not isinstance(node, str):
        talk.say(user, lead + node["question"])
        reply = talk.rng.choice(("yes", "no"))
        user, lead, node = own[reply], "", node[reply]
    talk.say(user, own["is_it"], it=node)
    if talk.chance(0.7):
        text = talk.say(own["right"], own["rights"], it=node)
        if text.endswith("?") and talk.size < 900 and talk.chance(0.4):
            guess_animal(talk, texts("scenes")["yes"])
    else:
        animals = list(texts("knowledge")["animals"])
        other = noun(talk.rng) if talk.chance(0.3) else talk.rng.choice(animals)
        talk.say(own["wrong"], own["wrongs"], other=other)


def animals(talk: Talk) -> None:
    """Facts about animals, with "and a duck?" after them."""
    own, table = texts("scenes")["animals"], texts("knowledge")["animals"]
    entry = talk.rng.choice(own["asks"])
    user = entry["ask"]
    for _ in range(talk.rng.choice((1, 1, 2, 3))):
        animal = talk.pick(list(table))
        names = ("sound", "young", "legs", "home", "food", "more")
        slots = dict(zip(names, table[animal], strict=True))
        talk.say(user, entry["answers"], animal=animal, an=f"a {animal}", **slots)
        user = own["again"]


def numbers(talk: Talk) -> None:
    """Small sums and counting."""
    rng, own = talk.rng, texts("scenes")["numbers"]
    for _ in range(rng.choice((1, 1, 2, 3))):
        sign = rng.choice("+++--*")
        most = 5 if sign == "*" else 10
        a, b = rng.randint(0, most), rng.randint(0, most)
        a, b = (max(a, b), min(a, b)) if sign == "-" else (a, b)
        big = rng.random() < 0.15
        if big:
            a, b = rng.randint(20, 9999), rng.randint(20, 9999)
        value = {"+": a + b, "-": a - b, "*": a * b}[sign]
        word = {"+": "plus", "-": "minus", "*": "times"}[sign]
        slots = {"a": str(a), "b": str(b), "sign": sign, "word": word, "value": str(value)}
        talk.say(own["ask"], own["too_big" if big else "answers"], **slots)
    if talk.chance(0.3):
        way, n = ("down" if talk.chance(0.3) else "up"), rng.randint(2, 12)
        count = [str(i) for i in range(1, n + 1)][:: -1 if way == "down" else 1]
        talk.say(own[way], own[f"{way}s"], n=str(n), count=", ".join(count))


def calendar(talk: Talk) -> None:
    """Days and months in their order."""
    own = texts("scenes")["calendar"]
    kind, whole = ("day", "week") if talk.chance(0.6) else ("month", "year")
    names = own[f"{kind}s"]
    i = talk.rng.randrange(len(names))
    slots = {"kind": kind, "whole": whole, "it": names[i]}
    if talk.chance(0.2):
        talk.say(own["all"], ", ".join(names) + ".", **slots)
    elif talk.chance(0.6):
        talk.say(
            own["next"], "After {it} comes {other}.", other=names[(i + 1) % len(names)], **slots
        )
    else:
        talk.say(own["previous"], "Before {it} comes {other}.", other=names[i - 1], **slots)


def table(name: str) -> Callable[[Talk], None]:
    """A scene that asks for entries of a table of chat/knowledge.toml."""

    def scene(talk: Talk) -> None:
        own = texts("scenes")["tables"][name]
        user = own["ask"]
        for _ in range(talk.rng.choice((1, 1, 2, 3))):
            key, value = talk.pick(list(texts("knowledge")[name].items()))
            talk.say(user, own["answers"], key=key, value=value)
            user = own["again"]

    return scene
