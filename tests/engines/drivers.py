"""Browsers by the protocols that they speak themselves: Marionette and WebDriver.

Playwright drives patched builds of Firefox and WebKit, which few systems package. These classes
drive those that a system packages: `firefox` (or `firefox-esr`) needs nothing else, WebKitGTK needs
its driver (Debian: `webkit2gtk-driver`) and a display (`xvfb-run`).
"""

from __future__ import annotations

import http.client
import json
import shutil
import socket
import subprocess
import time
from http import HTTPStatus
from pathlib import Path
from typing import Any, Protocol

START_SECONDS = 30
SCRIPT_MILLISECONDS = 60_000


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


class Engine(Protocol):
    """A browser with one window."""

    name: str

    def go(self, url: str) -> None: ...

    def js(self, body: str, *arguments: Any) -> Any:
        """Value that the body of a function returns, as JSON; `arguments` are its arguments."""

    def close(self) -> None: ...


class Firefox:
    """Firefox by Marionette: each message is `length:JSON`."""

    name = "firefox"

    def __init__(self, profile: Path, preferences: dict[str, Any]) -> None:
        binary = shutil.which("firefox") or shutil.which("firefox-esr")
        if binary is None:
            raise FileNotFoundError("no firefox on the PATH")
        port = free_port()
        preferences = {
            "marionette.port": port,
            "browser.shell.checkDefaultBrowser": False,
        } | preferences
        profile.mkdir(parents=True)
        lines = (f"user_pref({json.dumps(k)}, {json.dumps(v)});\n" for k, v in preferences.items())
        (profile / "user.js").write_text("".join(lines), encoding="utf-8")
        command = [binary, "--headless", "--no-remote", "--marionette", "--profile", str(profile)]
        self._process = subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        self._socket = self._connect(port)
        self._count = 0
        self._receive()  # its greeting
        self._call("WebDriver:NewSession", {})
        self._call("WebDriver:SetTimeouts", {"script": SCRIPT_MILLISECONDS})

    def _connect(self, port: int) -> socket.socket:
        end = time.monotonic() + START_SECONDS
        while True:
            try:
                return socket.create_connection(("127.0.0.1", port), timeout=2 * START_SECONDS)
            except OSError:
                if time.monotonic() > end:
                    self._process.kill()
                    raise
                time.sleep(0.2)

    def _receive(self) -> Any:
        head = b""
        while not head.endswith(b":"):
            head += self._socket.recv(1)
        size, body = int(head[:-1]), b""
        while len(body) < size:
            body += self._socket.recv(size - len(body))
        return json.loads(body)

    def _call(self, name: str, parameters: dict[str, Any]) -> Any:
        self._count += 1
        message = json.dumps([0, self._count, name, parameters]).encode()
        self._socket.sendall(b"%d:%s" % (len(message), message))
        _, _, error, value = self._receive()
        if error:
            raise RuntimeError(f"{name}: {error['message']}")
        return value

    def go(self, url: str) -> None:
        self._call("WebDriver:Navigate", {"url": url})

    def js(self, body: str, *arguments: Any) -> Any:
        value = self._call("WebDriver:ExecuteScript", {"script": body, "args": list(arguments)})
        return value["value"]

    def close(self) -> None:
        self._socket.close()
        self._process.terminate()
        self._process.wait(START_SECONDS)


class WebKit:
    """WebKitGTK's MiniBrowser by WebKitWebDriver."""

    name = "webkit"

    def __init__(self, profile: Path, preferences: dict[str, Any]) -> None:
        del profile, preferences  # it begins with an empty profile, and has no such preferences
        driver = shutil.which("WebKitWebDriver")
        browsers = Path("/usr/lib").glob("*/webkit2gtk-4.*/MiniBrowser")
        binary = next(iter(sorted(browsers, reverse=True)), None)
        if driver is None or binary is None:
            raise FileNotFoundError("no WebKitWebDriver and MiniBrowser of WebKitGTK")
        port = free_port()
        self._process = subprocess.Popen(
            [driver, f"--port={port}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        self._port, self._session = port, ""
        options = {"binary": str(binary), "args": ["--automation"]}
        capabilities = {"alwaysMatch": {"webkitgtk:browserOptions": options}}
        end = time.monotonic() + START_SECONDS
        while True:
            try:
                session = self._request("POST", "/session", {"capabilities": capabilities})
                break
            except OSError:
                if time.monotonic() > end:
                    self._process.kill()
                    raise
                time.sleep(0.2)
        self._session = f"/session/{session['sessionId']}"
        self._request("POST", "/timeouts", {"script": SCRIPT_MILLISECONDS})

    def _request(self, method: str, path: str = "", body: dict[str, Any] | None = None) -> Any:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=2 * START_SECONDS)
        connection.request(method, self._session + path, body and json.dumps(body))
        answer = connection.getresponse()
        value = json.load(answer)["value"]
        connection.close()
        if answer.status != HTTPStatus.OK:
            raise RuntimeError(f"{path}: {value['message'][:500]}")
        return value

    def go(self, url: str) -> None:
        self._request("POST", "/url", {"url": url})

    def js(self, body: str, *arguments: Any) -> Any:
        return self._request("POST", "/execute/sync", {"script": body, "args": list(arguments)})

    def close(self) -> None:
        self._request("DELETE")
        self._process.terminate()
        self._process.wait(START_SECONDS)


ENGINES = {engine.name: engine for engine in (Firefox, WebKit)}
