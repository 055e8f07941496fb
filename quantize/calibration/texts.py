"""Tokens to calibrate with: of a text, or written by the model itself.

A window begins with the beginning-of-text token and fits the context. A model that writes its own
text needs no data: what it writes resembles what it was trained on, and moves its activations in
the same way. Source of the idea: Liu et al. 2023, LLM-QAT.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from halfbyte.errors import HalfbyteError
from halfbyte.formats import ModelFile
from halfbyte.quantize.calibration.segments import Segments, State, Tokens
from halfbyte.text.loading import load_file
from halfbyte.text.planning import capture_model, context_of
from halfbyte.text.tokenizers import Tokenizer, from_metadata

WINDOW = 512  # tokens, at most
MAX_TOKENS = 1 << 14  # of a text: more change little, and take longer
MIN_TOKENS = 256
OWN_TOKENS = 1 << 13  # that a model writes
_MAX_BYTES = 1 << 26
_PARTS = 64  # of a long text


def read_text(path: str | os.PathLike[str]) -> str:
    """A text in UTF-8; raises `HalfbyteError` for anything else."""
    with Path(path).open("rb") as file:
        data = file.read(_MAX_BYTES + 1)
    if len(data) > _MAX_BYTES:
        raise HalfbyteError(
            f"{path}: expected a text of at most {_MAX_BYTES >> 20} MiB, found more"
        )
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise HalfbyteError(
            f"{path}: expected a text in UTF-8 to calibrate with, found the byte "
            f"0x{data[error.start]:02x} at {error.start}"
        ) from None
    if "\0" in text:
        raise HalfbyteError(
            f"{path}: expected a text to calibrate with, found a zero byte at {text.index(chr(0))}"
        )
    return text


def windows_of(file: ModelFile, text: str, name: object) -> list[Tokens]:
    """A text as windows of tokens, from all of its parts if it is long.

    A text of several documents says little to a model that reads one at a time: a window that held
    more than one would be unlike all it knows. So each paragraph, between empty lines, begins a
    window, if the model then predicts the first ones better than where they follow each other.

    Raises
    ------
    HalfbyteError
        It has fewer than `MIN_TOKENS` tokens, or the model cannot predict it at all: it is in
        another language, for example.
    """
    tokenizer = from_metadata(file)
    count, limit = len(text), 16 * MAX_TOKENS
    if count > limit:
        size = limit // _PARTS
        starts = np.linspace(0, count - size, _PARTS).astype(int)
        text = "\n\n".join(text[start : start + size] for start in starts)
    ids = tokenizer.encode(text, add_special_tokens=False, parse_special=True)
    if len(ids) < MIN_TOKENS:
        raise HalfbyteError(
            f"{name}: expected a text of at least {MIN_TOKENS} tokens to calibrate with, found "
            f"{len(ids)}"
        )
    before = _before(tokenizer)
    size = _window(file, tokenizer) - len(before)
    paragraphs = [
        tokenizer.encode(part, add_special_tokens=False, parse_special=True)
        for part in re.split(r"\n\s*\n", text)
    ]
    ways = [_windows(before, parts, size) for parts in ([ids], paragraphs) if any(parts)]
    losses = [_loss(file, _first(windows, 2 * size)) for windows in ways]
    count = len(tokenizer.vocabulary.tokens)
    if not min(losses) < math.log(count):
        raise HalfbyteError(
            f"{name}: expected a text in a language that the model knows, found one that it "
            f"predicts worse than chance: perplexity {math.exp(min(*losses, 700)):.4g}, of "
            f"{count} tokens"
        )
    return spread(ways[int(np.argmin(losses))])


def _windows(before: Sequence[int], parts: Sequence[Sequence[int]], size: int) -> list[Tokens]:
    """Parts of a text, each from its own beginning, in windows."""
    return [
        np.array([*before, *part[first : first + size]], np.int32)
        for part in parts
        for first in range(0, len(part), size)
    ]


def spread(windows: list[Tokens], tokens: int | None = None) -> list[Tokens]:
    """Windows from everywhere, of about so many tokens together, by default `MAX_TOKENS`."""
    count = max(1, len(windows) * (tokens or MAX_TOKENS) // sum(map(len, windows)))
    if count >= len(windows):
        return windows
    return [windows[i] for i in np.linspace(0, len(windows) - 1, count).astype(int)]


def _first(windows: Sequence[Tokens], tokens: int) -> list[Tokens]:
    """The first windows, of no more than so many tokens but for the first."""
    ends = np.cumsum([len(window) for window in windows])
    return [*windows[: max(1, int(np.searchsorted(ends, tokens, "right")))]]


def own_windows(
    file: ModelFile, threads: int, done: Callable[[float], None], tokens: int = OWN_TOKENS
) -> list[Tokens]:
    """Texts that the model writes, at temperature 1, from a fixed seed.

    A text ends where the model ends it; a chat model, which is one by its template, goes on with
    the next message. `done` is called with shares of the work.
    """
    goes_on = "tokenizer.chat_template" in file.metadata
    generator, windows = np.random.default_rng(0), list[Tokens]()
    size, total = _window(file, from_metadata(file)), 0
    Segments(file, [np.zeros(1, np.int32)])  # raises before the work
    own = replace(file, tensors=dict(file.tensors), parts=dict(file.parts))  # it closes them
    with load_file(own, threads=threads, context=size) as model:
        before = _before(model.tokenizer)
        stop = frozenset() if goes_on else model.tokenizer.stop_ids
        while total < tokens:
            model.reset()
            ids = [*before]
            while len(ids) < size and ids[-1] not in stop - {*before}:
                logits = model.feed(ids[model.position :])[0]
                ids.append(_drawn(logits, generator))
                done(1 / tokens)
            windows.append(np.array(ids, np.int32))
            total += len(ids) - len(before)
    return windows


def _drawn(logits: np.ndarray, generator: np.random.Generator) -> int:
    """A token, by the Gumbel trick."""
    noise = generator.gumbel(size=len(logits)).astype(np.float32)
    return int(np.argmax(logits + noise))


def _before(tokenizer: Tokenizer) -> list[int]:
    """The tokens with which texts begin."""
    return [*tokenizer.before] or [tokenizer.bos]


def _window(file: ModelFile, tokenizer: Tokenizer) -> int:
    """Tokens of a window, with those before the text."""
    size, least = min(WINDOW, context_of(capture_model(file))), 1 + len(_before(tokenizer))
    if size < least:
        raise HalfbyteError(
            f"{file.path}: expected a context of at least {least} tokens to calibrate with, found "
            f"{size}"
        )
    return size


def _loss(file: ModelFile, windows: Sequence[Tokens]) -> float:
    """The mean loss of next tokens, in nats."""
    segments = Segments(file, windows)
    states: Sequence[State] = segments.start()
    for segment in segments:
        states = list(segments.run(segment, states))
    losses = []
    for window, state in zip(windows, states, strict=True):
        logits = state["logits"][:-1].astype(np.float64)
        logits -= logits.max(axis=1, keepdims=True)
        chosen = logits[np.arange(len(logits)), window[1:]]
        losses.append(np.log(np.exp(logits).sum(axis=1)) - chosen)
    return float(np.concatenate(losses).mean())
