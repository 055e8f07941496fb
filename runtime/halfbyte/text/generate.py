"""The loop from a prompt to a stream of text."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from functools import cached_property
from typing import Unpack

from halfbyte import arguments
from halfbyte.errors import HalfbyteError
from halfbyte.text import sampling
from halfbyte.text.sampling import Sampler, TokenLogprob, token_logprob
from halfbyte.text.stopping import StopStrings
from halfbyte.text.token_model import TokenModel
from halfbyte.text.tokenizers import StreamDecoder
from halfbyte.weights import F32Array

PAUSE = 0.04  # seconds of a prompt after which others get their turn


class Options(sampling.Options, total=False):
    """How a text is generated; see `LanguageModel.generate`."""

    max_tokens: int
    stop: str | Sequence[str] | None
    logprobs: int | None


KEYWORDS = Options.__optional_keys__


def begin(
    model: TokenModel, prompt: str | Sequence[int], options: Options, function: str
) -> Generation:
    """A generation from a text or token ids; it starts when it is iterated.

    `function` is what a caller knows the options from, for messages.
    """
    arguments.check_keywords(function, options, KEYWORDS)
    if isinstance(prompt, str):
        ids = model.tokenizer.encode(prompt)
    else:
        ids = arguments.tokens("prompt", prompt)
    if not ids:
        raise HalfbyteError(f"{model.path}: the prompt has no tokens; expected 1 or more")
    return Generation(model, ids, **options)


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
        model: TokenModel,
        prompt_ids: list[int],
        max_tokens: int = 256,
        stop: str | Sequence[str] | None = None,
        logprobs: int | None = None,
        **options: Unpack[sampling.Options],
    ) -> None:
        if arguments.integer("max_tokens", max_tokens) < 1:
            raise HalfbyteError(f"max_tokens {max_tokens}: expected 1 or more")
        most = model.vocabulary
        if logprobs is not None and not 0 <= arguments.integer("logprobs", logprobs) <= most:
            raise HalfbyteError(f"logprobs {logprobs}: expected 0 to {most}")
        self._sampler = Sampler(**options)
        self._sampler.check(most)
        self._model, self._limit = model, max_tokens
        self._most = max(1, min(max_tokens, model.context - len(prompt_ids) + 1))
        self._stop, self._logprobs = StopStrings(stop), logprobs
        self._turn, self._mark = model.turn(), object()
        self._fed = -1  # tokens of the text that were processed; none yet
        self.prompt_ids = prompt_ids
        self.ids: list[int] = []
        self.text = self.finish_reason = ""
        self.logprobs: list[TokenLogprob] = []
        self.reused = 0
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
        try:
            while not self._over():
                piece = self._add(self._step())
                if piece is not None:
                    yield piece
            yield from self._rest()
        finally:  # where it is closed, or dropped half way, too
            self._turn.end()

    async def __aiter__(self) -> AsyncIterator[str]:
        try:
            while not self._over():
                piece = self._add(await self._advance())
                if piece is not None:
                    yield piece
                    await asyncio.sleep(0)
            for piece in self._rest():
                yield piece
        finally:
            self._turn.end()

    async def _advance(self) -> int:
        """The next token; the event loop runs while those before it are processed."""
        count = 1
        while True:
            await self._turn.ready()
            start = time.perf_counter()
            token = self._step(count)
            spent = time.perf_counter() - start
            if token < 0 or not self.ids:  # after what may have taken a pause's time
                await asyncio.sleep(0)
            if token >= 0:
                return token
            # As many as fit a pause at this speed; never many more at once: larger batches are
            # faster, but other things may make the next one slow.
            count = max(1, min(4 * count, int(count * PAUSE / max(spent, 1e-6))))

    @cached_property
    def _decoder(self) -> StreamDecoder:
        return self._model.tokenizer.stream(self.prompt_ids)

    def _step(self, most: int | None = None) -> int:
        """Process at most so many of the text's tokens; the one that follows, -1 before the end.

        Where another text had the context meanwhile, this one's tokens are processed again.
        """
        model, length = self._model, len(self.prompt_ids) + len(self.ids)
        with self._turn:
            start = time.perf_counter()
            if model.text is not self._mark or len(model.tokens) != self._fed:
                self._rewind()
            if self.ids and self._fed == length - 1:
                part, last = self.ids[-1:], True
            else:
                part = [*self.prompt_ids, *self.ids][self._fed :][:most]
                last = self._fed + len(part) == length
            logits = model.feed(part, rows=int(last))
            self._fed += len(part)
            token = self._choose(logits) if last else -1
            spent = time.perf_counter() - start
        if self.ids:
            self.decode_seconds += spent
        else:
            self.prompt_seconds += spent
        return token

    def _rewind(self) -> None:
        first = self._fed < 0
        self._fed = self._model.rewind([*self.prompt_ids, *self.ids])
        self._model.text = self._mark
        if first:
            self.reused = self._fed

    def _choose(self, logits: F32Array) -> int:
        """The token that follows, from logits [1, vocabulary]."""
        token = self._sampler.sample(logits[0], self.prompt_ids, self.ids)
        if self._logprobs is not None and token not in self._model.tokenizer.stop_ids:
            self.logprobs.append(token_logprob(logits[0], token, self._logprobs))
        return token

    def _over(self) -> bool:
        """Whether the text has ended; the reason is set."""
        if self._stop.found:
            self.finish_reason = "stop"
        elif len(self.ids) >= self._most:
            self.finish_reason = "length" if len(self.ids) == self._limit else "context"
        return bool(self.finish_reason)

    def _add(self, token: int) -> str | None:
        """The text of a token; none where it ends all."""
        if token in self._model.tokenizer.stop_ids:
            self.finish_reason = "stop"
            return None
        self.ids.append(token)
        return self._say(self._stop.push(self._decoder.push(token)))

    def _rest(self) -> Iterator[str]:
        """What was held back, where no stop string ended the text."""
        self._turn.end()
        if not self._stop.found:
            yield self._say(self._stop.push(self._decoder.flush()) + self._stop.flush())

    def _say(self, text: str) -> str:
        self.text += text
        return text
