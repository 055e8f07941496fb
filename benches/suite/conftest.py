"""Fixtures of the cases: what they measure goes to one file of figures per process.

`make bench` starts a process for each pass over the cases, and joins their files; see
`benches.__main__`. `pytest benches/suite -k products` runs some cases once, and shows nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from benches.case import Bench, Figures

ROUNDS = 5


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("bench")
    group.addoption("--short", action="store_true", help="only cases marked short")
    group.addoption("--rounds", type=int, default=ROUNDS, help="of each case (default %(default)s)")
    group.addoption("--number", type=int, default=0, help="of this pass, from 0")
    group.addoption("--figures", type=Path, metavar="FILE", help="write all figures here")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the long cases if --short is given, and those measured once in later passes."""

    def wanted(item: pytest.Item) -> bool:
        if config.getoption("short") and not item.get_closest_marker("short"):
            return False
        return not (config.getoption("number") and item.get_closest_marker("once"))

    config.hook.pytest_deselected(items=[item for item in items if not wanted(item)])
    items[:] = [item for item in items if wanted(item)]


@pytest.fixture(scope="session")
def figures(pytestconfig: pytest.Config) -> Iterator[Figures]:
    """Those of this pass, written at the end."""
    result = Figures()
    yield result
    result.write(pytestconfig.getoption("figures"))


@pytest.fixture
def bench(request: pytest.FixtureRequest, figures: Figures) -> Bench:
    """Of one case."""
    return Bench(request.node, figures)
