"""Whole language models: prompts, decoding and batches, and what devices' levels cost."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest
from benches import prepare
from benches.case import Bench
from benches.figures import Series
from benches.turns import Contender
from benches.yardstick import clock_of

import halfbyte
from halfbyte.text.model import LanguageModel
from halfbyte.text.planning import LEVELS

CONTEXT = 1024
DECODED = 16
BUDGETS = {"300 MB": 300_000_000, "150 MB": 150_000_000}
THREADS = sorted({1, os.cpu_count() or 1})


@contextmanager
def opened(name: str, **options: object) -> Iterator[LanguageModel]:
    with halfbyte.load(prepare.model(name), context=CONTEXT, **options) as model:  # type: ignore[arg-type]
        yield model


def prompt(model: LanguageModel, count: int, name: str, engine: str, threads: int) -> Contender:
    """A prompt of so many tokens; the figure is that of the whole prompt."""
    ids = np.random.default_rng(0).integers(300, 1000, count)

    def call() -> None:
        model.reset()
        model.feed(ids)

    return Contender(
        Series(name, engine, f"prompt of {count}", threads), call, clock=clock_of(threads)
    )


def decoding(model: LanguageModel, name: str, engine: str, threads: int = 1) -> Contender:
    """A few tokens one by one, after a prompt."""
    ids = np.random.default_rng(0).integers(300, 1000, DECODED)

    def call() -> None:
        model.reset()
        model.feed(ids)
        for token in ids:
            model.feed([token])

    return Contender(
        Series(name, engine, f"{DECODED} tokens", threads), call, clock=clock_of(threads)
    )


@pytest.mark.parametrize("threads", THREADS)
@pytest.mark.parametrize(
    "name",
    [
        pytest.param("135M Q4_0", marks=pytest.mark.short),
        *("135M Q8_0", "135M F16"),
    ],
)
def bench_prompt_and_decode(bench: Bench, name: str, threads: int) -> None:
    with opened(name, threads=threads) as model:
        counts = (16, 128) if bench.short else (16, 128, 512)
        prompts = [prompt(model, count, name, "halfbyte", threads) for count in counts]
        bench.measure(prompts, "dot", threads)
        bench.measure([decoding(model, name, "halfbyte", threads)], "memory", threads)


@pytest.mark.parametrize("name", ["135M Q4_0"])
def bench_batches(bench: Bench, name: str) -> None:
    """How the time of a prompt's token falls with the batch."""
    with opened(name, threads=1) as model:
        sizes = (1, 2, 4, 8, 16, 32, 64, 128)
        contenders = [prompt(model, size, name, "halfbyte", 1) for size in sizes]
        for contender in contenders:
            contender.series.test = contender.series.test.replace("prompt", "batch")
        bench.measure(contenders, "dot")


@pytest.mark.once
@pytest.mark.parametrize("level", LEVELS)
def bench_level(bench: Bench, level: str) -> None:
    with halfbyte.load(prepare.model("135M Q4_0"), level=level, threads=1, context=256) as model:
        contenders = [
            prompt(model, 128, "135M Q4_0", level, 1), decoding(model, "135M Q4_0", level)
        ]  # fmt: skip
        for contender in contenders:
            contender.clock = None  # it may wait for storage
        bench.measure(contenders, "memory" if level == "extreme" else "dot")


@pytest.mark.once
@pytest.mark.parametrize("budget", BUDGETS)
def bench_budget(bench: Bench, budget: str) -> None:
    path, limit = prepare.model("135M Q4_0"), BUDGETS[budget]
    with halfbyte.load(path, memory_budget=limit, threads=1, context=256) as model:
        contender = decoding(model, "135M Q4_0", budget)
        contender.clock = None
        bench.measure([contender], "memory")
