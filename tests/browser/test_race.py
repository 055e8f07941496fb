"""The race: engines take turns, one that cannot run says why, and the heat is watched.

One visit does it all, with a tiny encoder, turns of one run, a clock that runs ahead, a peer that
is missing and a peer that fails.
"""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect
from tests.browser.graph_files import with_encoder
from tests.browser.test_page import exported
from tests.browser.visitor import READY, User
from tests.support.http_server import in_thread
from tests.support.packages import axe

from halfbyte.web.server import Server
from halfbyte.web.site import Site

pytestmark = pytest.mark.browser

__all__ = ["exported"]

WIDTHS = (320, 360, 768, 1280, 3840)  # pixels
LONG = 3 * READY
WAKE_LOCK = """
globalThis.locks = [];
Object.defineProperty(navigator, "wakeLock", { value: {
  async request(kind) {
    locks.push(kind);
    return { async release() { locks.push("released"); } };
  },
} });
"""


def small_race(site: Site, files: Path) -> Site:
    """Turns of one run each; wllama 3 is missing, and onnxruntime-web's script fails."""
    site = with_encoder(
        site, {"model": files / "small.onnx", "tokenizer": files / "tokenizer.json"}
    )
    changed: dict[str, Path | bytes] = dict(site.files)
    for name, old, new in (
        ("race/contest.mjs", "TURN = 0.6", "TURN = 0.0005"),
        ("race/lanes.mjs", "SHOWN = 50", "SHOWN = 0"),
        ("race/race.mjs", "1996 + (37 * i) % 8000", "5 + (37 * i) % 90"),
    ):
        path = changed[name]
        assert isinstance(path, Path)
        text = path.read_text()
        assert old in text
        changed[name] = text.replace(old, new).encode()
    settings = json.loads(bytes(changed["site.json"]))  # type: ignore[arg-type]
    settings["peers"]["wllama-3"]["problem"] = "npm: no network"
    changed["site.json"] = json.dumps(settings).encode()
    changed["race/onnxruntime-web/dist/ort.wasm.min.mjs"] = b"throw new Error('a planted fault');"
    return replace(site, files=changed)


@dataclass
class Race:
    """A race that was run to its end."""

    user: User
    figures: dict[str, Any]
    picture: bytes
    spoken: list[str] = field(default_factory=list)

    def lanes(self, heat: str) -> dict[str, dict[str, Any]]:
        return {lane["engine"]: lane for lane in self.figures["heats"][heat]["lanes"]}


def run(page: Page) -> list[str]:
    """Start, let the five minutes pass in steps of a minute; returns what the status said.

    `live` on the page are the engines of whom a speed was shown before their first turn had ended.
    """
    page.evaluate("""() => {
      Object.assign(globalThis, { spoken: [], live: new Set() });
      new MutationObserver(() => {
        for (const lane of document.querySelectorAll("#write .lane")) {
          const grown = parseFloat(lane.querySelector(".bar").style.width) > 0;
          const counted = lane.querySelector(".note").textContent.includes("turn");
          if (grown && !counted) live.add(lane.dataset.engine);
        }
      }).observe(document.getElementById("write"), { subtree: true, attributes: true });
      const status = document.getElementById("status");
      const watch = new MutationObserver(() => spoken.push(status.textContent));
      watch.observe(status, { childList: true, characterData: true, subtree: true });
    }""")
    page.click("#go")
    expect(page.locator("#status")).to_have_text("Five minutes of heat", timeout=LONG)
    other = page.locator("#device option:not(:checked)").first.get_attribute("value")
    page.select_option("#device", other)
    for _ in range(5):
        expect(page.locator("#progress")).to_be_visible(timeout=READY)
        page.wait_for_timeout(300)
        page.clock.run_for(60_000)
    expect(page.locator("#status")).to_contain_text("Done", timeout=READY)
    said: list[str] = page.evaluate("spoken")
    return said


def kept(page: Page, button: str) -> bytes:
    with page.expect_download() as download:
        page.click(button)
    return Path(download.value.path()).read_bytes()


@pytest.fixture(scope="module")
def race(browser: Browser, site: Site, files: Path) -> Iterator[Race]:
    with in_thread(Server(small_race(site, files))) as server:
        context = browser.new_context(viewport={"width": 360, "height": 780})
        context.add_init_script(WAKE_LOCK)
        context.clock.install()
        user = User(context, f"{server.address}race/")
        expect(user.page.locator("#go")).to_be_enabled(timeout=READY)
        spoken = run(user.page)
        figures = json.loads(kept(user.page, "#save-figures"))
        yield Race(user, figures, kept(user.page, "#save-picture"), spoken)
        assert user.failures == []
        own = (server.address, f"blob:{server.address}")
        assert [url for url in user.requests if not url.startswith(own)] == []
        context.close()


