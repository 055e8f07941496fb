"""Runs halfbyte in notebooks of JupyterLite and marimo, and in pages of PyScript, from registries.

    python -m tests.notebooks                 all of them
    python -m tests.notebooks pyscript        those whose name contains this

Each installs the wheel, loads a model and writes a text with two threads, which has to equal the
native library's; without cross-origin isolation with one, and with a warning. The exit code is 1
where one fails. Products come from PyPI and npm, and stay in a cache.
"""

from __future__ import annotations

import html
import json
import re
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Page, sync_playwright
from tests.browser.conftest import FLAGS, tool
from tests.notebooks import marimo, products
from tests.support.http_server import in_thread

import halfbyte
from halfbyte.quantize import quantize_file
from halfbyte.web.pyodide import get_pyodide
from halfbyte.web.server import Server
from halfbyte.web.site import Site
from halfbyte.web.wheel import file_name, make_wheel

REPOSITORY = Path(__file__).parents[2]
STORYTELLER = REPOSITORY / "runtime/halfbyte/data/storyteller.bin"
SECONDS = 120_000  # milliseconds

LOAD = """
import json, warnings
import halfbyte
from halfbyte.core.backends import workers
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    model = await halfbyte.load_url("/models/model.gguf", threads=2)
"""
TELL = """
text = model.generate("Once upon a time", max_tokens=60, temperature=0)
counts = [model.executable.threads, sum(crew.ready for crew in workers._crews.values())]
result = json.dumps([*counts, text, [str(warning.message) for warning in caught]])
"""
SHOWN = "/RESULT.* END|Something went wrong/s"
PAUSE = (
    "import asyncio\nawait asyncio.sleep(0.3)  # a return to the browser, which starts workers\n"
)
MARIMO = """
import marimo, micropip
await micropip.install(f"{marimo.notebook_location()}/public/WHEEL")
"""
PRINT = "print('RESULT', result, 'END')"
CELLS = ("%pip install -q halfbyte", LOAD, TELL, PRINT)
SHOW = "from pyscript import document\ndocument.body.dataset.result = result\n"


def in_jupyterlite(page: Page, address: str) -> Any:
    """What the notebook's last cell prints, once all have run."""
    page.goto(f"{address}notebooks/index.html?path=test.ipynb")
    page.get_by_role("menuitem", name="Run", exact=True).click(timeout=SECONDS)
    page.get_by_text("Run All Cells", exact=True).click()
    outputs = page.locator(".jp-OutputArea-output")
    last = outputs.filter(has_text="END").or_(outputs.filter(has_text="Error")).first
    last.wait_for(timeout=SECONDS)
    return printed(last.inner_text())


def in_marimo(page: Page, address: str) -> Any:
    """What the notebook's cell shows."""
    marimo.serve(page.context, get_pyodide().glob("*.whl"))
    page.goto(f"{address}marimo/index.html")
    page.wait_for_function(f"{SHOWN}.test(document.body.innerText)", timeout=SECONDS)
    return printed(page.locator("body").inner_text())


def printed(text: str) -> Any:
    """The result in what a notebook printed."""
    result = re.search(r"RESULT (.*) END", text, re.DOTALL)
    assert result, text
    return json.loads(result[1])


def in_pyscript(page: Page, address: str, where: str) -> Any:
    """What a page's script tells."""
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.goto(f"{address}{where}.html")
    page.wait_for_function("document.body.dataset.result", timeout=SECONDS)
    assert errors == []
    return json.loads(page.evaluate("document.body.dataset.result"))


def script(where: str, address: str) -> bytes:
    """A page of PyScript, whose Python runs on the main thread or in a worker.

    A worker resolves no relative address, so the wheel's is whole.
    """
    packages = [f"{address}wheels/{file_name()}"]
    config = json.dumps({"interpreter": "/pyodide/pyodide.mjs", "packages": packages})
    worker = "worker" if where == "worker" else ""
    return f"""<!doctype html>
<meta charset="utf-8">
<script type="module" src="/pyscript/core.js"></script>
<body><script type="py" {worker} config="{html.escape(config)}">
{LOAD}{PAUSE}{TELL}{SHOW}
</script></body>
""".encode()


SCENARIOS: dict[str, tuple[bool, Callable[[Page, str], Any]]] = {
    "jupyterlite": (True, in_jupyterlite),
    "jupyterlite-not-isolated": (False, in_jupyterlite),
    "marimo": (True, in_marimo),
    "marimo-not-isolated": (False, in_marimo),
    "pyscript-main": (True, lambda page, address: in_pyscript(page, address, "main")),
    "pyscript-worker": (True, lambda page, address: in_pyscript(page, address, "worker")),
    "pyscript-not-isolated": (False, lambda page, address: in_pyscript(page, address, "main")),
}


def make(work: Path) -> tuple[Site, str]:
    """The site with all products, and what the native library tells."""
    wheel = products.keep(work / file_name(), make_wheel())
    model = work / "model.gguf"
    quantize_file(STORYTELLER, "int8", model)
    with halfbyte.load(model) as native:
        text = native.generate("Once upon a time", max_tokens=60, temperature=0)
    files = products.jupyterlite(wheel, CELLS, work) | products.pyscript()
    show = 'marimo.plain_text(f"RESULT {result} END")'
    cell = MARIMO.replace("WHEEL", wheel.name) + LOAD + PAUSE + TELL + show
    files |= products.pyodide(get_pyodide()) | marimo.export([cell], [wheel], work)
    return Site(files | {f"wheels/{wheel.name}": wheel, "models/model.gguf": model}), text


def check(browser: Browser, site: Site, text: str, name: str) -> None:
    """Run one scenario; raises `AssertionError`."""
    isolated, tell = SCENARIOS[name]
    context = browser.new_context()
    with in_thread(Server(site, isolated=isolated)) as server:
        site.files.update({f"{w}.html": script(w, server.address) for w in ("main", "worker")})
        threads, ready, told, notes = tell(context.new_page(), server.address)
        context.close()
    assert told == text, told
    assert (threads, ready) == ((2, 1) if isolated else (1, 0)), (threads, ready)
    assert bool(notes) == (not isolated), notes


def main() -> None:
    """The command line."""
    wanted = sys.argv[1:] or [""]
    names = [name for name in SCENARIOS if any(part in name for part in wanted)]
    failed = 0
    with tempfile.TemporaryDirectory() as work, sync_playwright() as playwright:
        site, text = make(Path(work))
        path = tool(REPOSITORY, "get_chromium")
        browser = playwright.chromium.launch(executable_path=path, args=FLAGS)
        for name in names:
            start = time.monotonic()
            try:
                check(browser, site, text, name)
                outcome = "passed"
            except Exception:
                traceback.print_exc()
                outcome, failed = "failed", failed + 1
            print(f"{name:25} {outcome} in {time.monotonic() - start:.0f} s", flush=True)
        browser.close()
    sys.exit(min(failed, 1))


if __name__ == "__main__":
    main()
