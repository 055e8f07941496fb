"""Compares trained language models with llama.cpp: `make real-models`.

`real_models.toml` lists files in packages, each fetched once into build/real-models. A row of the
table has, for a model as it is and with the same weights in F32:

- texts with other ids (none), and whether jinja2 renders its chat template the same;
- in F32, the divergence from llama.cpp's distributions, and texts that greedy decoding continues
  otherwise (none);
- as it is, divergences from the distributions of F32, of ours and of llama.cpp, which both round
  activations, and the perplexities of all three.
"""

from __future__ import annotations

import argparse
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path

import jinja2
import numpy as np
from tests.judges.llama_c import Llama, opened
from tests.judges.test_llama_cpp import F64, as_f32, divergence, log_softmax
from tests.text.tokenizers.texts import texts
from tools.from_wheel import fill

import halfbyte
from halfbyte.text.chat.conversation import Chat
from halfbyte.text.model import LanguageModel

REPOSITORY = Path(__file__).parents[2]
CACHE = REPOSITORY / "build/real-models"
LIST = Path(__file__).with_suffix(".toml")
TEXT = REPOSITORY / "tests/data/storyteller-heldout.txt"

CONTROL = 3  # in GGUF's types of tokens
EXACT = 1e-5  # nats, both in F32
ROUNDED = 1.25  # times llama.cpp's divergence from F32
PERPLEXITY = 0.005

PROMPTS = (
    "Once upon a time", "The capital of France is", "def fibonacci(n):\n", "Why is the sky blue?",
    "1, 2, 3, 4, 5,", "Dear Sir or Madam,\n\nI am writing to", "Water boils at", "In 1969,",
    "The three laws of motion are", "List five fruits:\n1.",
)  # fmt: skip
MESSAGES = [
    {"role": "user", "content": "Who are you?"},
    {"role": "assistant", "content": "A model."},
    {"role": "user", "content": "And\n\n\u00e9, \U0001f642?  "},
]


def fetch(name: str) -> Path:
    """The model's file in the cache."""
    target = CACHE / f"{name}.gguf"
    if not target.exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        parts = tomllib.loads(LIST.read_text(encoding="utf-8"))[name]["parts"]
        with target.with_suffix(".partial").open("wb") as file:
            for index, (requirement, inside, sha256) in enumerate(parts):
                part = f"{name}.part{index}"
                fill(CACHE, requirement, {part: (inside, sha256)})
                file.write((CACHE / part).read_bytes())
                (CACHE / part).unlink()
        target.with_suffix(".partial").replace(target)
    return target


def other_ids(ours: LanguageModel, theirs: Llama, count: int) -> list[str]:
    """Texts with other ids there.

    Left out is what differs from the original tokenizers there: U+2581 is never a space, and "</s>"
    ends a text in every vocabulary.
    """
    metadata = ours.file.metadata
    kinds = metadata["tokenizer.ggml.token_type"]
    names = zip(metadata["tokenizer.ggml.tokens"], kinds, strict=True)
    special = [name for name, kind in names if kind == CONTROL][:40]
    kept = (t for t in texts(count, special) if "\u2581" not in t and "</s>" not in t)
    return [
        text for index, text in enumerate(kept)
        if ours.tokenizer.encode(text, index % 2 == 0, index % 3 == 0)
        != theirs.encode(text, index % 2 == 0, index % 3 == 0)
    ]  # fmt: skip


def same_conversation(ours: LanguageModel, theirs: Llama) -> bool:
    """Whether the chat template, if there is one, makes jinja2's text and llama.cpp's ids."""
    template = ours.file.metadata.get("tokenizer.chat_template")
    if template is None:
        return True
    environment = jinja2.Environment()  # noqa: S701 - no page
    expected = environment.from_string(str(template)).render(
        messages=MESSAGES, add_generation_prompt=True
    )
    chat = Chat(ours)
    ids = theirs.encode(expected, add_special=False, parse_special=True)
    return chat.render(MESSAGES) == expected and list(chat.encode(MESSAGES)) == ids


def greedy(model: LanguageModel | Llama, ids: list[int], count: int) -> list[int]:
    """The likeliest tokens after these."""
    model.reset()
    found: list[int] = []
    logits = model.feed(ids)
    while len(found) < count:
        found.append(int(logits[-1].argmax()))
        logits = model.feed(found[-1:])
    return found


def perplexity(logs: F64, ids: list[int]) -> float:
    """Of all tokens but the first."""
    return float(np.exp(-logs[np.arange(len(ids) - 1), ids[1:]].mean()))


@dataclass(frozen=True)
class Row:
    """A model's figures; divergences in nats."""

    ids: list[str]
    conversation: bool
    continued: list[str]
    exact: float
    ours: float
    theirs: float
    perplexities: tuple[float, float, float]

    @property
    def good(self) -> bool:
        """Whether all is within bounds."""
        whole, ours, theirs = self.perplexities
        return (
            not self.ids
            and self.conversation
            and not self.continued
            and self.exact <= EXACT
            and self.ours <= ROUNDED * self.theirs
            and abs(ours - whole) <= max(abs(theirs - whole), PERPLEXITY * whole)
        )

    def __str__(self) -> str:
        same = "same" if self.conversation else "other"
        names = " / ".join(f"{value:.3f}" for value in self.perplexities)
        return (
            f"{len(self.ids)} ids | {same} | {len(self.continued)} texts, {self.exact:.1e} | "
            f"{self.ours:.2e}, llama.cpp {self.theirs:.2e} | {names} |"
            + "".join(f" {text[:60]!a}" for text in [*self.ids, *self.continued][:1])
        )


def compare(path: Path, tokens: int, count: int, steps: int) -> Row:
    """The figures of a model."""
    whole = path.with_suffix(".f32")
    as_f32(path, whole)
    try:
        with halfbyte.load(whole, threads=1) as ours, opened(whole, tokens) as theirs:
            ids = theirs.encode(TEXT.read_text(encoding="utf-8"))[:tokens]
            exact = log_softmax(ours.logits(ids))
            apart = divergence(exact, log_softmax(theirs.feed(ids, len(ids))))
            starts = {prompt: theirs.encode(prompt) for prompt in PROMPTS}
            continued = [
                prompt
                for prompt, start in starts.items()
                if greedy(ours, start, steps) != greedy(theirs, start, steps)
            ]
    finally:
        whole.unlink()
    with halfbyte.load(path, threads=1) as ours, opened(path, tokens) as theirs:
        other, conversation = other_ids(ours, theirs, count), same_conversation(ours, theirs)
        own, his = log_softmax(ours.logits(ids)), log_softmax(theirs.feed(ids, len(ids)))
    return Row(
        other, conversation, continued, apart, divergence(exact, own), divergence(exact, his),
        (perplexity(exact, ids), perplexity(own, ids), perplexity(his, ids)),
    )  # fmt: skip


def main() -> int:
    """Print the table; 1 if a model is out of bounds."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokens", type=int, default=500, help="of the text")
    parser.add_argument("--count", type=int, default=2000, help="texts to tokenize")
    parser.add_argument("--steps", type=int, default=60, help="tokens after each prompt")
    parser.add_argument("--only", default="", help="models whose name contains this")
    options = parser.parse_args()
    names = [n for n in tomllib.loads(LIST.read_text(encoding="utf-8")) if options.only in n]
    rows = []
    for name in names:
        rows.append(compare(fetch(name), options.tokens, options.count, options.steps))
        print(f"| {name} | {rows[-1]}", flush=True)
    return int(not all(row.good for row in rows))


if __name__ == "__main__":
    sys.exit(main())
