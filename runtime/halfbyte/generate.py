"""The loop from a prompt to a stream of text."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from halfbyte.errors import HalfbyteError
from halfbyte.sampling import Sampler

if TYPE_CHECKING:
    from halfbyte.model import LanguageModel


class Generation:
    """One continuation of a prompt: iterate for text, then read the statistics.

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
        model, decoder = self._model, self._model.tokenizer.stream(self.prompt_ids)
        stops = model.tokenizer.stop_ids
        model.reset()
        start = time.perf_counter()
        token = self._sampler.sample(model.feed(self.prompt_ids)[0])
        self.prompt_seconds = time.perf_counter() - start
        while token not in stops:
            self.ids.append(token)
            yield decoder.push(token)
            if len(self.ids) == self._limit or model.position == model.context:
                break
            start = time.perf_counter()
            token = self._sampler.sample(model.feed([token])[0])
            self.decode_seconds += time.perf_counter() - start
        yield decoder.flush()
