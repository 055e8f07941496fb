"""Prompt (pp) and decode (tg) speed in llama-bench's manner.

Random tokens, no tokenization, no sampling; one run to warm up, then repetitions in which all tests
take turns, so that a change of the machine's speed affects them all.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from halfbyte.core.backends.libraries import library_for
from halfbyte.core.backends.native import Kernels
from halfbyte.errors import HalfbyteError
from halfbyte.text.loading import load
from halfbyte.text.model import LanguageModel

READ_BYTES = 256 << 20  # more than any cache


@dataclass(frozen=True)
class Result:
    """A row of the table."""

    test: str  # "pp128" or "tg64"
    backend: str
    threads: int
    tokens_per_second: float
    deviation: float
    gigabytes_per_second: float  # weights, cache and activations that the program moves
    bandwidth: float  # GB/s that this machine reads with as many threads, in the same session


@dataclass(frozen=True)
class Report:
    """The output of `halfbyte bench`."""

    model: str
    model_bytes: int
    results: list[Result]

    def as_json(self) -> dict[str, Any]:
        """The report as plain data."""
        return asdict(self)

    def table(self) -> str:
        """The report as a table in Markdown."""
        lines = [
            f"{self.model}, {self.model_bytes / 1e6:.1f} MB",
            "",
            "| backend | threads | test | tokens/s | GB/s | of measured read bandwidth |",
            "|---|--:|---|--:|--:|--:|",
        ]
        for r in self.results:
            share = f"{r.gigabytes_per_second / r.bandwidth:.0%} of {r.bandwidth:.1f}"
            lines.append(
                f"| {r.backend} | {r.threads} | {r.test} | {r.tokens_per_second:.1f} ± "
                f"{r.deviation:.1f} | {r.gigabytes_per_second:.2f} | {share} |"
            )
        return "\n".join(lines)


class Test:
    """A test of a loaded model, and the speeds measured so far."""

    def __init__(self, model: LanguageModel, kind: str, count: int) -> None:
        if count + (kind == "tg") > model.context:
            raise HalfbyteError(
                f"{kind}{count}: expected at most {model.context} tokens, which the context holds"
            )
        self.model, self.kind, self.count = model, kind, count
        self.speeds: list[float] = []
        random = np.random.default_rng(0)
        self._ids = random.integers(0, model.vocabulary, count)

    def run(self) -> float:
        """Run once; the tokens per second."""
        model = self.model
        model.reset()
        if self.kind == "tg":
            model.feed([model.tokenizer.bos])
        start = time.perf_counter()
        if self.kind == "pp":
            model.feed(self._ids)
        else:
            for token in self._ids:
                model.feed([token])
        return self.count / (time.perf_counter() - start)

    def bytes_per_token(self) -> float:
        """Bytes that the program moves per token, in the middle of the test."""
        n = min(self.count, self.model.program.sizes["n"].maximum) if self.kind == "pp" else 1
        registers = self.model.registers(n, self.count // 2, 1)
        moved = sum(i.bytes_moved(registers) for i in self.model.program.instructions)
        return moved / n


def read_bandwidth(threads: int, repetitions: int = 3, nbytes: int = READ_BYTES) -> float:
    """GB/s at which this machine reads so many bytes with so many threads; the best of some runs.

    Fewer bytes than a cache holds are read from it.
    """
    kernels = Kernels(threads=threads, library=library_for(threads))
    values = kernels.memory.reach(np.ones(nbytes // 4, np.float32))
    sums = kernels.memory.reach(np.zeros(values.size // 4096, np.float32))
    times = []
    for _ in range(repetitions + 1):
        start = time.perf_counter()
        kernels.call("memory_read", s=sums, x=values, n=sums.size)
        times.append(time.perf_counter() - start)
    kernels.close()
    return nbytes / min(times) / 1e9


def dot_peak(threads: int, repetitions: int = 3) -> float:
    """GOP/s of this machine's int8 dot product with so many threads; the best of some runs."""
    kernels = Kernels(threads=threads, library=library_for(threads))
    reach = kernels.memory.reach
    w, x = reach(np.full((4, 16, 4), 0x55, np.int8)), reach(np.ones((8, 8, 4), np.int8))
    sums = reach(np.zeros(128 * threads, np.int32))
    times = []
    for _ in range(repetitions + 1):
        start = time.perf_counter()
        kernels.call("dot_peak", s=sums, w=w, x=x, n=sums.size)
        times.append(time.perf_counter() - start)
    kernels.close()
    products = sums.size * 512 * 8 * 2 * w.size
    return 2 * products / min(times) / 1e9


def measure(
    path: str | os.PathLike[str],
    tokenizer: str | os.PathLike[str] | None = None,
    *,
    prompts: Sequence[int] = (128, 512),
    decodes: Sequence[int] = (64,),
    threads: Sequence[int] = (1,),
    repetitions: int = 5,
    backend: str = "native",
    context: int | None = None,
    cache: str = "auto",
    lora: Mapping[str | os.PathLike[str], float] | None = None,
) -> Report:
    """Measure a model as the module says; raises HalfbyteError if a test does not fit."""
    if repetitions < 1:
        raise HalfbyteError(f"{repetitions} repetitions: expected 1 or more")
    tests: list[Test] = []
    models = []
    for count in threads:
        model = load(
            path, tokenizer=tokenizer, threads=count, backend=backend, context=context, cache=cache,
            lora=lora or {},
        )  # fmt: skip
        models.append(model)
        tests += [Test(model, "pp", p) for p in prompts]
        tests += [Test(model, "tg", n) for n in decodes]
    for test in tests:
        test.run()
    for _ in range(repetitions):
        for test in tests:
            test.speeds.append(test.run())
    bandwidths = {count: read_bandwidth(count) for count in threads}
    results = []
    for test in tests:
        mean = statistics.fmean(test.speeds)
        count = test.model.executable.threads
        results.append(
            Result(
                test=f"{test.kind}{test.count}",
                backend=test.model.executable.backend,
                threads=count,
                tokens_per_second=mean,
                deviation=statistics.stdev(test.speeds) if repetitions > 1 else 0.0,
                gigabytes_per_second=mean * test.bytes_per_token() / 1e9,
                bandwidth=bandwidths[count],
            )
        )
    for model in models:
        model.close()
    return Report(Path(path).name, Path(path).stat().st_size, results)
