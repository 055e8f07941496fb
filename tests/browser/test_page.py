"""The page as a user sees it: type, run, change the model, come back, on any host."""

from __future__ import annotations

import http.server
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect
from tests.browser.conftest import visitor_of
from tests.browser.test_chat import answer, say
from tests.browser.visitor import DROP, MACHINE, PROMPT, READY, User, pictures, works
from tests.formats.folders import write_folder
from tests.support.http_server import Server as ModelServer
from tests.support.http_server import (
    in_thread,
    status,
)
from tests.support.tools import load_tool
from tests.text.chat.test_crumb import ANSWERS, QUESTIONS

import halfbyte
from halfbyte.web.server import Server
from halfbyte.web.site import CHAT_MODEL, STORYTELLER, Site
from halfbyte.web.wheel import file_name

REPOSITORY = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def user(browser: Browser, page_server: Server) -> Iterator[User]:
    """Somebody who comes to the page for the first time."""
    yield from visitor_of(browser, page_server)


def test_a_story(user: User, golden: str) -> None:
    assert user.get("model-name") == STORYTELLER
    assert user.get("machine") == MACHINE
    user.write(PROMPT)
    assert user.run() == golden
    assert user.page.locator("#begun").text_content() == PROMPT
    for name in ("decode-speed", "prompt-speed", "first-token"):
        assert float(user.get(name)) > 0
    curve = user.page.locator("#speed-curve figcaption b").inner_text()
    assert curve == f"{user.get('decode-speed')} tokens/s"
    assert "mostly Q4_0;" in user.get("model-facts")
    rows = user.page.locator("#memory tr").all_inner_texts()
    names = [row.split("\t")[0] for row in rows]
    assert {*names} >= {"weights", "KV cache", "interpreter", "total"}
    assert [name for name in names if name.startswith("weights")] == ["weights"]


def test_a_model_without_a_template_writes_but_does_not_chat(user: User) -> None:
    expect(user.page.locator("#chat-tab")).to_have_attribute("aria-selected", "false")
    expect(user.page.locator("#chat-view")).to_be_hidden()
    expect(user.page.locator("#send")).to_be_disabled()


def test_requests_stay_on_the_origin(user: User, page_server: Server) -> None:
    assert len(user.requests) > 5
    own = (page_server.address, f"blob:{page_server.address}")  # a worker's script
    assert [url for url in user.requests if not url.startswith(own)] == []


def test_the_model_is_fetched_once(user: User) -> None:
    """The fetch begins while Python starts."""
    assert sum("/models/" in url for url in user.requests) == 1


def test_keyboard(user: User, golden: str) -> None:
    """Tab reaches everything in order; Ctrl+Enter runs."""
    user.write(PROMPT)
    user.page.focus("#prompt")
    user.page.keyboard.press("Control+Enter")
    assert user.end() == golden
    seen = []
    user.page.focus("#prompt")
    for _ in range(14):
        user.page.keyboard.press("Tab")
        seen.append(user.page.evaluate("document.activeElement.id"))
    assert [name for name in seen if name] == [
        "run", "settings-summary", "temperature", "length", "seed", "probabilities", "as-python",
        "as-html", "feel", "file", "url", "load",
    ]  # fmt: skip


def test_screenshots(user: User, repository: Path) -> None:
    user.write(PROMPT, 200)
    user.run()
    pictures(user, repository)


def test_a_file_is_chosen(user: User, models: Path) -> None:
    user.page.set_input_files("#file", models / "F32.gguf")
    expect(user.page.locator("#model-name")).to_have_text("F32.gguf", timeout=READY)
    user.settle()
    with halfbyte.load(models / "F32.gguf") as model:
        expected = model.generate(PROMPT, max_tokens=60, temperature=0)
    user.write(PROMPT, 60)
    assert user.run() == expected
    user.page.evaluate("navigator.clipboard.writeText = async (text) => { self.copied = text; }")
    for button in ("as-python", "as-html"):
        user.page.click(f"#{button}")
        assert '("F32.gguf")' in user.page.evaluate("copied")  # to be put beside the code


@pytest.mark.browser
def test_a_file_is_dropped(user: User, models: Path) -> None:
    content = list((models / "Q4_0.gguf").read_bytes())
    user.page.evaluate(DROP, ["dropped.gguf", content])
    expect(user.page.locator("#model-name")).to_have_text("dropped.gguf", timeout=READY)
    user.settle()
    works(user)


