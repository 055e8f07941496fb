"""Browsers as a system packages them, driven by their own protocols.

Playwright drives patched builds of Firefox and WebKit, which few systems package. Here, selenium
speaks WebDriver BiDi with `firefox` (or `firefox-esr`) itself, and WebDriver with the driver of
WebKitGTK (Debian: `webkit2gtk-driver`), which needs a display (`xvfb-run`). Chromium is that of the
other tests.
"""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import time
from pathlib import Path
from typing import Any, Protocol

from playwright.sync_api import sync_playwright
from selenium.webdriver import WebKitGTK, WebKitGTKOptions
from selenium.webdriver.remote.websocket_connection import WebSocketConnection
from tests.browser.conftest import FLAGS, tool

REPOSITORY = Path(__file__).parents[2]
START_SECONDS = 30
CALL_SECONDS = 60
POLL_SECONDS = 0.005


class MissingError(Exception):
    """A browser that is not installed; the message says how to install it."""


def installed(names: tuple[str, ...], package: str) -> str:
    """Path of the first of these programs; raises `MissingError` without one."""
    paths = (shutil.which(name) for name in names)
    if path := next(filter(None, paths), None):
        return path
    raise MissingError(f"{' and '.join(names)} not found: apt-get install {package}")


class Engine(Protocol):
    """A browser with one window."""

    name: str
    version: str

    def go(self, url: str) -> None: ...

    def js(self, body: str, *arguments: Any) -> Any:
        """Value that the body of a function returns, as JSON; `arguments` are its arguments."""

    def close(self) -> None: ...


class Chromium:
    """The Chromium of the other tests, by Playwright."""

    name = "chromium"

    def __init__(self, profile: Path, preferences: dict[str, Any]) -> None:
        del profile, preferences
        self._playwright = sync_playwright().start()
        path = tool(REPOSITORY, "get_chromium")
        self._browser = self._playwright.chromium.launch(executable_path=path, args=FLAGS)
        self._page = self._browser.new_page()
        self.version = f"Chromium {self._browser.version}"

    @staticmethod
    def check() -> None:
        """It is fetched when needed."""

    def go(self, url: str) -> None:
        self._page.goto(url)

    def js(self, body: str, *arguments: Any) -> Any:
        function = f"(given) => (function () {{ {body} }}).apply(null, given)"
        return self._page.evaluate(function, list(arguments))

    def close(self) -> None:
        self._browser.close()
        self._playwright.stop()


class Firefox:
    """Firefox by WebDriver BiDi."""

    name = "firefox"
    binaries = ("firefox", "firefox-esr")

    def __init__(self, profile: Path, preferences: dict[str, Any]) -> None:
        binary = installed(self.binaries, "firefox-esr")
        preferences = {"browser.shell.checkDefaultBrowser": False} | preferences
        profile.mkdir(parents=True)
        lines = (f"user_pref({json.dumps(k)}, {json.dumps(v)});\n" for k, v in preferences.items())
        (profile / "user.js").write_text("".join(lines), encoding="utf-8")
        port = free_port()
        options = ["--headless", "--no-remote", "--profile", str(profile)]
        self._process = subprocess.Popen(
            [binary, *options, f"--remote-debugging-port={port}"],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        try:
            wait_for(port)
            address = f"ws://127.0.0.1:{port}/session"
            self._connection = WebSocketConnection(address, CALL_SECONDS, POLL_SECONDS)
            session = self._call("session.new", {"capabilities": {}})
            self._context = self._call("browsingContext.getTree", {})["contexts"][0]["context"]
        except Exception:
            self._process.kill()
            raise
        self.version = f"Firefox {session['capabilities']['browserVersion']}"

    @classmethod
    def check(cls) -> None:
        """Raises `MissingError` where it is not installed."""
        installed(cls.binaries, "firefox-esr")

    def _call(self, name: str, parameters: dict[str, Any]) -> Any:
        answer = self._connection.send_cmd(name, parameters)
        if "error" in answer:
            raise RuntimeError(f"{name}: {answer['message']}")
        return answer["result"]

    def go(self, url: str) -> None:
        target = {"context": self._context, "url": url, "wait": "complete"}
        self._call("browsingContext.navigate", target)

    def js(self, body: str, *arguments: Any) -> Any:
        function = (
            f"(given) => JSON.stringify((function () {{ {body} }}).apply(null, JSON.parse(given))"
            " ?? null)"
        )
        call = {
            "functionDeclaration": function,
            "awaitPromise": False,
            "target": {"context": self._context},
            "arguments": [{"type": "string", "value": json.dumps(arguments)}],
        }
        answer = self._call("script.callFunction", call)
        if answer["type"] == "exception":
            raise RuntimeError(answer["exceptionDetails"]["text"])
        return json.loads(answer["result"]["value"])

    def close(self) -> None:
        self._connection.close()
        self._process.terminate()
        self._process.wait(START_SECONDS)


class WebKit:
    """WebKitGTK's MiniBrowser by its driver."""

    name = "webkit"

    def __init__(self, profile: Path, preferences: dict[str, Any]) -> None:
        del profile, preferences  # it begins with an empty profile, and has no such preferences
        options = WebKitGTKOptions()
        options.binary_location = self._binary()
        options.add_argument("--automation")
        self._driver = WebKitGTK(options=options)
        self._driver.set_script_timeout(CALL_SECONDS)
        self.version = f"WebKitGTK {self._driver.capabilities['browserVersion']}"

    @staticmethod
    def _binary() -> str:
        browsers = Path("/usr/lib").glob("*/webkit2gtk-4.*/MiniBrowser")
        path = max(browsers, default=None)
        if path is None:
            raise MissingError("MiniBrowser not found: apt-get install webkit2gtk-driver")
        return str(path)

    @classmethod
    def check(cls) -> None:
        """Raises `MissingError` where it is not installed."""
        installed(("WebKitWebDriver",), "webkit2gtk-driver")
        cls._binary()

    def go(self, url: str) -> None:
        self._driver.get(url)

    def js(self, body: str, *arguments: Any) -> Any:
        return self._driver.execute_script(body, *arguments)

    def close(self) -> None:
        self._driver.quit()


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def wait_for(port: int) -> None:
    """Wait until something listens; raises `OSError` after `START_SECONDS`."""
    end = time.monotonic() + START_SECONDS
    while True:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
        except OSError:
            if time.monotonic() > end:
                raise
            time.sleep(0.1)
        else:
            return


ENGINES: dict[str, Any] = {engine.name: engine for engine in (Chromium, Firefox, WebKit)}
