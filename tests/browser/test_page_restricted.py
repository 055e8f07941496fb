"""The page with few features of the browser available, and with a strict policy."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect
from tests.browser.visitor import (
    INSECURE,
    PROMPT,
    READY,
    User,
    leave,
    patched,
    picture,
    visit,
    works,
)
from tests.support.http_server import Server as ModelServer
from tests.support.http_server import in_thread
from tests.support.sites import beginning

from halfbyte.web.server import Server
from halfbyte.web.site import Site

# What Chromium does where site data are blocked: reading or using these throws.
BLOCKED = """
for (const [holder, name] of [[self, "caches"], [self, "localStorage"], [self, "sessionStorage"],
    [self, "indexedDB"], [navigator, "serviceWorker"], [navigator, "locks"]]) {
  Object.defineProperty(holder, name, {
    configurable: true,
    get() { throw new DOMException(`${name} is denied`, "SecurityError"); },
  });
}
if (navigator.storage) navigator.storage.getDirectory = async () => {
  throw new DOMException("storage is denied", "SecurityError");
};
"""


def fails(user: User, text: str | re.Pattern[str]) -> None:
    """Assert that the page shows this problem and is not busy."""
    expect(user.page.locator("#failure-text")).to_have_text(text, timeout=READY)
    expect(user.page.locator("#failure")).to_be_visible()
    expect(user.page.locator("#wait")).to_be_hidden()
    expect(user.page.locator("#run")).to_be_disabled()


@pytest.mark.browser
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


def without_storage(site: Site) -> Site:
    """The site, with properties replaced as in a browser that blocks site data."""
    modules = [name for name in site.files if name.endswith(".mjs") and "/" not in name]
    return beginning(site, BLOCKED, *modules)


@pytest.mark.browser
def test_site_data_blocked(
    browser: Browser, site: Site, golden: str, elsewhere: ModelServer
) -> None:
    with in_thread(Server(without_storage(site))) as server, visit(browser, server.address) as user:
        user.ready()
        expect(user.page.locator("#lacking")).to_contain_text("keeps no data for this site")
        user.write(PROMPT)
        assert user.run() == golden
        user.give_address(elsewhere.url)
        assert "the browser did not keep the model (1.1 MB)" in user.get("notes")
        works(user)
        expect(user.page.locator("#failure")).to_be_hidden()
        assert user.failures == []


def test_the_policy_forbids_eval_and_other_origins(user: User, page_server: Server) -> None:
    """The page's policy also applies in its worker; the other tests run under it."""
    refused = """(refuse) => new Promise((resolve) => {
      const told = ({ blockedURI }) => resolve(blockedURI);
      self.addEventListener("securitypolicyviolation", told, { once: true });
      refuse();
    })"""
    compiled = refused.replace("refuse()", "setTimeout('self.evaluated = true')")
    pixel = "https://stranger.invalid/pixel.png"
    assert user.failures == []
    assert user.page.evaluate(compiled) == "eval"
    assert user.page.workers[0].evaluate(compiled) == "eval"
    assert user.page.evaluate(refused.replace("refuse()", f"new Image().src = '{pixel}'")) == pixel
    assert len(user.failures) >= 2
    user.failures.clear()


@pytest.mark.browser
@pytest.mark.parametrize("asked", ["    mayCompile();", ""], ids=["first", "by Pyodide"])
def test_a_policy_without_webassembly(
    browser: Browser, site: Site, repository: Path, asked: str
) -> None:
    """WebKit compiles WebAssembly despite the policy, and refuses to run it."""
    module = site.files["start.mjs"]
    assert isinstance(module, Path)
    changed = module.read_text().replace("  mayCompile();", asked, 1).encode()
    files = {**site.files, "start.mjs": changed}
    strict = replace(site, files=files, policies={"": "default-src 'self'"})
    with in_thread(Server(strict)) as server, visit(browser, server.address) as user:
        fails(user, re.compile("its script-src needs 'wasm-unsafe-eval'"))
        picture(user, repository, "policy")


@pytest.mark.browser
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
    """If Python cannot start, the message names the file; nothing waits for ever."""
    files = {**site.files}
    files.pop(name) if content is None else files.update({name: content})
    broken = Server(replace(site, files=files))
    with in_thread(broken) as server, visit(browser, server.address) as user:
        fails(user, re.compile(re.escape(expected)))


@pytest.mark.browser
def test_webassembly_under_another_type(browser: Browser, page_server: Server) -> None:
    """Some hosts send it as application/octet-stream."""
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
    leave(context)


@pytest.mark.browser
def test_missing_scripts(browser: Browser, page_server: Server) -> None:
    context = browser.new_context()
    context.route("**/chat.mjs", lambda route: route.abort())
    context.route("**/style.css", patched(lambda text: text.replace("late 1s 10s", "late 0s")))
    user = User(context, page_server.address)
    expect(user.page.locator("#unstarted")).to_be_visible(timeout=READY)
    leave(context)
    with visit(browser, page_server.address) as user:
        expect(user.page.locator("#unstarted")).to_be_hidden(timeout=READY)


@pytest.mark.browser
def test_a_tab_with_a_missing_module(
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
