"""Predictions of `halfbyte fit --tab` beside a tab of Chromium: bytes of the heap, and tokens/s.

    python -m benches.browser.cost [-r 3] [-m NAME ...]

Models have random weights in several shapes and types and a context of 512 tokens. On one thread,
they read a prompt of 128 tokens and decode 32. This machine's peak and bandwidth are measured
before each run, outside the browser. Rounds differ on a shared machine, so the best figure of all
rounds counts. The table shows the predicted bytes, the bytes taken from the heap, and the size to
which the heap grew. Run nothing else meanwhile.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass, field, replace
from pathlib import Path

from benches.browser.python import python_tabs
from benches.cost import model
from tests.browser.conftest import Python

from halfbyte.device.fit import Fitter
from halfbyte.device.machine import machine_profile
from halfbyte.device.measure import limits, overheads
from halfbyte.device.profile import Profile
from halfbyte.device.quantity import Draws
from halfbyte.device.speed import Processor, Speed
from halfbyte.device.tab import in_tab
from halfbyte.device.timing import decoders
from halfbyte.text.opening import open_model
from halfbyte.text.planning import Given, Settings, plan

CASES = {
    f"{shape} {kind}": (shape, kind)
    for shape, kind in (
        ("smollm2-135m", "Q4_0"), ("smollm2-135m", "Q8_0"), ("smollm2-135m", "F16"),
        ("qwen2-0.5b", "Q4_0"), ("qwen2-0.5b", "Q8_0"), ("llama-1b", "Q4_0"),
    )
}  # fmt: skip
PROMPT, DECODED, CONTEXT = 128, 32, 512

LOAD = """
import __main__, ctypes
import halfbyte, pyodide_js

options = dict(keep=False, context={context}, threads=1)
model = __main__.model = await halfbyte.load_url("/models/{name}", **options)
model.feed(list(range(1, {prompt} + 1)))
ctypes.CDLL(None).sbrk.restype = ctypes.c_size_t
[ctypes.CDLL(None).sbrk(0), pyodide_js._module.HEAPU8.length]
"""
RUN = """
import time
from __main__ import model

model.reset()
start = time.perf_counter()
model.feed(list(range(1, {prompt} + 1)))
middle = time.perf_counter()
for token in range({decoded}):
    model.feed([token])
end = time.perf_counter()
[{prompt} / (middle - start), {decoded} / (end - middle)]
"""


@dataclass
class Row:
    """One model: bytes, and tokens/s (prompt, decode) of each round."""

    name: str
    bytes: list[int]  # predicted, taken, the heap's
    predicted: list[tuple[float, float]] = field(default_factory=list)
    measured: list[tuple[float, float]] = field(default_factory=list)

    def cells(self) -> list[str]:
        """A row of the table."""
        cells = [self.name, *(f"{size / 1e6:.1f}" for size in self.bytes)]
        for index in (0, 1):
            runs = [[run[index] for run in rounds] for rounds in (self.predicted, self.measured)]
            predicted, measured = map(max, runs)
            cells += [f"{predicted:.1f}", f"{measured:.1f}", f"{predicted / measured - 1:+.0%}"]
        return cells


def case(tab: Python, name: str, path: Path, machine: Profile, rounds: int) -> Row:
    """A model in a fresh tab."""
    values = {"name": path.name, "context": CONTEXT, "prompt": PROMPT, "decoded": DECODED}
    fitter = Fitter(open_model(path), machine, tab=True)
    total = fitter.fit("baseline", Given(context=CONTEXT)).asked.total
    row = Row(name, [total, *tab.run(LOAD.format(**values))])
    for _ in range(rounds):
        row.predicted.append(predicted(path, machine))
        prompt, decode = tab.run(RUN.format(**values))
        row.measured.append((prompt, decode))
    return row


def predicted(path: Path, machine: Profile) -> tuple[float, float]:
    """Tokens/s of the prompt and of decoding, with the machine's current peaks."""
    profile = in_tab(replace(machine_profile(limits()), overhead=machine.overhead))
    planned, draws = plan(open_model(path), Settings(CONTEXT, weights="packed")), Draws()
    speed = Speed(planned, profile, draws, position=PROMPT + DECODED // 2, prompt=PROMPT)
    rates = Processor(profile, 1, draws).rates()
    return 1 / float(speed.prompt.seconds(rates)[0]), 1 / float(speed.token.seconds(rates)[0])


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("-r", type=int, default=3, help="rounds")
    parser.add_argument("-m", "--models", nargs="*", default=list(CASES), help="names of cases")
    options = parser.parse_args()
    paths = {name: model(*CASES[name]) for name in options.models}
    machine_limits = limits()
    machine_limits.launch, machine_limits.call = overheads(decoders("Q4_0", "packed")[2])
    machine = machine_profile(machine_limits)
    print("| model | MB predicted | taken | heap | prompt: predicted | measured | error "
          "| decode: predicted | measured | error |")  # fmt: skip
    print("|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|")
    with python_tabs({path.name: path for path in paths.values()}) as open_tab:
        for name, path in paths.items():
            row = case(open_tab(), name, path, machine, options.r)
            print(f"| {' | '.join(row.cells())} |", flush=True)


if __name__ == "__main__":
    main()
