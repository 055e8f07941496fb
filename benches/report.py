"""Write docs/benchmarks.md and the README's table from the files of figures, and the HTML report.

    make report                        from the files as they are
    make report ARGS=--run             after running every bench, about an hour on a quiet machine
    make report ARGS="--run peers onnx"    after running these
    make report ARGS=--check           say whether the pages are what the files give

Each bench writes its file with `--json benches/results/NAME.json`. A bench without a file has no
section. The newest session of the suite in benches/history/ (`make bench ARGS=--keep`) has a
section for each file of cases. build/bench/report.html is of the last `make bench`, or of the
newest file in benches/history/, with all those files as its history.
"""

from __future__ import annotations

import argparse
import json
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from benches import page as html
from benches import readme, suite_table, tables
from benches.browser import table as browser
from benches.figures import Content, date, machine, series_of
from benches.onnx import table as onnx
from benches.peers import table as peers
from benches.peers.limits import Limits, Work

from halfbyte.outputs import write_text

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benches/results"
PAGE, README = ROOT / "docs/benchmarks.md", ROOT / "README.md"
HISTORY, LATEST = ROOT / "benches/history", ROOT / "build/bench/latest.json"
HTML = ROOT / "build/bench/report.html"
BENCHES = {  # module and options, by the file of results
    "quality": "benches.quality",
    "peers": "benches.peers --large",
    "tab-threads": "benches.peers -r 4 -p 128 -m '135M Q4_0' -e relaxed,simd128,wllama-2",
    "browser": "benches.browser",
    "encode": "benches -k encode",
    "fusions": "benches -k fusion",
    "products": "benches -k bench_product",
    "onnx": "benches.onnx -r 5",
    "onnx-browser": "benches.onnx.browser -p int8,int4",
}
HEAD = (
    "`make report` writes this page from the results in `benches/results/` and `benches/history/`: "
    "do not edit it. In a comparison, both sides take turns in one run. A speed is the median of "
    "the rounds; a ratio is the median of the rounds' ratios, and above 1 where halfbyte is "
    "faster. The notebook "
    "[Performance](performance.md) says what was tried, and has figures of other machines. "
    "Predictions for phones are in [Devices](device.md)."
)


@dataclass(frozen=True)
class Section:
    """A part of the page: one table of a bench's results."""

    bench: str
    topic: str
    title: str
    text: str
    table: Callable[[Content], str]


# ---- the page ------------------------------------------------------------------------------------


def _native(content: Content) -> str:
    series = [s for s in series_of(content) if s.test != "load" and s.engine in NATIVE]
    return peers.native(series, _work(content), _limits(content))


def _tabs(content: Content) -> str:
    series = [s for s in series_of(content) if s.test != "load"]
    tabs = [s for s in series if s.engine not in NATIVE]
    natives = [s for s in series if s.engine in NATIVE]
    return peers.tabs(tabs, natives, _work(content), _limits(content))


def _loads(content: Content) -> str:
    return peers.loads([s for s in series_of(content) if s.test == "load"])


def _limits(content: Content) -> Limits:
    limits = content["machine_info"]["limits"]
    return Limits(*({int(key): value for key, value in limits[k].items()} for k in ("read", "dot")))


def _work(content: Content) -> dict[str, Work]:
    return {name: Work(**work) for name, work in content["machine_info"]["work"].items()}


def _graphs(content: Content) -> str:
    return onnx.runs([s for s in series_of(content) if not s.test.startswith("load ")])


def _graph_loads(content: Content) -> str:
    return onnx.loads([s for s in series_of(content) if s.test.startswith("load ")])


