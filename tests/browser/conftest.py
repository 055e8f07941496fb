"""A Chromium, a Pyodide and the wheel, served on 127.0.0.1 to pages of the tests."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, sync_playwright
from tests.browser.graph_files import layers, write_files
from tests.browser.kept_start import first_start, with_kept_start
from tests.browser.visitor import INSECURE, PROMPT, User
from tests.support.http_server import Server as ModelServer
from tests.support.http_server import answering, in_thread
from tests.support.packages import CLICK, MAGIKA, fetch
from tests.support.tools import load_tool, one_at_a_time

import halfbyte
from halfbyte.web.pyodide import LOCK
from halfbyte.web.server import Server
from halfbyte.web.site import STORYTELLER, Site, lock_entry, make_site

HERE = Path(__file__).parent
SOUND = HERE.parents[1] / "web/page/speech.wav"  # what the microphone hears, again and again
FLAGS = [
    *("--no-sandbox", "--disable-quic", "--no-first-run", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync"),
    f"--host-resolver-rules=MAP {INSECURE} 127.0.0.1",
    *("--use-fake-device-for-media-stream", "--use-fake-ui-for-media-stream"),
    f"--use-file-for-fake-audio-capture={SOUND}",
]
TABLES = {"relaxed": "kernels-relaxed.wasm", "simd128": "kernels.wasm"}


def tool(repository: Path, name: str) -> Path:
    """Run a tool; returns the path in its last line."""
    command = [sys.executable, repository / f"tools/{name}.py"]
    with one_at_a_time():
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return Path(done.stdout.strip().splitlines()[-1])


@pytest.fixture(scope="session")
def wheel(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel for Pyodide: pure Python with the WebAssembly kernels."""
    command = [sys.executable, repository / "tools/build_wasm.py"]
    subprocess.run(command, check=True, capture_output=True)
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", repository]
    options = ["--no-build-isolation", "--config-settings", "wheel.cmake=false", "-w", folder]
    subprocess.run([*command, *options], check=True, capture_output=True)
    return next(folder.glob("*.whl"))


@pytest.fixture(scope="session")
def bare_site(repository: Path, wheel: Path, models: Path) -> Site:
    """A site with Pyodide, the wheel, models and an empty page."""
    pyodide = tool(repository, "get_pyodide")
    lock = json.loads((pyodide / LOCK).read_bytes())
    lock["packages"]["halfbyte"] = lock_entry(wheel.read_bytes())
    folders = {"pyodide": pyodide, "page": HERE / "page", "models": models}
    files: dict[str, Path | bytes] = {
        f"{prefix}/{path.name}": path for prefix, f in folders.items() for path in f.iterdir()
    }
    files |= {f"wheels/{path.name}": path for path in map(fetch, (CLICK, MAGIKA))}
    files[f"pyodide/{LOCK}"] = json.dumps(lock).encode()
    files[f"pyodide/{wheel.name}"] = wheel
    return Site(files)


@pytest.fixture(scope="session")
def browser(repository: Path) -> Iterator[Browser]:
    path = tool(repository, "get_chromium")
    with sync_playwright() as playwright:
        output = playwright.chromium.launch(executable_path=path, args=FLAGS)
        yield output
        output.close()


