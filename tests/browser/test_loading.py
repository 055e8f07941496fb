"""Models loaded by address inside Pyodide: one copy in memory, cached for the next visit."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from tests.browser.conftest import Python
from tests.support.http_server import BAD_ANSWERS, Server, answering, in_pieces, status

import halfbyte

SIZE = 48_000_000


@pytest.fixture
def models_server(models: Path) -> Iterator[Server]:
    with answering() as output:
        output.body = (models / "Q4_0.gguf").read_bytes()
        yield output


def test_progress_resumption_and_text(python: Python, models_server: Server, models: Path) -> None:
    """The connection is cut every 250 kB; the text equals the native one."""
    models_server.answer = lambda handler, start: in_pieces(handler, start, 250_000, 0.2)
    digest = hashlib.sha256(models_server.body).hexdigest()
    text, seen = python.run(f"""
import halfbyte
seen = []
model = await halfbyte.load_url("{models_server.url}", sha256="{digest}", keep=False,
                                progress=lambda done, total: seen.append((done, total)))
pieces = [piece async for piece in model.astream("Once", max_tokens=40, temperature=0)]
["".join(pieces), seen]
""")
    with halfbyte.load(models / "Q4_0.gguf") as model:
        assert text == model.generate("Once", max_tokens=40, temperature=0)
    size = len(models_server.body)
    starts = models_server.starts  # a browser may lose bytes that arrived just before the cut
    assert starts[0] == 0
    assert len(starts) >= 3
    assert all(0 < b - a <= 250_000 for a, b in itertools.pairwise(starts))
    assert [seen[0], seen[-1]] == [[0, size], [size, size]]


def test_cached_models_load_without_network(python: Python, models_server: Server) -> None:
    code = f"""
import halfbyte
model = await halfbyte.load_url("{models_server.url}")
model.generate("Once", max_tokens=8, temperature=0)
"""
    first = python.run(code)
    assert len(models_server.starts) == 1
    models_server.answer = status(500)
    assert python.run(code) == first
    assert len(models_server.starts) == 1
    python.run(f"from halfbyte.download import forget\nawait forget('{models_server.url}')")


FETCH = """
from halfbyte.download import fetch, kept
import hashlib
file = await fetch("{url}")
[file.kept, hashlib.sha256(file.data.data).hexdigest(), file.note]
"""
# Damage to a cached model's file; FILE is its handle, RECORD that of its metadata.
DAMAGE = {
    "a flipped bit": "await write(FILE, position=SIZE // 2, data=to_js(b'?'))",
    "the last byte": "await write(FILE, position=SIZE - 1, data=to_js(b'?'))",
    "cut": "await write(FILE, type='truncate', size=SIZE - 1)",
    "longer": "await write(FILE, position=SIZE, data=to_js(b'?'))",
    "empty": "await write(FILE, type='truncate', size=0)",
    "no record": "await write(RECORD, type='truncate', size=0)",
    "a record of something else": "await write(RECORD, position=0, data=to_js(b'[]'))",
    "a record gone": "await call(folder, 'removeEntry', kept._name(URL) + '.json')",
    "a record cut": "await write(RECORD, type='truncate', size=40)",
}
HARM = """
from halfbyte.download import kept
from halfbyte.download.browser import call, to_js, to_object
URL, SIZE = "{url}", {size}
folder = (await kept.open_folder()).directory
FILE = await call(folder, "getFileHandle", kept._name(URL))
RECORD = await call(folder, "getFileHandle", kept._name(URL) + ".json")

async def write(handle, type="write", **what):
    stream = await call(handle, "createWritable", to_object(keepExistingData=True))
    await call(stream, "write", to_object(type=type, **what))
    await call(stream, "close")

{action}
"""


def fetched(python: Python, server: Server) -> tuple[bool, bool]:
    """Whether the bytes came from storage, and whether they equal the server's."""
    came, digest, note = python.run(FETCH.format(url=server.url))
    assert not note
    return came, digest == hashlib.sha256(server.body).hexdigest()


