"""The page's main ways in one visit, and what an engine lends to them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.browser.graph_files import with_encoder
from tests.browser.test_offline import server_of
from tests.browser.visitor import PROMPT
from tests.engines.visit import Visit
from tests.support.http_server import in_thread
from tests.support.sites import beginning
from tests.text.chat.models import STORYTELLER, sentencepiece

import halfbyte
from halfbyte.quantize import quantize_file
from halfbyte.web.site import Site

TYPES = ("int4", "int8", "fp16")
TOKENS = 100
MAX_THREADS = 8
# As the page calls the tables of kernels
TABLES = {"relaxed": "WebAssembly, relaxed SIMD", "simd128": "WebAssembly SIMD (128 bits)"}
QUESTION = "Tell me of Tom."

# Before the page's and its worker's own scripts: notes errors where a script can ask for them.
NOTES = """{
  self.problems = [];
  const channel = new BroadcastChannel("problems");
  channel.addEventListener("message", ({ data }) => self.problems.push(data));
  const note = (text) => {
    self.problems.push(text);
    channel.postMessage(text);
  };
  for (const kind of ["error", "unhandledrejection", "securitypolicyviolation"]) {
    self.addEventListener(kind, (event) => {
      const { message, reason, blockedURI, target } = event;
      note(`${kind}: ${message ?? reason ?? blockedURI ?? target.src}`);
    }, true);
  }
  const { error } = console;
  console.error = (...parts) => {
    note(`console.error: ${parts.join(" ")}`);
    error(...parts);
  };
}
"""
# Whether the engine validates a relaxed swizzle, whether memory may be shared, and its cores
LENDS = """
const relaxed = new Uint8Array([0, 97, 115, 109, 1, 0, 0, 0, 1, 5, 1, 96, 0, 1, 123, 3, 2, 1, 0, 10,
  15, 1, 13, 0, 65, 1, 253, 15, 65, 2, 253, 15, 253, 128, 2, 11]);
