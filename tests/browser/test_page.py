"""The page as a person uses it: type, run, stop, change the model, and what goes wrong."""

from __future__ import annotations

import http.server
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect
from tests.browser.conftest import serving
from tests.http_server import Server as ModelServer
from tests.http_server import answering, huge, in_pieces, never, status, whole

import halfbyte
from halfbyte.web.server import Server
from halfbyte.web.site import STORYTELLER, Site, make_site

READY = 60_000  # milliseconds
PROMPT = "One morning, Tom"


@pytest.fixture(scope="session")
def site(wheel: Path) -> Site:  # which builds the kernels too
    return make_site()


@pytest.fixture(scope="session")
def page_server(site: Site) -> Iterator[Server]:
    with serving(site) as made:
        yield made


@pytest.fixture(scope="session")
def golden(site: Site) -> str:
    """What the native library continues the prompt with."""
    content = site.files[f"models/{STORYTELLER}"]
    assert isinstance(content, bytes)
    with halfbyte.load_bytes(content) as model:
        return model.generate(PROMPT, max_tokens=100, temperature=0)


class User:
    """Somebody at the page."""

    def __init__(self, context: BrowserContext, address: str) -> None:
        self.page: Page = context.new_page()
        self.requests: list[str] = []
        self.failures: list[str] = []
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.on("pageerror", lambda error: self.failures.append(str(error)))
        self.page.goto(address)

    def get(self, name: str) -> str:
        return self.page.locator(f"#{name}").inner_text()

    def ready(self) -> None:
        """Until a model is there."""
        expect(self.page.locator("#run")).to_be_enabled(timeout=READY)
        expect(self.page.locator("#wait")).to_be_hidden(timeout=READY)

    def settle(self) -> None:
        """Until the model is loaded, or the page says why not."""
        expect(self.page.locator("#wait")).to_be_hidden(timeout=READY)

    def write(self, prompt: str, length: int = 100, temperature: str = "0") -> None:
        self.page.fill("#prompt", prompt)
        self.page.fill("#length", str(length))
        self.page.locator("#temperature").fill(temperature)

    def run(self) -> str:
        """Run, and wait for the end."""
        self.page.click("#run")
        return self.end()

    def end(self) -> str:
        expect(self.page.locator("#story")).to_have_attribute("aria-busy", "false", timeout=READY)
        return self.page.locator("#written").text_content() or ""

    def give_address(self, url: str) -> None:
        self.page.fill("#url", url)
        self.page.click("#load")
        self.settle()


@pytest.fixture(scope="module")
def user(browser: Browser, page_server: Server) -> Iterator[User]:
    """One visit that many tests share: whatever went wrong, the page goes on."""
    context = browser.new_context()
    made = User(context, page_server.address)
    made.ready()
    yield made
    assert made.failures == []
    context.close()


@pytest.fixture
def elsewhere(models: Path) -> Iterator[ModelServer]:
    """A model on another origin."""
    with answering() as made:
        made.body = (models / "Q8_0.gguf").read_bytes()
        yield made


def works(user: User) -> None:
    """A text comes, and no problem is shown."""
    user.write(PROMPT, 20)
    assert len(user.run()) > 20
    expect(user.page.locator("#problem")).to_be_hidden()


def test_a_story(user: User, golden: str) -> None:
    assert user.get("model-name") == STORYTELLER
    assert user.get("machine") == "WebAssembly, relaxed SIMD, 1 thread"
    user.write(PROMPT)
    assert user.run() == golden
    assert user.page.locator("#begun").text_content() == PROMPT
    for name in ("decode-speed", "prompt-speed", "first-token"):
        assert float(user.get(name)) > 0
    rows = user.page.locator("#memory tr").all_inner_texts()
    assert {row.split("\t")[0] for row in rows} >= {"weights", "KV cache", "interpreter", "in all"}


def test_nothing_leaves_the_origin(user: User, page_server: Server) -> None:
    assert len(user.requests) > 5
    assert [url for url in user.requests if not url.startswith(page_server.address)] == []


