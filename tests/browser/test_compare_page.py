"""The page of ``halfbyte compare`` as a browser shows it: from a phone's width on, by itself."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import Browser

from halfbyte.cli import main


@pytest.fixture(scope="module")
def report(storyteller: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("report") / "report.html"
    quick = ["--minutes", "1", "--draws", "4", "--html", str(path)]
    devices = "pixel-6,raspberry-pi-5"
    assert (
        main(["compare", str(storyteller), "--type", "int8,int4", "--device", devices, *quick]) == 0
    )
    return path


@pytest.mark.parametrize("width", [360, 768, 1280])
def test_the_page_fits_and_fetches_nothing(width: int, browser: Browser, report: Path) -> None:
    page = browser.new_page(viewport={"width": width, "height": 800})
    said: list[str] = []
    asked: list[str] = []
    page.on("console", lambda message: said.append(message.text))
    page.on("request", lambda request: asked.append(request.url))
    page.goto(report.as_uri())
    assert asked == [report.as_uri()]
    assert said == []
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.click("label[for=m-percent]")
    assert page.locator(".m-hot").first.is_hidden()
    assert "no battery" in page.locator(".map").inner_text()
    page.close()
