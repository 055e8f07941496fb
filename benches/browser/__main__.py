"""halfbyte in a browser tab beside wllama (llama.cpp in WebAssembly), in one run, taking turns.

    python -m benches.browser [-p 128] [-n 32] [-r 5] [--json FILE]

Models: SmolLM2-135M's shape with random weights in Q4_0 and Q8_0, and the storyteller in int4. The
engines are halfbyte on relaxed SIMD, on SIMD128 and on NumPy, and npm's @wllama/wllama 2.x and 3.x,
all on one thread. Speeds: every engine has a tab of one browser; they take turns; medians. Loading:
a fresh browser for each engine; the page is opened once cold, then from the browser's cache; peak
memory is that of the tab's process. NumPy gets a few tokens only. JSON is pytest-benchmark's.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from benches.browser.measure import ENGINES, Bench, Speed, Start
from benches.browser.report import as_series, markdown
from benches.browser.site import make_bench_site
from benches.figures import pytest_json
from benches.prepare import ROOT

from halfbyte.outputs import write_text


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("-p", type=int, default=128, help="prompt tokens")
    parser.add_argument("-n", type=int, default=32, help="tokens decoded one by one")
    parser.add_argument("-r", type=int, default=5, help="rounds")
    parser.add_argument("-e", "--engines", default=",".join(ENGINES), help="which, by commas")
    parser.add_argument("-m", "--models", help="which, by commas (default: all)")
    parser.add_argument("--json", type=Path, help="write all figures here")
    options = parser.parse_args()
    site, addresses = make_bench_site(["storyteller", "135M Q4_0", "135M Q8_0"])
    if options.models:
        addresses = {name: addresses[name] for name in options.models.split(",")}
    speeds: list[Speed] = []
    starts: list[Start] = []
    with Bench(site, ROOT) as bench:
        for name, address in addresses.items():
            engines = options.engines.split(",")
            speeds += bench.speeds(name, address, engines, options.p, options.n, options.r)
        for name in ("storyteller", "135M Q4_0"):
            if name in addresses:
                starts += bench.starts(name, addresses[name], options.engines.split(","))
    print(markdown(speeds, starts))
    if options.json:
        content = pytest_json(as_series(speeds, starts), "benches/browser", {})
        write_text(options.json, json.dumps(content, indent=1))


if __name__ == "__main__":
    main()
