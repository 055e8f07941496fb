"""Measurements in Chromium: speeds of engines that take turns, and the time of their start."""

from __future__ import annotations

import statistics
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType

from benches.figures import PEERS
from benches.peers.errors import PeerError
from playwright.sync_api import Browser, BrowserContext, Page, Response, sync_playwright
from playwright.sync_api import Error as PlaywrightError
from tests.browser.conftest import FLAGS, tool
from tests.support.http_server import in_thread

from halfbyte.text.opening import open_bytes, open_model
from halfbyte.text.tokenizers import from_metadata
from halfbyte.web.server import Server
from halfbyte.web.site import Site

AWAKE = ["--disable-renderer-backgrounding", "--disable-background-timer-throttling"]
PATIENCE, PEERS_PATIENCE = 600_000, 120_000  # milliseconds
WARM_STARTS = 3
TEXT = "One morning a fox went out to look for the sea. " * 40


@dataclass
class Speed:
    """Tokens/s of one engine on one model, one value per round."""

    model: str
    engine: str
    threads: int
    prompt: list[float] = field(default_factory=list)
    decode: list[float] = field(default_factory=list)


@dataclass(frozen=True)
class Start:
    """Seconds from opening the page to the first token; bytes of code; bytes of memory."""

    model: str
    engine: str
    cold: float
    warm: list[float]
    code: int
    memory: int


@dataclass(frozen=True)
class Tab:
    """An engine with a model in a tab of its own."""

    engine: str
    threads: int
    page: Page
    asked: tuple[list[int], int, str]  # the prompt, how many tokens to decode, its text
    few: bool  # so slow that it gets only a few tokens
    reason: str = ""  # why it did not start

    def run(self) -> tuple[float, float, float | None]:
        """Prompt and decode speed in tokens/s; GB/s at which halfbyte's kernels read memory."""
        script = "(asked) => window.measure(...asked)"
        prompt, decode, *read = self.page.evaluate(script, self.asked)
        return prompt, decode, read[0] if read else None


def wait_for_start(page: Page, engine: str) -> float:
    """Seconds from opening the page until it runs; PeerError or TimeoutError says what is wrong."""
    patience = PEERS_PATIENCE if engine in PEERS else PATIENCE
    page.wait_for_function("window.started !== undefined", timeout=patience)
    started = page.evaluate("window.started")
    if not isinstance(started, float | int):
        raise PeerError(f"{engine}: {started}")
    return started / 1000


