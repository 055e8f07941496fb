"""Tabs that run given Python code: Pyodide with all of halfbyte, in a worker."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from benches.browser.measure import Bench
from benches.prepare import ROOT
from tests.browser.conftest import Python

from halfbyte.web.site import Site, make_site

PAGE = ROOT / "tests" / "browser" / "page"


def python_site(models: Mapping[str, Path]) -> Site:
    """The site with a bare page, and models under `/models/`."""
    files = {**make_site().files, **{f"page/{path.name}": path for path in PAGE.iterdir()}}
    return Site({**files, **{f"models/{name}": path for name, path in models.items()}})


@contextmanager
def python_tabs(models: Mapping[str, Path]) -> Iterator[Callable[[], Python]]:
    """A function that opens a new tab, all in one new browser."""
    with Bench(python_site(models), ROOT) as bench, bench.browser() as browser:
        yield lambda: Python(browser.new_page(), bench.address, "", "worker")
