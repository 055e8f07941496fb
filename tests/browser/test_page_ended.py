"""The page after the browser has ended its Python: it reports this, restarts and continues."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Worker, expect
from tests.browser.graph_files import SIDE, with_encoder
from tests.browser.visitor import (
    INSECURE,
    PROMPT,
    READY,
    User,
    Visitor,
    patched,
    picture,
    visit,
    works,
)
from tests.support.http_server import in_thread

from halfbyte.web.server import Server
from halfbyte.web.site import STORYTELLER, Site

pytestmark = pytest.mark.browser

ENDED = (
    "The browser has ended the page's Python, most likely because memory ran out. "
    "It has been restarted."
)


def worker_of(user: User) -> Worker:
    """The worker that runs Python: the newest, as one that has ended may be listed for a while."""
    return [worker for worker in user.page.workers if "worker.mjs" in worker.url][-1]


def end_python(user: User) -> None:
    worker_of(user).evaluate("self.close()")


# Resolves when the text begins; it may be complete before a second look.
WATCH = """
() => {
  const written = document.getElementById("written");
  const options = { subtree: true, childList: true, characterData: true };
  globalThis.writes = new Promise((done) => {
    new MutationObserver(() => done()).observe(written, options);
  });
}
"""


@pytest.fixture(scope="module")
def unlucky(browser: Browser, page_server: Server) -> Iterator[Visitor]:
    """Somebody whose Python ends again and again; the first one is `broken` in its worker."""
    shown = patched(
        lambda text: text.replace('mark("Python");\n  if', "self.broken = pyodide;\n  if")
    )
    address = f"{page_server.address}?backend=numpy"  # which generates slowly
    with visit(browser, address, worker=shown) as user:
        user.ready()
        yield user
        assert user.failures == []


def test_a_fatal_error_of_python(unlucky: Visitor) -> None:
    """Pyodide runs nothing after a fatal error."""
    worker_of(unlucky).evaluate(
        "try { broken._api.fatal_error(new Error('out of stack')); } catch {}"
    )
    expect(unlucky.page.locator("#failure-text")).to_contain_text(
        "Python has failed (out of stack). It has been restarted.", timeout=READY
    )
    unlucky.ready()
    unlucky.unfold()
    assert unlucky.get("model-name") == STORYTELLER
    works(unlucky)


def test_a_worker_that_ends_while_generating(
    unlucky: Visitor, models: Path, repository: Path
) -> None:
    """Python is restarted with the same model."""
    unlucky.page.set_input_files("#file", models / "F32.gguf")
    expect(unlucky.page.locator("#model-name")).to_have_text("F32.gguf", timeout=READY)
    unlucky.settle()
    unlucky.write(PROMPT, 240)
    unlucky.page.evaluate(WATCH)
    unlucky.page.click("#run")
    unlucky.page.evaluate("writes")
    end_python(unlucky)
    expect(unlucky.page.locator("#failure-text")).to_have_text(ENDED)
    expect(unlucky.page.locator("#story")).to_have_attribute("aria-busy", "false")
    picture(unlucky, repository, "ended")
    expect(unlucky.page.locator("#run")).to_be_enabled(timeout=READY)
    expect(unlucky.page.locator("#model-name")).to_have_text("F32.gguf", timeout=READY)
    unlucky.settle()
    works(unlucky)
    expect(unlucky.page.locator("#failure")).to_be_hidden()


def test_a_worker_that_ends_while_searching(
    browser: Browser, site: Site, files: Path, repository: Path
) -> None:
    """An encoder whose files the user chose one by one is loaded again."""
    with (
        in_thread(Server(with_encoder(site, {}))) as server,
        visit(browser, f"{server.address}#search") as user,
    ):
        user.give("search", files / "small.onnx")
        user.give("search", files / "tokenizer.json")
        numbers = "".join(f"Sentence number {i} goes here. " for i in range(4000))
        user.page.fill("#document", numbers)
        user.page.fill("#question", "one")
        user.page.click("#search-run")
        expect(user.page.locator("#search-wait-text")).to_contain_text(" of 4000", timeout=READY)
        end_python(user)
        expect(user.page.locator("#failure-text")).to_have_text(ENDED)
        expect(user.page.locator("#search-run")).to_be_disabled()
        picture(user, repository, "search-ended")
        expect(user.page.locator("#search-run")).to_be_enabled(timeout=READY)
        expect(user.page.locator("#search-wait")).to_be_hidden()
        user.page.fill("#document", "A first one. The second one.")
        assert user.search("The second one.")[0] == "The second one."
        expect(user.page.locator("#failure")).to_be_hidden()
        end_python(user)  # and an idle Python
        expect(user.page.locator("#failure-text")).to_have_text(ENDED)
        expect(user.page.locator("#search-run")).to_be_enabled(timeout=READY)
        assert user.search("A first one.")[0] == "A first one."
        assert user.failures == []


def test_the_site_s_own_encoder(browser: Browser, site: Site, files: Path) -> None:
    encoder = {"model": files / "small.onnx", "tokenizer": files / "tokenizer.json"}
    with (
        in_thread(Server(with_encoder(site, encoder))) as server,
        visit(browser, f"{server.address}#search") as user,
    ):
        for _ in range(2):
            expect(user.page.locator("#search-run")).to_be_enabled(timeout=READY)
            user.page.fill("#document", "A first one. The second one.")
            assert user.search("The second one.")[0] == "The second one."
            expect(user.page.locator("#failure")).to_be_hidden()
            end_python(user)
            expect(user.page.locator("#failure-text")).to_have_text(ENDED)
        assert user.failures == []


def test_the_onnx_model(unlucky: Visitor, files: Path) -> None:
    """With its labels and tokenizer; also if another tab is open when Python ends."""
    unlucky.page.click("#onnx-tab")
    unlucky.give("onnx", files / "colours.onnx")
    unlucky.give("onnx", files / "colours.txt")
    for there in (True, False):
        unlucky.page.locator("#inputs select").first.select_option("values")
        values = " ".join(["0"] * 2 * SIDE**2 + ["0.5"] * SIDE**2)
        unlucky.page.locator("#inputs textarea").fill(values)
        assert unlucky.run_model()[0] == "blue"
        expect(unlucky.page.locator("#failure")).to_be_hidden()
        if not there:
            unlucky.page.click("#language-tab")
        end_python(unlucky)
        expect(unlucky.page.locator("#failure-text")).to_have_text(ENDED)
        if not there:
            unlucky.ready()
            works(unlucky)
            unlucky.page.click("#onnx-tab")
        expect(unlucky.page.locator("#onnx-run")).to_be_enabled(timeout=READY)


def test_a_worker_that_ends_while_opening_a_model(unlucky: Visitor, files: Path) -> None:
    """It is not opened again, since it may end Python again; the previous model is."""
    unlucky.page.click("#onnx-tab")
    unlucky.give("onnx", files / "colours.onnx")
    unlucky.page.locator("#inputs select").first.select_option("ones")
    unlucky.run_model()
    expect(unlucky.page.locator("#failure")).to_be_hidden()
    worker = worker_of(unlucky)
    worker.evaluate("""() => {
      const { slice } = Blob.prototype;
      Blob.prototype.slice = function (...range) {
        self.close();
        return slice.apply(this, range);
      };
    }""")
    unlucky.page.set_input_files("#onnx-file", files / "last.onnx")
    expect(unlucky.page.locator("#failure-text")).to_have_text(ENDED, timeout=READY)
    expect(unlucky.page.locator("#onnx-run")).to_be_enabled(timeout=READY)
    assert "colours.onnx" in unlucky.page.locator("#onnx-side").inner_text()


def test_a_worker_that_ends_without_an_event(
    browser: Browser, site: Site, repository: Path
) -> None:
    """Without locks the page only sees that nothing happens, and asks the user."""
    module = site.files["python.mjs"]
    assert isinstance(module, Path)
    quick = module.read_bytes().replace(b"BEAT = 10_000", b"BEAT = 500")
    output = replace(site, files={**site.files, "python.mjs": quick})
    with in_thread(Server(output, names=[INSECURE])) as server:
        address = f"http://{INSECURE}:{server.server_address[1]}/"
        with visit(browser, address) as user:
            user.ready()
            user.page.workers[0].evaluate("self.close()")
            expect(user.page.locator("#failure-text")).to_have_text(
                "Python does not respond. It may be busy, or the browser may have ended it.",
                timeout=READY,
            )
            picture(user, repository, "silent")
            user.page.click("#again")
            user.ready()
            works(user)