def test_keyboard(user: User, golden: str) -> None:
    """Tab reaches everything in order; Ctrl+Enter runs."""
    user.write(PROMPT)
    user.page.focus("#prompt")
    user.page.keyboard.press("Control+Enter")
    assert user.end() == golden
    seen = []
    user.page.focus("#prompt")
    for _ in range(7):
        user.page.keyboard.press("Tab")
        seen.append(user.page.evaluate("document.activeElement.id"))
    assert seen == ["temperature", "length", "seed", "run", "file", "url", "load"]


def test_a_file_is_chosen(user: User, models: Path) -> None:
    user.page.set_input_files("#file", models / "F32.gguf")
    expect(user.page.locator("#model-name")).to_have_text("F32.gguf", timeout=READY)
    user.settle()
    with halfbyte.load(models / "F32.gguf") as model:
        expected = model.generate(PROMPT, max_tokens=60, temperature=0)
    user.write(PROMPT, 60)
    assert user.run() == expected


DROP = """
([name, bytes]) => {
  const data = new DataTransfer();
  data.items.add(new File([new Uint8Array(bytes)], name));
  document.getElementById("drop").dispatchEvent(
    new DragEvent("drop", { dataTransfer: data, bubbles: true, cancelable: true }));
}
"""


def test_a_file_is_dropped(user: User, models: Path) -> None:
    content = list((models / "Q4_0.gguf").read_bytes())
    user.page.evaluate(DROP, ["dropped.gguf", content])
    expect(user.page.locator("#model-name")).to_have_text("dropped.gguf", timeout=READY)
    user.settle()
    works(user)


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


def test_an_address(user: User, elsewhere: ModelServer) -> None:
    user.give_address(elsewhere.url)
    assert user.get("model-name") == "model.gguf"
    works(user)


def test_an_address_that_cannot_be_reached_any_more(
    browser: Browser, page_server: Server, elsewhere: ModelServer
) -> None:
    """The second visit takes the model out of the browser's storage, and Python starts warm."""
    context = browser.new_context()
    first = User(context, page_server.address)
    first.ready()
    first.give_address(elsewhere.url)
    first.write(PROMPT, 30)
    text = first.run()
    expect(first.page.locator("html")).to_have_attribute("data-start", "kept", timeout=READY)
    first.page.close()
    elsewhere.answer, requests = status(500), len(elsewhere.starts)
    second = User(context, page_server.address)
    second.ready()
    expect(second.page.locator("html")).to_have_attribute("data-restored", "true")
    second.give_address(elsewhere.url)
    assert second.get("model-name") == "model.gguf"
    second.write(PROMPT, 30)
    assert second.run() == text
    assert len(elsewhere.starts) == requests
    context.close()


BAD_ADDRESSES = {
    "404": (status(404), "model.gguf: the server answered 404"),
    "never there": (never, "model.gguf: broke off at byte 0 of"),
    "too large": (huge, "5369 MB do not fit: expected at most 3651 MB of the 4295 MB"),
}


@pytest.mark.parametrize("name", BAD_ADDRESSES)
def test_a_bad_address(user: User, elsewhere: ModelServer, name: str) -> None:
    elsewhere.answer, expected = BAD_ADDRESSES[name]
    user.give_address(elsewhere.url)
    expect(user.page.locator("#problem")).to_contain_text(expected)
    works(user)


def test_a_network_lost_half_way(user: User, elsewhere: ModelServer) -> None:
    """Taken up where it stopped; and where it stays lost, it is said at which byte."""

    def once(handler: object, start: int) -> None:
        (in_pieces if not start else whole)(handler, start)  # type: ignore[arg-type]

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


def test_what_arrives_is_no_model(user: User, elsewhere: ModelServer) -> None:
    elsewhere.body = b"<html>Log in first</html>"
    user.give_address(elsewhere.url)
    expect(user.page.locator("#problem")).to_contain_text("not a model file that halfbyte reads")
    works(user)