def test_all_write_the_same(race: Race) -> None:
    lanes = race.lanes("write")
    for name in ("halfbyte", "wllama-2"):
        assert lanes[name]["problem"] == ""
        assert len(lanes[name]["turns"]) == 5
        assert lanes[name]["low"] <= lanes[name]["median"] <= lanes[name]["high"]
        note = race.user.page.locator(f"#write [data-engine={name}] .note").inner_text()
        assert "in 5 turns" in note
        assert "another text" not in note
        assert name in race.user.page.evaluate("[...live]")  # its bar grew while it wrote
    assert lanes["halfbyte"]["threads"] == lanes["wllama-2"]["threads"] == race.figures["threads"]
    fast = max(("halfbyte", "wllama-2"), key=lambda name: float(lanes[name]["median"]))
    assert race.user.get("write-verdict").startswith(fast.partition("-")[0])


def test_the_model_is_fetched_once(race: Race) -> None:
    assert sum("/models/" in url for url in race.user.requests) == 2  # one of each heat


def test_one_that_is_missing_and_one_that_fails_say_why(race: Race) -> None:
    assert "no network" in race.lanes("write")["wllama-3"]["problem"]
    lanes = race.lanes("encode")
    assert lanes["onnxruntime-web"]["problem"] == "cannot run here: a planted fault"
    lane = race.user.page.locator("#encode [data-engine=onnxruntime-web]")
    expect(lane).to_contain_text("cannot run here: a planted fault")
    assert lanes["halfbyte"]["median"] > 0
    assert lanes["transformers.js"]["median"] > 0
    note = race.user.page.locator("#encode [data-engine='transformers.js'] .note").inner_text()
    assert float(note.rpartition("cosine ")[2]) > 0.99


def test_five_minutes_beside_the_prediction(race: Race) -> None:
    heat = race.figures["heat"]
    assert heat["samples"][-1]["at"] == 300
    assert all(sample["speed"] > 0 for sample in heat["samples"])
    assert heat["predicted"]["name"] == heat["device"] == race.user.page.input_value("#device")
    assert heat["predicted"]["seconds"][-1] == 300
    assert heat["predicted"]["title"] in race.user.get("hot-verdict")
    label = race.user.page.locator("#chart").get_attribute("aria-label") or ""
    assert race.user.get("hot-verdict") in label


def test_the_picture(race: Race) -> None:
    assert race.picture.startswith(b"\x89PNG")
    assert struct.unpack(">II", race.picture[16:24]) == (1200, 630)
    colours = race.user.page.evaluate("""() => {
      const context = document.getElementById("card").getContext("2d");
      const pixels = context.getImageData(56, 229, 590, 50).data;
      return new Set(pixels.filter((value, i) => i % 4 === 1)).size;
    }""")
    assert colours > 1  # bars, and what is left of a track


def test_the_screen_stays_on_meanwhile(race: Race) -> None:
    assert race.user.page.evaluate("locks") == ["screen", "released"]


def test_the_status_names_each_part(race: Race) -> None:
    rounds = [f"Writing: round {i} of 5" for i in range(1, 6)]
    assert [text for text in race.spoken if text.startswith("Writing: round")] == rounds
    assert race.spoken[-1] == "Done."


SPREAD = """() => {
  const lane = document.querySelector("[data-engine=halfbyte]");
  const box = (name) => lane.querySelector(name).getBoundingClientRect();
  const rtl = document.documentElement.dir === "rtl";
  const [track, spread] = [box(".track"), box(".spread")];
  const from = rtl ? track.right - spread.right : spread.left - track.left;
  const share = parseFloat(lane.querySelector(".spread").style.insetInlineStart) / 100;
  return from - track.width * share;
}"""


def test_anyone_can_use_it(race: Race) -> None:
    page = race.user.page
    page.click("summary")
    for width in WIDTHS:
        page.set_viewport_size({"width": width, "height": 780})
        assert page.evaluate("document.documentElement.scrollWidth") <= width
    for direction in ("rtl", "ltr"):  # a line from the slowest turn on, whichever side bars are at
        page.evaluate("d => { document.documentElement.dir = d; }", direction)
        assert page.evaluate(SPREAD) == pytest.approx(0, abs=1)
    page.set_viewport_size({"width": 360, "height": 780})
    small = page.evaluate("""() => [...document.querySelectorAll("button, select, .home a")]
      .filter((e) => e.checkVisibility() && e.getBoundingClientRect().height < 44)
      .map((e) => e.id)""")
    assert small == []
    page.evaluate(axe())
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme, reduced_motion="reduce")  # type: ignore[arg-type]
        violations = page.evaluate("""async () => {
          const { violations } = await axe.run();
          return violations.map(({ id, nodes }) => [id, nodes.map(({ html }) => html)]);
        }""")
        assert violations == []


SEEN = """(hidden) => {
  Object.defineProperty(document, "hidden", { value: hidden, configurable: true });
  document.dispatchEvent(new Event("visibilitychange"));
}"""


