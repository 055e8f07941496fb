"""A session of the suite as Markdown: a section per file of cases, a column per engine."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from pathlib import Path
from textwrap import wrap

from benches.figures import PEERS, Content, Series, counterpart, digits, markdown, series_of

CASES = Path(__file__).parent / "suite"
TEXT = (
    "A column or a row per engine: medians in milliseconds, unless the unit stands there. A "
    "peer's figure is followed by how many times as fast halfbyte's first one is, or the one that "
    "searches where the peer does. Marked (*) are cases that varied by more than a tenth."
)
WIDTH = 120
Key = tuple[str, str, int]


def sections(content: Content) -> Iterator[tuple[str, str, str]]:
    """Title, text and table of each file of cases."""
    series = series_of(content)
    for source in dict.fromkeys(one.source for one in series):
        name = source.removeprefix("benches/")
        yield name.capitalize(), about(name), table([s for s in series if s.source == source])


def about(name: str) -> str:
    """The first paragraph of a file of cases; nothing where there is no such file."""
    path = CASES / f"bench_{name}.py"
    if not path.exists():
        return ""
    text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return " ".join(text.split("\n\n")[0].split())


def table(series: Sequence[Series]) -> str:
    """One row per model, test and number of threads; below it, why a peer has no figure.

    With so many engines that a line would not fit a window, each has a row.
    """
    groups: dict[Key, dict[str, Series]] = {}
    for one in series:
        groups.setdefault((one.model, one.test, one.threads), {})[one.engine] = one
    engines = list(dict.fromkeys(one.engine for one in series))
    engines.sort(key=lambda engine: engine in PEERS)
    header = ["case", "test", "threads"]
    for engine in engines:
        header += [engine, "ratio"] if engine in PEERS else [engine]
    rows = [
        [model, test, str(threads), *_cells(group, engines)]
        for (model, test, threads), group in groups.items()
    ]
    text = markdown(header, rows, left=2)
    if len(text.splitlines()[0]) > WIDTH:
        text = _by_engine(groups)
    return "\n".join([text, *_reasons(series)])


def _by_engine(groups: dict[Key, dict[str, Series]]) -> str:
    header = ["case", "test", "engine", "threads", "ms", "ratio"]
    rows = []
    for (model, test, threads), group in groups.items():
        for engine in sorted(group, key=lambda engine: engine in PEERS):
            figure, *ratio = _cells(group, [engine])
            if figure != "-":
                rows.append([model, test, engine, str(threads), figure, *(ratio or ["-"])])
    return markdown(header, rows, left=3)


def _cells(group: dict[str, Series], engines: Sequence[str]) -> list[str]:
    first = counterpart(group.values())
    cells = []
    for engine in engines:
        one = group.get(engine)
        shown = one is not None and bool(one.seconds)
        cells.append(_figure(one) if one and shown else "-")
        if engine in PEERS:
            ratio = first.times_as_fast_as(one) if one and shown and first else None
            cells.append(f"{ratio:.2f}" if ratio else "-")
    return cells


def _figure(one: Series) -> str:
    mark = "*" if one.noisy else ""
    if one.unit == "B":
        return f"{digits(one.median / 1e6)} MB{mark}"
    return f"{digits(1000 * one.median)}{mark}"


def _reasons(series: Sequence[Series]) -> list[str]:
    """A line for each engine and reason, with the cases."""
    cases: dict[tuple[str, str], list[str]] = {}
    for one in series:
        if not one.seconds:
            key = one.engine, str(one.more.get("reason", "failed"))
            cases.setdefault(key, []).append(f"{one.model} {one.test}")
    lines = []
    for (engine, reason), names in cases.items():
        text = f"- {engine}, {', '.join(dict.fromkeys(names))}: {reason}"
        lines += wrap(text, WIDTH, subsequent_indent="  ", break_on_hyphens=False)
    return ["", "No figure:", "", *lines] if lines else []
