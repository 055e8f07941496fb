"""Fixtures of the cases: what they measure goes to one file of figures per process.

`make bench` starts a process for each pass over the cases, and joins their files; see
`benches.__main__`. `pytest benches/suite -k products` runs some cases once, and shows nothing.
"""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from benches.case import Bench, Figures
from benches.pinning import HELP, pinned
from benches.progress import EVERY, Progress, expected, file_of

ROUNDS = 5
PATIENCE = 600  # seconds of a case, which then fails
PROGRESS = pytest.StashKey[Progress]()


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("bench")
    group.addoption("--short", action="store_true", help="only cases marked short")
    group.addoption("--pin", action="store_true", help=HELP)
    group.addoption("--rounds", type=int, default=ROUNDS, help="of each case (default %(default)s)")
    group.addoption("--number", type=int, default=0, help="of this pass, from 0")
    group.addoption("--passes", type=int, default=1, help="of the session (default %(default)s)")
    group.addoption("--started", type=float, default=0, help="when the session began; shows a bar")
    group.addoption("--figures", type=Path, metavar="FILE", help="write all figures here")


@pytest.hookimpl(trylast=True)  # after -k has left out others
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the long cases if --short is given, and those measured once in later passes."""
    short, number = config.getoption("short"), config.getoption("number")
    chosen = [item for item in items if not short or item.get_closest_marker("short")]
    repeated = [item for item in chosen if not item.get_closest_marker("once")]
    wanted = repeated if number else chosen
    config.hook.pytest_deselected(items=[item for item in items if item not in wanted])
    items[:] = wanted
    first, later = (expected([*map(file_of, each)]) for each in (chosen, repeated))
    passes = config.getoption("passes")
    config.stash[PROGRESS] = Progress(
        number, passes, config.getoption("started"),
        before=first + later * (number - 1) if number else 0.0,
        after=later * (passes - number - 1), left=[*map(file_of, wanted)],
    )  # fmt: skip


class _Bar:
    """Shows the progress before each case."""

    def __init__(self, config: pytest.Config) -> None:
        self._plugins, self._shown = config.pluginmanager, 0.0

    def show(self, line: str) -> None:
        reporter: Any = self._plugins.get_plugin("terminalreporter")
        if reporter.isatty:
            reporter.rewrite(line, erase=True)
        elif time.time() - self._shown >= EVERY:
            reporter.write_line(line)
            self._shown = time.time()


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("started"):
        config.pluginmanager.register(_Bar(config), "bar")


def pytest_report_teststatus(
    report: pytest.TestReport, config: pytest.Config
) -> tuple[str, str, str] | None:
    """The bar stands for the dots."""
    bar = config.pluginmanager.has_plugin("bar")
    return ("passed", "", "") if bar and report.when == "call" and report.passed else None


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Show what comes, end what hangs, and note how long it took."""
    progress, bar = item.config.stash[PROGRESS], item.config.pluginmanager.get_plugin("bar")
    if bar:
        bar.show(progress.line(f"{file_of(item)} {item.name}"))
    start = time.perf_counter()
    try:
        return (yield)
    finally:
        progress.ended(file_of(item), time.perf_counter() - start)


def _hangs(*_: object) -> None:
    raise TimeoutError(f"the case took more than {PATIENCE} s")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Iterator[None]:
    """A case that hangs fails."""
    if sys.platform == "win32":
        return (yield)
    before = signal.signal(signal.SIGALRM, _hangs)
    signal.alarm(PATIENCE)
    try:
        return (yield)
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


@pytest.fixture(scope="session")
def figures(pytestconfig: pytest.Config) -> Iterator[Figures]:
    """Those of this pass, written at the end."""
    result = Figures(taken=pytestconfig.stash[PROGRESS].taken)
    with pinned(pytestconfig.getoption("pin")) as places:
        yield result
    result.machine["pinned"] = len(places)
    result.write(pytestconfig.getoption("figures"))


@pytest.fixture
def bench(request: pytest.FixtureRequest, figures: Figures) -> Bench:
    """Of one case."""
    return Bench(request.node, figures)