def test_a_full_storage(browser: Browser, page_server: Server, elsewhere: ModelServer) -> None:
    """The model runs; the page says that it was not kept, and nothing half is left."""
    context = browser.new_context()
    user = User(context, page_server.address)
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


def test_stop_and_a_second_click(
    browser: Browser, page_server: Server, repository: Path, tmp_path: Path
) -> None:
    """With a model that is slow: 8 million weights on NumPy."""
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
        "A text is being written already. Stop it first (or press Esc)."
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


def test_a_browser_without_simd(browser: Browser, page_server: Server, golden: str) -> None:
    context = browser.new_context()

    def patch(route: object) -> None:
        response = route.fetch()  # type: ignore[attr-defined]
        body = "WebAssembly.validate = () => false;\n" + response.text()
        route.fulfill(response=response, body=body)  # type: ignore[attr-defined]

    context.route("**/worker.mjs", patch)
    user = User(context, page_server.address)
    user.ready()
    assert user.get("machine") == "NumPy, without SIMD, 1 thread"
    assert "This browser runs no WebAssembly SIMD" in user.get("notes")
    user.write(PROMPT, 40)
    assert golden.startswith(user.run())
    context.close()


def test_without_cross_origin_isolation(browser: Browser, site: Site, golden: str) -> None:
    with serving(site, isolated=False) as plain:
        context = browser.new_context(service_workers="block")
        user = User(context, plain.address)
        user.ready()
        assert user.page.evaluate("crossOriginIsolated") is False
        assert "this page is not cross-origin isolated" in user.get("machine")
        user.write(PROMPT)
        assert user.run() == golden
        context.close()


@pytest.fixture(scope="module")
def exported(site: Site, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Static files in a subfolder of a host that sets no headers."""
    root = tmp_path_factory.mktemp("host")
    site.export(root / "some" / "where")
    handler = partial(_Quiet, directory=str(root))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}/some/where/"
        server.shutdown()
        thread.join()


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *arguments: object) -> None:
        """Nothing."""


def test_the_export_on_any_host(browser: Browser, exported: str, golden: str) -> None:
    """A service worker isolates the page at the first visit."""
    context = browser.new_context()
    user = User(context, exported)
    user.page.wait_for_function("self.crossOriginIsolated", timeout=READY)
    user.ready()
    assert user.get("machine") == "WebAssembly, relaxed SIMD, 1 thread"
    user.write(PROMPT)
    assert user.run() == golden
    assert [url for url in user.requests if not url.startswith(exported)] == []
    context.close()


def test_pyodide_cannot_be_loaded(browser: Browser, site: Site) -> None:
    broken = Site({name: c for name, c in site.files.items() if "asm.wasm" not in name})
    with serving(broken) as server:
        context = browser.new_context()
        user = User(context, server.address)
        expect(user.page.locator("#problem")).to_contain_text(
            "halfbyte could not start: ", timeout=READY
        )
        expect(user.page.locator("#run")).to_be_disabled()
        context.close()


@pytest.mark.parametrize(
    ("name", "width", "height", "scheme"),
    [("desktop", 1280, 900, "light"), ("phone", 360, 780, "dark")],
)
def test_screenshots(
    browser: Browser, page_server: Server, repository: Path,
    name: str, width: int, height: int, scheme: str,
) -> None:  # fmt: skip
    """Kept in build/screenshots to be looked at; nothing is wider than the window."""
    context = browser.new_context(
        viewport={"width": width, "height": height},
        color_scheme=scheme,  # type: ignore[arg-type]
    )
    user = User(context, page_server.address)
    user.ready()
    user.write(PROMPT, 200)
    user.run()
    folder = repository / "build/screenshots"
    folder.mkdir(parents=True, exist_ok=True)
    user.page.screenshot(path=folder / f"{name}.png", full_page=True)
    assert user.page.evaluate("document.documentElement.scrollWidth") <= width
    small = user.page.evaluate("""() => [...document.querySelectorAll("button, .button")]
      .filter((e) => e.getBoundingClientRect().height < 44).map((e) => e.id)""")
    assert small == []
    context.close()
