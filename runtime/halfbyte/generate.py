"""The loop from a prompt to a stream of text."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING, TypedDict

from halfbyte.errors import HalfbyteError
from halfbyte.sampling import Sampler
from halfbyte.weights import F32Array

if TYPE_CHECKING:
    from halfbyte.model import LanguageModel

PAUSE = 0.04  # seconds of a prompt after which others get their turn


class Options(TypedDict, total=False):
    """How a text is generated; see `LanguageModel.generate`."""

    max_tokens: int
    temperature: float
    top_k: int
    top_p: float
    seed: int | None


def begin(
    model: LanguageModel,
    prompt: str = "",
    max_tokens: int = 256,
    temperature: float = 0.8,
    top_k: int = 0,
    top_p: float = 1.0,
    seed: int | None = None,
) -> Generation:
    """A generation with these options; it starts when it is iterated."""
    return Generation(model, prompt, max_tokens, Sampler(temperature, top_k, top_p, seed))


class Generation:
    """One continuation of a prompt: iterate for text, then read the statistics.

    Iterated with ``async for`` it lets the event loop run after every token and at least every 50
    ms of a prompt (or after each of its tokens, where one takes longer).

    Attributes
    ----------
    prompt_ids, ids : list of int
        Tokens of the prompt (with the beginning-of-text token) and those generated so far.
    prompt_seconds, decode_seconds : float
        Time in the model and the sampler, for the prompt and for what follows.
    """

    def __init__(
        self, model: LanguageModel, prompt: str, max_tokens: int, sampler: Sampler
    ) -> None:
        if max_tokens < 1:
            raise HalfbyteError(f"max_tokens {max_tokens}: expected 1 or more")
        self._model, self._sampler, self._limit = model, sampler, max_tokens
        self.prompt_ids = model.tokenizer.encode(prompt)
        self.ids: list[int] = []
        self._text = 0  # which of the model's texts is this one
        self.prompt_seconds = self.decode_seconds = 0.0

    @property
    def prompt_speed(self) -> float:
        """Prompt tokens per second."""
        return len(self.prompt_ids) / self.prompt_seconds if self.prompt_seconds else 0.0

    @property
    def decode_speed(self) -> float:
        """Generated tokens per second, the first (which the prompt gives) excluded."""
        return (len(self.ids) - 1) / self.decode_seconds if self.decode_seconds else 0.0

    def __iter__(self) -> Iterator[str]:
        self._begin()
        start = time.perf_counter()
        token = self._sampler.sample(self._feed(self.prompt_ids)[0])
        self.prompt_seconds = time.perf_counter() - start
        yield from self._continue(token)

    async def __aiter__(self) -> AsyncIterator[str]:
        self._begin()
        done, count = 0, 1
        while True:
            part = self.prompt_ids[done : done + count]
            done += len(part)
            last = done == len(self.prompt_ids)
            start = time.perf_counter()
            logits = self._feed(part, rows=int(last))
            token = self._sampler.sample(logits[0]) if last else 0
            spent = time.perf_counter() - start
            self.prompt_seconds += spent
            await asyncio.sleep(0)
            if last:
                break
            # As many as fit a pause at this speed; never many more at once: larger batches are
            # faster, but other things may make the next one slow.
            count = max(1, min(4 * count, int(count * PAUSE / max(spent, 1e-6))))
        for piece in self._continue(token):
            yield piece
            await asyncio.sleep(0)

    def _begin(self) -> None:
        self._model.reset()
        self._text = self._model.texts

    def _feed(self, ids: list[int], rows: int = 1) -> F32Array:
        if self._model.texts != self._text:
            raise HalfbyteError(
                f"{self._model.path}: another text was begun meanwhile; a model holds one at a time"
            )
        return self._model.feed(ids, rows)

    def _continue(self, token: int) -> Iterator[str]:
        """Text of the first token after the prompt and of those that follow it."""
        model, decoder = self._model, self._model.tokenizer.stream(self.prompt_ids)
        stops = model.tokenizer.stop_ids
        while token not in stops:
            self.ids.append(token)
            yield decoder.push(token)
            if len(self.ids) == self._limit or model.position == model.context:
                break
            start = time.perf_counter()
            token = self._sampler.sample(self._feed([token])[0])
            self.decode_seconds += time.perf_counter() - start
        yield decoder.flush()
