"""Uses the page in Chromium and in a Firefox and a WebKitGTK as a system packages them.

    python -m tests.engines                              every scenario in all three
    python -m tests.engines webkit --only main_ways      one scenario in one engine
    python -m tests.engines --only main_ways --table     writes the table in docs/browser.md

`main_ways` is one visit: texts of three types of weights, equal to the native library's; the chosen
kernels; stopping, chat, search, ONNX; models that the browser keeps, and the page without its
server. In the other scenarios the page's Python ends while it writes and in each tab, or storage, a
secure origin or WebAssembly are withheld. The exit code is 1 where one fails, 2 where a browser is
not installed. The insecure origin is this machine's host name, which has to resolve to it.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
import traceback
from pathlib import Path
from typing import Any

from tests.browser.graph_files import write_files
from tests.engines.drivers import ENGINES, MissingError, installed
from tests.engines.faults import PREFERENCES, Faults
from tests.engines.visit import Visit
from tests.engines.ways import Ways
from tests.support.tables import dated, write_table

from halfbyte.web.site import make_site

FAULTS = [name for name in vars(Faults) if not name.startswith(("_", "check"))]
WAYS = "main_ways"


def run(engine: str, scenarios: Ways | Faults, name: str) -> dict[str, str] | None:
    """Run a scenario and print its outcome; returns its row of the table, None if it failed."""
    started = time.monotonic()
    row: dict[str, str] | None = {}
    with tempfile.TemporaryDirectory() as folder:
        browser = ENGINES[engine](Path(folder) / "profile", PREFERENCES.get(name, {}))

        def open_page(address: str) -> Visit:
            return Visit(browser, address)

        open_page.__name__ = engine
        try:
            facts: Any = getattr(scenarios, name)(open_page)
            row = {"browser": browser.version, **(facts or {})}
        except Exception:  # the other scenarios go on
            traceback.print_exc()
            row = None
        finally:
            browser.close()
    seconds = time.monotonic() - started
    print(f"{engine:8} {name:16} {'passed' if row else 'failed'}  {seconds:.0f} s", flush=True)
    return row


def need(engines: list[str]) -> None:
    """Exit with a sentence where a browser is missing; WebKitGTK is given a display."""
    try:
        for engine in engines:
            ENGINES[engine].check()
        if "webkit" in engines and not os.environ.get("DISPLAY"):
            xvfb = installed(("xvfb-run",), "xvfb xauth")
            os.execv(xvfb, [xvfb, "-a", sys.executable, "-m", "tests.engines", *sys.argv[1:]])  # noqa: S606
    except MissingError as error:
        print(f"{error} (or leave its browser out: BROWSERS=chromium)", file=sys.stderr)
        sys.exit(2)


def main() -> int:
    parser = argparse.ArgumentParser(
        "python -m tests.engines",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("engines", nargs="*", metavar="ENGINE", help=f"of {', '.join(ENGINES)}")
    parser.add_argument("--only", choices=[WAYS, *FAULTS], help="one scenario")
    parser.add_argument("--table", action="store_true", help="write the table of main_ways")
    arguments = parser.parse_args()
    engines = arguments.engines or list(ENGINES)
    need(engines)
    names = [arguments.only] if arguments.only else [WAYS, *FAULTS]
    with tempfile.TemporaryDirectory() as folder:
        write_files(Path(folder))
        site = make_site()
        ways, faults = Ways(site, Path(folder)), Faults(site, Path(folder))
        rows = {
            (engine, name): run(engine, ways if name == WAYS else faults, name)
            for engine in engines
            for name in names
        }
    found = [row for (_, name), row in rows.items() if name == WAYS and row]
    if arguments.table and all(rows.values()):
        note = dated("python -m tests.engines --only main_ways --table")
        write_table("docs/browser.md", "engines", found, note)
    return 0 if all(rows.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
