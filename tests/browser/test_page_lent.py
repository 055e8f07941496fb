"""The page where a browser lends it little, where its policy is strict, and where Python ends."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Route, expect
from tests.browser.visitor import INSECURE, PROMPT, READY, User, works
from tests.http_server import Server as ModelServer
from tests.http_server import in_thread

from halfbyte.web.server import Server
from halfbyte.web.site import STORYTELLER, Site

# What Chromium does where site data are blocked: reading or using these throws.
BLOCKED = """
for (const [holder, name] of [[self, "caches"], [self, "localStorage"], [self, "sessionStorage"],
    [self, "indexedDB"], [navigator, "serviceWorker"], [navigator, "locks"]]) {
  Object.defineProperty(holder, name, {
    configurable: true,
    get() { throw new DOMException(`${name} is denied`, "SecurityError"); },
  });
}
navigator.storage.getDirectory = async () => {
  throw new DOMException("storage is denied", "SecurityError");
};
"""


def patched(change: Callable[[str], str]) -> Callable[[Route], None]:
    """A route's handler: the server's file, changed."""

    def handle(route: Route) -> None:
        response = route.fetch()
        route.fulfill(response=response, body=change(response.text()))

    return handle


@contextmanager
def visit(browser: Browser, address: str, **routes: Callable[[Route], None]) -> Iterator[User]:
    """A visit of its own; `routes` by the names of modules."""
    context = browser.new_context(viewport={"width": 360, "height": 780})
    for name, handle in routes.items():
        context.route(f"**/{name}.mjs*", handle)
    yield User(context, address)
    context.close()


def picture(user: User, repository: Path, name: str) -> None:
    """Kept in build/screenshots to be looked at; nothing is wider than the window."""
    folder = repository / "build/screenshots"
    folder.mkdir(parents=True, exist_ok=True)
    user.page.screenshot(path=folder / f"{name}.png")
    assert user.page.evaluate("document.documentElement.scrollWidth") <= 360


def fails(user: User, text: str | re.Pattern[str]) -> None:
    """The page says so, and waits for nothing."""
    expect(user.page.locator("#failure-text")).to_have_text(text, timeout=READY)
    expect(user.page.locator("#failure")).to_be_visible()
    expect(user.page.locator("#wait")).to_be_hidden()
    expect(user.page.locator("#run")).to_be_disabled()


def test_an_insecure_origin(
    browser: Browser, site: Site, golden: str, elsewhere: ModelServer, repository: Path
) -> None:
    with in_thread(Server(site, names=[INSECURE])) as server:
        port = server.server_address[1]
        with visit(browser, f"http://{INSECURE}:{port}/") as user:
            user.ready()
            assert user.page.evaluate("[isSecureContext, 'caches' in self]") == [False, False]
            expect(user.page.locator("#lacking")).to_contain_text("came over http from another")
            picture(user, repository, "insecure")
            user.write(PROMPT)
            assert user.run() == golden
            user.give_address(elsewhere.url)
            assert user.get("model-name") == "model.gguf"
            assert "the browser did not keep the model (1.1 MB)" in user.get("notes")
            works(user)
            expect(user.page.locator("#failure")).to_be_hidden()
            assert user.failures == []


def test_site_data_blocked(
    browser: Browser, page_server: Server, golden: str, elsewhere: ModelServer
) -> None:
    """Also without the headers that make the page try a service worker."""
    context = browser.new_context()
    context.route("**/*.mjs*", patched(lambda text: BLOCKED + text))
    user = User(context, page_server.address)
    user.ready()
    expect(user.page.locator("#lacking")).to_contain_text("keeps no data for this site")
    user.write(PROMPT)
    assert user.run() == golden
    user.give_address(elsewhere.url)
    assert "the browser did not keep the model (1.1 MB)" in user.get("notes")
    works(user)
    expect(user.page.locator("#failure")).to_be_hidden()
    assert user.failures == []
    context.close()


def test_the_policy_forbids_eval_and_strangers(user: User, page_server: Server) -> None:
    """The page's policy is in force, in its worker too; the other tests run under it."""
    refused = """(refuse) => new Promise((resolve) => {
      const told = ({ blockedURI }) => resolve(blockedURI);
      self.addEventListener("securitypolicyviolation", told, { once: true });
      refuse();
    })"""
    compiled = refused.replace("refuse()", "setTimeout('self.evaluated = true')")
    pixel = "https://stranger.invalid/pixel.png"
    assert user.page.evaluate(compiled) == "eval"
    assert user.page.workers[0].evaluate(compiled) == "eval"
    assert user.page.evaluate(refused.replace("refuse()", f"new Image().src = '{pixel}'")) == pixel
    assert len(user.failures) >= 2
    user.failures.clear()