def test_a_file_of_a_format_that_is_loaded_on_demand(user: User, tmp_path: Path) -> None:
    """The format's reader is fetched once."""
    make_torchless = load_tool(REPOSITORY, "make_torchless").make_torchless
    folder = write_folder(tmp_path / "folder", model_type="mistral", sliding_window=None)
    make_torchless(folder, tmp_path / "model.bin")
    for _ in range(2):
        user.page.set_input_files("#file", tmp_path / "model.bin")
        expect(user.page.locator("#model-name")).to_have_text("model.bin", timeout=READY)
        user.settle()
    assert sum(url.endswith(f"/pyodide/{file_name()}") for url in user.requests) == 1
    content = list((folder / "model.safetensors").read_bytes())
    user.page.evaluate(DROP, ["model.safetensors", content])
    expect(user.page.locator("#problem")).to_contain_text("holds only tensors", timeout=READY)


def test_an_address(user: User, elsewhere: ModelServer) -> None:
    user.give_address(elsewhere.url)
    assert user.get("model-name") == "model.gguf"
    works(user)


@pytest.mark.browser
def test_an_address_that_is_no_longer_reachable(
    browser: Browser, page_server: Server, elsewhere: ModelServer
) -> None:
    """The second visit uses the model in the browser's storage, and cached bytecode."""
    context = browser.new_context()
    first = User(context, page_server.address, keeps=True)
    first.ready()
    first.give_address(elsewhere.url)
    first.write(PROMPT, 30)
    text = first.run()
    expect(first.page.locator("html")).to_have_attribute("data-start", "kept", timeout=READY)
    first.page.close()
    elsewhere.answer, requests = status(500), len(elsewhere.starts)
    second = User(context, page_server.address, keeps=True)
    second.ready()
    expect(second.page.locator("html")).to_have_attribute("data-restored", "true")
    second.give_address(elsewhere.url)
    assert second.get("model-name") == "model.gguf"
    second.write(PROMPT, 30)
    assert second.run() == text
    assert len(elsewhere.starts) == requests
    context.close()


@pytest.mark.browser
def test_without_cross_origin_isolation(browser: Browser, site: Site, golden: str) -> None:
    with in_thread(Server(site, isolated=False)) as plain:
        context = browser.new_context(service_workers="block")
        user = User(context, plain.address)
        user.ready()
        assert user.page.evaluate("crossOriginIsolated") is False
        assert "1 thread: the page is not cross-origin isolated" in user.get("machine")
        assert "Cross-Origin-Embedder-Policy: require-corp" in user.get("machine")
        user.write(PROMPT)
        assert user.run() == golden
        context.close()


@pytest.fixture(scope="module")
def exported(site: Site, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Static files in a subfolder of a host without extra headers."""
    root = tmp_path_factory.mktemp("host")
    site.export(root / "some" / "where")
    handler = partial(_Quiet, directory=str(root))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    with in_thread(server):
        yield f"http://127.0.0.1:{server.server_address[1]}/some/where/"


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *arguments: object) -> None:
        """Nothing."""


@pytest.mark.browser
def test_the_export_on_any_host(browser: Browser, exported: str, golden: str) -> None:
    """A service worker isolates the page at the first visit."""
    context = browser.new_context()
    user = User(context, exported)
    user.ready()  # after the reload: the page starts nothing before it
    assert user.page.evaluate("crossOriginIsolated") is True
    assert user.get("machine") == MACHINE
    user.write(PROMPT)
    assert user.run() == golden
    own = (exported, "blob:" + exported.removesuffix("some/where/"))
    assert [url for url in user.requests if not url.startswith(own)] == []
    user.page.click("#chat-tab")  # fetches the site's own chat model
    expect(user.page.locator("#model-name")).to_have_text(CHAT_MODEL.name, timeout=READY)
    user.page.locator("#temperature").fill("0")
    expect(user.page.locator("#chat-about")).to_contain_text("a toy of five million weights")
    assert [say(user, question, 200) for question in QUESTIONS] == ANSWERS
    expect(user.page.locator("#chat-start")).to_be_hidden()
    user.page.click("#anew")
    user.page.click("#starters button >> nth=0")  # "Who are you?"
    expect(user.page.locator("#chat-log .user")).to_have_text("Who are you?")
    assert answer(user).startswith("I'm Crumb, a tiny language model")
    context.close()
