"""A user of the page, and the user's actions."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, Route, expect
from tests.browser.kept_start import keep_start
from tests.support.packages import axe

READY = 60_000  # milliseconds
THREADS = min(os.cpu_count() or 1, 8)
MACHINE = f"WebAssembly, relaxed SIMD, {THREADS} thread{'s' if THREADS > 1 else ''}"
PROMPT = "One morning, Tom"
INSECURE = "insecure.test"  # to the browser another machine than this one; it is this one


class User:
    """A user of the page, who has been there before, if the site has a kept start.

    With `keeps`, it is the first time, and the page keeps its start, which takes long.
    """

    def __init__(self, context: BrowserContext, address: str, keeps: bool = False) -> None:
        parts = urlsplit(address)
        fresh = not keeps and not keep_start(context, address)
        query = "&".join(filter(None, (parts.query, "fresh" if fresh else "")))
        self.page: Page = context.new_page()
        self.requests: list[str] = []
        self.failures: list[str] = []
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.on("pageerror", lambda error: self.failures.append(str(error)))
        self.page.on("console", self._console)
        self.page.goto(urlunsplit(parts._replace(query=query)))

    def _console(self, message: ConsoleMessage) -> None:
        if "Content Security Policy" in message.text:
            self.failures.append(message.text)

    def get(self, name: str) -> str:
        return self.page.locator(f"#{name}").inner_text()

    def ready(self) -> None:
        """Wait until a model is loaded."""
        expect(self.page.locator("#run")).to_be_enabled(timeout=READY)
        expect(self.page.locator("#wait")).to_be_hidden(timeout=READY)

    def settle(self) -> None:
        """Wait until the model is loaded, or the page shows a problem."""
        expect(self.page.locator("#wait")).to_be_hidden(timeout=READY)

    def unfold(self) -> None:
        """Open everything that is folded away."""
        self.page.evaluate("document.querySelectorAll('details').forEach(d => { d.open = true; })")

    def write(self, prompt: str, length: int = 100, temperature: str = "0") -> None:
        self.unfold()
        self.page.fill("#prompt", prompt)
        self.page.fill("#length", str(length))
        self.page.locator("#temperature").fill(temperature)

    def run(self) -> str:
        """Run the model, and wait for the end."""
        self.page.click("#run")
        return self.end()

    def end(self) -> str:
        expect(self.page.locator("#story")).to_have_attribute("aria-busy", "false", timeout=READY)
        return self.page.locator("#written").text_content() or ""

    def give_address(self, url: str) -> None:
        self.unfold()
        self.page.fill("#url", url)
        self.page.click("#load")
        self.settle()


class Visitor(User):
    """A user of the tabs for ONNX models."""

    def give(self, view: str, *paths: Path) -> None:
        """Choose files, and wait for the result."""
        self.page.set_input_files(f"#{view}-file", paths)
        expect(self.page.locator(f"#{view}-wait")).to_be_hidden(timeout=READY)

    def run_model(self) -> list[str]:
        """Run the model; returns the best classes."""
        self.page.click("#onnx-run")
        expect(self.page.locator("#outputs")).to_have_attribute("aria-busy", "false", timeout=READY)
        return self.page.locator("#outputs .best th").all_inner_texts()

    def search(self, question: str) -> list[str]:
        """Search; returns the nearest passages."""
        self.page.fill("#question", question)
        self.page.click("#search-run")
        expect(self.page.locator("#search-run")).to_be_enabled(timeout=READY)
        return self.page.locator("#hits .text").all_inner_texts()

    def problem(self, view: str) -> str:
        expect(self.page.locator(f"#{view}-problem")).to_be_visible(timeout=READY)
        return self.get(f"{view}-problem")


def works(user: User) -> None:
    """Assert that a text is generated and no problem shown."""
    user.write(PROMPT, 20)
    assert len(user.run()) > 20
    expect(user.page.locator("#problem")).to_be_hidden()


VIOLATIONS = """async () => {
  const { violations } = await axe.run();
  return violations.map(({ id, nodes }) => [id, nodes.map(({ html }) => html)]);
}"""


def violations(user: User) -> dict[str, list[list[object]]]:
    """What axe-core finds in what the page shows, by the scheme of colours."""
    user.page.evaluate(axe())
    found = {}
    for scheme in ("light", "dark"):
        user.page.emulate_media(color_scheme=scheme, reduced_motion="reduce")  # type: ignore[arg-type]
        found[scheme] = user.page.evaluate(VIOLATIONS)
    user.page.emulate_media(color_scheme="light")
    return {scheme: list_ for scheme, list_ in found.items() if list_}


DROP = """
([name, bytes]) => {
  const data = new DataTransfer();
  data.items.add(new File([new Uint8Array(bytes)], name));
  document.getElementById("drop").dispatchEvent(
    new DragEvent("drop", { dataTransfer: data, bubbles: true, cancelable: true }));
}
"""


def patched(change: Callable[[str], str]) -> Callable[[Route], None]:
    """A route's handler that changes the server's file."""

    def handle(route: Route) -> None:
        response = route.fetch()
        route.fulfill(response=response, body=change(response.text()))

    return handle


@contextmanager
def visit(
    browser: Browser, address: str, keeps: bool = False, **routes: Callable[[Route], None]
) -> Iterator[Visitor]:
    """A separate visit, with `routes` by the names of modules."""
    context = browser.new_context(viewport={"width": 360, "height": 780})
    for name, handle in routes.items():
        context.route(f"**/{name}.mjs*", handle)
    yield Visitor(context, address, keeps)
    leave(context)


def leave(context: BrowserContext) -> None:
    """Close a visit whose page may still fetch through routes."""
    context.unroute_all(behavior="ignoreErrors")
    context.close()


def picture(user: User, repository: Path, name: str) -> None:
    """Saved in build/screenshots; asserts that nothing is wider than the window."""
    folder = repository / "build/screenshots"
    folder.mkdir(parents=True, exist_ok=True)
    user.page.screenshot(path=folder / f"{name}.png")
    assert user.page.evaluate("document.documentElement.scrollWidth") <= 360


SCREENS = (("desktop", 1280, 900, "light"), ("phone", 360, 780, "dark"))
SMALL_BUTTONS = """() => [...document.querySelectorAll("button, .button")]
  .filter((e) => e.checkVisibility() && e.getBoundingClientRect().height < 44)
  .map((e) => e.id || e.textContent)"""


def pictures(user: User, repository: Path, prefix: str = "") -> None:
    """A whole page of each screen in build/screenshots, to be looked at.

    Asserts that nothing is wider than the window, and no button too small for a finger.
    """
    folder = repository / "build/screenshots"
    folder.mkdir(parents=True, exist_ok=True)
    before = user.page.viewport_size
    assert before
    for name, width, height, scheme in SCREENS:
        user.page.set_viewport_size({"width": width, "height": height})
        user.page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
        user.page.screenshot(path=folder / f"{prefix}{name}.png", full_page=True)
        assert user.page.evaluate("document.documentElement.scrollWidth") <= width
        assert user.page.evaluate(SMALL_BUTTONS) == []
    user.page.set_viewport_size(before)
    user.page.emulate_media(color_scheme="light")
