"""The models that the page opens by an address and keeps: links, Back, cancel, remove."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect
from tests.browser.visitor import PROMPT, READY, visit, works
from tests.support.http_server import Server as ModelServer
from tests.support.http_server import answering, in_thread

import halfbyte
from halfbyte.web.server import Server
from halfbyte.web.site import STORYTELLER, Site

HUB = "https://huggingface.co"
FILES = [{"rfilename": name} for name in ("README.md", "a-F32.gguf", "a-Q4_0.gguf")]
ADDRESSES = {
    f"{HUB}/org/name/blob/main/a.gguf": f"{HUB}/org/name/resolve/main/a.gguf",
    "org/name:b.gguf": f"{HUB}/org/name/resolve/main/b.gguf",
    "org/name": f"{HUB}/org/name/resolve/main/a-Q4_0.gguf",
}
ADDRESS = "text => import('./models.mjs').then(({ addressOf }) => addressOf(text))"


def test_the_shelf(
    browser: Browser, page_server: Server, elsewhere: ModelServer, models: Path
) -> None:
    with (
        visit(browser, f"{page_server.address}?model={elsewhere.url}") as user,
        answering() as other,
    ):
        page = user.page
        expect(page.locator("#status")).to_contain_text("tokens", timeout=READY)
        user.unfold()
        assert user.get("model-name") == "model.gguf"  # which told the first story
        expect(page.locator("#shelf li")).to_have_count(1)
        assert page.locator("#shelf .tool").first.inner_text() == "model.gguf 1.1 MB"
        other.body = (models / "Q4_0.gguf").read_bytes()
        user.give_address(other.url)
        expect(page.locator("#model-facts")).to_contain_text("mostly Q4_0")
        expect(page.locator("#shelf li")).to_have_count(2)
        page.go_back()
        expect(page.locator("#model-facts")).to_contain_text("mostly Q8_0", timeout=READY)
        user.settle()
        page.go_forward()
        expect(page.locator("#model-facts")).to_contain_text("mostly Q4_0", timeout=READY)
        user.settle()
        remove = page.get_by_role("button", name="Remove model.gguf")
        remove.first.click()
        expect(page.locator("#shelf li")).to_have_count(1)
        remove.first.click()
        expect(page.locator("#shelf-box")).to_be_hidden()
        over = threading.Event()
        elsewhere.answer = lambda handler, start: over.wait(60)
        page.fill("#url", elsewhere.url)
        page.click("#load")
        page.click("#cancel")
        user.settle()
        over.set()
        expect(page.locator("#model-facts")).to_contain_text("mostly Q4_0")
        works(user)
        listing = json.dumps({"siblings": FILES})
        page.route(f"{HUB}/api/models/org/name", lambda route: route.fulfill(body=listing))
        for text, address in ADDRESSES.items():
            assert page.evaluate(ADDRESS, text) == address
        assert user.failures == []


@pytest.fixture
def site_of_any_page(site: Site) -> Iterator[Server]:
    """A server to whose site pages with scripts in them may be added."""
    with in_thread(Server(Site({**site.files}))) as server:
        yield server


def test_probabilities_curves_and_code(
    browser: Browser, site_of_any_page: Server, golden: str, tmp_path: Path
) -> None:
    """What is copied does the same elsewhere: in Python, and in a page of its own."""
    with visit(browser, site_of_any_page.address) as user:
        page = user.page
        page.context.grant_permissions(["clipboard-read", "clipboard-write"])
        user.ready()
        user.write(PROMPT)
        page.check("#probabilities")
        assert user.run() == golden
        assert page.locator(".token").count() > 20
        page.locator(".token").nth(3).hover()
        expect(page.locator("#token")).to_contain_text("%; likeliest: “")
        for name in ("speed", "memory"):
            line = page.locator(f"#{name}-curve polyline")
            assert (line.get_attribute("points") or "").count(",") >= 1
        copied = []
        for button in ("as-python", "as-html"):
            page.click(f"#{button}")
            expect(page.locator("#copied")).to_have_text("Copied.")
            copied.append(page.evaluate("navigator.clipboard.readText()"))
        model = site_of_any_page.site.files[f"models/{STORYTELLER}"]
        assert isinstance(model, bytes)
        (tmp_path / STORYTELLER).write_bytes(model)
        said: list[str] = []
        script = copied[0].replace(json.dumps(STORYTELLER), repr(str(tmp_path / STORYTELLER)))
        exec(script, {"print": lambda piece, **_: said.append(piece), "halfbyte": halfbyte})  # noqa: S102
        text = "".join(said)
        assert golden.startswith(text[:100])
        site_of_any_page.site.files["mine.html"] = copied[1].encode()
        page.goto(f"{site_of_any_page.address}mine.html")
        expect(page.locator("#story")).to_have_text(text.strip(), timeout=READY)
