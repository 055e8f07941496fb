"""The page where several things happen at once, or something is lacking."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

import pytest
from playwright.sync_api import Browser, Page, expect
from tests.browser.graph_files import with_encoder
from tests.browser.visitor import PROMPT, READY, User, Visitor, visit
from tests.support.http_server import Server as ModelServer
from tests.support.http_server import in_thread
from tests.support.pdf_files import written

from halfbyte.web.server import Handler, Server
from halfbyte.web.site import CHAT_MODEL, STORYTELLER, Site

pytestmark = pytest.mark.browser

QUESTION = "Who are you?"


@pytest.fixture
def guest(browser: Browser, page_server: Server) -> Iterator[Visitor]:
    """Somebody with a slow page, whose texts take their time."""
    with visit(browser, f"{page_server.address}?backend=numpy") as user:
        yield user
        assert user.failures == []
        expect(user.page.locator("#failure")).to_be_hidden()


def ask(page: Page, text: str = QUESTION) -> None:
    page.fill("#message", text)
    page.press("#message", "Enter")


def answered(page: Page, count: int = 1) -> None:
    done = page.locator("#chat-log .assistant:not([aria-busy=true])")
    expect(done).to_have_count(count, timeout=READY)


def talk(user: User) -> None:
    """Open the page's chat."""
    user.page.click("#chat-tab", timeout=READY)
    expect(user.page.locator("#model-name")).to_have_text(CHAT_MODEL.name, timeout=READY)
    user.settle()


def test_a_model_that_is_opened_while_a_text_is_written(guest: Visitor, models: Path) -> None:
    """The text is stopped first and stays; Back goes to the tab before, not to another model."""
    page = guest.page
    guest.ready()
    guest.write(PROMPT, 240)
    page.click("#run")
    expect(page.locator("#speed")).to_contain_text("tokens/s", timeout=READY)
    talk(guest)
    expect(page.locator("#problem")).to_be_hidden()
    assert re.fullmatch(r"\d+ tokens, stopped", page.locator("#speed").text_content() or "")
    ask(page)
    answered(page)
    page.click("#search-tab")
    page.go_back()
    expect(page.locator("#chat-view")).to_be_visible()
    ask(page)
    answered(page, 2)
    assert guest.get("model-name") == CHAT_MODEL.name


def test_back_while_an_answer_is_given(guest: Visitor, elsewhere: ModelServer) -> None:
    """It is stopped and kept, and the model before comes."""
    page = guest.page
    guest.ready()
    elsewhere.body = CHAT_MODEL.read_bytes()
    guest.give_address(elsewhere.url)
    expect(page.locator("#chat-view")).to_be_visible(timeout=READY)
    page.fill("#length", "2000")
    ask(page, "Tell me a story about a fox.")
    expect(page.locator("#chat-speed")).to_contain_text("tokens/s", timeout=READY)
    page.go_back()
    expect(page.locator("#model-name")).to_have_text(STORYTELLER, timeout=READY)
    guest.settle()
    expect(page.locator("#problem")).to_be_hidden()
    expect(page.locator("#chat-list li")).to_have_count(1)
    guest.write(PROMPT, 20)
    assert len(guest.run()) > 20


def test_conversations_are_taken_up_again(browser: Browser, page_server: Server) -> None:
    """From a page that writes, with the model for it; two tabs do not disturb each other."""
    with visit(browser, page_server.address) as user:
        page = user.page
        talk(user)
        ask(page)
        answered(page)
        answer = page.locator("#chat-log .assistant").get_attribute("data-source")
        other = User(page.context, page_server.address)
        talk(other)
        ask(other.page, "Ask me a riddle.")
        answered(other.page)
        titles = ["Ask me a riddle.", QUESTION]
        expect(page.locator("#chat-list .tool:first-child")).to_have_text(titles)
        ask(page, "Why?")
        answered(page, 2)
        titles.reverse()
        for one in (page, other.page):
            expect(one.locator("#chat-list .tool:first-child")).to_have_text(titles)
        other.page.close()
        page.reload()
        user.unfold()
        page.get_by_role("button", name=QUESTION, exact=True).first.click()
        expect(page.locator("#model-name")).to_have_text(CHAT_MODEL.name, timeout=READY)
        expect(page.locator("#chat-log .assistant")).to_have_count(2)
        first = page.locator("#chat-log .assistant").first
        assert first.get_attribute("data-source") == answer
        user.settle()
        page.get_by_role("button", name="Retry").last.click()
        expect(page.locator("#chat-log")).to_be_focused()
        answered(page, 2)
        remove = page.get_by_role("button", name="Remove “")
        remove.first.focus()
        for _ in titles:
            page.keyboard.press("Enter")
        expect(page.locator("#chats")).to_be_hidden()
        assert page.evaluate("JSON.parse(localStorage.getItem('halfbyte-chats'))") == []
        assert user.failures == []


