"""Somebody at the page in any engine, by scripts in the page."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from tests.browser.graph_files import SIDE
from tests.browser.test_page_ended import ENDED
from tests.browser.visitor import PROMPT
from tests.engines.drivers import Engine

SECONDS = 300
MESSAGES = ("unstarted", "failure-text", "problem", "wait-text", "onnx-problem")
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
        self._started = time.monotonic()
        engine.go(address)

    def age(self) -> float:
        """Seconds since the visit began."""
        return time.monotonic() - self._started

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

    def open_address(self, url: str) -> None:
        """Load the model of an address."""
        self.fill("url", url)
        self.click("load")
        self.shows("model-name", url.rsplit("/", 1)[-1])
        self.ready()

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