@pytest.fixture(scope="session")
def models(storyteller: Path, repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The shipped model in four types, a random one in a mixture of K-quants, and a graph."""
    from halfbyte.quantize import quantize_file

    folder = tmp_path_factory.mktemp("models")
    keep = [("*", "F32")]
    quantize_file(storyteller, "fp16", folder / "F32.gguf", keep=keep)
    quantize_file(storyteller, "int8", folder / "Q8_0.gguf")
    quantize_file(storyteller, "int4", folder / "Q4_0.gguf")
    quantize_file(storyteller, "Q5_1", folder / "Q5_1.gguf")
    load_tool(repository, "make_model").make_model(folder / "Q4_K_M.gguf", "tiny-256", "Q4_K_M")
    layers(folder / "layers.onnx")
    return folder


@pytest.fixture(scope="session")
def large_model(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Random weights in the shape of SmolLM2 135M, in Q4_0."""
    path = tmp_path_factory.mktemp("large") / "large.gguf"
    load_tool(repository, "make_model").make_model(path, "smollm2-135m", "Q4_0")
    return path


class Python:
    """Pyodide in a page: runs Python and returns the value of the last line."""

    def __init__(self, page: Page, address: str, wheel: str, place: str) -> None:
        self.page = page
        self.errors: list[str] = []
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.goto(f"{address}page/index.html?place={place}&wheel={wheel}")
        self.start()

    def start(self) -> None:
        """Wait until Python runs, also after a reload."""
        self.page.wait_for_function("window.ready !== undefined", timeout=120_000)
        state = self.page.evaluate("window.ready")
        assert state == "ready", state

    def run(self, code: str) -> Any:
        """Value of the last expression, as JSON; an exception's text fails the test."""
        self.begin(code)
        return self.end()

    def begin(self, code: str) -> None:
        """As `run`, without waiting for the value."""
        self.page.evaluate("code => { window.pending = window.run(code); }", code)

    def end(self) -> Any:
        """The value of what began."""
        result = self.page.evaluate("() => window.pending")
        assert "error" not in result, result["error"]
        return result["value"]


# Where Python runs, and whether its page is isolated, which threads require
PLACES = {"worker": ("worker", True), "main": ("main", True), "plain": ("worker", False)}
OTHERS = [pytest.param(place, marks=pytest.mark.browser) for place in ("main", "plain")]


@pytest.fixture(scope="session", params=["worker", *OTHERS])
def python(
    request: pytest.FixtureRequest, bare_site: Site, browser: Browser, wheel: Path
) -> Iterator[Python]:
    """Pyodide with halfbyte installed."""
    place, isolated = PLACES[request.param]
    context = browser.new_context()
    with in_thread(Server(bare_site, isolated=isolated)) as server:
        yield Python(context.new_page(), server.address, wheel.name, place)
        context.close()


@pytest.fixture(scope="session")
def site(wheel: Path, browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Site:
    """The page's site, and what a first start keeps; the wheel's fixture builds the kernels."""
    output = make_site()
    with in_thread(Server(output)) as server:
        kept = first_start(browser, server.address, tmp_path_factory.mktemp("kept"))
    return with_kept_start(output, kept)


@pytest.fixture(scope="session")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The paths of `graph_files`."""
    folder = tmp_path_factory.mktemp("graphs")
    write_files(folder)
    return folder


@pytest.fixture(scope="session")
def page_server(site: Site) -> Iterator[Server]:
    with in_thread(Server(site)) as output:
        yield output


@pytest.fixture(scope="session")
def golden(site: Site) -> str:
    """The native library's continuation of the prompt."""
    content = site.files[f"models/{STORYTELLER}"]
    assert isinstance(content, bytes)
    with halfbyte.load_bytes(content) as model:
        return model.generate(PROMPT, max_tokens=100, temperature=0)


def visitor_of(browser: Browser, server: Server) -> Iterator[User]:
    """One visit that many tests share; the page continues after each error."""
    context = browser.new_context()
    output = User(context, server.address)
    output.ready()
    yield output
    assert output.failures == []
    context.close()


@pytest.fixture(scope="session")
def user(browser: Browser, page_server: Server) -> Iterator[User]:
    """Somebody who has been on the page for a while, whichever model is loaded."""
    yield from visitor_of(browser, page_server)


@pytest.fixture
def elsewhere(models: Path) -> Iterator[ModelServer]:
    """The address of a model on another origin."""
    with answering() as output:
        output.body = (models / "Q8_0.gguf").read_bytes()
        yield output
