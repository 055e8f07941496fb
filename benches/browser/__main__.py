"""halfbyte in a browser tab beside wllama (llama.cpp in WebAssembly), in one run, taking turns.

    python -m benches.browser [-p 128] [-n 32] [-t 1,2] [-r 5] [--pin] [--json FILE]

Models are SmolLM2-135M's shape with random weights in Q4_0 and Q8_0, and the storyteller in int4.
Engines are halfbyte on relaxed SIMD, on SIMD128 and on NumPy, and npm's @wllama/wllama 2.x and 3.x,
with one and two threads, NumPy with one. For speeds, every engine has tabs of the same browser,
and they take turns; NumPy gets only a few tokens. For starts, each engine has a fresh browser,
which opens the page once cold and then from its cache; peak memory is that of the tab's process.
Figures are medians.
"""

from __future__ import annotations

import argparse

from benches.arguments import counts
from benches.browser import table
from benches.browser.measure import Bench, Speed, Start
from benches.browser.names import ENGINES
from benches.browser.site import make_bench_site
from benches.figures import Series, add_json_option, pytest_json, write_json
from benches.pinning import add_pin_option, pinned
from benches.prepare import ROOT


def as_series(speeds: list[Speed], starts: list[Start]) -> list[Series]:
    """All figures in seconds, of a token or of a start."""
    series = []
    for s in speeds:
        for test, values in (("prompt", s.prompt), ("decode", s.decode)):
            series.append(Series(s.model, s.engine, test, s.threads, [1 / v for v in values]))
    for t in starts:
        sizes = {"code_bytes": t.code, "memory_bytes": t.memory}
        series.append(Series(t.model, t.engine, "start-cold", seconds=[t.cold], more=sizes))
        series.append(Series(t.model, t.engine, "start-warm", seconds=t.warm, more=sizes))
    return series


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benches.browser", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("-p", type=int, default=128, help="prompt tokens (default 128)")
    parser.add_argument("-n", type=int, default=32, help="decoded tokens (default 32)")
    parser.add_argument("-t", type=counts, default=[1, 2], help="threads (default 1,2)")
    parser.add_argument("-r", type=int, default=5, help="rounds (default 5)")
    parser.add_argument(
        "-e", "--engines", default=",".join(ENGINES), help="engines, separated by commas"
    )
    parser.add_argument("-m", "--models", help="models, separated by commas (default: all)")
    add_pin_option(parser)
    add_json_option(parser)
    options = parser.parse_args()
    site, addresses = make_bench_site(["storyteller", "135M Q4_0", "135M Q8_0"])
    if options.models:
        addresses = {name: addresses[name] for name in options.models.split(",")}
    engines = options.engines.split(",")
    tabs = [(e, threads) for threads in options.t for e in engines if threads == 1 or e != "numpy"]
    speeds: list[Speed] = []
    starts: list[Start] = []
    with pinned(options.pin) as places, Bench(site, ROOT) as bench:
        for name, address in addresses.items():
            speeds += bench.speeds(name, address, tabs, options.p, options.n, options.r)
        for name in ("storyteller", "135M Q4_0"):
            if name in addresses:
                starts += bench.starts(name, addresses[name], engines)
    series = as_series(speeds, starts)
    print(f"{table.speeds(series)}\n\n{table.starts(series)}")
    versions = {engine: ENGINES[engine] for engine in engines if engine.startswith("wllama")}
    content = pytest_json(series, "benches/browser", versions=versions, pinned=len(places))
    write_json(options.json, content)


if __name__ == "__main__":
    main()
