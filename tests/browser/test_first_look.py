"""The page before it is touched, and for everyone: screen readers, keyboards, any window."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, expect
from tests.browser.test_page import REPOSITORY
from tests.browser.visitor import PROMPT, READY, User, violations, visit

from halfbyte.web.server import Server

WIDTHS = (320, 360, 768, 1280, 3840)  # pixels
# Whether the first character stands left of the last one, in "0.63 MB" and the like
ORDERED = """() => ["#memory td:last-child", "#model-facts", "#speed"].map((place) => {
  const text = document.querySelector(place).lastChild;
  const left = (at) => {
    const range = document.createRange();
    range.setStart(text, at);
    range.setEnd(text, at + 1);
    return range.getBoundingClientRect().left;
  };
  return left(0) < left(text.data.search(/[A-Za-z]/));
})"""


@pytest.fixture(scope="module")
def guest(browser: Browser, page_server: Server) -> Iterator[User]:
    """Somebody who has only opened the page."""
    with visit(browser, page_server.address) as user:
        yield user
        assert user.failures == []


def test_a_story_writes_itself(guest: User) -> None:
    """At once, without a click; the speed is the headline, and a screen reader hears it once."""
    expect(guest.page.locator("#status")).to_have_text(
        re.compile(r"\d+ tokens: [\d.]+ tokens per second"), timeout=READY
    )
    assert guest.page.locator("#begun").text_content() == "Once upon a time"
    expect(guest.page.locator("#coming")).to_be_hidden()  # which said what was to come
    assert len(guest.page.locator("#written").text_content() or "") > 100
    assert float(guest.get("decode-speed")) > 0
    assert guest.page.locator("details[open]").count() == 0  # on a phone everything is folded
    box = guest.page.locator("#run").bounding_box()
    assert box
    assert box["y"] + box["height"] <= 780  # Run is in the window


def test_nothing_moves_while_python_starts(guest: User) -> None:
    """Buttons may step aside, and texts stay (as a share of the window, by Chromium)."""
    moved: float = guest.page.evaluate("""() => new Promise((resolve) => {
      new PerformanceObserver((list) => resolve(
        list.getEntries().reduce((sum, { value }) => sum + value, 0),
      )).observe({ type: "layout-shift", buffered: true });
      setTimeout(() => resolve(0), 1000);
    })""")
    assert moved < 0.02


def test_the_speed_has_one_line(guest: User) -> None:
    """However fast a device is, on the narrowest window."""
    size = guest.page.viewport_size
    guest.page.set_viewport_size({"width": WIDTHS[0], "height": 780})
    before = guest.get("decode-speed")
    lines = """(text) => {
      const speed = document.getElementById("decode-speed");
      speed.textContent = text;
      return speed.getBoundingClientRect().height / parseFloat(getComputedStyle(speed).lineHeight);
    }"""
    for text in ("39.8", "3118", "12345"):
        assert guest.page.evaluate(lines, text) == pytest.approx(1, abs=0.1), text
    guest.page.evaluate(lines, before)
    if size:
        guest.page.set_viewport_size(size)


@pytest.mark.browser
def test_what_is_asked_for_comes_instead(
    browser: Browser, page_server: Server, golden: str
) -> None:
    """While the page's own story is being written."""
    with visit(browser, f"{page_server.address}?backend=numpy") as user:
        expect(user.page.locator("#written")).not_to_be_empty(timeout=READY)
        user.write(PROMPT)
        assert user.run() == golden
        expect(user.page.locator("#problem")).to_be_hidden()


@pytest.mark.browser
def test_who_begins_first_is_told_no_story(browser: Browser, page_server: Server) -> None:
    """Somebody who writes a beginning while Python starts."""
    with visit(browser, page_server.address) as user:
        user.page.fill("#prompt", "One morning")
        expect(user.page.locator("#timing")).to_contain_text("Ready after", timeout=READY)
        expect(user.page.locator("#stop")).to_be_disabled()
        assert user.page.locator("#written").text_content() == ""


