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
from collections.abc import Iterator
from pathlib import Path

from benches import page as html
from benches import readme, suite_table
from benches.figures import Content, date, machine
from benches.sections import SECTIONS

from halfbyte.outputs import write_text

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benches/results"
PAGE, README = ROOT / "docs/benchmarks.md", ROOT / "README.md"
HISTORY, LATEST = ROOT / "benches/history", ROOT / "build/bench/latest.json"
HTML = ROOT / "build/bench/report.html"
BENCHES = {  # module and options, by the file of results
    "quality": "benches.quality",
    "rounding": "benches.rounding",
    "popular": "benches.popular",
    "peers": "benches.peers --large",
    "tab-threads": "benches.peers -r 4 -p 128 -m '135M Q4_0' -e relaxed,simd128,wllama-2",
    "types": "benches.peers.weight_types",
    "types-tab": "benches.peers.weight_types --tabs relaxed,wllama-2 -t Q2_K,Q3_K,IQ2_XS,IQ3_S",
    "browser": "benches.browser",
    "encode": "benches -k encode",
    "embed": "benches -k embed",
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


# ---- the page ------------------------------------------------------------------------------------


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