def test_a_race_that_is_stopped(race: Race) -> None:
    """In a tab that was in the background, which the result says; what was measured is shared.

    The browser lets the screen go off then; it stays on again afterwards.
    """
    page = race.user.page
    page.reload()
    page.click("#go", timeout=READY)
    expect(page.locator("#status")).to_have_text("Five minutes of heat", timeout=LONG)
    for hidden in (True, False):
        page.evaluate(SEEN, hidden)
    page.click("#stop")
    expect(page.locator("#status")).to_contain_text("Stopped. The tab was in the", timeout=READY)
    expect(page.locator("#share")).to_be_visible()
    expect(page.locator("#go")).to_be_focused()  # in the place of the button that has gone
    assert race.user.get("hot-verdict").endswith("in the first minute; stopped before the last.")
    assert page.evaluate("locks") == ["screen", "screen", "released"]
    page.evaluate(SEEN, False)
    assert page.evaluate("locks").count("screen") == 2  # nothing runs any more


PURE = """
async () => {
  const c = await import("./contest.mjs");
  const order = [], failed = [];
  const lane = (name, breaks) => ({
    async turn(counts) {
      order.push(name + (counts ? "" : "*"));
      const turns = order.filter((one) => one.startsWith(name)).length;
      if (breaks && turns === 3) throw new Error("out");
    },
    fail: (error) => failed.push(name + error.message),
  });
  let time = 0;
  await c.race([lane("a"), lane("b", true), lane("c")], { now: () => (time += 100_000) });
  const slow = [...order];
  order.length = time = 0;
  await c.race([lane("a"), lane("b")], { now: () => 0, stopped: () => order.length > 6 });
  const devices = [{ title: "Slow", speed: 10 }, { title: "Some Fast (X)", speed: 1000 }];
  const runs = [[3, 0.0002], [3, 0.0002], [6, 0.0002], [9, 9]];
  return {
    slow, failed, stopped: [...order],
    turn: await c.turn(async () => runs.shift()),
    nothing: await c.turn(async () => [0, 0]).catch((error) => error.message),
    summary: c.summary([4, 1, 9, 3]),
    near: [[90], [110], [1, "some fast"]].map((of) => c.nearest(devices, ...of).title),
    verdicts: [[10, 30, undefined], [10, 10.1], [1]].map(
      (medians) => c.verdict(medians.map((median, i) => ({ title: "xyz"[i], median })))),
    agreement: [["abc", "abc"], ["abc", "abd"], [[1, 0], [0, 2]], [[1, 1], [2, 2]]].map(
      ([reference, own]) => c.agreement(reference, own)),
    mean: [
      c.mean([{ at: 1, speed: 2 }, { at: 2, speed: 4 }, { at: 9, speed: 9 }], 0, 2),
      c.mean([], 0, 1) === undefined,
    ],
  };
}
"""


def test_the_rules(race: Race) -> None:
    """Order rotates; who fails is left out; on a slow device there are two rounds that count."""
    found = race.user.page.evaluate(PURE)
    assert found["slow"] == ["a*", "b*", "c*", "b", "c", "a", "c", "a", "b"]
    assert found["failed"] == ["bout"]
    assert found["stopped"] == ["a*", "b*", "b", "a", "a", "b", "b"]
    assert found["turn"] == pytest.approx(12 / 0.0006)  # until 0.5 ms have passed
    assert found["nothing"] == "it wrote nothing"
    assert found["summary"] == {"median": 3.5, "low": 1, "high": 9}
    assert found["near"] == ["Slow", "Some Fast (X)", "Some Fast (X)"]
    assert found["verdicts"] == [
        "y is 3.0 times as fast as x, the next.", "y and x are equally fast here.", "",
    ]  # fmt: skip
    assert found["agreement"] == [
        "the same text", "another text after 2 characters", "cosine 0.0000", "cosine 1.0000",
    ]  # fmt: skip
    assert found["mean"] == [3, True]


def test_on_any_host(browser: Browser, exported: str) -> None:
    """The page's service worker isolates the race too, in a subfolder without headers.

    It gives the race's workers the race's policy: they may connect to the site only.
    """
    context = browser.new_context()
    user = User(context, f"{exported}race/")
    expect(user.page.locator("#go")).to_be_enabled(timeout=READY)
    assert user.page.evaluate("crossOriginIsolated") is True
    own, other = user.page.evaluate("""() => Promise.all(["worker.mjs", "../worker.mjs"].map(
      async (name) => (await fetch(name)).headers.get("Content-Security-Policy")))""")
    assert "connect-src 'self' blob: data:;" in own
    assert "connect-src 'self' http: https: blob: data:;" in other
    assert "cross-origin isolated" in user.get("lent-here")
    rows = user.page.locator("#lent tbody tr").all_inner_texts()
    assert [row.split()[0] for row in rows] == [
        "halfbyte", "wllama", "wllama", "onnxruntime-web", "transformers.js",
    ]  # fmt: skip
    cells = user.page.locator("#lent tbody tr:nth-child(1) td").all_inner_texts()
    assert cells == [str(max(1, min(4, (os.cpu_count() or 1) // 2))), "yes", "yes", "cannot"]
    user.page.keyboard.press("Tab")
    user.page.keyboard.press("Tab")
    assert user.page.evaluate("document.activeElement.id") == "go"
    assert user.failures == []
    context.close()
