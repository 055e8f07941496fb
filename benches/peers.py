"""Decode and prompt speed beside llama.cpp, on the same file, in one run, taking turns.

    python benches/peers.py model.gguf -p 128 -n 32 -t 1,2

llama.cpp comes as PyPI's xllamacpp, a development dependency. Both get the same random tokens; each
test runs once to warm up, then `-r` times, this library and the peer alternating. Printed are
medians and the median of the pairs' ratios, which a noisy machine moves least.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import statistics
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import xllamacpp

import halfbyte
from halfbyte.bench import read_bandwidth


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """llama.cpp writes its log to file descriptor 2 whatever it is told."""
    keep, null = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 2)
    try:
        yield
    finally:
        os.dup2(keep, 2)
        os.close(null)
        os.close(keep)


class Peer:
    """llama.cpp with a model."""

    def __init__(self, path: Path, threads: int, context: int) -> None:
        p = xllamacpp.CommonParams()
        p.model.path = str(path)
        p.n_ctx, p.n_parallel, p.n_gpu_layers = context, 1, 0
        p.warmup, p.verbosity = False, -1
        p.cpuparams.n_threads = p.cpuparams_batch.n_threads = threads
        self._server = xllamacpp.Server(p)

    def run(self, ids: list[int], count: int) -> tuple[float, float]:
        """Prompt and decode speed in tokens/s."""
        request = {
            "prompt": ids, "n_predict": count, "temperature": 0,
            "cache_prompt": False, "ignore_eos": True,
        }  # fmt: skip
        timings = self._server.handle_completions(request)["timings"]
        return timings["prompt_per_second"], timings["predicted_per_second"]


class Ours:
    """halfbyte with a model."""

    def __init__(self, path: Path, threads: int, context: int) -> None:
        self._model = halfbyte.load(path, threads=threads, context=context)

    def run(self, ids: list[int], count: int) -> tuple[float, float]:
        """Prompt and decode speed in tokens/s."""
        model = self._model
        model.reset()
        start = time.perf_counter()
        token = int(model.feed(ids)[0].argmax())
        middle = time.perf_counter()
        for _ in range(count - 1):
            token = int(model.feed([token])[0].argmax())
        end = time.perf_counter()
        return len(ids) / (middle - start), (count - 1) / (end - middle)


def compare(path: Path, threads: int, prompt: int, count: int, repetitions: int) -> list[str]:
    """Two rows of the table: the prompt's and decoding's."""
    context = prompt + count
    with quiet():
        engines = Ours(path, threads, context), Peer(path, threads, context)
        random = np.random.default_rng(0)
        ids = [1, *random.integers(300, 1000, prompt - 1).tolist()]
        for engine in engines:
            engine.run(ids, count)
        pairs = [[engine.run(ids, count) for engine in engines] for _ in range(repetitions)]
    rows = []
    for index, test in enumerate((f"pp{prompt}", f"tg{count}")):
        ours, peer = ([pair[side][index] for pair in pairs] for side in (0, 1))
        ratio = statistics.median(a / b for a, b in zip(ours, peer, strict=True))
        rows.append(
            f"| {path.name} | {threads} | {test} | {statistics.median(ours):.0f} "
            f"| {statistics.median(peer):.0f} | {ratio:.2f} |"
        )
    return rows


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description="Speed beside llama.cpp on the same GGUF files.")
    parser.add_argument("models", nargs="+", type=Path, metavar="MODEL")
    parser.add_argument("-p", type=int, default=128, help="prompt tokens (default 128)")
    parser.add_argument("-n", type=int, default=32, help="tokens to decode (default 32)")
    parser.add_argument("-t", default="1", help="thread counts, such as 1,2")
    parser.add_argument("-r", type=int, default=5, help="repetitions (default 5)")
    options = parser.parse_args()
    counts = [int(count) for count in options.t.split(",")]
    for count in counts:
        print(f"memory read, {count} threads: {read_bandwidth(count):.1f} GB/s", file=sys.stderr)
    print("| model | threads | test | halfbyte | llama.cpp | ratio |")
    print("|---|--:|---|--:|--:|--:|")
    for path in options.models:
        for count in counts:
            for row in compare(path, count, options.p, options.n, options.r):
                print(row, flush=True)


if __name__ == "__main__":
    main()
