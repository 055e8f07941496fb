"""Encoders beside llama.cpp on the same file in Q8_0, on one thread, taking turns.

llama.cpp gets tokens, halfbyte the text, which it splits into these tokens.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from benches.case import Bench
from benches.figures import Series
from benches.peers.trial import tried
from benches.random_encoders import CONFIGS, WORDS, write
from benches.turns import Contender, attempt

import halfbyte

TEXTS = {"8 x 128": (8, 128), "2 x 512": (2, 512), "1 x 32": (1, 32)}  # texts by tokens
THERE = [name for name in CONFIGS if name != "MPNet base"]  # in llama.cpp


def llama_cpp(path: Path, prompts: list[list[int]]) -> Callable[[], Any]:
    """llama.cpp's vectors of the texts, which it gets at once."""
    import xllamacpp

    parameters = xllamacpp.CommonParams()
    parameters.model.path = str(path)
    longest = max(map(len, prompts))
    parameters.n_parallel, parameters.n_gpu_layers = 1, 0
    parameters.n_ctx = parameters.n_batch = parameters.n_ubatch = max(longest, 512)
    parameters.warmup, parameters.verbosity, parameters.embedding = False, -1, True
    parameters.cpuparams.n_threads = parameters.cpuparams_batch.n_threads = 1
    server = xllamacpp.Server(parameters)
    return lambda: server.handle_embeddings({"input": prompts})


def texts(count: int, tokens: int) -> list[str]:
    """Texts of this many tokens each, with those around them."""
    numbers = np.random.default_rng(0).integers(0, len(WORDS), (count, tokens - 2))
    return [" ".join(WORDS[i] for i in row) for row in numbers]


EVERY = ("BERT base", "ModernBERT base")  # without and with a window
SHORT = "1 x 32"
ROUNDS = 3  # of up to 10 seconds


def cases() -> list[object]:
    """All encoders with several texts, and some with others: each case takes half a minute."""
    return [
        pytest.param(
            name, test, id=f"{name}-{test}",
            marks=[pytest.mark.short] if test == SHORT else [],
        )
        for name in CONFIGS
        for test in (TEXTS if name in EVERY else ["8 x 128"])
    ]  # fmt: skip


@pytest.mark.once
@pytest.mark.parametrize(("name", "test"), cases())
def bench_embed(bench: Bench, name: str, test: str, tmp_path: Path) -> None:
    path, given = write(tmp_path / "encoder.gguf", name), texts(*TEXTS[test])
    with halfbyte.load_encoder(path, threads=1) as model:
        prompts = [model.tokenizer.encode(text) for text in given]
        assert {len(prompt) for prompt in prompts} == {TEXTS[test][1]}
        sides = [Contender(Series(name, "halfbyte", test), lambda: model.embed(given))]
        if name in THERE:
            series = Series(name, "llama.cpp", test)
            sides.append(Contender.of(series, partial(tried, partial(llama_cpp, path, prompts))))
            if answer := attempt([series], sides[1].call):
                theirs = np.array([row["embedding"] for row in answer["data"]])
                ours = model.embed(given, normalize=True)
                cosines = (ours * theirs).sum(axis=1) / np.linalg.norm(theirs, axis=1)
                assert cosines.min() > 0.99, cosines.min()
        for side in sides:
            side.clock = time.process_time  # llama.cpp works in a thread of its own
        bench.measure(sides, "clock", most=ROUNDS)
    bench.figures.versions |= {"xllamacpp": f"xllamacpp {version('xllamacpp')}"}
