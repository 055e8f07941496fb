"""Conversations with Crumb from a grammar: what a very small chat model learns to talk from.

A conversation is a list of (question, answer). It is made of scenes (small talk, a story and
questions about it, a riddle ...), whose later questions need what was said before. Most questions
that Crumb cannot answer are about nouns drawn from a large list, so that it learns to decline
anything and to repeat the word.
"""

from __future__ import annotations

import functools
import itertools
import random
from collections.abc import Iterator

from chat_scenes import SCENES, Talk, small_talk

TRAINING_SEED, HELDOUT_SEED = 1, 2
_LONGEST = 1700  # characters, about a context of 512 tokens

Conversation = list[tuple[str, str]]


def conversation(rng: random.Random) -> Conversation:
    """One conversation of one to about eight turns."""
    talk = Talk(rng)
    scenes, weights = zip(*SCENES, strict=True)
    if rng.random() < 0.25:
        small_talk(talk, greets=True)
    for _ in range(rng.choice((1, 2, 2, 3, 3, 4, 5))):
        if talk.size > 1000:
            break
        rng.choices(scenes, weights)[0](talk)
    while talk.size > _LONGEST:
        talk.turns.pop()
    return talk.turns


def conversations(seed: int) -> Iterator[Conversation]:
    """An endless sequence of conversations."""
    rng = random.Random(seed)
    while True:
        turns = conversation(rng)
        if turns:
            yield turns


@functools.cache
def heldout_conversations(count: int) -> tuple[Conversation, ...]:
    """Conversations for tests, from another seed."""
    return tuple(itertools.islice(conversations(HELDOUT_SEED), count))
