"""The loop from a prompt to a stream of text."""

from __future__ import annotations

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

PAUSE = 0.04  # seconds of processing a prompt before the event loop runs


class Options(sampling.Options, total=False):
    """Options of generating a text; see `LanguageModel.generate`."""

    max_tokens: int
    stop: str | Sequence[str] | None
    logprobs: int | None


KEYWORDS = Options.__optional_keys__


def begin(
    model: TokenModel, prompt: str | Sequence[int], options: Options, function: str
) -> Generation:
    """A generation from a text or token ids; it starts when it is iterated.

    `function` is the name of the public function, for error messages.
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

    With ``async for``, the event loop runs after every token, and at least every 50 ms of a prompt
    (or after each of its tokens, if one takes longer).

    Attributes
    ----------
    prompt_ids, ids : list of int
        Tokens of the prompt (with the beginning-of-text token) and those generated so far.
    reused : int
        Tokens of the prompt that the context already held and were not processed again.
    text : str
        The text generated so far.
    logprobs : list of TokenLogprob
        One per generated token, if `logprobs` was given.
    finish_reason : str
        "stop" (a token or a string that ends a text), "length" (`max_tokens`), "context" (it is
        full); empty while the text continues.
    prompt_seconds, decode_seconds : float
        Time in the model and the sampler, for the prompt and for the tokens after it.
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
        tokens = model.vocabulary
        if logprobs is not None and not 0 <= arguments.integer("logprobs", logprobs) <= tokens:
            raise HalfbyteError(f"logprobs {logprobs}: expected 0 to {tokens}")
        self._sampler = Sampler(**options)
        self._sampler.check(tokens)
        self._model, self._limit = model, max_tokens
        self._max_ids = max(1, min(max_tokens, model.context - len(prompt_ids) + 1))
        self._stop, self._logprobs = StopStrings(stop), logprobs
        self._turn, self._mark = model.turn(), object()
        self._fed = -1  # tokens that were processed; -1 before the first step
        self.prompt_ids = prompt_ids
        self.ids: list[int] = []
        self.text = self.finish_reason = ""
        self.logprobs: list[TokenLogprob] = []
        self.reused = 0
        self.prompt_seconds = self.decode_seconds = 0.0

    @property
    def prompt_speed(self) -> float:
        """Tokens of the prompt processed per second."""
        fed = len(self.prompt_ids) - self.reused
        return fed / self.prompt_seconds if self.prompt_seconds else 0.0

    @property
    def decode_speed(self) -> float:
        """Generated tokens per second, without the first, which follows from the prompt."""
        return (len(self.ids) - 1) / self.decode_seconds if self.decode_seconds else 0.0

    def __iter__(self) -> Iterator[str]:
        try:
            while not self._over():
                piece = self._add(self._step())
                if piece is not None:
                    yield piece
            yield from self._rest()
        finally:  # also if it is closed or dropped half way
            self._turn.end()

    async def __aiter__(self) -> AsyncIterator[str]:
        import asyncio  # takes 20 ms, which programs without an event loop do not need

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
        """The next token; the event loop runs while the tokens before it are processed."""
        import asyncio

        count = 1
        while True:
            await self._turn.ready()
            start = time.perf_counter()
            token = self._step(count)
            spent = time.perf_counter() - start
            if token < 0 or not self.ids:  # after a step that may have taken as long as a pause
                await asyncio.sleep(0)
            if token >= 0:
                return token
            # As many as fit a pause at this speed, but never many more than before: larger batches
            # are faster, but the machine may be slower next time.
            count = max(1, min(4 * count, int(count * PAUSE / max(spent, 1e-6))))

    @cached_property
    def _decoder(self) -> StreamDecoder:
        return self._model.tokenizer.stream(self.prompt_ids)

    def _step(self, limit: int | None = None) -> int:
        """Process at most `limit` of the text's tokens; the next token, or -1 before the last.

        If another text had the context meanwhile, this one's tokens are processed again.
        """
        model, length = self._model, len(self.prompt_ids) + len(self.ids)
        with self._turn:
            start = time.perf_counter()
            if model.text is not self._mark or len(model.tokens) != self._fed:
                self._rewind()
            if self.ids and self._fed == length - 1:
                part, last = self.ids[-1:], True
            else:
                part = [*self.prompt_ids, *self.ids][self._fed :][:limit]
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
        """The next token, from logits [1, vocabulary]."""
        token = self._sampler.sample(logits[0], self.prompt_ids, self.ids)
        if self._logprobs is not None and token not in self._model.tokenizer.stop_ids:
            self.logprobs.append(token_logprob(logits[0], token, self._logprobs))
        return token

    def _over(self) -> bool:
        """Whether the text has ended; sets the reason."""
        if self._stop.reached:
            self.finish_reason = "stop"
        elif len(self.ids) >= self._max_ids:
            self.finish_reason = "length" if len(self.ids) == self._limit else "context"
        return bool(self.finish_reason)

    def _add(self, token: int) -> str | None:
        """The text of a token; None if it ends the text."""
        if token in self._model.tokenizer.stop_ids:
            self.finish_reason = "stop"
            return None
        self.ids.append(token)
        return self._append(self._stop.push(self._decoder.push(token)))

    def _rest(self) -> Iterator[str]:
        """The text that was held back, unless a stop string ended the text."""
        self._turn.end()
        if not self._stop.reached:
            yield self._append(self._stop.push(self._decoder.flush()) + self._stop.flush())

    def _append(self, text: str) -> str:
        self.text += text
        return text