return {
  relaxed: WebAssembly.validate(relaxed),
  isolated: self.crossOriginIsolated,
  shared: typeof SharedArrayBuffer === "function",
  cores: navigator.hardwareConcurrency,
};
"""
STOP_EARLY = """
const text = document.getElementById("written");
text.textContent = "";
const watch = new MutationObserver(() => {
  if (text.textContent.length < 20) return;
  watch.disconnect();
  document.getElementById("stop").click();
});
watch.observe(text, { childList: true, characterData: true, subtree: true });
"""
OPEN_KEPT = """
[...document.querySelectorAll("#shelf .tool")].find((tool) => tool.title === arguments[0]).click();
"""
ANSWERED = "document.querySelector('#chat-log .assistant')?.getAttribute('aria-busy') === 'false'"
ANSWER = "return document.querySelector('#chat-log .assistant').dataset.source;"


class Ways:
    """Native goldens, and a site with the models that they are of."""

    def __init__(self, site: Site, files: Path) -> None:
        paths = {name: files / f"{name}.gguf" for name in TYPES}
        self.golden = {}
        for name, path in paths.items():
            quantize_file(STORYTELLER, name, path)
            with halfbyte.load(path) as model:
                self.golden[name] = model.generate(PROMPT, max_tokens=TOKENS, temperature=0)
        paths["chat"] = sentencepiece(files / "chat.gguf")
        with halfbyte.load(paths["chat"]) as model:
            messages = [{"role": "user", "content": QUESTION}]
            self.answer = model.chat(messages, temperature=0, max_tokens=30)
        encoder = {"model": files / "small.onnx", "tokenizer": files / "tokenizer.json"}
        noting = beginning(with_encoder(site, encoder), NOTES, "app.mjs", "worker.mjs")
        noting.files.update({f"models/{path.name}": path for path in paths.values()})
        self.site, self.files = noting, files

    def main_ways(self, open_page: Callable[[str], Visit]) -> dict[str, str]:
        """Go all of them; returns a row of the table."""
        row = {}
        with in_thread(server_of(self.site)) as server:
            self.address = server.address
            visit = open_page(server.address)
            row["first story"] = self.first_story(visit)
            row |= self.kernels(visit)
            row["golden texts"] = ", ".join(self.texts(visit))
            row["stop"] = self.stop(visit)
            row["chat"] = self.chat(visit)
            row["search"], row["ONNX"] = self.graphs(visit)
            visit.until("document.documentElement.dataset.kept === 'yes'")
            self.no_problems(visit)
            server.shutdown()
            server.server_close()
            row["kept, server gone"] = self.without_server(visit)
            self.no_problems(visit)
        return row

    def first_story(self, visit: Visit) -> str:
        """It writes itself; seconds from the visit to its end."""
        visit.shows("status", "tokens per second")
        assert visit.text("begun") == "Once upon a time"
        assert len(visit.text("written")) > 100
        return f"{visit.age():.0f} s"

    def kernels(self, visit: Visit) -> dict[str, str]:
        """The best that the engine lends, and why if that is one thread."""
        lent = visit.engine.js(LENDS)
        table = "relaxed" if lent["relaxed"] else "simd128"
        threads = min(lent["cores"], MAX_THREADS) if lent["isolated"] and lent["shared"] else 1
        machine = visit.text("machine")
        many = f"{threads} thread{'s' if threads > 1 else ''}"
        assert machine.startswith(f"{TABLES[table]}, {many}"), machine
        said = machine.partition(many)[2]
        assert bool(said) == (threads == 1 < lent["cores"]), machine
        return {"kernels": table, "threads": f"{threads}"}

    def texts(self, visit: Visit) -> list[str]:
        """Of each type, from an address: word for word the native library's."""
        for name in self.golden:
            visit.open_address(f"{self.address}models/{name}.gguf")
            self.golden_text(visit, name)
        return list(self.golden)

    def stop(self, visit: Visit) -> str:
        """Stopped in the middle, the text ends early, and the next one is whole."""
        visit.fill("length", "250")
        visit.engine.js(STOP_EARLY)
        visit.click("run")
        visit.until("document.getElementById('story').getAttribute('aria-busy') === 'false'")
        visit.enabled("run")
        stopped = visit.text("written")
        self.golden_text(visit, TYPES[-1])
        assert len(stopped) < len(visit.write(250)), stopped
        return "yes"

    def chat(self, visit: Visit) -> str:
        visit.open_address(f"{self.address}models/chat.gguf")
        visit.until("!document.getElementById('chat-view').hidden")
        visit.fill("length", "30")
        visit.fill("message", QUESTION)
        visit.click("send")
        visit.until(ANSWERED)
        answer = visit.engine.js(ANSWER)
        assert answer == self.answer, answer
        return "yes"

    def graphs(self, visit: Visit) -> tuple[str, str]:
        visit.click("search-tab")
        hit = visit.search()
        assert hit == "The second one.", hit
        visit.click("onnx-tab")
        visit.give("onnx", self.files / "colours.onnx", self.files / "colours.txt")
        visit.until("document.querySelector('#inputs select')")
        best = visit.best_class()
        assert best == "blue", best
        return "yes", "yes"

    def without_server(self, visit: Visit) -> str:
        """The page and its models come from what the browser keeps."""
        visit.engine.go(f"{self.address}?model={self.address}models/int8.gguf")
        visit.shows("model-name", "int8.gguf")
        visit.ready()
        self.golden_text(visit, "int8")
        kept = "document.querySelectorAll('#shelf li').length === arguments[0]"
        visit.until(kept, len(self.golden) + 1)
        visit.engine.js(OPEN_KEPT, f"{self.address}models/int4.gguf")
        visit.shows("model-name", "int4.gguf")
        visit.ready()
        self.golden_text(visit, "int4")
        return "yes"

    def golden_text(self, visit: Visit, name: str) -> None:
        text = visit.write(TOKENS)
        assert text == self.golden[name].strip(), (name, text)

    def no_problems(self, visit: Visit) -> None:
        problems: Any = visit.engine.js("return self.problems;")
        assert problems == [], problems
