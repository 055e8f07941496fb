"""The loop from a prompt to a stream of text."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import TYPE_CHECKING, Unpack

from halfbyte import sampling
from halfbyte.errors import HalfbyteError
from halfbyte.sampling import Sampler, TokenLogprob, token_logprob
from halfbyte.stopping import StopStrings
from halfbyte.weights import F32Array

if TYPE_CHECKING:
    from halfbyte.model import LanguageModel

PAUSE = 0.04  # seconds of a prompt after which others get their turn


class Options(sampling.Options, total=False):
    """How a text is generated; see `LanguageModel.generate`."""

    max_tokens: int
    stop: str | Sequence[str]
    logprobs: int | None


def begin(
    model: LanguageModel,
    prompt: str | Sequence[int] = "",
    max_tokens: int = 256,
    stop: str | Sequence[str] = (),
    logprobs: int | None = None,
    **options: Unpack[sampling.Options],
) -> Generation:
    """A generation from a text or token ids; it starts when it is iterated."""
    ids = model.tokenizer.encode(prompt) if isinstance(prompt, str) else list(prompt)
    if not ids:
        raise HalfbyteError(f"{model.path}: the prompt has no tokens; expected 1 or more")
    return Generation(model, ids, max_tokens, stop, logprobs, Sampler(**options))


class Generation:
    """One continuation of a prompt: iterate for text, then read the statistics.

    Iterated with ``async for`` it lets the event loop run after every token and at least every 50
    ms of a prompt (or after each of its tokens, where one takes longer).

    Attributes
    ----------
    prompt_ids, ids : list of int
        Tokens of the prompt (with the beginning-of-text token) and those generated so far.
    reused : int
        Tokens of the prompt that the context held already, so that they were not processed again.
    text : str
        What was generated so far.
    logprobs : list of TokenLogprob
        Where they are asked for, one a generated token.
    finish_reason : str
        "stop" (a token or a string that ends a text), "length" (`max_tokens`), "context" (it is
        full); empty while the text goes on.
    prompt_seconds, decode_seconds : float
        Time in the model and the sampler, for the prompt and for what follows.
    """

    def __init__(
        self,
        model: LanguageModel,
        prompt_ids: list[int],
        max_tokens: int,
        stop: str | Sequence[str],
        logprobs: int | None,
        sampler: Sampler,
    ) -> None:
        if max_tokens < 1:
            raise HalfbyteError(f"max_tokens {max_tokens}: expected 1 or more")
        if logprobs is not None and not 0 <= logprobs <= model.vocabulary:
            raise HalfbyteError(f"logprobs {logprobs}: expected 0 to {model.vocabulary}")
        sampler.check(model.vocabulary)
        self._model, self._sampler, self._limit = model, sampler, max_tokens
        self._stop, self._logprobs = StopStrings(stop), logprobs
        self.prompt_ids = prompt_ids
        self.ids: list[int] = []
        self.text = self.finish_reason = ""
        self.logprobs: list[TokenLogprob] = []
        self.reused = 0
        self._turn = 0  # which of the model's texts is this one
        self.prompt_seconds = self.decode_seconds = 0.0

    @property
    def prompt_speed(self) -> float:
        """Tokens of the prompt that were processed, per second."""
        fed = len(self.prompt_ids) - self.reused
        return fed / self.prompt_seconds if self.prompt_seconds else 0.0

    @property
    def decode_speed(self) -> float:
        """Generated tokens per second, the first (which the prompt gives) excluded."""
        return (len(self.ids) - 1) / self.decode_seconds if self.decode_seconds else 0.0

    def __iter__(self) -> Iterator[str]:
        self._begin()
        start = time.perf_counter()
        token = self._choose(self._feed(self.prompt_ids[self.reused :]))
        self.prompt_seconds = time.perf_counter() - start
        yield from self._continue(token)

    async def __aiter__(self) -> AsyncIterator[str]:
        self._begin()
        done, count = self.reused, 1
        while True:
            part = self.prompt_ids[done : done + count]
            done += len(part)
            last = done == len(self.prompt_ids)
            start = time.perf_counter()
            logits = self._feed(part, rows=int(last))
            token = self._choose(logits) if last else 0
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
        self.reused = self._model.rewind(self.prompt_ids)
        self._turn = self._model.texts

    def _feed(self, ids: list[int], rows: int = 1) -> F32Array:
        if self._model.texts != self._turn:
            raise HalfbyteError(
                f"{self._model.path}: another text was begun meanwhile; a model holds one at a time"
            )
        return self._model.feed(ids, rows)

    def _choose(self, logits: F32Array) -> int:
        """The token that follows, from logits [1, vocabulary]."""
        token = self._sampler.sample(logits[0], self.prompt_ids, self.ids)
        if self._logprobs is not None and token not in self._model.tokenizer.stop_ids:
            self.logprobs.append(token_logprob(logits[0], token, self._logprobs))
        return token

    def _continue(self, token: int) -> Iterator[str]:
        """Text of the first token after the prompt and of those that follow it."""
        model, decoder = self._model, self._model.tokenizer.stream(self.prompt_ids)
        while not self.finish_reason:
            if token in model.tokenizer.stop_ids:
                self.finish_reason = "stop"
                break
            self.ids.append(token)
            yield self._say(self._stop.push(decoder.push(token)))
            if self._stop.found:
                self.finish_reason = "stop"
                return
            if len(self.ids) == self._limit:
                self.finish_reason = "length"
            elif model.position == model.context:
                self.finish_reason = "context"
            else:
                start = time.perf_counter()
                token = self._choose(self._feed([token]))
                self.decode_seconds += time.perf_counter() - start
        yield self._say(self._stop.push(decoder.flush()) + self._stop.flush())

    def _say(self, text: str) -> str:
        self.text += text
        return text
