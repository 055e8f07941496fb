"""What a browser does to worker threads: forbids them, ends them, refuses memory, sleeps."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser
from tests.browser.conftest import Python
from tests.support.http_server import Server as ModelServer
from tests.support.http_server import in_pieces, in_thread, whole

import halfbyte
from halfbyte.web.server import Server
from halfbyte.web.site import Site

pytestmark = pytest.mark.browser

in_worker = pytest.mark.parametrize("python", ["worker"], indirect=True)


def told(models: Path, tokens: int = 20) -> str:
    """What the model tells natively."""
    with halfbyte.load(models / "Q8_0.gguf") as model:
        return model.generate("Tom", max_tokens=tokens, temperature=0)


# Memory is refused beyond a number of pages; then a model is loaded for two threads.
REFUSE = """
import warnings
import halfbyte
from pyodide.code import run_js
from halfbyte.core.backends import instance, libraries
refuse = run_js('''(most) => {
  const real = WebAssembly.Memory;
  WebAssembly.Memory = function (limits) {
    if (limits.shared && limits.maximum > most) throw new RangeError("could not allocate memory");
    return new real(limits);
  };
  return () => { WebAssembly.Memory = real; };
}''')
results, usual = [], instance.MAX_PAGES["i32"]
for most, tried in ((16384, usual), (0, usual), (24, (24,))):
    libraries.shared_library.cache_clear()
    restore, instance.MAX_PAGES["i32"] = refuse(most), tried
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            with await halfbyte.load_url("/models/Q8_0.gguf", keep=False, threads=2) as model:
                text = model.generate("Tom", max_tokens=20, temperature=0)
                results.append([model.executable.threads, text, [str(w.message) for w in caught]])
    finally:
        restore()
        instance.MAX_PAGES["i32"] = usual
        libraries.shared_library.cache_clear()
results
"""


@in_worker
def test_memory_that_is_refused(python: Python, models: Path) -> None:
    """A smaller maximum is tried; without any, or without room for the file, one thread runs."""
    smaller, none, little = python.run(REFUSE)
    text = told(models)
    assert smaller == [2, text, []]
    assert none[:2] == little[:2] == [1, text]
    assert (
        "the browser grants no shared memory (RangeError: could not allocate memory)" in none[2][0]
    )
    assert "the memory that threads share no 1 MB more" in little[2][0]


@in_worker
def test_a_worker_that_dies_in_a_kernel(python: Python, models: Path) -> None:
    """It finds no kernels, and traps with a part of the work in its hands: nobody answers."""
    del models
    code = """
import asyncio
import halfbyte
from pathlib import Path
from halfbyte.core.backends import workers
file, usual = Path(workers.__file__).with_name("worker.js"), workers.DEAD
script, workers.DEAD = file.read_text(), 1.0
clear = "for (let i = 1; i < entries; i++) env.__indirect_function_table.set(i, null);"
file.write_text(script.replace('postMessage("ready");', clear + 'postMessage("ready");'))
messages, texts = [], []
try:
    model = await halfbyte.load_url("/models/Q8_0.gguf", keep=False, threads=2)
    other = await halfbyte.load_url("/models/Q8_0.gguf", keep=False, threads=2)
    await asyncio.sleep(0.2)
    for _ in range(200):  # until the worker gets a part
        try:
            model.generate("Tom", max_tokens=20, temperature=0)
        except halfbyte.HalfbyteError as error:
            messages.append(str(error))
            break
    for user in (other, model):
        texts.append(user.generate("Tom", max_tokens=20, temperature=0))
    counts = [model.executable.threads, other.executable.threads]
    model.close(), other.close()
finally:
    workers.DEAD = usual
    file.write_text(script)
await asyncio.sleep(0)
with await halfbyte.load_url("/models/Q8_0.gguf", keep=False, threads=2) as model:
    texts.append(model.generate("Tom", max_tokens=20, temperature=0))
    counts.append(model.executable.threads)
[messages, len(texts), len(set(texts)), counts, len(workers._crews)]
"""
    [message], texts, different, counts, crews = python.run(code)
    assert "has not answered for 1 seconds" in message
    assert (texts, different) == (3, 1)
    assert counts == [1, 1, 2]
    assert crews == 1


def test_a_page_that_forbids_workers(
    bare_site: Site, browser: Browser, wheel: Path, models: Path
) -> None:
    """One thread; what was allocated for workers is free again, and the next model knows."""
    code = """
