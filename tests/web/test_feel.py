"""Texts as on another device, outside the browser: its pace, its memory and its heat."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from tests.device.devices import exactly
from tests.support import aio

import halfbyte
from halfbyte.device.emulate import Work
from halfbyte.device.profile import Profile, load_profile, profile_names
from halfbyte.text.model import LanguageModel
from halfbyte.web import feel
from halfbyte.web.engine import Engine
from halfbyte.web.feel import OFF, Feeling

SLOW = "raspberry-pi-zero-2-w"


@dataclass
class Page:
    """What the page would be told."""

    model: LanguageModel
    said: list[dict[str, Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.engine = Engine(self.post)
        self.engine.model = self.model
        self.feeling = Feeling(self.engine, self.post)

    def post(self, text: str) -> None:
        self.said.append(json.loads(text))

    def last(self, kind: str) -> dict[str, Any]:
        return [message for message in self.said if message["kind"] == kind][-1]

    def text(self) -> str:
        return "".join(message["text"] for message in self.said if message["kind"] == "piece")

    def run(self, device: str, act: Callable[[], Awaitable[object]]) -> None:
        """Choose a device, act, and leave it."""

        async def visit() -> None:
            self.feeling.choose(device)
            try:
                await act()
            finally:
                self.feeling.choose("")

        aio.run(visit())


@pytest.fixture
def page(storyteller: Path) -> Iterator[Page]:
    with halfbyte.load(storyteller, context=128, threads=1) as model:
        yield Page(model)


def changed(monkeypatch: pytest.MonkeyPatch, change: Callable[[Profile], Profile]) -> None:
    """Let devices differ from their profiles."""
    monkeypatch.setattr(feel, "load_profile", lambda name: change(load_profile(name)))


def test_all_devices_can_be_chosen(page: Page) -> None:
    page.feeling.devices()
    devices = page.last("devices")["devices"]
    assert sorted(device["name"] for device in devices) == sorted(profile_names())
    titles = [device["title"] for device in devices]
    assert titles == sorted(titles)


def test_a_text_is_never_faster_than_the_device(page: Page) -> None:
    """The text is the same; its speed is what is felt."""
    page.run(SLOW, lambda: page.engine.run("Once", 24, 0, None))
    assert page.text() == page.model.generate("Once", max_tokens=24, temperature=0)
    done, device = page.last("done"), page.last("device")
    assert done["tokens"] == 24
    limit = device["speed"] * 1.01
    catching_up = 1 + limit * feel.CREDIT_S  # tokens that may come early after late ones
    assert 0 < done["decode_speed"] < limit * (1 + catching_up / 24)
    assert 0 < done["prompt_speed"] < 1e4
    assert device["name"] == SLOW
    assert device["case"] > device["air"]
    assert page.engine.device is None  # it was left


@pytest.mark.parametrize("device", ["android-go-2gb", "galaxy-s25"])
def test_a_cool_device_is_in_the_range_that_is_told(page: Page, device: str) -> None:
    """Also where the likeliest numbers are faster than most of its kind."""
    page.run(device, lambda: page.engine.run("Once", 2, 0, None))
    told = page.last("device")
    assert told["cold"]["low"] < told["speed"] / told["kept"] < told["cold"]["high"]


def test_waits_are_as_long_as_the_device_needs(page: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a clock of its own: 1 s for each token, and none for computing."""
    now = 0.0

    async def sleep(seconds: float) -> None:
        nonlocal now
        now += seconds
        assert seconds <= feel.WAIT_S

    monkeypatch.setattr(feel.time, "perf_counter", lambda: now)
    monkeypatch.setattr(feel.asyncio, "sleep", sleep)
    monkeypatch.setattr(feel.Emulation, "token_s", property(lambda self: 1.0))
    monkeypatch.setattr(feel.Emulation, "prompt_s", property(lambda self: 2.0))

    async def read() -> tuple[list[float], Any]:
        page.feeling._profile = load_profile(SLOW)
        page.engine.device = page.feeling
        page.feeling._open(page.feeling._profile, page.model)
        felt = page.feeling.felt(page.model.generation("Once upon", max_tokens=4, temperature=0))
        return [now async for piece in felt if piece], felt

    times, felt = aio.run(read())
    prompt = 2.0 * len(felt.prompt_ids)
    assert times == pytest.approx([prompt, prompt + 1, prompt + 2, prompt + 3])
    assert felt.prompt_speed == pytest.approx(0.5)
    assert felt.decode_speed == pytest.approx(1.0)
    assert page.feeling.emulation
    assert page.feeling.emulation.state.seconds == pytest.approx(prompt + 3)


def test_it_can_be_stopped_while_the_device_reads(
    page: Page, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feel.Emulation, "prompt_s", property(lambda self: 1000.0))

    async def act() -> None:
        task = asyncio.create_task(page.engine.run("Once", 24, 0, None))
        await asyncio.sleep(0.01)
        page.engine.stop()
        await asyncio.wait_for(task, 30)

    page.run(SLOW, act)
    assert page.last("done")["stopped"] is True
    assert page.text() == ""