@pytest.mark.parametrize("asked", ["    mayCompile();", ""], ids=["first", "by Pyodide"])
def test_a_policy_without_webassembly(
    browser: Browser, site: Site, repository: Path, asked: str
) -> None:
    """WebKit compiles what the policy forbids, and refuses to run it."""
    module = site.files["start.mjs"]
    assert isinstance(module, Path)
    changed = module.read_text().replace("  mayCompile();", asked, 1).encode()
    files = {**site.files, "start.mjs": changed}
    strict = replace(site, files=files, policy="default-src 'self'")
    with in_thread(Server(strict)) as server, visit(browser, server.address) as user:
        fails(user, re.compile("its script-src needs 'wasm-unsafe-eval'"))
        picture(user, repository, "policy")


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("site.json", None, "site.json: the server answered 404"),
        ("pyodide/python_stdlib.zip", None, "pyodide/python_stdlib.zip: the server answered 404"),
        ("pyodide/pyodide.asm.wasm", b"<html>", "WebAssembly"),
        ("start.mjs", None, "The page's worker failed: worker.mjs could not be loaded"),
    ],
)
def test_files_that_are_missing_or_broken(
    browser: Browser, site: Site, name: str, content: bytes | None, expected: str
) -> None:
    """Where Python cannot start, it is said which file is to blame; nothing waits for ever."""
    files = {**site.files}
    files.pop(name) if content is None else files.update({name: content})
    broken = Server(replace(site, files=files))
    with in_thread(broken) as server, visit(browser, server.address) as user:
        fails(user, re.compile(re.escape(expected)))


def test_webassembly_under_another_type(browser: Browser, page_server: Server) -> None:
    """Some hosts call it application/octet-stream."""
    context = browser.new_context()
    context.route(
        "**/pyodide.asm.wasm",
        lambda route: route.fulfill(
            response=(answer := route.fetch()),
            headers={**answer.headers, "content-type": "application/octet-stream"},
        ),
    )
    user = User(context, page_server.address)
    user.ready()
    context.close()


def test_scripts_that_do_not_come(browser: Browser, page_server: Server) -> None:
    context = browser.new_context()
    context.route("**/chat.mjs", lambda route: route.abort())
    context.route("**/style.css", patched(lambda text: text.replace("late 1s 10s", "late 0s")))
    user = User(context, page_server.address)
    expect(user.page.locator("#unstarted")).to_be_visible(timeout=READY)
    context.close()
    with visit(browser, page_server.address) as user:
        expect(user.page.locator("#unstarted")).to_be_hidden(timeout=READY)


def test_a_tab_whose_module_does_not_come(
    browser: Browser, page_server: Server, repository: Path
) -> None:
    with visit(browser, page_server.address, search=lambda route: route.abort()) as user:
        user.page.click("#search-tab")
        expect(user.page.locator("#search-problem")).to_contain_text(
            "This tab could not be loaded. Reload the page to try again.", timeout=READY
        )
        picture(user, repository, "tab")
        user.page.click("#language-tab")
        user.ready()
        works(user)


# A promise of the first of a text, which may be whole before anyone looks a second time.
WATCH = """
() => {
  const written = document.getElementById("written");
  const options = { subtree: true, childList: true, characterData: true };
  globalThis.writes = new Promise((done) => {
    new MutationObserver(() => done()).observe(written, options);
  });
}
"""


def test_a_worker_that_ends_while_it_writes(
    browser: Browser, page_server: Server, models: Path, repository: Path
) -> None:
    """Python is started again, with the model that was there."""
    with visit(browser, f"{page_server.address}?backend=numpy") as user:
        user.ready()
        user.page.set_input_files("#file", models / "F32.gguf")
        expect(user.page.locator("#model-name")).to_have_text("F32.gguf", timeout=READY)
        user.settle()
        user.write(PROMPT, 240)
        user.page.evaluate(WATCH)
        user.page.click("#run")
        user.page.evaluate("writes")
        [worker] = [worker for worker in user.page.workers if "worker.mjs" in worker.url]
        worker.evaluate("self.close()")
        expect(user.page.locator("#failure-text")).to_contain_text(
            "The browser has ended the page's Python, most often because memory ran out. "
            "It has been started again."
        )
        expect(user.page.locator("#story")).to_have_attribute("aria-busy", "false")
        picture(user, repository, "ended")
        expect(user.page.locator("#run")).to_be_enabled(timeout=READY)
        expect(user.page.locator("#model-name")).to_have_text("F32.gguf", timeout=READY)
        user.settle()
        works(user)
        expect(user.page.locator("#failure")).to_be_hidden()
        assert user.failures == []


def test_a_worker_that_ends_unseen(browser: Browser, site: Site, repository: Path) -> None:
    """Without locks its silence is all there is: a person decides."""
    module = site.files["python.mjs"]
    assert isinstance(module, Path)
    quick = module.read_bytes().replace(b"BEAT = 10_000", b"BEAT = 500")
    made = replace(site, files={**site.files, "python.mjs": quick})
    with in_thread(Server(made, names=[INSECURE])) as server:
        address = f"http://{INSECURE}:{server.server_address[1]}/"
        with visit(browser, address) as user:
            user.ready()
            user.page.workers[0].evaluate("self.close()")
            expect(user.page.locator("#failure-text")).to_have_text(
                "Python does not answer. It may be busy, or the browser has ended it.",
                timeout=READY,
            )
            picture(user, repository, "silent")
            user.page.click("#again")
            user.ready()
            works(user)


def test_python_that_fails_for_good(browser: Browser, page_server: Server) -> None:
    """Pyodide runs nothing after what it calls a fatal error."""
    shown = patched(
        lambda text: text.replace('mark("Python");\n  if', "self.broken = pyodide;\n  if")
    )
    with visit(browser, page_server.address, worker=shown) as user:
        user.ready()
        worker = next(w for w in user.page.workers if "worker.mjs" in w.url)
        worker.evaluate("try { broken._api.fatal_error(new Error('out of stack')); } catch {}")
        expect(user.page.locator("#failure-text")).to_contain_text(
            "Python has failed (out of stack). It has been started again.", timeout=READY
        )
        user.ready()
        assert user.get("model-name") == STORYTELLER
        works(user)