import asyncio, warnings
import halfbyte
from halfbyte.core.backends import libraries, workers
results, messages = [], []
for threads in (None, 2, 2):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with await halfbyte.load_url("/models/Q8_0.gguf", keep=False, threads=threads) as model:
            text = model.generate("Tom", max_tokens=20, temperature=0)
            results.append([model.executable.threads, text])
    messages.append([str(warning.message) for warning in caught])
    await asyncio.sleep(0)
[results, messages, libraries.why_no_threads(), len(workers._crews), len(workers._ended)]
"""
    site = dataclasses.replace(bare_site, policies={"": "worker-src 'self'"})
    context = browser.new_context()
    with in_thread(Server(site)) as server:
        python = Python(context.new_page(), server.address, wheel.name, "worker")
        results, messages, reason, *left = python.run(code)
        context.close()
    assert results == [[1, told(models)]] * 3
    assert "worker-src needs blob:" in reason
    assert reason in messages[-1][0]
    assert left == [0, 0]
    assert python.errors == []


# ---- tabs ----------------------------------------------------------------------------------------

TOKENS = 400
TELL = f"model.generate('Tom', max_tokens={TOKENS}, temperature=0)"
LOAD = """
import builtins, halfbyte
builtins.model = await halfbyte.load_url("/models/Q8_0.gguf", keep=False, threads=2)
model.executable.threads
"""


@pytest.fixture(scope="module")
def tabs(
    browser: Browser, bare_site: Site, wheel: Path, large_model: Path
) -> Iterator[tuple[Python, Python]]:
    """Two tabs with the same site; the second is in front."""
    context = browser.new_context()
    files = {**bare_site.files, "models/large.gguf": large_model}
    with in_thread(Server(dataclasses.replace(bare_site, files=files))) as server:
        first = Python(context.new_page(), server.address, wheel.name, "worker")
        yield first, Python(context.new_page(), server.address, wheel.name, "worker")
        context.close()


def test_a_large_model_is_not_in_the_heap(tabs: tuple[Python, Python]) -> None:
    """Of 76 MB that are fetched, and of its cache; measured in a tab that has loaded nothing."""
    code = """
import ctypes, halfbyte
break_ = ctypes.CDLL(None).sbrk
break_.restype = ctypes.c_size_t
before = break_(0)
with await halfbyte.load_url("/models/large.gguf", keep=False, threads=2) as model:
    model.feed(list(range(1, 129)))
    size = model.file.size
[size, break_(0) - before]
"""
    size, grown = tabs[1].run(code)
    assert size > 70e6
    assert grown < 20e6


def test_two_tabs(tabs: tuple[Python, Python], models: Path) -> None:
    """At once, one of them in the background; then one is frozen in the middle of a text."""
    first, second = tabs
    text = told(models, TOKENS)
    assert [tab.run(LOAD) for tab in tabs] == [2, 2]
    for tab in tabs:
        tab.begin(TELL)
    assert [tab.end() for tab in tabs] == [text] * 2

    devtools = second.page.context.new_cdp_session(second.page)
    second.begin(TELL)
    devtools.send("Page.setWebLifecycleState", {"state": "frozen"})
    assert first.run(TELL) == text
    devtools.send("Page.setWebLifecycleState", {"state": "active"})
    assert second.end() == text


def test_a_reload_during_a_download(
    tabs: tuple[Python, Python], models: Path, elsewhere: ModelServer
) -> None:
    """The part of the file is not kept; then all of it is, and read from the origin's storage."""
    tab, _ = tabs
    load = f'halfbyte.load_url("{elsewhere.url}", threads=2)'
    elsewhere.answer = lambda handler, start: in_pieces(handler, start, 300_000, 1)
    tab.begin(f"import halfbyte\nawait {load}")
    while not elsewhere.starts:
        tab.page.wait_for_timeout(20)
    tab.page.wait_for_timeout(200)
    tab.page.reload()
    tab.start()
    elsewhere.answer = whole
    texts, names, threads = tab.run(f"""
import halfbyte
from halfbyte.download import kept
texts, names, threads = [], [], []
for _ in range(2):
    with await {load} as model:
        texts.append(model.generate("Tom", max_tokens=20, temperature=0))
        threads.append(model.executable.threads)
    keys = (await kept.open_folder()).directory.keys()
    while not (step := await keys.next()).done:
        names.append(step.value)
[texts, len(names), threads]
""")
    assert texts == [told(models)] * 2
    assert names == 2 * 2  # the file and its record
    assert threads == [2, 2]
    assert len(elsewhere.starts) == 2
