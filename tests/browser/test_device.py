"""The page as on another device: speed, heat and memory; and what is told of this machine."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect
from tests.browser.visitor import READY, User, pictures, violations, visit

from halfbyte.web.server import Server

pytestmark = pytest.mark.browser

FAST, SLOW = "galaxy-s25", "raspberry-pi-zero-2-w"
# A machine that is warm, and whose battery is then charged
STUBS = """
globalThis.PressureObserver = class {
  constructor(told) { globalThis.press = (state) => told([{ state: "nominal" }, { state }]); }
  async observe(source) { press(source === "cpu" ? "serious" : "another source"); }
};
const battery = Object.assign(new EventTarget(), { level: 0.424, charging: false });
navigator.getBattery = async () => battery;
globalThis.charge = () => {
  Object.assign(battery, { level: 0.5, charging: true });
  battery.dispatchEvent(new Event("chargingchange"));
};
"""
NEITHER = """
delete globalThis.PressureObserver;
delete Navigator.prototype.getBattery;
"""


@pytest.fixture(scope="module")
def holder(browser: Browser, page_server: Server) -> Iterator[User]:
    """Somebody whose browser tells of this machine, and who may choose a device."""
    context = browser.new_context(viewport={"width": 360, "height": 800})
    context.add_init_script(STUBS)
    user = User(context, page_server.address)
    expect(user.page.locator("#status")).to_contain_text("per second", timeout=READY)
    assert not [url for url in user.requests if "device.mjs" in url or "machine.mjs" in url]
    user.page.click("#settings-summary")
    user.page.click("#feel")
    expect(user.page.locator("#device")).to_be_enabled(timeout=READY)
    yield user
    assert user.failures == []
    context.close()


def choose(user: User, device: str) -> None:
    user.page.select_option("#device", device)
    expect(user.page.locator("#device-facts")).not_to_be_empty(timeout=READY)


def points(user: User, line: str) -> int:
    return len((user.page.locator(line).get_attribute("points") or "").split())


def test_the_real_machine_is_shown(holder: User) -> None:
    """As long as the page is open."""
    real = holder.page.locator("#real")
    expect(real).to_have_text(
        "This machine now: its processor is warm or overloaded; its battery has 42 %."
    )
    holder.page.evaluate("press('nominal'); charge()")
    expect(real).to_have_text(
        "This machine now: its processor has time to spare; its battery has 50 % and is charging."
    )


def test_a_text_at_the_pace_of_a_slow_device(holder: User) -> None:
    """The headline is no faster than the device, whose temperatures are drawn meanwhile."""
    choose(holder, SLOW)
    page = holder.page
    expect(page.locator("#heat-title")).to_have_text("Raspberry Pi Zero 2 W")
    expect(page.locator("#headline-note")).to_have_text("as on the Raspberry Pi Zero 2 W")
    expect(page.locator("#heat-state")).to_contain_text("Cool:")
    speed = float(holder.get("heat-state").split()[1])
    before = points(holder, "#processor-line")
    holder.write("Once upon a time", 100)
    holder.run()
    assert 0 < float(holder.get("decode-speed")) < 1.2 * speed
    assert points(holder, "#processor-line") > before
    assert "°C" in holder.get("processor-c")


def test_a_tab_that_is_slower(browser: Browser, page_server: Server) -> None:
    """NumPy writes slower than the device would."""
    with visit(browser, f"{page_server.address}?backend=numpy") as user:
        user.ready()
        user.page.click("#settings-summary")
        user.page.click("#feel")
        choose(user, FAST)
        user.write("Once upon a time", 100)  # a short text may be late by less than its credit
        user.run()
        expect(user.page.locator("#heat-state")).to_contain_text(
            "This tab is slower than the Samsung Galaxy S25"
        )
        note = user.page.locator("#headline-note")
        expect(note).to_have_text("slower than the Samsung Galaxy S25")


def test_heat(holder: User) -> None:
    """Ten minutes later the device is hot."""
    choose(holder, FAST)
    page = holder.page
    holder.write("Once upon a time", 200)
    holder.run()
    page.click("#later")
    expect(page.locator("#heat-more")).to_contain_text(" · 10:", timeout=READY)
    expect(page.locator("#heat-state")).to_contain_text("Slowed by heat")
    assert float(holder.get("case-c").split()[0]) > 40
    assert points(holder, "#case-line") > 50
    label = page.locator("#heat-chart").get_attribute("aria-label") or ""
    assert f"processor {holder.get('processor-c')}" in label


def test_anyone_can_use_it(holder: User, repository: Path) -> None:
    """On a phone and a desktop, in both schemes; Run stays in the window."""
    holder.page.evaluate("scrollTo(0, 0)")
    box = holder.page.locator("#run").bounding_box()
    assert box
    assert box["y"] + box["height"] <= 800
    pictures(holder, repository, "device-")
    assert violations(holder) == {}


def test_a_model_that_does_not_fit(holder: User, large_model: Path) -> None:
    """It is refused with the numbers, and the model from before stays."""
    choose(holder, SLOW)
    name = holder.get("model-name")
    holder.page.set_input_files("#file", large_model)
    problem = holder.page.locator("#problem")
    expect(problem).to_contain_text("a tab of its browser has 150 MB", timeout=READY)
    expect(problem).to_contain_text("large.gguf")
    expect(problem).to_contain_text("MB do not fit (model's file")
    assert holder.get("model-name") == name
    holder.write("Once", 10)
    assert holder.run()


def test_a_device_that_is_left(holder: User) -> None:
    choose(holder, SLOW)
    holder.page.click("#leave")
    expect(holder.page.locator("#heat")).to_be_hidden()
    expect(holder.page.locator("#headline-note")).to_contain_text("on your device")
    assert holder.page.evaluate("document.activeElement.id") == "device"
    holder.page.evaluate(
        """(name) => {
          document.getElementById("device").value = name;
          document.getElementById("device").dispatchEvent(new Event("change"));
          document.getElementById("leave").click();
        }""",
        FAST,
    )  # before Python has answered
    holder.write("Once", 10)
    assert holder.run()
    expect(holder.page.locator("#heat")).to_be_hidden()
    expect(holder.page.locator("#headline-note")).to_contain_text("on your device")


def test_the_open_model_is_refused(
    browser: Browser, page_server: Server, large_model: Path
) -> None:
    """In a browser that tells nothing of its machine; another device runs it."""
    context = browser.new_context(viewport={"width": 360, "height": 800})
    context.add_init_script(NEITHER)
    user = User(context, page_server.address)
    user.ready()
    user.unfold()
    user.page.set_input_files("#file", large_model)
    expect(user.page.locator("#model-name")).to_have_text("large.gguf", timeout=READY)
    user.page.click("#feel")
    expect(user.page.locator("#device")).to_be_enabled(timeout=READY)
    expect(user.page.locator("#real")).to_have_text(
        "This browser tells nothing of this machine's heat or battery."
    )
    choose(user, SLOW)
    expect(user.page.locator("#heat-state")).to_contain_text("a tab of its browser has 150 MB")
    expect(user.page.locator("#later")).to_be_hidden()
    user.write("Once", 2)
    user.run()
    expect(user.page.locator("#problem")).to_contain_text("a tab of its browser has 150 MB")
    choose(user, FAST)
    expect(user.page.locator("#later")).to_be_visible(timeout=READY)
    user.run()
    expect(user.page.locator("#problem")).to_be_hidden()
    assert user.failures == []
    context.close()