def forget(python: Python, server: Server) -> None:
    python.run(f"from halfbyte.download import forget\nawait forget('{server.url}')")


@pytest.mark.browser
def test_a_damaged_cached_file_is_fetched_again(
    python: Python, models_server: Server, request: pytest.FixtureRequest
) -> None:
    body = models_server.body = np.random.default_rng(1).bytes((1 << 24) + 1000)  # two parts
    assert fetched(python, models_server) == (False, True)
    # Python decides on them in the same way everywhere; how files are read depends on the place.
    everything = request.node.callspec.params["python"] == "worker"
    damages = DAMAGE if everything else dict(list(DAMAGE.items())[::3])
    for name, action in damages.items():
        python.run(HARM.format(url=models_server.url, size=len(body), action=action))
        assert fetched(python, models_server) == (False, True), name
        assert fetched(python, models_server) == (True, True), name
    assert len(models_server.starts) == 1 + len(damages)
    forget(python, models_server)


IN_PLACE = """
import hashlib
from halfbyte.download import browser, fetch, kept
from halfbyte.download.browser import call
sliced, read_slice = [], browser._read_slice

async def counted(*arguments):
    sliced.append(1)
    await read_slice(*arguments)

browser._read_slice = counted
FILE = await call((await kept.open_folder()).directory, "getFileHandle", kept._name("{url}"))
worker, found = hasattr(FILE, "createSyncAccessHandle"), []
for lock in (False, True) if worker else (False,):
    held = await call(FILE, "createSyncAccessHandle") if lock else None
    file = await fetch("{url}")
    if held:
        held.close()
    same = hashlib.sha256(file.data.data).hexdigest() == "{digest}"
    found.append((file.kept, same, len(sliced)))
browser._read_slice = read_slice
[worker, found]
"""


def test_workers_read_kept_files_in_place(python: Python, models_server: Server) -> None:
    """Unless another tab has the file open, so that it is locked."""
    body = models_server.body = np.random.default_rng(2).bytes((1 << 24) + 1000)
    assert fetched(python, models_server) == (False, True)
    digest = hashlib.sha256(body).hexdigest()
    worker, found = python.run(IN_PLACE.format(url=models_server.url, digest=digest))
    assert found == ([[True, True, 0], [True, True, 2]] if worker else [[True, True, 2]])
    assert len(models_server.starts) == 1
    forget(python, models_server)


HIDE = """
import js
from halfbyte.download import kept, storage
handles = js.FileSystemFileHandle.prototype
handles.hidden = handles.createWritable
js.Reflect.deleteProperty(handles, "createWritable")
isinstance(await kept.open_folder(), storage.CachedFolder)
"""
SHOW = """
import js
handles = js.FileSystemFileHandle.prototype
handles.createWritable = handles.hidden
"""
FLIP = """
import numpy as np
from halfbyte.download import kept
folder, name = await kept.open_folder(), kept._name("{url}")
data = np.array((await (await folder.file(name)).arrayBuffer()).to_py(), np.uint8)
data[1000] ^= 1
await folder.write(name, data)
"""
LISTED = """
from halfbyte.download import kept
folder = await kept.open_folder()
listed = [await kept.shelf(), sorted(await folder.names())]
await kept.forget("{url}")
[*listed, await folder.names()]
"""


def test_in_the_cache_without_a_private_file_system(python: Python, models_server: Server) -> None:
    """As in WebKitGTK: kept, checked when it is read, listed and forgotten."""
    url, size = models_server.url, len(models_server.body)
    assert python.run(HIDE) is True
    try:
        assert fetched(python, models_server) == (False, True)
        assert fetched(python, models_server) == (True, True)
        python.run(FLIP.format(url=url))
        assert fetched(python, models_server) == (False, True)
        assert fetched(python, models_server) == (True, True)
        shelf, names, rest = python.run(LISTED.format(url=url))
    finally:
        python.run(SHOW)
    assert len(models_server.starts) == 2
    assert shelf == [{"url": url, "size": size}]
    assert names[1] == f"{names[0]}.json"
    assert rest == []