def test_conversations_that_no_longer_fit(browser: Browser, page_server: Server) -> None:
    """The oldest go."""
    with visit(browser, page_server.address) as user:
        page = user.page
        page.evaluate("""() => {
          const long = "x".repeat(1_700_000);
          const messages = [{ role: "user", content: long }];
          const chat = (id) => ({ id, title: `${id}`, messages });
          localStorage.setItem("halfbyte-chats", JSON.stringify([chat(3), chat(2), chat(1)]));
          localStorage.setItem("other", "x".repeat(5_242_880 - 5_100_000 - 400));
        }""")
        talk(user)
        ask(page)
        answered(page)
        kept = page.evaluate("JSON.parse(localStorage.getItem('halfbyte-chats'))")
        assert [one["title"] for one in kept] == [QUESTION, "3", "2"]
        expect(page.locator("#chat-list li")).to_have_count(4)  # until the page is left
        assert user.failures == []


def test_an_address_with_percent_signs(
    browser: Browser, page_server: Server, elsewhere: ModelServer
) -> None:
    """The page's address becomes that of the file, without another step for Back."""
    address = elsewhere.url.replace("model.gguf", "blob/100%25.gguf")
    with visit(browser, f"{page_server.address}?model={address}") as user:
        page = user.page
        length = page.evaluate("history.length")
        expect(page.locator("#status")).to_contain_text("tokens", timeout=READY)
        user.unfold()
        expect(page.locator("#shelf .tool").first).to_have_text("100%.gguf 1.1 MB", timeout=READY)
        assert page.evaluate("history.length") == length
        assert "/resolve/" in unquote(page.url)
        assert user.failures == []


def test_back_to_a_name_without_its_hub(
    browser: Browser, page_server: Server, elsewhere: ModelServer
) -> None:
    with visit(browser, page_server.address) as user:
        page = user.page
        user.ready()
        page.evaluate("history.replaceState(null, '', '?model=org/gone')")
        page.route("https://huggingface.co/**", lambda route: route.abort())
        user.give_address(elsewhere.url)
        page.go_back()
        expect(page.locator("#problem")).to_contain_text("org/gone: the hub does not answer")
        expect(page.locator("#failure")).to_be_hidden()
        assert user.failures == []


class Late(Handler):
    """Sends no encoder before it may."""

    over = threading.Event()

    def do_GET(self) -> None:
        if self.path.endswith(".onnx"):
            self.over.wait(READY / 1000)
        super().do_GET()


def test_a_search_before_its_encoder(browser: Browser, site: Site, files: Path) -> None:
    """A text is taken meanwhile; the encoder can be stopped, and asked for again."""
    encoder = {"model": files / "small.onnx", "tokenizer": files / "tokenizer.json"}
    late = Server(with_encoder(site, encoder))
    late.RequestHandlerClass = Late
    with in_thread(late), visit(browser, late.address) as user:
        page = user.page
        user.ready()
        page.click("#search-tab")
        expect(page.locator("#search-stop")).to_be_visible(timeout=READY)
        text = {"name": "a.csv", "mimeType": "text/csv", "buffer": "Käse\nBrot".encode("latin-1")}
        page.set_input_files("#search-file", text)  # type: ignore[arg-type]
        expect(page.locator("#document")).to_have_value("Käse\nBrot")
        page.fill("#document", "A first one. The second one.")
        wide = {**text, "buffer": "Öl, 油".encode("utf-16")}
        page.set_input_files("#search-file", wide)  # type: ignore[arg-type]
        expect(page.locator("#document")).to_have_value("Öl, 油")
        page.fill("#document", "A first one. The second one.")
        page.click("#search-stop")
        Late.over.set()
        page.fill("#question", "The second one.")
        page.click("#search-run", timeout=READY)
        expect(page.locator("#hits .text").first).to_have_text("The second one.", timeout=READY)
        scan = {"name": "a.pdf", "mimeType": "application/pdf", "buffer": written("")}
        page.set_input_files("#search-file", scan)  # type: ignore[arg-type]
        assert user.problem("search").startswith("a.pdf: has no text")
        assert page.input_value("#document") == "A first one. The second one."
        huge = {**text, "buffer": b"x" * 5_000_000}
        page.set_input_files("#search-file", huge)  # type: ignore[arg-type]
        expect(page.locator("#search-problem")).to_have_text(
            "a.csv: 5.0 MB: expected at most 4.0 MB"
        )
        assert user.failures == []