NATIVE = ("halfbyte", "llama.cpp")
TEXT, GRAPHS, INSIDE = "Language models", "ONNX models", "Parts of halfbyte"
SECTIONS = (
    Section(
        "quality", TEXT, "Quality of each type",
        "The shipped storyteller, 992,640 weights: perplexity on 40 held-out stories, and the "
        "mean divergence (KL) of its token probabilities from llama.cpp's on the same file.",
        lambda content: tables.quality(content["rows"]),
    ),
    Section(
        "peers", TEXT, "Beside llama.cpp",
        "Tokens/s beside llama.cpp, built for this processor, with flash attention and repacking, "
        "on the same files: SmolLM2-135M's shape and Llama 3.2 1B's (1B) with random weights. "
        "pp128 is a prompt of 128 tokens at once, tg64 decodes 64 tokens one by one. The limit of "
        "tg is the measured memory bandwidth, that of pp the measured peak of the int8 dot "
        "product.",
        _native,
    ),
    Section(
        "peers", TEXT, "In a browser tab, beside wllama",
        "Tokens/s in tabs of one Chromium: halfbyte under Python in Pyodide, and wllama, which is "
        "llama.cpp in WebAssembly. The ratio is that of relaxed SIMD to the row's engine, with as "
        "many threads. The first run is the one in which V8 still compiles. The last column is the "
        "share of the speed at which the kernels read memory in the tab.",
        _tabs,
    ),
    Section(
        "tab-threads", TEXT, "Threads in a browser tab",
        "The same on one and two threads, on a virtual machine whose two cores often have the time "
        "of one: see [Performance](performance.md).",
        _tabs,
    ),
    Section(
        "peers", TEXT, "Loading",
        "From `load` to the first token, with the file in the system's cache, in a fresh process; "
        "peak memory includes the pages of the mapped file.",
        _loads,
    ),
    Section(
        "browser", TEXT, "Small and large models in a tab",
        "Tokens/s of a prompt of 128 tokens and of 32 tokens decoded one by one, in tabs of one "
        "Chromium.",
        lambda content: browser.speeds(series_of(content)),
    ),
    Section(
        "browser", TEXT, "Starting the page",
        "From opening the page to the first token, each engine in a fresh browser: the first "
        "visit, and the median of those after it. An empty Pyodide is a page that starts only "
        "Python.",
        lambda content: browser.starts(series_of(content)),
    ),
    Section(
        "encode", TEXT, "Encoding",
        "MB/s of input, counted as F16, on one thread: plain rounding, the search of scales that "
        "`quantize` uses, and the encoders of llama.cpp and of PyPI's gguf (NumPy), which round "
        "plainly.",
        lambda content: tables.encode(series_of(content)),
    ),
    Section(
        "onnx", GRAPHS, "Beside ONNX Runtime",
        "Milliseconds per run in one process with ONNX Runtime (ORT). MiniLM is all-MiniLM-L6-v2 "
        "with its trained weights (b x n: sentences by tokens), the image models have random "
        "weights. By own: each engine runs its own quantizer's file; by onnxruntime: both run that "
        "of ONNX Runtime's quantizer. The cosine is that of the worst of 32 sentences or 4 images "
        "to the outputs in float32.",
        _graphs,
    ),
    Section(
        "onnx", GRAPHS, "Loading ONNX models",
        "From opening the file to the first output, of a text of 16 tokens or an image.",
        _graph_loads,
    ),
    Section(
        "onnx-browser", GRAPHS, "In a browser tab, beside onnxruntime-web",
        "Milliseconds per run of MiniLM in tabs of one Chromium. The ratio is that of the row's "
        "engine to halfbyte on relaxed SIMD with as many threads. Loading includes Pyodide's "
        "start.",
        lambda content: onnx.tabs(series_of(content)),
    ),
    Section(
        "fusions", INSIDE, "Fused instructions",
        "Two instructions of a program beside the one that the pass `fuse` puts in their place, "
        "in SmolLM2-135M's sizes on one thread.",
        lambda content: tables.fusions(series_of(content)),
    ),
    Section(
        "products", INSIDE, "Products by type and shape",
        "Products with a weight matrix (rows x columns) on one thread: with one row of "
        "activations, as in decoding, and with 128, as in a prompt. In block formats activations "
        "are int8, otherwise floats. GB/s are those of the weights. Marked (*) are cases that "
        "varied by more than a tenth.",
        lambda content: tables.products(series_of(content)),
    ),
)  # fmt: skip