DATES = [f"Mon, 01 Jan 2024 00:00:0{second} GMT" for second in (1, 2)]


@pytest.mark.parametrize("shown", ["ETag", "Last-Modified", "Content-Length"])
def test_a_file_that_changed_on_the_server(
    python: Python, models_server: Server, shown: str
) -> None:
    """The headers that another origin may read reveal the change."""
    body = models_server.body
    hidden = {"Access-Control-Expose-Headers": ""}
    date = {"Last-Modified": DATES[0]}
    models_server.headers = {"ETag": {}, "Last-Modified": hidden | date}.get(shown, hidden)
    assert fetched(python, models_server) == (False, True)
    assert fetched(python, models_server) == (True, True)
    models_server.body = body[shown == "Content-Length" :][::-1]
    if shown == "Last-Modified":
        models_server.headers["Last-Modified"] = DATES[1]
    assert fetched(python, models_server) == (False, True)
    assert fetched(python, models_server) == (True, True)
    assert (len(models_server.starts), models_server.heads) == (2, 3)
    for status_ in (404, 405, 503):  # a server without this information
        models_server.body, models_server.head_status = body + b"more", status_
        assert fetched(python, models_server) == (True, False)
    forget(python, models_server)


WATCH = """
import js
from pyodide.code import run_js
run_js('''
  const { fetch } = self, { getFileHandle } = FileSystemDirectoryHandle.prototype;
  const watched = self.watched = { signals: [], opened: [], fetch, getFileHandle };
  self.fetch = (address, options) => {
    if (options?.method === "HEAD") watched.signals.push(options.signal);
    return fetch(address, options);
  };
  FileSystemDirectoryHandle.prototype.getFileHandle = function (name, options) {
    if (!options?.create) watched.opened.push(name);
    return getFileHandle.call(this, name, options);
  };
''')
None
"""
WATCHED = """
import js
watched = js.watched
js.fetch = watched.fetch
js.FileSystemDirectoryHandle.prototype.getFileHandle = watched.getFileHandle
opened = watched.opened.to_py()
[[signal.aborted for signal in watched.signals], len(opened), len(set(opened))]
"""


def test_a_server_that_does_not_answer(python: Python, models_server: Server) -> None:
    """If the server does not answer whether the file has changed, the cached one is used.

    Nobody waits on if that file is damaged; it is opened once.
    """
    assert fetched(python, models_server) == (False, True)
    models_server.head_status = 0
    python.run(FLIP.format(url=models_server.url))
    python.run(WATCH)
    assert fetched(python, models_server) == (False, True)
    aborted, opened, different = python.run(WATCHED)
    assert aborted == [True]
    assert opened == different
    python.run("from halfbyte.download import kept\nkept.PATIENCE = 0.2")
    assert fetched(python, models_server) == (True, True)
    python.run("from halfbyte.download import kept\nkept.PATIENCE = 5.0")
    models_server.over.set()
    forget(python, models_server)


def test_one_copy_in_the_heap(python: Python, models_server: Server) -> None:
    """The heap, which never shrinks, grows by less than 1.5 files, including the caching."""
    models_server.body = np.random.default_rng(0).bytes(SIZE)
    grown, digest = python.run(f"""
import hashlib, pyodide_js
from halfbyte.download import fetch, forget
url = "{models_server.url}"
before = pyodide_js._module.HEAPU8.length
file = await fetch(url)
digest = hashlib.sha256(file.data.data).hexdigest()
assert not file.kept and not file.note, file.note
del file
again = await fetch(url)
assert again.kept and hashlib.sha256(again.data.data).hexdigest() == digest
await forget(url)
[pyodide_js._module.HEAPU8.length - before, digest]
""")
    assert digest == hashlib.sha256(models_server.body).hexdigest()
    assert grown < 1.5 * SIZE


@pytest.mark.parametrize("name", BAD_ANSWERS)
def test_problems_are_reported(python: Python, models_server: Server, name: str) -> None:
    models_server.answer, expected = BAD_ANSWERS[name]
    result = python.run(f"""
import halfbyte
from halfbyte.download import transfer
transfer.PAUSE = 0.001
try:
    await halfbyte.load_url("{models_server.url}")
except halfbyte.HalfbyteError as error:
    text = str(error)
text
""")
    assert expected in result
    assert "\n" not in result


