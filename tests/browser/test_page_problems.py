"""Errors in the page: it shows a message and continues."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect
from tests.browser.visitor import DROP, PROMPT, READY, User, leave, visit, works
from tests.support.http_server import (
    BAD_ANSWERS,
    answering,
    in_pieces,
    in_thread,
    never,
)
from tests.support.http_server import Server as ModelServer
from tests.support.sites import content

from halfbyte.core.backends.library import packaged
from halfbyte.web.server import Server
from halfbyte.web.site import Site

pytestmark = pytest.mark.browser

BROKEN = {
    "text": (b"Once upon a time, there was no model.", "not a model file that halfbyte reads"),
    "truncated": (None, "bytes expected at offset"),
    "empty": (b"", "broken.gguf: is empty (0 bytes)"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_file_is_dropped(user: User, models: Path, name: str) -> None:
    content, expected = BROKEN[name]
    if content is None:
        content = (models / "Q4_0.gguf").read_bytes()[:400_000]
    user.page.evaluate(DROP, ["broken.gguf", list(content)])
    expect(user.page.locator("#problem")).to_contain_text(expected, timeout=READY)
    assert user.get("problem").startswith("broken.gguf: ")
    works(user)


@pytest.mark.parametrize("name", BAD_ANSWERS)
def test_a_bad_address(user: User, elsewhere: ModelServer, name: str) -> None:
    elsewhere.answer, expected = BAD_ANSWERS[name]
    user.give_address(elsewhere.url)
    expect(user.page.locator("#problem")).to_contain_text(expected)
    works(user)


def test_a_lost_network(user: User, elsewhere: ModelServer) -> None:
    """The download is resumed; if the network stays lost, the message names the byte."""
    elsewhere.answer = lambda handler, start: in_pieces(handler, start, 500_000, 0.2)
    user.give_address(elsewhere.url)
    assert user.get("model-name") == "model.gguf"
    assert len(elsewhere.starts) == 3
    works(user)
    with answering() as lost:
        lost.body = elsewhere.body
        lost.answer = lambda handler, start: (
            never(handler, start) if start else in_pieces(handler, start, 500_000, 0.2)
        )
        user.give_address(lost.url)
        expect(user.page.locator("#problem")).to_contain_text("model.gguf: ")
    works(user)


def test_a_download_that_is_not_a_model(user: User, elsewhere: ModelServer) -> None:
    elsewhere.body = b"<html>Log in first</html>"
    user.give_address(elsewhere.url)
    expect(user.page.locator("#problem")).to_contain_text("not a model file that halfbyte reads")
    works(user)


def test_a_full_storage(browser: Browser, page_server: Server, elsewhere: ModelServer) -> None:
    """The model runs; the page says that it was not cached, and nothing incomplete is left."""
    context = browser.new_context()
    user = User(context, page_server.address, keeps=True)
    user.ready()
    expect(user.page.locator("html")).to_have_attribute(
        "data-start", re.compile(".+"), timeout=READY
    )
    origin = page_server.address.rstrip("/")
    session = context.new_cdp_session(user.page)
    session.send("Storage.overrideQuotaForOrigin", {"origin": origin, "quotaSize": 1000})
    user.give_address(elsewhere.url)
    assert user.get("model-name") == "model.gguf"
    expect(user.page.locator("#notes")).to_contain_text(
        "the browser did not keep the model (1.1 MB)"
    )
    session.send("Storage.overrideQuotaForOrigin", {"origin": origin})
    files = user.page.evaluate("""async () => {
      const root = await navigator.storage.getDirectory();
      const folder = await root.getDirectoryHandle("halfbyte-models", { create: true });
      const names = [];
      for await (const name of folder.keys()) names.push(name);
      return names;
    }""")
    assert files == []
    works(user)
    context.close()


BROKEN_STARTS = {"another content": b"Log in first" * 1000, "cut": None}


@pytest.mark.parametrize("name", BROKEN_STARTS)
def test_a_kept_start_that_is_broken(browser: Browser, site: Site, golden: str, name: str) -> None:
    """Python starts without it, and what is kept instead serves the next visit."""
    [snapshot] = [path for path in site.files if "/snapshot-" in path]
    good = content(site, snapshot)
    broken = BROKEN_STARTS[name] or good[: len(good) // 2]
    changed = replace(site, files={**site.files, snapshot: broken})
    with in_thread(Server(changed)) as server, visit(browser, server.address) as user:
        html = user.page.locator("html")
        user.ready()
        expect(html).to_have_attribute("data-restored", "false", timeout=READY)
        user.write(PROMPT)
        assert user.run() == golden
        expect(html).to_have_attribute("data-start", re.compile(".+"), timeout=READY)
        user.page.reload()
        expect(html).to_have_attribute("data-restored", "true", timeout=READY)
        assert user.failures == []


def test_stop_and_a_second_click(
    browser: Browser, page_server: Server, repository: Path, tmp_path: Path
) -> None:
    """With a slow model: 8 million weights on NumPy."""
    slow = tmp_path / "slow.gguf"
    tool = [sys.executable, repository / "tools/make_model.py", "--shape", "small"]
    subprocess.run([*tool, "--type", "Q4_0", "-o", slow], check=True, capture_output=True)
    context = browser.new_context()
    user = User(context, f"{page_server.address}?backend=numpy")
    user.ready()
    assert user.get("machine") == "NumPy, without SIMD, 1 thread"
    user.page.set_input_files("#file", slow)
    expect(user.page.locator("#model-name")).to_have_text("slow.gguf", timeout=READY)
    user.settle()
    user.write(PROMPT, 240)
    user.page.click("#run")
    expect(user.page.locator("#speed")).to_contain_text("tokens/s", timeout=READY)
    user.page.click("#run")
    expect(user.page.locator("#problem")).to_have_text(
        "A text is already being generated. Stop it first (or press Esc)."
    )
    user.page.click("#stop")
    user.end()
    match = re.fullmatch(r"(\d+) tokens, stopped", user.get("speed"))
    assert match
    assert int(match[1]) < 240
    user.page.click("#run")
    expect(user.page.locator("#speed")).to_contain_text("tokens/s", timeout=READY)
    user.page.keyboard.press("Escape")
    user.end()
    assert user.get("speed").endswith("stopped")
    context.close()


RELAXED = packaged("kernels-relaxed.wasm")
LACKING = {  # which modules are valid to a browser; the kernels on the page, and its notes
    "no SIMD": ("false", "NumPy, without SIMD", "This browser does not support WebAssembly SIMD"),
    "no relaxed SIMD": ("bytes.length > 99 && validate(bytes)", "WebAssembly SIMD (128 bits)", ""),
    "working relaxed SIMD": (
        f"bytes.length !== {RELAXED and RELAXED.stat().st_size}",
        "WebAssembly SIMD (128 bits)",
        "",
    ),
}


@pytest.mark.parametrize("lacking", LACKING)
def test_a_browser_that_lacks_simd(
    browser: Browser, page_server: Server, golden: str, lacking: str
) -> None:
    """The page takes the kernels that work."""
    context = browser.new_context()
    valid, machine, note = LACKING[lacking]

    def patch(route: object) -> None:
        response = route.fetch()  # type: ignore[attr-defined]
        kept = "const { validate } = WebAssembly;"
        body = f"{kept} WebAssembly.validate = (bytes) => {valid};\n" + response.text()
        route.fulfill(response=response, body=body)  # type: ignore[attr-defined]

    context.route("**/worker.mjs*", patch)
    user = User(context, page_server.address)
    user.ready()
    assert user.get("machine").startswith(f"{machine}, ")
    assert note in user.get("notes")
    user.write(PROMPT, 40)
    assert golden.startswith(user.run())
    leave(context)


def test_pyodide_cannot_be_loaded(browser: Browser, site: Site) -> None:
    broken = Site({name: c for name, c in site.files.items() if "asm.wasm" not in name})
    with in_thread(Server(broken)) as server:
        context = browser.new_context()
        user = User(context, server.address)
        expect(user.page.locator("#failure")).to_contain_text(
            "halfbyte could not start: pyodide/pyodide.asm.wasm: the server answered 404.",
            timeout=READY,
        )
        expect(user.page.locator("#run")).to_be_disabled()
        context.close()


def test_a_first_visit_that_loses_the_network(browser: Browser, page_server: Server) -> None:
    """A sentence says so; once the network is back, a click starts the page."""
    context = browser.new_context(service_workers="block")
    context.route("**/site.json", lambda route: route.abort())
    user = User(context, page_server.address)
    expect(user.page.locator("#failure-text")).to_have_text(
        "halfbyte could not start: its server does not answer, or this device is offline. "
        "Start again, or reload the page.",
        timeout=READY,
    )
    context.unroute("**/site.json")
    user.page.click("#again")
    user.ready()
    expect(user.page.locator("#failure")).to_be_hidden()
    leave(context)
