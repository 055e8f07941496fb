"""The cost model beside this machine: predicted and measured tokens/s of whole models.

    python -m benches.cost [-r 5] [-t 1,2]

First the machine is measured as by `halfbyte device measure`, on generated decoders. Then other
models take turns: random weights in four shapes and two types, a prompt of 128 tokens and 32
decoded tokens. A shared machine's peak and bandwidth change from minute to minute, so both are
measured again before each run. The table shows medians of the rounds beside the medians of the
predictions. Run nothing else meanwhile.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from benches.prepare import ROOT, folder

import halfbyte
from halfbyte.core.backends.cores import default_threads
from halfbyte.device.machine import machine_profile
from halfbyte.device.measure import measure
from halfbyte.device.profile import Profile
from halfbyte.device.quantity import Draws
from halfbyte.device.speed import Processor, Speed
from halfbyte.text.bench import dot_peak, read_bandwidth
from halfbyte.text.opening import open_model
from halfbyte.text.planning import Settings, plan

CASES = [
    (shape, kind)
    for shape in ("smollm2-135m", "qwen2-0.5b", "gemma3-1b", "llama-1b")
    for kind in ("Q4_0", "Q8_0")
]
PROMPT, DECODED, CONTEXT = 128, 32, 512
BAR = 0.15
MIN_S = 1.5  # of a round: short runs are noisy


@dataclass
class Row:
    """One model on a number of threads: tokens/s, predicted and measured in each round."""

    shape: str
    kind: str
    threads: int
    predicted: dict[str, list[float]] = field(default_factory=lambda: {"pp": [], "tg": []})
    measured: dict[str, list[float]] = field(default_factory=lambda: {"pp": [], "tg": []})

    def error(self, test: str) -> float:
        """(predicted - measured) / measured."""
        predicted, measured = (statistics.median(x[test]) for x in (self.predicted, self.measured))
        return predicted / measured - 1


def model(shape: str, kind: str) -> Path:
    """A file of this shape with random weights, which the first call writes."""
    path = folder() / f"{shape}-{kind}.gguf"
    if not path.exists():
        tool = [sys.executable, str(ROOT / "tools/make_model.py"), "--shape", shape]
        subprocess.run([*tool, "--type", kind, "-o", str(path)], check=True)
    return path


def predict(row: Row, profile: Profile) -> None:
    """Predict tokens/s of a prompt (pp) and of decoding (tg) with the machine's current peaks."""
    planned = plan(open_model(model(row.shape, row.kind)), Settings(context=CONTEXT))
    draws = Draws()
    middle = PROMPT + DECODED // 2
    speed = Speed(planned, profile, draws, position=middle, prompt=PROMPT)
    rates = Processor(profile, row.threads, draws).rates()
    peak, memory = dot_peak(row.threads) * 1e9, read_bandwidth(row.threads) * 1e9
    rates = replace(
        rates,
        float32=rates.float32 * peak / rates.int8,
        int8=np.array([peak]),
        memory=np.array([memory]),
    )
    row.predicted["pp"].append(1 / float(speed.prompt.seconds(rates)[0]))
    row.predicted["tg"].append(1 / float(speed.token.seconds(rates)[0]))


def run(row: Row) -> None:
    """One round: load the model, warm it up with one pass, and time it for `MIN_S` or longer."""
    passes: list[tuple[float, float]] = []
    with halfbyte.load(model(row.shape, row.kind), context=CONTEXT, threads=row.threads) as loaded:
        ids = np.random.default_rng(0).integers(0, loaded.vocabulary, PROMPT)
        begin = time.perf_counter()
        while len(passes) < 2 or time.perf_counter() - begin < MIN_S:
            loaded.reset()
            start = time.perf_counter()
            loaded.feed(ids)
            middle = time.perf_counter()
            for token in ids[:DECODED]:
                loaded.feed([token])
            passes.append((middle - start, time.perf_counter() - middle))
    prompts, decodes = zip(*passes[1:], strict=True)
    row.measured["pp"].append(PROMPT / statistics.median(prompts))
    row.measured["tg"].append(DECODED / statistics.median(decodes))


def table(rows: list[Row]) -> str:
    """Markdown."""
    lines = [
        "| shape | type | threads | decode: predicted | measured | error | prompt: predicted "
        "| measured | error |",
        "|---|---|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for row in rows:
        cells = [row.shape, row.kind, str(row.threads)]
        for test in ("tg", "pp"):
            measured = statistics.median(row.measured[test])
            predicted = statistics.median(row.predicted[test])
            cells += [f"{predicted:.1f}", f"{measured:.1f}", f"{row.error(test):+.0%}"]
        lines.append(f"| {' | '.join(cells)} |")
    errors = [abs(row.error(test)) for row in rows for test in ("tg", "pp")]
    inside = sum(error <= BAR for error in errors)
    lines += ["", f"{inside} of {len(errors)} within {BAR:.0%}; largest {max(errors):.0%}"]
    return "\n".join(lines)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("-r", type=int, default=5, metavar="N", help="rounds")
    parser.add_argument("-t", default=f"1,{default_threads()}", metavar="N,...", help="threads")
    options = parser.parse_args()
    threads = [int(part) for part in options.t.split(",")]
    for shape, kind in CASES:
        model(shape, kind)
    profile = machine_profile(measure(max(threads), lambda what: print(what, file=sys.stderr)))
    rows = [Row(shape, kind, count) for shape, kind in CASES for count in threads]
    for number in range(options.r):
        for row in rows:
            print(f"round {number + 1}: {row.shape} {row.kind} {row.threads}", file=sys.stderr)
            predict(row, profile)
            run(row)
    print(f"{profile.title}\n\n{table(rows)}")


if __name__ == "__main__":
    main()
