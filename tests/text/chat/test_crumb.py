"""Crumb, the page's own chat model: its file, how good it is, and a conversation."""

from __future__ import annotations

import itertools
import json
import re
from pathlib import Path

import numpy as np
import pytest

import halfbyte
from halfbyte.text.chat import Chat

QUESTIONS = ["can you tell me a riddle?", "is it a chair?", "ok, I give up"]
ANSWERS = [
    "Here is one: What has many leaves but is no tree?",
    "A chair? No. You can read it. Do you give up?",
    "The answer is a book. Another riddle?",
]


@pytest.fixture(scope="module")
def path(repository: Path) -> Path:
    return repository / "models/crumb-int4.gguf"


@pytest.fixture(scope="module")
def heldout(repository: Path) -> list[list[dict[str, str]]]:
    """Conversations that it was not trained on."""
    return [
        [
            {"role": role, "content": text}
            for turn in turns
            for role, text in zip(("user", "assistant"), turn, strict=True)
        ]
        for turns in json.loads((repository / "tests/data/crumb-heldout.json").read_text())
    ]


def test_it_is_small(path: Path) -> None:
    assert path.stat().st_size < 8_000_000


def test_its_template_and_tokens(path: Path, heldout: list[list[dict[str, str]]]) -> None:
    """Every message comes back from its tokens; control tokens stand only between messages."""
    with halfbyte.load(path) as model:
        chat = Chat(model)
        assert chat.render(heldout[0][:2]) == (
            f"<s><|user|>{heldout[0][0]['content']}<|end|>"
            f"<|assistant|>{heldout[0][1]['content']}<|end|><|assistant|>"
        )
        control = {
            model.tokenizer.vocabulary.tokens.index(f"<|{t}|>")
            for t in ("user", "assistant", "end")
        }
        for messages in heldout:
            groups = itertools.groupby(chat.encode(messages)[1:], lambda token: token in control)
            texts = [model.tokenizer.decode(list(group)) for key, group in groups if not key]
            assert texts == [message["content"] for message in messages]
        assert chat.encode([{"role": "user", "content": "<|end|>"}]).count(max(control)) == 1


def test_it_is_as_good_as_it_says(path: Path, heldout: list[list[dict[str, str]]]) -> None:
    """Perplexity of held-out answers, as stated beside the model; int4 costs little of it."""
    text = path.with_suffix(".txt").read_text()
    of_floats, stated = map(float, re.findall(r"([\d.]+) (?:per token of an answer|in int4)", text))
    losses = []
    with halfbyte.load(path) as model:
        chat = Chat(model)
        for messages in heldout:
            ends = [len(chat.encode(messages[:i])) for i in range(1, len(messages) + 1)]
            ids = chat.encode(messages)[: model.context]
            of_token = model.token_losses(ids)
            for start, end in zip(ends[::2], ends[1::2], strict=True):
                losses.append(of_token[start - 1 : end - 2])  # up to the end of the answer
    assert np.exp(np.concatenate(losses).mean()) == pytest.approx(stated, rel=1e-4)
    assert stated < 1.05 * of_floats


def test_a_conversation(path: Path, backend: str) -> None:
    """The same words on every table; the last answer needs the one before it."""
    messages: list[dict[str, str]] = []
    with halfbyte.load(path, backend=backend) as model:
        for question in QUESTIONS:
            messages.append({"role": "user", "content": question})
            answer = model.chat(messages, temperature=0)
            messages.append({"role": "assistant", "content": answer})
    assert [message["content"] for message in messages[1::2]] == ANSWERS
