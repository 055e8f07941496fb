"""Beam search: the likeliest texts, following a few candidates at a time."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np
import numpy.typing as npt

from halfbyte import arguments
from halfbyte.core.buffer import Kind
from halfbyte.core.ops.attention import KEY_BLOCK
from halfbyte.errors import HalfbyteError, MemoryBudgetError
from halfbyte.room import available_bytes
from halfbyte.text.sampling import F32Array, Sampler, largest, log_softmax
from halfbyte.text.token_model import TokenModel

State = TypeVar("State")
_Rows = list[npt.NDArray[Any]]

MAX_BEAMS = 64
# Bytes of a token in the list of a text, and of a continuation while it is ranked.
_TOKEN_BYTES, _RANKED_BYTES = 32, 160


@dataclass(frozen=True)
class Beam:
    """A finished text.

    Attributes
    ----------
    text : str
        Without the prompt.
    ids : list of int
        Its tokens, without the one that ended it.
    score : float
        Sum of log-probabilities (in nats) / length ** length_penalty; the length includes the token
        that ended the text.
    """

    text: str
    ids: list[int]
    score: float


@dataclass(frozen=True)
class _Live(Generic[State]):
    total: float  # log-probability
    ids: list[int]
    logits: F32Array
    state: State


def search(
    logits: F32Array,
    state: State,
    advance: Callable[[State, list[int]], tuple[F32Array, State]],
    adjust: Callable[[F32Array, list[int]], F32Array],
    stops: Collection[int],
    num_beams: int,
    length_penalty: float,
    limit: int,
) -> list[tuple[list[int], float]]:
    """The best texts and their scores, the best first.

    Each step keeps the `num_beams` likeliest continuations of the live beams. The search ends when
    `num_beams` texts are finished and the likeliest live one scores no better at its present
    length.

    Parameters
    ----------
    logits, state
        After the prompt.
    advance : callable
        Takes the state before a text's last token, and the text; returns the logits and the state
        after it.
    adjust : callable
        Applies bias and penalties to the logits after a text.
    """
    live = [_Live(0.0, [], logits, state)]
    finished: list[tuple[list[int], float]] = []
    for length in range(1, limit + 1):
        scale = length**length_penalty
        ranked: list[tuple[float, int, int]] = []  # log-probability, beam, token
        for number, beam in enumerate(live):
            totals = beam.total + log_softmax(adjust(beam.logits, beam.ids))
            ranked += [(float(totals[t]), number, int(t)) for t in largest(totals, 2 * num_beams)]
        ranked = [candidate for candidate in ranked if candidate[0] > -np.inf]
        ranked = sorted(ranked, key=lambda candidate: -candidate[0])[: 2 * num_beams]
        finished += [
            (live[n].ids, total / scale) for total, n, t in ranked[:num_beams] if t in stops
        ]
        finished = sorted(finished, key=lambda text: -text[1])[:num_beams]
        going = [candidate for candidate in ranked if candidate[2] not in stops][:num_beams]
        enough = len(finished) == num_beams
        if not going or (enough and going[0][0] / scale <= finished[-1][1]):
            break
        if length == limit:
            finished += [([*live[n].ids, t], total / scale) for total, n, t in going]
            break
        texts = [(total, [*live[n].ids, t], live[n].state) for total, n, t in going]
        live = [_Live(total, ids, *advance(before, ids)) for total, ids, before in texts]
    return sorted(finished, key=lambda text: -text[1])[:num_beams]


def _check(num_beams: int, length_penalty: float, max_tokens: int) -> None:
    for name, number in {"num_beams": num_beams, "max_tokens": max_tokens}.items():
        if arguments.integer(name, number) < 1:
            raise HalfbyteError(f"{name} {number}: expected 1 or more")
    if not np.isfinite(arguments.number("length_penalty", length_penalty)):
        raise HalfbyteError(f"length_penalty {length_penalty}: expected a finite number")
    if num_beams > MAX_BEAMS:
        raise HalfbyteError(
            f"num_beams {num_beams}: expected at most {MAX_BEAMS}; each is a text that takes "
            "time and memory of its own"
        )


def beam_search(
    model: TokenModel,
    prompt: str | Sequence[int],
    sampler: Sampler,
    num_beams: int,
    length_penalty: float,
    max_tokens: int,
) -> list[Beam]:
    """See `LanguageModel.beam_search`.

    The context holds one text. Each beam keeps a copy of its own rows of the KV cache, those after
    the prompt, and restores them before it continues: a copy takes far less time than a token.
    """
    _check(num_beams, length_penalty, max_tokens)
    ids = model.tokenizer.encode(prompt) if isinstance(prompt, str) else list(prompt)
    limit = min(max_tokens, model.context - len(ids) + 1)
    room = min(model.room, available_bytes())
    if (needed := beams_bytes(model, len(ids), num_beams, limit)) > room:
        raise MemoryBudgetError(
            f"{model.path}: {num_beams} beams of {limit} tokens: expected to need at most "
            f"{room / 1e6:.1f} MB beside the model, found {needed / 1e6:.1f} MB"
        )
    logits = model.feed(ids[model.rewind(ids) :])[0].copy()

    def advance(state: _Rows, generated: list[int]) -> tuple[F32Array, _Rows]:
        del model.tokens[len(ids) :]
        _restore(model, state, len(ids))
        model.tokens += generated[:-1]
        after = model.feed(generated[-1:])[0].copy()
        return after, _copy(model, len(ids))

    try:
        best = search(
            logits, _copy(model, len(ids)), advance,
            lambda row, generated: sampler.adjust(row, ids, generated),
            model.tokenizer.stop_ids, num_beams, length_penalty, limit,
        )  # fmt: skip
    finally:
        model.forget(len(ids))  # what comes after them is of some beam
    texts = []
    for generated, score in best:
        decoder = model.tokenizer.stream(ids)
        text = "".join([*map(decoder.push, generated), decoder.flush()])
        texts.append(Beam(text, generated, score))
    return texts


def beams_bytes(model: TokenModel, prompt: int, num_beams: int, limit: int) -> int:
    """Most bytes that beams of `limit` tokens take after a prompt of `prompt` tokens.

    During a step there are two generations of beams.
    """
    rows = sum(part.nbytes for part in _parts(model, prompt, prompt + limit - 1))
    return (
        2
        * num_beams
        * (rows + 4 * model.vocabulary + _TOKEN_BYTES * limit + _RANKED_BYTES * num_beams)
    )


def _parts(model: TokenModel, first: int, last: int) -> _Rows:
    """Views of the KV cache's positions `first` ... `last` - 1, extended to whole blocks.

    Layers that keep a state have it in whole.
    """
    parts = []
    for buffer in model.program.buffers:
        if buffer.kind is Kind.STATE:
            parts.append(model.executable.array(buffer))
        elif buffer.kind is Kind.CACHE:
            array = model.executable.array(buffer)
            block = 1 if array.shape[1] == model.context else KEY_BLOCK
            parts.append(array[:, first // block : -(-last // block)])
    return parts


def _copy(model: TokenModel, first: int) -> _Rows:
    return [part.copy() for part in _parts(model, first, model.position)]


def _restore(model: TokenModel, rows: _Rows, first: int) -> None:
    for whole, kept in zip(_parts(model, first, model.context), rows, strict=True):
        whole[:, : kept.shape[1]] = kept