def test_a_slower_tab_says_so(page: Page) -> None:
    """With this tab's speed, only once it is known, and only below the device's."""

    async def act() -> None:
        assert page.last("device")["slower"] is None
        for speed, expected in ((3.0, 3.0), (1e6, None)):
            page.feeling.tab_speed = speed
            page.feeling._say_state()
            assert page.last("device")["slower"] == expected

    page.run("galaxy-s25", act)


def test_the_tab_is_measured_while_it_writes(page: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its own speed is what it could do, beside a device that needs no time."""
    monkeypatch.setattr(feel.Emulation, "token_s", property(lambda self: 1e-9))
    monkeypatch.setattr(feel, "CREDIT_S", 0.0)  # the text is short

    async def act() -> None:
        await page.engine.run("Once", 24, 0, None)
        page.feeling._say_state()

    page.run(SLOW, act)
    assert 1 < page.last("device")["slower"] < 1e6


def test_minutes_are_skipped(page: Page) -> None:
    """Minutes of writing: the device is hot and slower, and its battery has less."""

    async def act() -> None:
        cold = page.last("device")
        assert cold["kept"] == 1
        await page.feeling.skip(2)
        hot = page.last("device")
        assert hot["seconds"] - cold["seconds"] == pytest.approx(120, abs=1)
        assert hot["kept"] < 0.8
        assert hot["case"] > cold["case"] + 2
        assert hot["charge"] < cold["charge"]
        assert hot["skipping"] is False

    page.run("galaxy-s25", act)
    assert any(message.get("skipping") for message in page.said)


def test_it_rests_between_texts(page: Page) -> None:
    """While nothing is written, time goes on and the device cools."""

    async def act() -> None:
        await page.feeling.skip(0.2)
        hot = page.last("device")
        for _ in range(600):
            if page.last("device")["processor"] < hot["processor"] - 1:
                return
            await asyncio.sleep(0.05)
        raise AssertionError("it does not cool")

    page.run("galaxy-s25", act)


def test_it_sleeps_while_the_browser_freezes_the_page(page: Page) -> None:
    """A night would take minutes to catch up with."""

    async def act() -> None:
        page.feeling._now -= 8 * 3600
        page.feeling.go_on(Work.REST)
        assert page.feeling.emulation is not None
        assert page.feeling.emulation.state.seconds == feel.ASLEEP_S

    page.run("galaxy-s25", act)


def test_a_model_that_does_not_fit_is_refused(
    page: Page, monkeypatch: pytest.MonkeyPatch, storyteller: Path
) -> None:
    """With the numbers; also one that is opened later, and the one before stays."""
    small = lambda p: replace(p, memory=replace(p.memory, tab_mb=exactly(46)))  # noqa: E731
    changed(monkeypatch, small)
    page.run(SLOW, lambda: page.engine.run("Once", 4, 0, None))
    refusal = page.last("device")["refusal"]
    assert refusal.startswith("Raspberry Pi Zero 2 W")
    assert "MB do not fit (model's file" in refusal
    assert refusal.endswith("a tab of its browser has 46 MB")
    assert page.last("error")["text"] == refusal
    assert page.text() == ""

    async def load(options: dict[str, Any]) -> LanguageModel:
        return halfbyte.load(storyteller, context=64)

    before = page.engine.model
    page.run(SLOW, lambda: page.engine._load(load))
    assert "MB do not fit" in page.last("error")["text"]
    assert page.engine.model is before


def test_a_file_that_does_not_fit_is_not_fetched(
    page: Page, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = lambda p: replace(p, memory=replace(p.memory, tab_mb=exactly(60)))  # noqa: E731
    changed(monkeypatch, small)
    fetched = []

    async def load(options: dict[str, Any]) -> LanguageModel:
        progress = page.engine._progress("model")
        for done in range(0, 70_000_000, 1_000_000):
            fetched.append(done)
            progress(done, 70_000_000)
        raise AssertionError

    page.run(SLOW, lambda: page.engine._load(load))
    assert page.last("error")["text"] == (
        f"{load_profile(SLOW).title}: a file of 70 MB does not fit: a tab of its browser has 60 MB"
    )
    assert len(fetched) == 1


def test_a_device_that_is_off_writes_nothing(page: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    def drained(profile: Profile) -> Profile:
        assert profile.battery
        return replace(profile, battery=replace(profile.battery, capacity_wh=exactly(0.01)))

    changed(monkeypatch, drained)

    async def act() -> None:
        await page.feeling.skip(0.5)
        await page.engine.run("Once", 4, 0, None)

    page.run("galaxy-s25", act)
    assert page.last("device")["on"] is False
    assert page.last("error")["text"] == OFF
