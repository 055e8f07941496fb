"""From logits to a token.

The options are applied in this order, which is that of Hugging Face's transformers:

1. `logit_bias` is added;
2. `repetition_penalty`, for tokens of the prompt and of the text so far;
3. `frequency_penalty` and `presence_penalty`, for tokens of the text so far only;
4. `temperature` divides the logits;
5. `top_k`, then `top_p`, then `min_p` keep the likeliest tokens; one of them is drawn.

At temperature 0 the first three are applied, and the likeliest token is taken.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypedDict

import numpy as np
import numpy.typing as npt

from halfbyte import arguments
from halfbyte.core.ops.activation import log_softmax_of
from halfbyte.errors import HalfbyteError

F32Array = npt.NDArray[np.float32]
F64Array = npt.NDArray[np.float64]
Ids = npt.NDArray[np.intp]

_NUCLEUS = 256  # likeliest tokens that are tried first; most nuclei are smaller


class Adjustments(TypedDict, total=False):
    """Options that change logits; see :class:`Sampler`."""

    repetition_penalty: float
    frequency_penalty: float
    presence_penalty: float
    logit_bias: Mapping[int, float] | None


class Options(Adjustments, total=False):
    """Options of choosing a token; see :class:`Sampler`."""

    temperature: float
    top_k: int
    top_p: float
    min_p: float
    seed: int | None


class TokenLogprob(NamedTuple):
    """A generated token's log-probability (in nats) in the model's unchanged distribution."""

    token: int
    logprob: float
    top: list[tuple[int, float]]  # the likeliest tokens and theirs, the likeliest first


class Sampler:
    """Chooses the next token; see the module for the order of the options.

    Parameters
    ----------
    temperature : float
        0 is greedy: the likeliest token, the lowest id among equals.
    top_k : int
        Keep the k likeliest tokens, the lower id among equals; 0 keeps all.
    top_p : float
        Keep the smallest set of likeliest tokens whose probability reaches p; 1 keeps all.
        Source: Holtzman et al. 2020.
    min_p : float
        Keep tokens that are at least p times as likely as the likeliest; 0 keeps all.
        Source: Nguyen et al. 2024.
    repetition_penalty : float
        Divides positive logits of tokens that occurred, and multiplies negative ones; 1 is none.
        Source: Keskar et al. 2019.
    frequency_penalty, presence_penalty : float
        Subtracted from a token's logit for each occurrence in the text, and once if it occurred.
    logit_bias : mapping of int to float, optional
        Added to the logits of tokens; -inf bans one.
    seed : int, optional
        Of NumPy's PCG64; by default the system's entropy.
    """

    def __init__(
        self,
        temperature: float = 0.8,
        top_k: int = 0,
        top_p: float = 1.0,
        min_p: float = 0.0,
        repetition_penalty: float = 1.0,
        frequency_penalty: float = 0.0,
        presence_penalty: float = 0.0,
        logit_bias: Mapping[int, float] | None = None,
        seed: int | None = None,
    ) -> None:
        for name, value in (("top_k", top_k), ("seed", 0 if seed is None else seed)):
            arguments.integer(name, value)
        for name, number in (
            ("temperature", temperature), ("top_p", top_p), ("min_p", min_p),
            ("repetition_penalty", repetition_penalty),
            ("frequency_penalty", frequency_penalty), ("presence_penalty", presence_penalty),
        ):  # fmt: skip
            arguments.number(name, number)
        _expect("temperature", temperature, math.isfinite(temperature) and temperature >= 0, _ZERO)
        _expect("top_k", top_k, top_k >= 0, "0 (all) or more")
        _expect("top_p", top_p, 0 < top_p <= 1, "more than 0, at most 1")
        _expect("min_p", min_p, 0 <= min_p <= 1, "0 to 1")
        positive = math.isfinite(repetition_penalty) and repetition_penalty > 0
        _expect("repetition_penalty", repetition_penalty, positive, "more than 0")
        _expect("frequency_penalty", frequency_penalty, math.isfinite(frequency_penalty), _NUMBER)
        _expect("presence_penalty", presence_penalty, math.isfinite(presence_penalty), _NUMBER)
        _expect("seed", seed, seed is None or seed >= 0, _ZERO)
        self.temperature, self.top_k, self.top_p, self.min_p = temperature, top_k, top_p, min_p
        self.repetition_penalty = repetition_penalty
        self.frequency_penalty, self.presence_penalty = frequency_penalty, presence_penalty
        bias = arguments.numbers_by_integer("logit_bias", {} if logit_bias is None else logit_bias)
        self._biased = np.array(list(bias), np.intp)
        self._bias = np.array(list(bias.values()), np.float32)
        if not np.all(self._bias < np.inf):
            raise HalfbyteError("logit_bias: expected finite numbers or -inf")
        self._random = np.random.default_rng(seed)

    def sample(self, logits: F32Array, prompt: Sequence[int] = (), text: Sequence[int] = ()) -> int:
        """Choose the next token.

        Parameters
        ----------
        logits : float32 [vocabulary]
            The model's; they are not changed.
        prompt, text : sequence of int
            Tokens of the prompt, and those generated after it.
        """
        logits = self.adjust(logits, prompt, text)
        if self.temperature == 0:
            return int(logits.argmax())
        ids, p = self.distribution(logits)
        cumulative = np.cumsum(p)
        pick = int(np.searchsorted(cumulative, self._random.random() * cumulative[-1], "right"))
        pick = min(pick, len(p) - 1)
        return pick if ids is None else int(ids[pick])

    def check(self, vocabulary: int) -> None:
        """Raise `HalfbyteError` if a bias is for a token that the vocabulary does not have."""
        if len(self._biased) and not 0 <= self._biased.min() <= self._biased.max() < vocabulary:
            raise HalfbyteError(f"logit_bias: expected tokens from 0 to {vocabulary - 1}")

    def adjust(self, logits: F32Array, prompt: Sequence[int], text: Sequence[int]) -> F32Array:
        """Logits after bias and penalties; the same array if there are none."""
        counted = (self.frequency_penalty, self.presence_penalty) != (0, 0) and len(text) > 0
        seen = self.repetition_penalty != 1 and len(prompt) + len(text) > 0
        if not (len(self._biased) or counted or seen):
            return logits
        logits = logits.copy()
        if len(self._biased):
            self.check(len(logits))
            logits[self._biased] += self._bias
            if logits.max() == -np.inf:
                raise HalfbyteError("logit_bias: bans every token")
        if seen:
            ids = np.unique(np.concatenate([np.array(prompt, np.intp), np.array(text, np.intp)]))
            penalty, values = np.float32(self.repetition_penalty), logits[ids]
            logits[ids] = np.where(values > 0, values / penalty, values * penalty)
        if counted:
            ids, counts = np.unique(np.array(text, np.intp), return_counts=True)
            logits[ids] -= (self.frequency_penalty * counts + self.presence_penalty).astype("f4")
        return logits

    def distribution(self, logits: F32Array) -> tuple[Ids | None, F64Array]:
        """Possible next tokens (None: all, in their order) and their unnormalized probabilities.

        Takes adjusted logits; the temperature must be above 0.
        """
        ids = None
        if 0 < self.top_k < len(logits):
            ids = top(logits, self.top_k)
            logits = logits[ids]
        p = np.exp((logits.astype(np.float64) - float(logits.max())) / self.temperature)
        if self.top_p < 1:
            kept = _nucleus(p, self.top_p)
            ids, p = kept if ids is None else ids[kept], p[kept]
        if self.min_p > 0:
            kept = np.flatnonzero(p >= self.min_p)  # the largest is 1
            ids, p = kept if ids is None else ids[kept], p[kept]
        return ids, p


_ZERO, _NUMBER = "0 or more", "a finite number"


def _expect(name: str, value: object, holds: bool, expected: str) -> None:
    if not holds:
        raise HalfbyteError(f"{name} {value}: expected {expected}")


def top(values: npt.NDArray[np.floating], k: int) -> Ids:
    """Indices of the k largest values, the first among equals, in ascending order. O(n)."""
    if k >= len(values):
        return np.arange(len(values))
    threshold = np.partition(values, len(values) - k)[len(values) - k]
    indices = np.flatnonzero(values >= threshold)
    equal = np.flatnonzero(values[indices] == threshold)
    return np.delete(indices, equal[len(equal) - (len(indices) - k) :])


def largest(values: npt.NDArray[np.floating], k: int) -> Ids:
    """The same indices, that of the largest value first. O(n + k log k)."""
    indices = top(values, k)
    return indices[np.argsort(-values[indices], kind="stable")]


def _nucleus(p: F64Array, top_p: float) -> Ids:
    """Indices of the fewest largest `p` whose sum is at least `top_p` of the whole."""
    target, k = top_p * float(p.sum()), _NUCLEUS
    while True:
        k = min(k, len(p))
        ranked = np.sort(np.partition(p, len(p) - k)[len(p) - k :])[::-1]
        cumulative = np.cumsum(ranked)
        if cumulative[-1] >= target or k == len(p):
            return top(p, int(np.searchsorted(cumulative, target)) + 1)
        k *= 16


def log_softmax(logits: F32Array) -> F64Array:
    """Log-probabilities (in nats) of logits [vocabulary]."""
    return log_softmax_of(logits.astype(np.float64))


def token_logprob(logits: F32Array, token: int, count: int) -> TokenLogprob:
    """A token's log-probability, and those of the `count` likeliest."""
    logprobs = log_softmax(logits)
    top = [(int(i), float(logprobs[i])) for i in largest(logprobs, count)] if count else []
    return TokenLogprob(token, float(logprobs[token]), top)
