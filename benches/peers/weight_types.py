"""Decoding and loading in each type of few bits, beside llama.cpp, on the same files, taking turns.

    python -m benches.peers.weight_types [-t Q2_K,IQ3_S,...] [-r ROUNDS]
    python -m benches.peers.weight_types --tabs relaxed,wllama-2 -t Q2_K,Q3_K,IQ2_XS,IQ4_XS

One shape of 138 million weights, all matrices in the type, blocks of random bytes
(`tools/make_model.py`): speed does not depend on values. tg64 decodes 64 tokens one by one on one
thread, load lasts from opening the file to the first token, in a fresh process. The bits per weight
are those in the file and those that halfbyte reads for a token. With --tabs, engines in tabs of one
Chromium take the turns instead, and decode 16 tokens.
"""

from __future__ import annotations

import argparse
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from benches import prepare
from benches.arguments import Some
from benches.browser.measure import Bench
from benches.browser.site import make_bench_site
from benches.figures import add_json_option, pytest_json, write_json
from benches.peers import table
from benches.peers.session import Plan, Results, measure

from halfbyte.formats.derived import converted
from halfbyte.text.opening import open_model

TABS = ("relaxed", "simd128", *prepare.WLLAMA)


def bits(path: Path) -> dict[str, Any]:
    """Bits per weight of the matrices, in the file and in memory."""
    matrices = [t for t in open_model(path).tensors.values() if t.format.block > 1]
    weights = sum(t.row_count * t.columns for t in matrices)
    sizes = [sum(t.nbytes for t in each) for each in (matrices, map(converted, matrices))]
    return dict(zip(("file", "memory"), (8 * size / weights for size in sizes), strict=True))


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benches.peers.weight_types", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument(
        "-t", "--types", type=Some(prepare.TYPES), default=list(prepare.TYPES), help="(default all)"
    )
    parser.add_argument("-r", "--rounds", type=int, default=5, help="(default 5)")
    parser.add_argument("--tabs", type=Some(TABS), default=[], help=f"from {', '.join(TABS)}")
    add_json_option(parser)
    options = parser.parse_args()
    tabs = [(engine, 1) for engine in options.tabs]
    plan = Plan(options.rounds, [], [16], [16], tabs)
    if not tabs:
        plan = Plan(options.rounds, [1], [], [64], [])
    paths = {f"138M {kind}": prepare.model(f"138M {kind}") for kind in options.types}
    results: list[Results] = []
    with ExitStack() as stack:
        bench, addresses = None, dict.fromkeys(paths, "")
        if tabs:
            site, addresses = make_bench_site(paths)
            bench = stack.enter_context(Bench(site, prepare.ROOT))
        for name, path in paths.items():
            results.append(measure(name, path, plan, bench, addresses[name]))
    series = [s for result in results for s in result.all if s.test != "pp16"]
    rows = [{"model": name, **bits(path)} for name, path in paths.items()]
    about = [(key.split(",")[0], text) for r in results for key, text in r.about.items()]
    for engine, text in dict.fromkeys(about):
        print(f"{engine}: {text}")
    print(table.types(series, rows))
    versions = {name: text for name, text in prepare.VERSIONS.items() if "llama" in name}
    source = "benches/peers/weight_types"
    write_json(options.json, pytest_json(series, source, rows=rows, versions=versions))


if __name__ == "__main__":
    main()