def test_the_status_speaks_at_the_end_only(guest: User) -> None:
    guest.page.evaluate("""() => {
      globalThis.spoken = 0;
      const live = document.querySelectorAll("[role=status], [aria-live]");
      const options = { childList: true, characterData: true, subtree: true };
      const watch = new MutationObserver(() => { spoken += 1; });
      for (const element of live) watch.observe(element, options);
    }""")
    guest.write(PROMPT)
    guest.run()
    assert guest.page.evaluate("spoken") == 1


def test_nothing_moves_for_those_who_asked_for_that(guest: User) -> None:
    """Neither the caret while a text is written, nor the search's passages."""
    moves = """() => {
      document.getElementById("story").setAttribute("aria-busy", "true");
      const style = (id) => getComputedStyle(document.getElementById(id));
      return [style("written").animationDuration, style("passages").scrollBehavior];
    }"""
    assert guest.page.evaluate(moves) == ["1s", "smooth"]
    guest.page.emulate_media(reduced_motion="reduce")
    assert guest.page.evaluate(moves) == ["0s", "auto"]
    guest.page.emulate_media(reduced_motion="no-preference")
    guest.page.evaluate("document.getElementById('story').setAttribute('aria-busy', 'false')")


def test_no_window_is_too_small_or_large(guest: User) -> None:
    """From either side; numbers stay before their units."""
    expect(guest.page.locator("#status")).to_contain_text("per second", timeout=READY)
    guest.unfold()
    for tab in ("language", "search", "onnx"):
        guest.page.click(f"#{tab}-tab")
        for direction in ("ltr", "rtl"):
            guest.page.evaluate("d => { document.documentElement.dir = d; }", direction)
            if tab == "language":
                assert all(guest.page.evaluate(ORDERED))
            for width in WIDTHS:
                guest.page.set_viewport_size({"width": width, "height": 700})
                assert guest.page.evaluate("document.documentElement.scrollWidth") <= width
    guest.page.set_viewport_size({"width": 360, "height": 780})
    guest.page.focus("#onnx-tab")
    guest.page.keyboard.press("ArrowRight")  # from right to left, that is back
    assert guest.page.evaluate("document.activeElement.id") == "search-tab"
    for key, name in (("Home", "language"), ("ArrowLeft", "search"), ("End", "onnx")):
        guest.page.keyboard.press(key)
        assert guest.page.evaluate("document.activeElement.id") == f"{name}-tab"
        expect(guest.page.locator(f"#{name}-panel")).to_be_visible()
    guest.page.evaluate("document.documentElement.dir = 'ltr'")
    guest.page.go_back()
    expect(guest.page.locator("#search-tab")).to_have_attribute("aria-selected", "true")
    guest.page.click("#language-tab")


def test_axe_finds_nothing(guest: User) -> None:
    """In any tab, light and dark."""
    for tab in ("search", "onnx", "language"):
        guest.page.click(f"#{tab}-tab")
        assert violations(guest) == {}, tab
    guest.page.screenshot(path=REPOSITORY / "build/screenshots/first.png")


def test_words_without_spaces_stay_in_the_window(guest: User) -> None:
    """Such as names of files, wherever the page may name one."""
    guest.ready()
    for tab in ("language", "search", "onnx"):
        guest.page.click(f"#{tab}-tab")
        guest.page.evaluate("""() => {
          for (const element of document.querySelectorAll("p:not(.headline), [id$=wait-text]")) {
            if (!element.firstElementChild) element.textContent = "x".repeat(300);
          }
          for (const wait of document.querySelectorAll(".wait")) wait.hidden = false;
        }""")
        for width in WIDTHS[:2]:
            guest.page.set_viewport_size({"width": width, "height": 700})
            assert guest.page.evaluate("document.documentElement.scrollWidth") <= width, tab
