"""Opens the page in an installed Firefox and in WebKitGTK, and uses it where it is lent little.

    python -m tests.engines                                   both
    xvfb-run -a python -m tests.engines webkit                WebKitGTK without a display

Each scenario writes a text that has to equal the native library's. One ends the page's Python while
it writes and in each tab; the others withhold storage, a secure origin or WebAssembly. The exit
code is 1 where one fails. The insecure origin is this machine's host name, which has to resolve
to it.
"""

from __future__ import annotations

import argparse
import socket
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.browser.graph_files import SIDE, with_encoder, write_files
from tests.browser.test_page_ended import ENDED
from tests.browser.test_page_restricted import without_storage
from tests.browser.visitor import PROMPT
from tests.engines.drivers import ENGINES, Engine
from tests.support.http_server import in_thread

import halfbyte
from halfbyte.web.server import Server
from halfbyte.web.site import STORYTELLER, Site, make_site

SECONDS = 300
MESSAGES = ("unstarted", "failure-text", "problem", "wait-text", "onnx-problem")
END = "new BroadcastChannel('end').addEventListener('message', () => self.close());\n"
GIVE = """
const [id, files] = arguments;
const data = new DataTransfer();
for (const [name, bytes] of files) data.items.add(new File([new Uint8Array(bytes)], name));
const input = document.getElementById(id);
input.files = data.files;
input.dispatchEvent(new Event("change", { bubbles: true }));
"""
CHOOSE_VALUES = """
const change = (field, value) => {
  field.value = value;
  for (const name of ["input", "change"]) field.dispatchEvent(new Event(name, { bubbles: true }));
};
change(document.querySelector("#inputs select"), "values");
change(document.querySelector("#inputs textarea"), arguments[0]);
"""
SET = """
const [id, value] = arguments;
const field = document.getElementById(id);
field.value = value;
for (const name of ["input", "change"]) field.dispatchEvent(new Event(name, { bubbles: true }));
"""
GET = (
    "const e = document.getElementById(arguments[0]); return e.hidden ? '' : e.textContent.trim();"
)
CLICK = "document.getElementById(arguments[0]).click();"


class Visit:
    """Somebody at the page in one engine."""

    def __init__(self, engine: Engine, address: str) -> None:
        self.engine = engine
        engine.go(address)

    def text(self, name: str) -> str:
        return str(self.engine.js(GET, name))

    def first(self, selector: str) -> str:
        """Text of the first element that a selector matches."""
        body = "return document.querySelector(arguments[0]).textContent;"
        return str(self.engine.js(body, selector)).strip()

    def click(self, name: str) -> None:
        self.engine.js(CLICK, name)

    def fill(self, name: str, value: str) -> None:
        self.engine.js(SET, name, value)

    def give(self, view: str, *paths: Path) -> None:
        field = f"{view}-file"
        self.until("document.getElementById(arguments[0])", field)
        self.engine.js(GIVE, field, [[path.name, list(path.read_bytes())] for path in paths])

    def until(self, condition: str, *arguments: Any) -> None:
        """Wait for an expression of JavaScript to be true."""
        end = time.monotonic() + SECONDS
        while not self.engine.js(f"return Boolean({condition});", *arguments):
            if time.monotonic() > end:
                shown = {name: self.text(name) for name in MESSAGES}
                raise AssertionError(f"waited {SECONDS} s for {condition} {arguments}: {shown}")
            time.sleep(0.1)

    def shows(self, name: str, part: str) -> None:
        """Wait until an element's text contains `part`."""
        condition = "document.getElementById(arguments[0]).textContent.includes(arguments[1])"
        self.until(condition, name, part)

    def enabled(self, name: str) -> None:
        self.until("!document.getElementById(arguments[0]).disabled", name)

    def ready(self) -> None:
        self.enabled("run")
        self.until("document.getElementById('wait').hidden")

    def write(self, length: int) -> str:
        for name, value in (("prompt", PROMPT), ("length", str(length)), ("temperature", "0")):
            self.fill(name, value)
        self.click("run")
        self.until("document.getElementById('story').getAttribute('aria-busy') === 'false'")
        return self.text("written")

    def search(self) -> str:
        self.enabled("search-run")
        self.fill("document", "A first one. The second one.")
        self.fill("question", "The second one.")
        self.click("search-run")
        self.until("document.querySelector('#hits .text')")
        self.enabled("search-run")
        return self.first("#hits .text")

    def best_class(self) -> str:
        self.enabled("onnx-run")
        values = " ".join(["0"] * 2 * SIDE**2 + ["0.5"] * SIDE**2)
        self.engine.js(CHOOSE_VALUES, values)
        self.engine.js("document.querySelector('.best')?.remove();")
        self.click("onnx-run")
        self.until(
            "document.querySelector('.best th') && "
            "document.getElementById('outputs').getAttribute('aria-busy') === 'false'"
        )
        return self.first(".best th")

    def end_python(self) -> None:
        self.engine.js("new BroadcastChannel('end').postMessage('');")
        self.shows("failure-text", ENDED)


