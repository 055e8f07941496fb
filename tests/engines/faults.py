"""The page where it is lent little: its Python ends, or there is no storage, or no WebAssembly."""

from __future__ import annotations

import socket
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from tests.browser.graph_files import with_encoder
from tests.browser.test_page_restricted import without_storage
from tests.browser.visitor import PROMPT
from tests.engines.visit import Visit
from tests.support.http_server import in_thread
from tests.support.sites import beginning, content

import halfbyte
from halfbyte.web.server import Server
from halfbyte.web.site import STORYTELLER, Site

END = "new BroadcastChannel('end').addEventListener('message', () => self.close());\n"
# Later, since what drives a browser may compile text while it calls into the page
COMPILE = """
setTimeout(() => {
  try {
    self.compiled = new Function("return 'yes'")();
  } catch {
    self.compiled = "no";
  }
});
"""


class Faults:
    """What the page lacks; each method's name is the scenario's."""

    def __init__(self, site: Site, folder: Path) -> None:
        self.site, self.files = site, folder
        with halfbyte.load_bytes(content(site, f"models/{STORYTELLER}")) as model:
            self.golden = model.generate(PROMPT, max_tokens=100, temperature=0)

    def check_text(self, visit: Visit) -> None:
        assert visit.write(100) == self.golden.strip(), visit.text("written")

    def check_class(self, visit: Visit) -> None:
        best = visit.best_class()
        assert best == "blue", best

    def python_ended(self, open_page: Callable[[str], Visit]) -> None:
        with in_thread(Server(beginning(with_encoder(self.site, {}), END, "worker.mjs"))) as server:
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
            visit.engine.js(COMPILE)
            visit.until("self.compiled")
            assert visit.engine.js("return self.compiled;") == "no"
            self.check_text(visit)
        strict = replace(self.site, policies={"": "default-src 'self'"})
        with in_thread(Server(strict)) as server:
            visit = open_page(server.address)
            visit.shows("failure-text", "wasm-unsafe-eval")


PREFERENCES = {"storage_blocked": {"network.cookie.cookieBehavior": 2}}