def test_invalid_models_are_not_cached(python: Python, models_server: Server) -> None:
    models_server.body = b"<html>Not found</html>" * 10
    result = python.run(f"""
import halfbyte
from halfbyte.download import kept
url = "{models_server.url}"
try:
    await halfbyte.load_url(url)
except halfbyte.HalfbyteError as error:
    text = str(error)
[text, await kept.find(url, print)]
""")
    assert "model.gguf: not a model file that halfbyte reads" in result[0]
    assert result[1] is None


def test_a_different_hash_is_refused(python: Python, models_server: Server) -> None:
    result = python.run(f"""
import halfbyte
try:
    await halfbyte.load_url("{models_server.url}", sha256="{"0" * 64}")
except halfbyte.HalfbyteError as error:
    text = str(error)
text
""")
    assert f"expected sha256 {'0' * 64}, found" in result


TICKS = "window.ticks = 0; setInterval(() => { window.ticks += 1; }, 1);"


@pytest.mark.browser
@pytest.mark.parametrize("python", ["main"], indirect=True)
def test_a_page_stays_responsive_while_python_generates_on_its_thread(python: Python) -> None:
    """Timers run between tokens of NumPy, which is slow, but not while `generate` runs."""
    streaming, generating = python.run(f"""
import halfbyte, js
from pathlib import Path
path = Path(halfbyte.__path__[0]) / "data/storyteller.bin"
slow = halfbyte.load(path, backend="numpy")
js.eval("{TICKS}")
[piece async for piece in slow.astream("Once upon a time", max_tokens=60)]
streaming = js.window.ticks
slow.generate("Once upon a time", max_tokens=60)
[streaming, js.window.ticks - streaming]
""")
    assert generating == 0
    assert streaming >= 5, streaming


LEFT = """
import asyncio, hashlib
from halfbyte.download import fetch, forget, kept

class Left(Exception):
    pass

def leave(done, total):
    if done > 1_500_000:
        raise Left

kept.STEP = 1 << 20
try:
    await fetch("{url}", progress=leave)
except Left:
    pass
while not (listed := await kept.shelf()):
    await asyncio.sleep(0.01)
{then}
found = await fetch("{url}")
names = await (await kept.open_folder()).names()
whole = await kept.shelf()
await forget("{url}")
kept.STEP = 1 << 26
[listed, hashlib.sha256(found.data.data).hexdigest(), len(names), whole, await kept.shelf()]
"""


def test_a_transfer_goes_on_in_another_visit(python: Python, models_server: Server) -> None:
    """Where it stopped; from the beginning if what was kept is damaged, or the file has changed."""
    bodies = [np.random.default_rng(seed).bytes(3_000_000) for seed in (8, 9)]
    url = models_server.url
    harm = HARM.format(url=url, size=1 << 20, action=DAMAGE["a flipped bit"])
    harm = harm.replace("kept._name(URL))", "kept._name(URL) + '.0')", 1).replace("RECORD = ", "# ")
    for then, body, start in (("", bodies[0], 1 << 20), (harm, bodies[0], 0), ("", bodies[1], 0)):
        models_server.body = bodies[0]
        models_server.starts.clear()
        if body is not bodies[0]:
            python.run(LEFT.split("while not")[0].format(url=url))
            python.run(
                "import asyncio\nfrom halfbyte.download import kept\n"
                "while not await kept.shelf():\n    await asyncio.sleep(0.01)"
            )
            models_server.body = body
        listed, digest, names, whole, rest = python.run(LEFT.format(url=url, then=then))
        assert listed == [{"url": url, "size": 1 << 20, "total": len(body)}]
        assert digest == hashlib.sha256(body).hexdigest()
        assert models_server.starts[-1] == start or body is bodies[1]
        assert names == 2
        assert (whole, rest) == ([{"url": url, "size": len(body)}], [])
