"""Threads in a tab: equal results, constant memory, and failures of workers."""

from __future__ import annotations

import base64
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper
from tests.browser.conftest import TABLES, Python
from tests.browser.workers_end import WORKERS_END
from tests.text import adapters

import halfbyte

TOKENS = 60
MODELS = ("F32", "Q8_0", "Q4_0", "Q4_K_M")

MAIN = pytest.param("main", marks=pytest.mark.browser)
isolated = pytest.mark.parametrize("python", ["worker", MAIN], indirect=True)
in_worker = pytest.mark.parametrize("python", ["worker"], indirect=True)
plain = pytest.mark.parametrize("python", ["plain"], indirect=True)

# Texts of every model with 1 to 4 threads, and the numbers of workers started.
GENERATE = """
import os
import halfbyte
from pathlib import Path
from halfbyte.core.backends import libraries
caches = (libraries.library, libraries.instruction_sets, libraries.shared_library)
os.environ["HALFBYTE_KERNELS"] = str(Path(halfbyte.__path__[0]) / "{file}")
for cache in caches:
    cache.cache_clear()
results = []
for name in {models}:
    for threads in (1, 2, 3, 4):
        model = await halfbyte.load_url(f"/models/{{name}}.gguf", keep=False, threads=threads)
        for _ in range(100):  # without a blocking wait for workers, they start now
            ready = sum(crew.ready for crew in workers._crews.values())
            if ready == threads - 1:
                break
            await asyncio.sleep(0.01)
        text = model.generate("", max_tokens={tokens}, temperature=0)
        results.append([name, model.executable.backend, model.executable.threads, ready, text])
        model.close()
await workers_end()
del os.environ["HALFBYTE_KERNELS"]
for cache in caches:
    cache.cache_clear()
results
"""


@isolated
@pytest.mark.parametrize("table", TABLES)
def test_golden_texts(python: Python, models: Path, table: str) -> None:
    expected = []
    for name in MODELS:
        with halfbyte.load(models / f"{name}.gguf") as model:
            text = model.generate("", max_tokens=TOKENS, temperature=0)
        expected += [[name, f"native-{table}", n, n - 1, text] for n in (1, 2, 3, 4)]
    code = GENERATE.format(file=TABLES[table], models=MODELS, tokens=TOKENS)
    assert python.run(WORKERS_END + code) == expected