def endable(site: Site) -> Site:
    """The site with a worker that a message ends."""
    worker = site.files["worker.mjs"]
    content = worker.read_bytes() if isinstance(worker, Path) else worker
    return replace(site, files={**site.files, "worker.mjs": END.encode() + content})


class Scenarios:
    """What the page goes through; each method's name is the scenario's."""

    def __init__(self, site: Site, folder: Path) -> None:
        self.site, self.files = site, folder
        content = site.files[f"models/{STORYTELLER}"]
        assert isinstance(content, bytes)
        with halfbyte.load_bytes(content) as model:
            self.golden = model.generate(PROMPT, max_tokens=100, temperature=0)

    def check_text(self, visit: Visit) -> None:
        assert visit.write(100) == self.golden.strip(), visit.text("written")

    def check_class(self, visit: Visit) -> None:
        best = visit.best_class()
        assert best == "blue", best

    def python_ended(self, open_page: Callable[[str], Visit]) -> None:
        with in_thread(Server(endable(with_encoder(self.site, {})))) as server:
            visit = open_page(server.address)
            visit.ready()
            self.check_text(visit)
            visit.fill("length", "240")
            visit.click("run")
            visit.until("document.getElementById('written').textContent.length > 0")
            visit.end_python()
            visit.ready()
            self.check_text(visit)
            assert visit.text("failure") == ""
            visit.click("search-tab")
            visit.give("search", self.files / "small.onnx", self.files / "tokenizer.json")
            assert visit.search() == "The second one."
            visit.end_python()
            assert visit.search() == "The second one."
            visit.click("onnx-tab")
            visit.give("onnx", self.files / "colours.onnx", self.files / "colours.txt")
            visit.until("document.querySelector('#inputs select')")
            self.check_class(visit)
            visit.end_python()
            self.check_class(visit)

    def insecure_origin(self, open_page: Callable[[str], Visit]) -> None:
        name = socket.gethostname()
        with in_thread(Server(self.site, names=[name])) as server:
            visit = open_page(f"http://{name}:{server.server_address[1]}/")
            visit.ready()
            assert visit.engine.js("return [isSecureContext, 'caches' in self];") == [False, False]
            assert "came over http from another" in visit.text("lacking")
            self.check_text(visit)

    def storage_blocked(self, open_page: Callable[[str], Visit]) -> None:
        """Firefox blocks by itself (see PREFERENCES); WebKit's properties are replaced."""
        site = self.site if open_page.__name__ == "firefox" else without_storage(self.site)
        with in_thread(Server(site)) as server:
            visit = open_page(server.address)
            visit.ready()
            assert "keeps no data for this site" in visit.text("lacking")
            self.check_text(visit)

    def strict_policy(self, open_page: Callable[[str], Visit]) -> None:
        """The page's own policy is in force; one without WebAssembly is named."""
        with in_thread(Server(self.site)) as server:
            visit = open_page(server.address)
            visit.ready()
            assert (
                not visit.engine.js(
                    "try { return new Function('return true')(); } catch { return false; }"
                )
                or visit.engine.name == "firefox"
            )  # Marionette's own sandbox may evaluate
            self.check_text(visit)
        with in_thread(Server(replace(self.site, policy="default-src 'self'"))) as server:
            visit = open_page(server.address)
            visit.shows("failure-text", "wasm-unsafe-eval")


PREFERENCES = {"storage_blocked": {"network.cookie.cookieBehavior": 2}}


def run(engine: str, scenarios: Scenarios, name: str) -> bool:
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        browser = ENGINES[engine](Path(folder) / "profile", PREFERENCES.get(name, {}))

        def open_page(address: str) -> Visit:
            return Visit(browser, address)

        open_page.__name__ = engine
        try:
            getattr(scenarios, name)(open_page)
            problem = ""
        except Exception:  # the other scenarios go on
            problem = traceback.format_exc()
        finally:
            browser.close()
    word = "failed" if problem else "passed"
    print(
        f"{engine:8} {name:16} {word}  {time.monotonic() - started:.0f} s\n{problem}",
        end="",
        flush=True,
    )
    return not problem


def main() -> int:
    parser = argparse.ArgumentParser(
        "python -m tests.engines",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    names = [
        name
        for name in vars(Scenarios)
        if not name.startswith("_") and not name.startswith("check")
    ]
    parser.add_argument("engines", nargs="*", metavar="ENGINE", help=f"of {', '.join(ENGINES)}")
    parser.add_argument("--only", choices=names, help="one scenario")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        write_files(Path(folder))
        scenarios = Scenarios(make_site(), Path(folder))
        results = [
            run(engine, scenarios, name)
            for engine in arguments.engines or ENGINES
            for name in ([arguments.only] if arguments.only else names)
        ]
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
