"""Conversations in the page, with each kind of tokenizer."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect
from tests.browser.visitor import READY, User, pictures, violations, visit, works
from tests.text.chat.models import MODELS, sentencepiece
from tests.text.chat.templates import HOSTILE

import halfbyte
from halfbyte.web.server import Server

QUESTIONS = ["Tell me of Tom.", "What happened then?"]


# Where it does not matter with which model
COMMON = "qwen-Q4_K_M"
ONE = pytest.mark.parametrize("path", [COMMON], indirect=True)
OTHERS = [pytest.param(n, marks=pytest.mark.browser) for n in MODELS if n != COMMON]


@pytest.fixture(scope="module", params=[COMMON, *OTHERS])
def path(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return MODELS[request.param](tmp_path_factory.mktemp("chat") / f"{request.param}.gguf")


@pytest.fixture(scope="module")
def talker(browser: Browser, page_server: Server, path: Path) -> Iterator[User]:
    """Somebody whose model holds conversations."""
    context = browser.new_context()
    user = User(context, page_server.address)
    user.ready()
    take(user, path)
    yield user
    assert user.failures == []
    context.close()


def take(user: User, path: Path) -> None:
    user.page.set_input_files("#file", path)
    expect(user.page.locator("#model-name")).to_have_text(path.name, timeout=READY)
    user.settle()


def say(user: User, text: str, length: int = 30) -> str:
    """Say something, and wait for the answer."""
    user.unfold()
    user.page.fill("#length", str(length))
    user.page.locator("#temperature").fill("0")
    user.page.fill("#message", text)
    user.page.keyboard.press("Enter")
    return answer(user)


def answer(user: User) -> str:
    last = user.page.locator("#chat-log .assistant").last
    expect(last).to_have_attribute("aria-busy", "false", timeout=READY)
    return last.get_attribute("data-source") or ""


def test_a_conversation(talker: User, path: Path) -> None:
    """Word for word the native library's; asking anew gives the same.

    The temperature is first the one that the file recommends.
    """
    recommended = "0.8" if path.stem == "sentencepiece" else "0.3"
    assert talker.page.input_value("#temperature") == recommended
    assert talker.page.locator("#temperature-shown").text_content() == recommended
    messages: list[dict[str, str]] = []
    expected = []
    with halfbyte.load(path) as model:
        for question in QUESTIONS:
            messages.append({"role": "user", "content": question})
            expected.append(model.chat(messages, temperature=0, max_tokens=30))
            messages.append({"role": "assistant", "content": expected[-1]})
    for _ in range(2):
        assert [say(talker, question) for question in QUESTIONS] == expected
        assert talker.page.locator("#chat-log .user").all_inner_texts() == QUESTIONS
        talker.page.click("#anew")
        assert talker.page.locator("#chat-log p").count() == 0


def test_instructions(talker: User, path: Path) -> None:
    talker.page.click("#anew")
    plain = say(talker, QUESTIONS[0])
    talker.page.fill("#system", "Be long and loud.")
    talker.page.click("#anew")
    result = say(talker, QUESTIONS[0])
    with halfbyte.load(path) as model:
        system = {"role": "system", "content": "Be long and loud."}
        user = {"role": "user", "content": QUESTIONS[0]}
        assert result == model.chat([system, user], temperature=0, max_tokens=30) != plain
    expect(talker.page.locator("#chat-log .system")).to_have_text("Be long and loud.")
    talker.page.fill("#system", "")
    talker.page.click("#anew")


@ONE
def test_keys_that_do_not_send(talker: User, path: Path) -> None:
    """Shift+Enter begins a line; Enter ends a word where an input method composes it."""
    talker.page.click("#anew")
    message = talker.page.locator("#message")
    message.fill("one")
    message.press("Shift+Enter")
    message.dispatch_event("keydown", {"key": "Enter", "isComposing": True})
    assert message.input_value() == "one\n"
    assert talker.page.locator("#chat-log .turn").count() == 0
    message.fill("")


BELOW = """() => document.getElementById("chat-log").getBoundingClientRect().bottom
  - document.getElementById("chat-form").getBoundingClientRect().top"""


@ONE
def test_a_long_answer_is_followed(talker: User, path: Path) -> None:
    """Its end is above the field, in a window too small for it, unless one reads above."""
    page = talker.page
    page.set_viewport_size({"width": 360, "height": 500})
    page.click("#anew")
    for _ in range(3):
        say(talker, QUESTIONS[0], 100)
    assert page.evaluate("scrollY") > 0
    assert -2 < page.evaluate(BELOW) < 2
    page.fill("#message", QUESTIONS[0])
    page.keyboard.press("Enter")
    page.evaluate("scrollTo(0, 0)")
    answer(talker)
    assert page.evaluate("scrollY") == 0
    page.set_viewport_size({"width": 1280, "height": 720})
    page.click("#anew")


def test_a_message_too_long_goes_back_to_where_it_was_written(talker: User) -> None:
    talker.page.click("#anew")
    long = "cat " * 400
    talker.page.fill("#message", long)
    talker.page.click("#send")
    expect(talker.page.locator("#problem")).to_contain_text("the last message", timeout=READY)
    assert talker.page.input_value("#message") == long
    assert talker.page.locator("#chat-log p").count() == 0
    assert say(talker, QUESTIONS[0])
    expect(talker.page.locator("#problem")).to_be_hidden()


@ONE
def test_copy_retry_edit_and_what_is_kept(talker: User, path: Path) -> None:
    """An answer is shown as Markdown, and copied as it was generated."""
    page = talker.page
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.click("#anew")
    answers = [say(talker, question) for question in QUESTIONS]
    expect(page.locator(".assistant.formatted p").first).to_be_visible()
    page.get_by_role("button", name="Copy", exact=True).last.click()
    expect(page.get_by_role("button", name="Copied")).to_be_visible()
    assert page.evaluate("navigator.clipboard.readText()") == answers[-1]
    page.get_by_role("button", name="Retry").first.click()
    assert answer(talker) == answers[0]
    assert page.locator(".user").all_inner_texts() == QUESTIONS[:1]
    page.get_by_role("button", name="Edit").first.click()
    assert page.input_value("#message") == QUESTIONS[0]
    assert page.locator("#chat-log .turn").count() == 0
    title = page.locator("#chat-list .tool").first
    assert title.inner_text() == QUESTIONS[0]
    title.click()
    assert page.locator("#chat-log .assistant").count() == 1
    assert page.locator("#chat-log .assistant").last.get_attribute("data-source") == answers[0]
    kept = page.locator("#chat-list li").count()
    another = page.context.new_page()  # the browser keeps them for later visits
    another.goto(page.url)
    expect(another.locator("#chat-list .tool").first).to_have_text(QUESTIONS[0])
    expect(another.locator("#chat-list li")).to_have_count(kept)
    another.close()
    page.get_by_role("button", name=f"Remove “{QUESTIONS[0]}”").first.click()
    expect(page.locator("#chat-list li")).to_have_count(kept - 1)
    page.click("#anew")
    assert say(talker, QUESTIONS[0]) == answers[0]


@pytest.mark.browser
@ONE
def test_a_network_that_was_lost_for_a_while(
    browser: Browser, page_server: Server, path: Path
) -> None:
    """What the chat needs is asked for again with the next message."""
    with visit(browser, page_server.address) as user:
        user.ready()
        user.page.context.route("**/pyodide/jinja2*", lambda route: route.abort())
        take(user, path)
        user.unfold()
        user.page.fill("#message", QUESTIONS[0])
        user.page.press("#message", "Enter")
        expect(user.page.locator("#problem")).to_contain_text(
            "jinja2: could not be fetched; this device may be offline", timeout=READY
        )
        assert user.page.input_value("#message") == QUESTIONS[0]
        user.page.context.unroute("**/pyodide/jinja2*")
        assert say(user, QUESTIONS[0])
        expect(user.page.locator("#problem")).to_be_hidden()


def test_texts_can_be_continued_too(talker: User) -> None:
    expect(talker.page.locator("#text-settings")).to_be_hidden()  # of no use in a chat
    talker.page.focus("#chat-tab")
    talker.page.keyboard.press("ArrowLeft")
    expect(talker.page.locator("#text-tab")).to_be_focused()
    expect(talker.page.locator("#chat-settings")).to_be_hidden()
    works(talker)
    talker.page.click("#chat-tab")
    expect(talker.page.locator("#chat-log .user")).to_have_text([QUESTIONS[0]])


@pytest.mark.browser
@ONE
@pytest.mark.parametrize("name", ["loops", "a tower as JSON", "a class", "recursion"])
def test_a_hostile_template_is_one_line(talker: User, tmp_path: Path, name: str) -> None:
    source, expected = HOSTILE[name]
    take(talker, sentencepiece(tmp_path / "hostile.gguf", tokenizer__chat_template=source))
    talker.page.fill("#message", "hello")
    talker.page.click("#send")
    expect(talker.page.locator("#problem")).to_contain_text(expected, timeout=READY)
    talker.page.click("#text-tab")
    works(talker)


@pytest.mark.browser
@ONE
def test_screenshots(talker: User, path: Path, repository: Path) -> None:
    """Which are also for those who listen to the page."""
    take(talker, path)
    talker.page.click("#anew")
    for question in QUESTIONS:
        say(talker, question, 40)
    talker.unfold()
    assert violations(talker) == {}
    talker.page.locator("#message").scroll_into_view_if_needed()
    pictures(talker, repository, "chat-")
