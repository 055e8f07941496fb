"""Models beyond 4 GB: the same texts from memory of 64 bits, and refusals before the download."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from tests.browser.conftest import Python
from tests.browser.workers_end import WORKERS_END
from tests.support.http_server import Handler, Server, answering
from tests.support.tools import load_tool

import halfbyte
from halfbyte.download.transfer import START
from halfbyte.quantize.gguf_writer import GGUFWriter, TensorInfo
from halfbyte.quantize.presets import presets

pytestmark = pytest.mark.browser

TOKENS = 60
MODELS = ("F32", "Q8_0", "Q4_0", "Q4_K_M")

in_worker = pytest.mark.parametrize("python", ["worker"], indirect=True)


@pytest.mark.parametrize("python", ["worker", "main"], indirect=True)
def test_golden_texts(python: Python, models: Path) -> None:
    """Every model where only memory of 64 bits has room, and the graph of pages that it leaves."""
    expected = []
    for name in MODELS:
        with halfbyte.load(models / f"{name}.gguf") as model:
            text = model.generate("", max_tokens=TOKENS, temperature=0)
        expected += [["native-relaxed64", n, text] for n in (1, 2)]
    code = f"""
{WORKERS_END}
import halfbyte
from halfbyte.core.backends import libraries
from halfbyte.text import placing
limits, heap = libraries.shared_library().memory.bytes, placing.HEAP_BYTES
whole, limits.limit, placing.HEAP_BYTES = limits.limit, 0, 0
results = []
for name in {MODELS}:
    for threads in (1, 2):
        model = await halfbyte.load_url(f"/models/{{name}}.gguf", keep=False, threads=threads)
        await asyncio.sleep(0.2)  # where Python cannot wait for workers, they start now
        text = model.generate("", max_tokens={TOKENS}, temperature=0)
        results.append([model.executable.backend, model.executable.threads, text])
        model.close()
del model
await workers_end()
memory = libraries.wide_library().memory
limits.limit, placing.HEAP_BYTES = whole, heap
[results, memory.allocated < 2_000_000, memory.bytes.limit > 1 << 32]
"""
    assert python.run(code) == [expected, True, True]


@pytest.fixture
def large(repository: Path) -> Iterator[Server]:
    """A server of the shape of a 7B model in Q4_0, of which it has only the beginning.

    Also in two files; the first of them has few tensors, and fits in any memory.
    """
    tool = load_tool(repository, "make_model")
    shape, preset = tool.SHAPES["mistral-7b"], presets()["Q4_0"]
    infos: list[TensorInfo] = list(tool._tensors(shape, preset))
    metadata = tool._metadata("mistral-7b", shape)
    metadata["general.file_type"] = np.uint32(preset.file_type)
    parts = {"model.gguf": (metadata, infos)}
    for number, some in enumerate((infos[:9], infos[9:])):
        split = {"split.no": np.uint16(number), "split.count": np.uint16(2)}
        parts[f"m-0000{number + 1}-of-00002.gguf"] = {**metadata, **split}, some

    def start(handler: Handler, first: int) -> None:
        values, some = parts[handler.path.removeprefix("/")]
        header = GGUFWriter(Path("m"), values, some)._header
        size = len(header) + sum(info.size for info in some)
        handler.head(200, Content_Length=str(size))
        with suppress(ConnectionError):  # refused
            handler.wfile.write(header + bytes(START + (1 << 20) - len(header)))
            handler.server.over.wait()  # nothing follows

    with answering() as output:
        output.answer = start
        yield output
        output.over.set()


REFUSED = """
import halfbyte, js
from pyodide.code import run_js
from halfbyte.core.backends import instance, libraries
{before}
told, progress = [], lambda done, total: told.append(done)
for options in ({options}):
    try:
        address = "{url}".replace("model.gguf", options.pop("file", "model.gguf"))
        await halfbyte.load_url(address, keep=False, progress=progress, **options)
        told.append("loaded")
    except halfbyte.HalfbyteError as error:
        told.append(str(error))
{after}
[[m for m in told if isinstance(m, str)], max((n for n in told if isinstance(n, int)), default=0)]
"""
WITHOUT = """
run_js('''
  const Original = self.Original = WebAssembly.Memory;
  WebAssembly.Memory = function (limits) {
    if (limits.address === "i64") throw new TypeError("Cannot convert a BigInt value to a number");
    return new Original(limits);
  };
''')
"""


@in_worker
def test_a_browser_that_cannot(python: Python, large: Server) -> None:
    """Without memory of 64 bits, or with little; the numbers are those of the whole model."""
    after = "run_js('WebAssembly.Memory = self.Original')\nlibraries.wide_library.cache_clear()"
    messages, most = python.run(REFUSED.format(
        url=large.url,
        options="dict(file='m-00002-of-00002.gguf', context=3000), dict(), "
        "dict(context=3000, threads=1), dict(context=40_000)",
        before="libraries.wide_library.cache_clear()" + WITHOUT, after=after,
    ))  # fmt: skip
    several, default, one, context = messages
    assert "m-00001-of-00002.gguf: 4,5" in several
    assert "model's file 4,068 MB, KV cache 394 MB" in several
    assert "model.gguf: 4,6" in default
    assert "model's file 4,067 MB, KV cache 537 MB, activations 21 MB" in default
    assert "memory of 32 bits has at most 4,295 MB here" in default
    assert "the browser grants no shared memory of 64 bits" in default
    assert "KV cache 394 MB" in one
    assert "a file in Pyodide's heap has at most 2,147 MB" in one
    assert "context of 40000 tokens: expected 1 to 32768" in context
    assert most <= START + (1 << 20)


@in_worker
def test_a_browser_with_too_little(python: Python, large: Server) -> None:
    before = """
libraries.wide_library.cache_clear()
pages, instance.MAX_PAGES["i64"] = instance.MAX_PAGES["i64"], (66_000,)
"""
    after = 'instance.MAX_PAGES["i64"] = pages\nlibraries.wide_library.cache_clear()'
    code = REFUSED.format(url=large.url, options="dict(),", before=before, after=after)
    [message], most = python.run(code)
    assert "memory of 64 bits has at most 4,325 MB here" in message
    assert most <= START + (1 << 20)


@pytest.mark.parametrize("python", ["plain"], indirect=True)
def test_a_page_that_is_not_isolated(python: Python, large: Server) -> None:
    """Refused by the length of the file: nothing of it is fetched."""
    code = REFUSED.format(
        url=large.url, options="dict(),", before="told = []", after="told.append(0)"
    )
    [message], most = python.run(code)
    assert "4,067 MB do not fit" in message
    assert "a file in Pyodide's heap has at most 2,147 MB" in message
    assert "Cross-Origin-Opener-Policy" in message
    assert most == 0