class Bench:
    """A served site and a browser."""

    def __init__(self, site: Site, root: Path) -> None:
        self._chromium = tool(root, "get_chromium")
        self._stack = ExitStack()
        self._server = self._stack.enter_context(in_thread(Server(site)))
        self._playwright = sync_playwright().start()
        self._stack.callback(self._playwright.stop)

    def __enter__(self) -> Bench:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stack.close()

    @property
    def address(self) -> str:
        """The site's address, with a slash at its end."""
        return self._server.address

    @contextmanager
    def browser(self) -> Iterator[Browser]:
        """A new Chromium."""
        browser = self._playwright.chromium.launch(
            executable_path=self._chromium, args=FLAGS + AWAKE
        )
        yield browser
        browser.close()

    @contextmanager
    def profile(self) -> Iterator[BrowserContext]:
        """A new Chromium that keeps what pages store on disk, as a visitor's does."""
        with TemporaryDirectory(ignore_cleanup_errors=True) as folder:
            context = self._playwright.chromium.launch_persistent_context(
                folder, executable_path=self._chromium, args=FLAGS + AWAKE
            )
            yield context
            context.close()

    def _open(self, page: Page, engine: str, model: str, more: str = "") -> float:
        """Open an engine's page; return the seconds to the first token."""
        page.goto(f"{self.address}bench/index.html?engine={engine}&model={model}{more}")
        return wait_for_start(page, engine)

    @contextmanager
    def tabs(
        self, name: str, model: str, engines: Sequence[tuple[str, int]], prompt: int, count: int
    ) -> Iterator[list[Tab]]:
        """A tab for each engine and number of threads (0: its default), all in one browser."""
        text, ids = self._prompt(model, prompt)
        context = 128 * ((prompt + count) // 128 + 1)
        with self.browser() as browser:
            window = browser.new_context()
            tabs = []
            for engine, threads in engines:
                page = window.new_page()
                try:
                    self._open(page, engine, model, f"&context={context}&threads={threads}")
                except (PeerError, PlaywrightError) as error:
                    if engine not in PEERS:
                        raise
                    tabs.append(Tab(engine, threads, page, ([], 0, ""), False, str(error)[:160]))
                    continue
                few = engine == "numpy" and name != "storyteller"
                asked = (ids[:4], 2, text) if few else (ids, count, text)
                tabs.append(Tab(engine, page.evaluate("window.threads"), page, asked, few))
            yield tabs

    def speeds(
        self, name: str, model: str, engines: Sequence[tuple[str, int]], prompt: int, count: int,
        rounds: int,
    ) -> list[Speed]:  # fmt: skip
        """Measure all engines on one model in turns; the first round warms up."""
        with self.tabs(name, model, engines, prompt, count) as opened:
            tabs = [tab for tab in opened if not tab.reason]
            results = [Speed(name, tab.engine, tab.threads) for tab in tabs]
            for turn in range(rounds + 1):
                for tab, result in zip(tabs, results, strict=True):
                    if tab.few and turn > 1:
                        continue  # minutes otherwise
                    place = f"{name}: round {turn} of {rounds}: {tab.engine}"
                    print(f"{place}   ", end="\r", file=sys.stderr)
                    speed = tab.run()
                    if turn:
                        result.prompt.append(speed[0])
                        result.decode.append(speed[1])
        return results

    def _prompt(self, model: str, count: int) -> tuple[str, list[int]]:
        """A text of so many tokens, and its ids: wllama 3 takes only text."""
        content = self._server.site.files[model.lstrip("/")]
        file = open_model(content) if isinstance(content, Path) else open_bytes(content, model)
        tokenizer = from_metadata(file)
        for length in range(1, len(TEXT)):
            ids = tokenizer.encode(TEXT[:length])
            if len(ids) == count:
                return TEXT[:length], ids
        raise SystemExit(f"{model}: no beginning of the text has {count} tokens")

    def starts(self, name: str, model: str, engines: list[str]) -> list[Start]:
        """Start each engine in a new browser, cold and from the cache; also an empty Pyodide."""
        return [self._start(name, model, engine) for engine in [*engines, "pyodide"]]

    def _start(self, name: str, model: str, engine: str) -> Start:
        with self.browser() as browser:
            context = browser.new_context()
            code = _Code(context)
            page = context.new_page()
            cold = self._open(page, engine, model)
            size = code.size  # before what is done for the next start
            if engine in ("relaxed", "simd128", "numpy"):
                page.wait_for_function("window.kept", timeout=PATIENCE)
            page.close()
            warm = []
            for _ in range(WARM_STARTS):
                page = context.new_page()
                warm.append(self._open(page, engine, model))
                memory = _peak(browser)
                page.close()
        print(f"{name}: {engine} starts in {statistics.median(warm):.1f} s     ", file=sys.stderr)
        return Start(name, engine, cold, warm, size, memory)


class _Code:
    """Bytes of all answers except models."""

    def __init__(self, context: BrowserContext) -> None:
        self.size = 0
        context.on("response", self._add)

    def _add(self, response: Response) -> None:
        if response.request.method == "GET" and not response.url.endswith(".gguf"):
            self.size += int(response.headers.get("content-length", 0))


def _peak(browser: Browser) -> int:
    """Peak resident bytes of the largest renderer (Linux); 0 elsewhere."""
    session = browser.new_browser_cdp_session()
    processes = session.send("SystemInfo.getProcessInfo")["processInfo"]
    peaks = [0]
    for process in processes:
        if process["type"] == "renderer":
            path = Path(f"/proc/{process['id']}/status")
            if path.exists():
                peaks.append(1024 * int(path.read_text().split("VmHWM:")[1].split()[0]))
    return max(peaks)
