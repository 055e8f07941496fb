"""Speed beside llama.cpp (natively) and wllama (in Chromium), on the same files, taking turns.

    make peers           once: builds llama.cpp, fetches wllama, makes the models
    make bench-peers     all of it; make bench-peers ARGS="-r 1 --native-only" for less
    python -m benches.peers --json NEW.json --compare OLD.json

Weights and tokens are random. pp128: a prompt of 128 tokens in one batch; tg64: 64 tokens one by
one, after BOS. After a warm-up round, every engine takes its turn at each test in every round.
Speeds are medians of the rounds in tokens/s. A ratio is the median of the rounds' ratios, above 1
where halfbyte is faster. The limit of tg is the measured read bandwidth, with the file read once
per token; the limit of pp is the measured peak of the int8 dot product, with a multiplication and
an addition per token for each weight in blocks ("-": float products). In the browser the first
values of -p and -n are measured, beside the native llama.cpp with as many threads; "first run" is
the speed before V8's second compiler has compiled everything, "of reading" the share of the speed
at which the kernels read memory in the tab, with as many threads. Loading lasts from load() to the
first token, with the file in memory, in a fresh process; peak memory is that of the process,
including the pages of the mapped file.
"""

from __future__ import annotations

import argparse
import sys
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path

from benches import comparison, prepare
from benches.arguments import Some, counts
from benches.browser.measure import Bench
from benches.browser.site import make_bench_site
from benches.figures import Series, add_json_option, pytest_json, write_json
from benches.peers import table
from benches.peers.limits import Limits, Work, measure_limits, work_of
from benches.peers.session import Plan, Results, measure
from benches.pinning import add_pin_option, pinned

TABS = ("relaxed", "simd128", *prepare.WLLAMA)


def numbers(text: str) -> list[int]:
    """Counts separated by commas, 0 among them."""
    return [int(part) for part in text.split(",")]


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benches.peers",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    names = ", ".join(prepare.MODELS)
    parser.add_argument("-r", "--rounds", type=int, default=7, help="(default 7)")
    parser.add_argument("-m", "--models", default=",".join(prepare.MODELS), help=f"from {names}")
    parser.add_argument("-t", "--threads", type=counts, default=[1, 2], help="(default 1,2)")
    parser.add_argument("-p", "--prompts", type=counts, default=[128, 512], help="(128,512)")
    parser.add_argument("-n", "--decodes", type=counts, default=[64], help="(default 64)")
    parser.add_argument(
        "-w", "--tab-threads", type=numbers, default=[1, 2], metavar="COUNTS",
        help="threads in a tab; 0 is wllama's default, half of the cores (default 1,2)",
    )  # fmt: skip
    parser.add_argument(
        "-e", "--engines", type=Some(TABS), default=list(TABS), help="in tabs (default: all)"
    )
    parser.add_argument(
        "--large", action="store_true", help="decoding of the 1B models too, natively"
    )
    places = parser.add_mutually_exclusive_group()
    places.add_argument("--native-only", action="store_true")
    places.add_argument("--browser-only", action="store_true")
    add_pin_option(parser)
    add_json_option(parser)
    parser.add_argument("--compare", type=Path, metavar="OLD.json", help="compare with this file")
    options = parser.parse_args()
    options.models = [name.strip() for name in options.models.split(",") if name.strip()]
    if wrong := set(options.models) - set(prepare.MODELS):
        parser.error(f"argument -m: expected some of {names}; found {', '.join(sorted(wrong))}")
    if options.rounds < 1:
        parser.error(f"argument -r: expected 1 or more, found {options.rounds}")
    return options


def plan_of(options: argparse.Namespace) -> Plan:
    """The plan that the options describe."""
    asked = [count or prepare.wllama_threads() for count in options.tab_threads]
    tabs = [(engine, count) for count in dict.fromkeys(asked) for engine in options.engines]
    threads = [] if options.browser_only else options.threads
    return Plan(options.rounds, threads, options.prompts, options.decodes, tabs)


def run(options: argparse.Namespace) -> tuple[Limits, dict[str, Work], list[Results]]:
    """All models, one after the other."""
    plan = plan_of(options)
    paths = {name: prepare.model(name) for name in options.models}
    limits = measure_limits(sorted({1, *options.threads}))
    results = []
    with ExitStack() as stack:
        bench, addresses = None, dict.fromkeys(paths, "")
        if not options.native_only:
            site, addresses = make_bench_site(paths)
            bench = stack.enter_context(Bench(site, prepare.ROOT))
        for name, path in paths.items():
            results.append(measure(name, path, plan, bench, addresses[name]))
    if options.large:
        decoding = Plan(options.rounds, options.threads, [], options.decodes, [])
        for name in prepare.LARGE:
            paths[name] = prepare.model(name)
            results.append(measure(name, paths[name], decoding, None, ""))
    return limits, {name: work_of(path) for name, path in paths.items()}, results


def show(limits: Limits, work: dict[str, Work], results: list[Results]) -> None:
    """Print the tables."""
    about = {engine: text for result in results for engine, text in result.about.items()}
    for engine, text in about.items():
        print(f"{engine}: {text}")
    print(limits.text())
    natives = [series for result in results for series in result.native]
    if natives:
        print(f"\n{table.native(natives, work, limits)}")
    if tabs := [series for result in results for series in result.tabs]:
        print(f"\nIn a browser tab:\n\n{table.tabs(tabs, natives, work, limits)}")
    if natives:
        loads = [series for result in results for series in result.loads]
        print(f"\nLoading, natively:\n\n{table.loads(loads)}")


def main() -> None:
    """The command line."""
    options = parse()
    old = comparison.read(options.compare) if options.compare else None
    with pinned(options.pin) as places:
        limits, work, results = run(options)
    show(limits, work, results)
    series: list[Series] = [s for result in results for s in result.all]
    content = pytest_json(
        series, "benches/peers", versions=prepare.VERSIONS, limits=asdict(limits),
        work={name: asdict(each) for name, each in work.items()}, pinned=len(places),
    )  # fmt: skip
    write_json(options.json, content)
    if old:
        print(f"\nCompared with {options.compare}:\n")
        print(comparison.report(old, content, colours=sys.stdout.isatty()))


if __name__ == "__main__":
    main()
