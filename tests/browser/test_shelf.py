"""The models that the page opens by an address and keeps: links, Back, cancel, remove."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

import numpy as np
import pytest
from playwright.sync_api import Browser, expect
from playwright.sync_api import Error as PlaywrightError
from tests.browser.visitor import PROMPT, READY, visit, works
from tests.support.http_server import Handler, answering, in_pieces, in_thread
from tests.support.http_server import Server as ModelServer

import halfbyte
from halfbyte.quantize.gguf_writer import write_gguf
from halfbyte.text.opening import open_model
from halfbyte.web.server import Server
from halfbyte.web.site import STORYTELLER, Site

pytestmark = pytest.mark.browser

HUB = "https://huggingface.co"
NAMES = (
    *("README.md", "a-F32.gguf", "a-Q4_0-00002-of-00002.gguf", "a-Q4_0-00001-of-00002.gguf"),
    *("a-MMPROJ-Q4_0.gguf", "a-IQ4_XS.gguf"),
)
FILES = [{"rfilename": name} for name in NAMES]
ADDRESSES = {
    f"{HUB}/org/name/blob/main/a.gguf": f"{HUB}/org/name/resolve/main/a.gguf",
    "org/name:b.gguf": f"{HUB}/org/name/resolve/main/b.gguf",
    "org/name/onnx/b.onnx": f"{HUB}/org/name/resolve/main/onnx/b.onnx",
    "org/name": f"{HUB}/org/name/resolve/main/a-Q4_0-00001-of-00002.gguf",
    "hf.co/org/name": f"{HUB}/org/name/resolve/main/a-Q4_0-00001-of-00002.gguf",
    f"{HUB}/org/name:iq4_xs": f"{HUB}/org/name/resolve/main/a-IQ4_XS.gguf",
    "org/name:F32": f"{HUB}/org/name/resolve/main/a-F32.gguf",
    f"{HUB}/org/name/tree/main": f"{HUB}/org/name/resolve/main/a-Q4_0-00001-of-00002.gguf",
    f"{HUB}/org/name/?library=gguf": f"{HUB}/org/name/resolve/main/a-Q4_0-00001-of-00002.gguf",
    "hf.co/org/name/blob/main/b.gguf": f"{HUB}/org/name/resolve/main/b.gguf",
}
TRICKY = 'One "morning", `Tom` ${had} a \\new </script>'  # what code has to escape
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
        over.clear()
        user.give_address(other.url)
        page.fill("#url", elsewhere.url.replace("model.gguf", "another.gguf"))
        page.click("#load")
        expect(page.locator("#cancel")).to_be_visible()
        page.go_back()  # instead of the model that is being loaded
        user.settle()
        over.set()
        expect(page.locator("#model-facts")).to_contain_text("mostly Q4_0")
        assert other.url in unquote(page.url)
        works(user)
        listing = json.dumps({"siblings": FILES})
        page.route(f"{HUB}/api/models/org/name", lambda route: route.fulfill(body=listing))
        for text, address in ADDRESSES.items():
            assert page.evaluate(ADDRESS, text) == address
        missing = "org/name: no GGUF file of type Q4_K; there is a-F32.gguf, a-IQ4_XS.gguf, a-Q4_0"
        with pytest.raises(PlaywrightError, match=missing):
            page.evaluate(ADDRESS, "org/name:Q4_K")
        page.route(f"{HUB}/api/models/org/gone", lambda route: route.abort())
        with pytest.raises(PlaywrightError, match="org/gone: the hub does not answer, or this"):
            page.evaluate(ADDRESS, "org/gone")
        assert user.failures == []


STEP = 1 << 26  # bytes of a transfer that are kept at once
# Whether a step of a transfer has been kept
PARTIAL = """async () => {
  const root = await navigator.storage.getDirectory();
  const folder = await root.getDirectoryHandle("halfbyte-models", { create: true });
  for await (const name of folder.keys()) if (name.endsWith(".partial")) return true;
  return false;
}"""


def test_a_reload_during_a_download(
    browser: Browser, page_server: Server, elsewhere: ModelServer, large_model: Path
) -> None:
    """It goes on where it stopped: after what is kept in steps, which the shelf shows."""
    elsewhere.body = large_model.read_bytes()
    over = threading.Event()

    def part(handler: Handler, start: int) -> None:
        in_pieces(handler, start, STEP + (1 << 20))
        over.wait(60)

    elsewhere.answer = part
    with visit(browser, page_server.address) as user:
        page = user.page
        user.ready()
        user.unfold()
        page.fill("#url", elsewhere.url)
        page.click("#load")
        for _ in range(READY // 100):
            if page.evaluate(PARTIAL):
                break
            page.wait_for_timeout(100)
        page.click("#cancel")
        size = f"67.1 MB of {len(elsewhere.body) / 1e6:.1f} MB"
        expect(page.locator("#shelf .tool").first).to_have_text(f"model.gguf {size}")
        elsewhere.answer = lambda handler, start: in_pieces(handler, start, len(elsewhere.body))
        page.reload()  # whose address opens the model
        expect(page.locator("#model-name")).to_have_text("model.gguf", timeout=READY)
        assert elsewhere.starts == [0, STEP]
        expect(page.locator("#shelf .tool")).to_have_text(
            [f"model.gguf {len(elsewhere.body) / 1e6:.1f} MB", "✕"], timeout=READY
        )  # when its story is told, at the latest
        assert user.failures == []
        over.set()


def halves(model: Path, folder: Path) -> list[bytes]:
    """A model in two files."""
    file = open_model(model)
    tensors, written = list(file.tensors.values()), []
    for number, part in enumerate((tensors[:9], tensors[9:])):
        split = {"split.no": np.uint16(number), "split.count": np.uint16(2)}
        total = {"split.tensors.count": np.int32(len(tensors))}
        write_gguf(folder / "part.gguf", {**file.metadata, **split, **total}, part)
        written.append((folder / "part.gguf").read_bytes())
    return written


def test_several_files_and_a_newer_version(
    browser: Browser, site_of_any_page: Server, models: Path, tmp_path: Path
) -> None:
    """By a link with the address of the page on which a hub shows the first file."""
    files, folder = site_of_any_page.site.files, "org/name/resolve/main"
    first, second = halves(models / "Q8_0.gguf", tmp_path)
    files[f"{folder}/m-00001-of-00002.gguf"] = first
    files[f"{folder}/m-00002-of-00002.gguf"] = second
    shown = f"{site_of_any_page.address}org/name/blob/main/m-00001-of-00002.gguf"
    with visit(browser, f"{site_of_any_page.address}?model={shown}") as user:
        page = user.page
        expect(page.locator("#status")).to_contain_text("tokens", timeout=READY)
        user.unfold()
        assert "mostly Q8_0" in user.get("model-facts")
        expect(page.locator("#shelf li")).to_have_count(2)
        user.write(PROMPT, 20)
        with halfbyte.load(models / "Q8_0.gguf") as model:
            assert user.run() == model.generate(PROMPT, max_tokens=20, temperature=0)
        methods: list[str] = []
        page.on("request", lambda request: methods.append(request.method))
        user.give_address(shown)
        assert methods == ["HEAD", "HEAD"]  # neither has changed
        first, second = halves(models / "Q4_0.gguf", tmp_path)
        files[f"{folder}/m-00001-of-00002.gguf"] = first
        files[f"{folder}/m-00002-of-00002.gguf"] = second
        user.give_address(shown)
        expect(page.locator("#model-facts")).to_contain_text("mostly Q4_0", timeout=READY)
        expect(page.locator("#shelf li")).to_have_count(2)
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
        token = page.locator(".token").nth(3)
        token.hover()
        chance = 100 * float(token.evaluate("e => e.style.getPropertyValue('--p')"))
        about = page.locator("#token").inner_text()
        assert about.startswith(f"“{token.text_content()}” {chance:.0f} %; likeliest: “")
        assert f"“{token.text_content()}” {chance:.0f} %" in about.partition("likeliest: ")[2]
        user.write(PROMPT, 500, "2")  # points are 50 ms apart, and what rambles is long
        user.run()
        for name in ("speed", "memory"):
            line = page.locator(f"#{name}-curve polyline")
            assert (line.get_attribute("points") or "").count(",") > 2
        user.write(TRICKY, 60)
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
        with halfbyte.load_bytes(model) as here:
            assert text == here.generate(TRICKY, max_tokens=60, temperature=0)
        site_of_any_page.site.files["mine.html"] = copied[1].encode()
        page.goto(f"{site_of_any_page.address}mine.html")
        expect(page.locator("#story")).to_have_text(text.strip(), timeout=READY)