def graph() -> tuple[str, list[int]]:
    """A product, an operator without a kernel and a convolution, in Base64; the input's shape."""
    random = np.random.default_rng(2)
    weights = {
        "w": random.standard_normal((64, 256)).astype(np.float32),
        "k": random.standard_normal((32, 1, 3, 3)).astype(np.float32),
        "axis": np.array(1, np.int64),
    }
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["h"]),
        helper.make_node("CumSum", ["h", "axis"], ["c"]),
        helper.make_node("Reshape", ["c", "shape"], ["image"]),
        helper.make_node("Conv", ["image", "k"], ["maps"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["maps"], ["y"]),
    ]
    weights["shape"] = np.array([1, 1, 128, 256], np.int64)
    value = helper.make_tensor_value_info
    proto = helper.make_graph(
        nodes, "graph", [value("x", TensorProto.FLOAT, [128, 64])],
        [value("y", TensorProto.FLOAT, [1, 32, 128, 256])],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )  # fmt: skip
    model = helper.make_model(proto, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    return base64.b64encode(model.SerializeToString()).decode(), [128, 64]


def layers() -> tuple[str, list[int]]:
    """Two products in a row, in Base64; and the shape of an input with a first result of 8 MB."""
    random = np.random.default_rng(3)
    shapes = {"up": (64, 1024), "down": (1024, 32)}
    weights = {n: random.standard_normal(s).astype(np.float32) for n, s in shapes.items()}
    nodes = [
        helper.make_node("MatMul", ["x", "up"], ["h"]),
        helper.make_node("Relu", ["h"], ["r"]),
        helper.make_node("MatMul", ["r", "down"], ["y"]),
    ]
    value = helper.make_tensor_value_info
    proto = helper.make_graph(
        nodes, "layers", [value("x", TensorProto.FLOAT, [2048, 64])],
        [value("y", TensorProto.FLOAT, [2048, 32])],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )  # fmt: skip
    model = helper.make_model(proto, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    return base64.b64encode(model.SerializeToString()).decode(), [2048, 64]


@isolated
def test_beams_and_sessions(python: Python, models: Path) -> None:
    """Beams copy rows of the cache; sessions compute some nodes in NumPy, and batches in slices.

    Python's memory holds no weights of sessions with several threads, beside the file.
    """
    del models
    (data, shape), (sliced, long) = graph(), layers()
    code = f"""
import base64, gc, tracemalloc
import importlib
import numpy as np
import halfbyte
texts, outputs = [], []
x = np.random.default_rng(1).standard_normal({shape}).astype(np.float32)
for threads in (1, 3):
    with await halfbyte.load_url("/models/Q8_0.gguf", keep=False, threads=threads) as model:
        texts.append(model.beam_search("Tom", max_tokens=20, num_beams=3)[0].text)
    options = halfbyte.SessionOptions()
    options.intra_op_num_threads = threads
    session = halfbyte.InferenceSession(base64.b64decode("{data}"), options)
    for _ in range(3):
        outputs.append(session.run(None, dict(x=x))[0].tobytes())
    session.close()
slices, results, counts = importlib.import_module("halfbyte.onnx.passes.slice_rows"), set(), []
x = np.random.default_rng(1).standard_normal({long}).astype(np.float32)
cache = slices.CACHE
for threads, slices.CACHE in ((1, 1 << 40), (1, cache), (2, cache), (3, cache)):
    options = halfbyte.SessionOptions()
    options.intra_op_num_threads = threads
    session = halfbyte.InferenceSession(base64.b64decode("{sliced}"), options)
    results.add(session.run(None, dict(x=x))[0].tobytes())
    [runner] = session._runners.values()
    counts.append(sum(len(program.instructions) for program in runner.programs()))
    session.close()
data = base64.b64decode("{sliced}")
for options.intra_op_num_threads in (1, 2):
    tracemalloc.start()
    session = halfbyte.InferenceSession(data, options)
    session.run(None, dict(x=x))
    gc.collect()
    held = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    session.close()
counts = [n // counts[0] for n in counts]
[texts[0] == texts[1], len(set(outputs)), len(results), counts, held]
"""
    *same, held = python.run(code)
    assert same == [True, 1, 1, [1, 8, 4, 3]]
    assert held < 200_000, "without 4 * 1024 * (64 + 32) bytes of packed weights"


@in_worker
def test_a_graph_is_not_in_the_heap(python: Python, models: Path) -> None:
    """Nor are its weights, from an address or from a file; every shape has the same results."""
    size = (models / "layers.onnx").stat().st_size
    code = """
import gc, tracemalloc
import numpy as np
import halfbyte
from halfbyte.core.backends import libraries
from halfbyte.formats.mapped import is_apart
from pathlib import Path
from pyodide.http import pyfetch
heap = __import__("pyodide_js")._module
x = np.random.default_rng(1).standard_normal((9, 512)).astype(np.float32)

def outputs(session):
    return [session.run(None, dict(x=x[:rows]))[0].tobytes() for rows in (9, 1, 4)]

options = halfbyte.SessionOptions()
options.intra_op_num_threads = 2
memory, size, before = libraries.shared_library().memory, len(heap.HEAPU8), []
tracemalloc.start()
held, results = [], []
for number in range(3):
    session = await halfbyte.open_session("/models/layers.onnx", options, keep=False)
    results.append(outputs(session))
    gc.collect()
    held.append(tracemalloc.get_traced_memory()[0])
    apart = [is_apart(v) for v in session.model.graph.initializers.stored.values()]
    session.close()
    del session
    gc.collect()
    before.append(memory.allocated)
grown = len(heap.HEAPU8) - size
tracemalloc.stop()
path = Path("/tmp/layers.onnx")
path.write_bytes(await (await pyfetch("/models/layers.onnx")).bytes())
for options.intra_op_num_threads in (2, 1):
    with halfbyte.InferenceSession(path, options) as session:
        results.append(outputs(session))
path.unlink()
[apart, grown, max(held), len(set(before)), [r == results[0] for r in results]]
"""
    apart, grown, held, ends, same = python.run(code)
    assert apart == [True] * 3
    assert grown < size / 2
    assert held < size / 4
    assert ends == 1, "bytes of a closed session stay allocated"
    assert same == [True] * 5


@pytest.mark.browser
@in_worker
def test_the_weights_are_not_in_the_heap(python: Python, models: Path) -> None:
    """Loading repeatedly needs no more memory than once, in either memory, closed or not."""
    code = """
import halfbyte
from halfbyte.core.backends import libraries
heap = __import__("pyodide_js")._module
memory = libraries.shared_library().memory

async def cycle(close):
    model = await halfbyte.load_url("/models/Q4_0.gguf", keep=False, threads=3)
    model.generate("Tom", max_tokens=5)
    if close:
        model.close()
    del model
    await workers_end()

await cycle(True)
sizes = [len(heap.HEAPU8), memory.bytes.size, memory.allocated]
for number in range(40):
    await cycle(number % 2)
[sizes, [len(heap.HEAPU8), memory.bytes.size, memory.allocated]]
"""
    del models
    before, after = python.run(WORKERS_END + code)
    assert before == after


@pytest.mark.browser
@in_worker
def test_the_fastest_number_is_remembered(python: Python, models: Path) -> None:
    """By the next model of the same shapes, without a measurement, until it is forgotten."""
    del models
    code = """
import asyncio
import halfbyte
from halfbyte.core.backends import cores
from halfbyte.download import threads

async def until(there):
    for _ in range(1000):
        if value := await there():
            return value
        await asyncio.sleep(0.01)

async def chosen(name, runs):
    model = await halfbyte.load_url(f"/models/{name}.gguf", keep=False)
    tuner = model.executable.tuner
    async def connected():
        return tuner.on_answer is not dict
    await until(connected)
    for number in range(runs):
        model.feed([1 + number])
    answer = tuner._chosen.get(False)
    model.close()
    return answer

browser_cores, cores._browser_cores = cores._browser_cores, lambda: 2
await threads.forget()
found = await chosen("Q4_0", 8)
await until(threads._read)
answers = [await chosen("Q4_0", 0), await chosen("Q8_0", 0)]
await threads.forget()
answers.append(await chosen("Q4_0", 0))
cores._browser_cores = browser_cores
[found in (1, 2), answers == [found, None, None]]
"""
    assert python.run(code) == [True, True]


@pytest.mark.browser
@in_worker
def test_no_wake_is_lost(python: Python, models: Path) -> None:
    """Runs after pauses of all lengths around the time after which workers fall asleep."""
    del models
    code = """
import asyncio, random, time
import numpy as np
import halfbyte
model = await halfbyte.load_url("/models/Q8_0.gguf", keep=False, threads=2)
single = await halfbyte.load_url("/models/Q8_0.gguf", keep=False, threads=1)
random.seed(1)
model.feed([1])
expected, wrong = single.feed([1]).tobytes(), 0
for number in range(3000):
    model.reset()
    wrong += model.feed([1]).tobytes() != expected
    end = time.perf_counter() + random.choice([0, 0, 1e-4, 1e-3, 2e-3, 4e-3])
    while time.perf_counter() < end:
        pass
model.close()
single.close()
wrong
"""
    assert python.run(code) == 0


@in_worker
def test_models_in_a_row(python: Python, models: Path) -> None:
    """Loaded without returning to the event loop: workers start, and the next model uses them."""
    del models
    code = """
import halfbyte
from pyodide.http import pyfetch
from halfbyte.core.backends import workers
data = await (await pyfetch("/models/Q8_0.gguf")).bytes()
counts, crews = [], []
for threads in (2, 2, 3, 2, 3, 2):
    with halfbyte.load_bytes(data, "a.gguf", threads=threads) as model:
        model.generate("Tom", max_tokens=2)
        crews.append(next(crew for key, crew in workers._crews.items() if key[1] == threads))
        counts.append([threads, crews[-1].ready])
[counts, len(set(map(id, crews)))]
"""
    counts, crews = python.run(code)
    assert counts == [[threads, threads - 1] for threads in (2, 2, 3, 2, 3, 2)]
    assert crews < 6


@in_worker
def test_a_worker_that_dies(python: Python, models: Path) -> None:
    """While it computes: this run fails with a message, the next one succeeds."""
    del models
    code = """
import asyncio
import numpy as np
import halfbyte
from halfbyte.core.backends import workers
workers.DEAD = 1.0
model = await halfbyte.load_url("/models/Q8_0.gguf", keep=False, threads=2)
expected = model.generate("Tom", max_tokens=20, temperature=0)
[crew] = workers._crews.values()
wait = crew.library.pool_wait
crew.library.pool_wait = lambda address: 0  # no result ever arrives
run = model.executable._run
model.executable._run = lambda *given: given[2] if given[3] > given[2] else run(*given)
try:
    model.generate("Tom", max_tokens=20, temperature=0)
    message = ""
except halfbyte.HalfbyteError as error:
    message = str(error)
crew.library.pool_wait, model.executable._run = wait, run
again = model.generate("Tom", max_tokens=20, temperature=0)
left = len(workers._crews)
model.close()
[message, again == expected, left]
"""
    message, equal, left = python.run(code)
    assert "has not answered for 1 seconds" in message
    assert "further runs use one thread" in message
    assert equal
    assert left == 0


@in_worker
def test_a_worker_that_is_terminated(python: Python, models: Path) -> None:
    """Between two runs: the next run does not wait for it."""
    del models
    code = """
import halfbyte
from halfbyte.core.backends import workers
model = await halfbyte.load_url("/models/Q8_0.gguf", keep=False, threads=2)
expected = model.generate("Tom", max_tokens=20, temperature=0)
[crew] = workers._crews.values()
for worker in crew._workers:
    worker.terminate()
again = model.generate("Tom", max_tokens=20, temperature=0)
model.close()
crew.terminate()  # its worker will never say that it has ended
again == expected
"""
    assert python.run(code) is True


@in_worker
def test_numbers_of_threads(python: Python, models: Path) -> None:
    del models
    code = """
import halfbyte
results = []
for threads in (0, -1, 65, 10_000, None):
    try:
        model = await halfbyte.load_url("/models/Q8_0.gguf", keep=False, threads=threads)
        results.append(model.executable.threads)
        model.close()
    except halfbyte.HalfbyteError as error:
        results.append(str(error))
results
"""
    zero, negative, above, huge, default = python.run(code)
    assert zero == default >= 1
    assert negative.startswith("-1 threads: expected 1 to ")
    assert above == "65 threads: expected 1 to 64 in a browser"
    assert huge == "10000 threads: expected 1 to 64 in a browser"


@in_worker
def test_two_models_at_once(python: Python, models: Path) -> None:
    """With shared and with separate workers; one is closed while the other continues."""
    del models
    code = """
import halfbyte
from halfbyte.core.backends import workers
a = await halfbyte.load_url("/models/Q8_0.gguf", keep=False, threads=2)
b = await halfbyte.load_url("/models/Q4_0.gguf", keep=False, threads=2)
c = await halfbyte.load_url("/models/Q4_0.gguf", keep=False, threads=3)
crews = len(workers._crews)
options = dict(max_tokens=15, temperature=0)
first = [m.generate("Tom", **options) for m in (a, b, c)]
mixed = ["", "", ""]
for pieces in zip(*(m.stream("Tom", **options) for m in (a, b, c))):
    mixed = [text + piece for text, piece in zip(mixed, pieces)]
b.close()
last = [m.generate("Tom", **options) for m in (a, c)]
a.close(), c.close()
[crews, first == mixed, first[1] == first[2], last == [first[0], first[2]]]
"""
    assert python.run(code) == [2, True, True, True]


@in_worker
def test_adapters(python: Python, models: Path, tmp_path: Path) -> None:
    """In the heap and in the memory that threads share: the same texts as natively."""
    names = [f"blk.{layer}.{part}.weight" for layer in (0, 2) for part in ("attn_q", "ffn_down")]
    with halfbyte.load(models / "Q4_0.gguf") as model:
        shapes = {name: model.file.tensors[name].shape for name in names}
    path = adapters.write_gguf_adapter(tmp_path / "a.gguf", adapters.changes_of(shapes, 4), 4.0)
    code = f"""
import base64, halfbyte
from pathlib import Path
Path("/tmp/a.gguf").write_bytes(base64.b64decode("{base64.b64encode(path.read_bytes()).decode()}"))
texts = []
for threads in (1, 2):
    model = await halfbyte.load_url(
        "/models/Q4_0.gguf", keep=False, threads=threads, lora={{"/tmp/a.gguf": 1.0}}
    )
    for scale in (1, 0.5, 0):
        texts.append(model.adapter("a", scale).generate("Tom", max_tokens=15, temperature=0))
    model.close()
texts
"""
    with halfbyte.load(models / "Q4_0.gguf", lora={path: 1.0}) as model:
        expected = [
            model.adapter("a", scale).generate("Tom", max_tokens=15, temperature=0)
            for scale in (1, 0.5, 0)
        ]
    assert len(set(expected)) == 3
    assert python.run(code) == 2 * expected


@in_worker
def test_a_file_cut_short(python: Python, models: Path) -> None:
    """The error equals that without threads, and the memory is freed."""
    del models
    code = """
import halfbyte
from pyodide.http import pyfetch
from halfbyte.core.backends import libraries
await workers_end()
data = await (await pyfetch("/models/Q8_0.gguf")).bytes()
memory = libraries.shared_library().memory
before, messages = memory.allocated, []
for size in (3, 20, 400, 5000, len(data) - 1):
    for threads in (1, 2):
        try:
            halfbyte.load_bytes(data[:size], "cut.gguf", threads=threads)
        except halfbyte.HalfbyteError as error:
            messages.append(str(error))
await workers_end()
[messages, memory.allocated - before]
"""
    messages, kept = python.run(WORKERS_END + code)
    assert messages[::2] == messages[1::2]
    assert len(messages) == 10
    assert kept == 0


@pytest.mark.browser
@plain
def test_a_page_that_is_not_isolated(python: Python, models: Path) -> None:
    """One thread, and a warning that names the headers to those who ask for more."""
    del models
    code = """
import warnings, halfbyte
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    counts = []
    for threads in (None, 1, 2):
        model = await halfbyte.load_url("/models/Q8_0.gguf", keep=False, threads=threads)
        counts.append(model.executable.threads)
        model.close()
[counts, [str(w.message) for w in caught]]
"""
    counts, messages = python.run(code)
    assert counts == [1, 1, 1]
    assert messages
    assert all("Cross-Origin-Opener-Policy" in message for message in messages)