def page(results: dict[str, Content], suite: Content | None = None) -> str:
    """docs/benchmarks.md, with a session of the suite if there is one."""
    parts, topic = [f"# Benchmarks\n\n{_wrapped(HEAD)}\n"], ""
    for section in SECTIONS:
        if section.bench not in results:
            continue
        if section.topic != topic:
            topic = section.topic
            parts.append(f"## {topic}\n")
        content = results[section.bench]
        texts = f"{_wrapped(section.text)}\n\n{_wrapped(_conditions(content))}"
        parts.append(f"### {section.title}\n\n{texts}\n\n{section.table(content)}\n")
    if suite:
        texts = f"{_wrapped(suite_table.TEXT)}\n\n{_wrapped(_conditions(suite))}"
        parts.append(f"## The suite\n\n{texts}\n")
        for title, text, table in suite_table.sections(suite):
            parts.append(f"### Suite: {title}\n\n{_wrapped(text)}\n\n{table}\n")
    return "\n".join(parts)


def _conditions(content: Content) -> str:
    """Command, machine, date and peers of a file of results."""
    versions = ", ".join(content["versions"].values())
    beside = f"; {versions}" if versions else ""
    info = content["machine_info"]
    return (
        f"{date(content)}, {machine(content)}, {info['cpu']['count']} cores, kernels "
        f"{info['instruction_sets'][0]}{beside}; `{content['command']}`:"
    )


def _wrapped(text: str, width: int = 120) -> str:
    """Lines of at most `width` characters, none of which ends within code."""
    lines = [""]
    for word in re.findall(r"`[^`]*`\S*|\S+", text):
        if len(lines[-1]) + 1 + len(word) > width:
            lines.append(word)
        else:
            lines[-1] = f"{lines[-1]} {word}".lstrip()
    return "\n".join(lines)


# ---- the command ---------------------------------------------------------------------------------


def read_results(folder: Path = RESULTS) -> dict[str, Content]:
    """The content of all files of results, by bench."""
    paths = {name: folder / f"{name}.json" for name in BENCHES}
    return {
        name: json.loads(path.read_text(encoding="utf-8"))
        for name, path in paths.items()
        if path.exists()
    }


def sessions(history: Path = HISTORY, latest: Path = LATEST) -> list[Content]:
    """Sessions of the suite, the oldest first; a session that was kept counts once."""
    paths = [*history.glob("*.json"), *([latest] if latest.exists() else [])]
    contents = [json.loads(path.read_text(encoding="utf-8")) for path in paths]
    by_date = {content["datetime"]: content for content in contents}
    return [by_date[moment] for moment in sorted(by_date)]


def write_html() -> None:
    """The report on the suite, if there is anything to report."""
    if recorded := sessions():
        HTML.parent.mkdir(parents=True, exist_ok=True)
        write_text(HTML, html.page(recorded[-1], recorded[:-1]))
        print(f"{HTML.relative_to(ROOT)} written")


def pages() -> Iterator[tuple[Path, str]]:
    """The files that the report writes, and their content."""
    results, kept = read_results(), sorted(HISTORY.glob("*.json"))
    yield PAGE, page(results, json.loads(kept[-1].read_text("utf-8")) if kept else None)
    yield README, readme.text(README.read_text(encoding="utf-8"), results)


def run(name: str) -> None:
    """Run a bench and replace its file of results."""
    command = [sys.executable, "-m", *shlex.split(BENCHES[name])]
    print(f"{name}: {' '.join(command[1:])}", file=sys.stderr, flush=True)
    target = RESULTS / f"{name}.json"
    subprocess.run([*command, "--json", str(target)], check=True, cwd=ROOT)


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="make report ARGS=", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument(
        "--run", nargs="*", choices=BENCHES, metavar="NAME",
        help=f"run benches first: {', '.join(BENCHES)} (default: all)",
    )  # fmt: skip
    parser.add_argument(
        "--check", action="store_true", help="write nothing; exit code 1 where a page differs"
    )
    options = parser.parse_args()
    if options.run is not None:
        for name in options.run or BENCHES:
            run(name)
    different = [(path, text) for path, text in pages() if path.read_text("utf-8") != text]
    for path, text in different:
        print(f"{path.relative_to(ROOT)} {'differs' if options.check else 'written'}")
        if not options.check:
            write_text(path, text.removesuffix("\n"))  # which it adds
    if not options.check:
        write_html()
    return 1 if options.check and different else 0


if __name__ == "__main__":
    raise SystemExit(main())
