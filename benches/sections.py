"""The sections of docs/benchmarks.md, each a table of one bench's results."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from benches import tables
from benches.browser import table as browser
from benches.figures import Content, series_of
from benches.onnx import table as onnx
from benches.peers import table as peers
from benches.peers.limits import Limits, Work


@dataclass(frozen=True)
class Section:
    """A part of the page: one table of a bench's results."""

    bench: str
    topic: str
    title: str
    text: str
    table: Callable[[Content], str]


def _native(content: Content) -> str:
    series = [s for s in series_of(content) if s.test != "load" and s.engine in NATIVE]
    return peers.native(series, _work(content), _limits(content))


def _tabs(content: Content) -> str:
    series = [s for s in series_of(content) if s.test != "load"]
    tabs = [s for s in series if s.engine not in NATIVE]
    natives = [s for s in series if s.engine in NATIVE]
    return peers.tabs(tabs, natives, _work(content), _limits(content))


def _loads(content: Content) -> str:
    return peers.loads([s for s in series_of(content) if s.test == "load"])


def _types(content: Content) -> str:
    return peers.types(series_of(content), content["rows"])


def _limits(content: Content) -> Limits:
    limits = content["machine_info"]["limits"]
    return Limits(*({int(key): value for key, value in limits[k].items()} for k in ("read", "dot")))


def _work(content: Content) -> dict[str, Work]:
    return {name: Work(**work) for name, work in content["machine_info"]["work"].items()}


def _graphs(content: Content) -> str:
    return onnx.runs([s for s in series_of(content) if not s.test.startswith("load ")])


def _graph_loads(content: Content) -> str:
    return onnx.loads([s for s in series_of(content) if s.test.startswith("load ")])


NATIVE = ("halfbyte", "llama.cpp")
TEXT, GRAPHS, INSIDE = "Language models", "ONNX models", "Parts of halfbyte"
SECTIONS = (
    Section(
        "quality", TEXT, "Quality of each type",
        "The shipped storyteller, 992,640 weights: perplexity on 40 held-out stories, and the "
        "mean divergence (KL) of its token probabilities from llama.cpp's on the same file.",
        lambda content: tables.quality(content["rows"]),
    ),
    Section(
        "rounding", TEXT, "Rounding at equal bytes",
        "What a file loses, judged by llama.cpp: the mean KL divergence of its distributions from "
        "those in F32 on held-out text, times 1,000, the same as a share of what llama.cpp's "
        "quantizer with importance loses in the same type, and how often the likeliest token is "
        "the same. A number in place of a type is `quantize --bits`. *Text* is `--calibrate TEXT`, "
        "from which llama.cpp's importance is as well. SmolLM2 is that of `benches.trained`, and "
        "its texts are a book's: see [Performance](performance.md).",
        lambda content: tables.rounding(content["rows"]),
    ),
    Section(
        "popular", TEXT, "Models of today",
        "Folders with random weights at the sizes of published models, as a hub has them: millions "
        "of weights, MB of the file in 4 bits, seconds and peak memory of `quantize --int4`, of a "
        "process that loads the file and answers with 16 tokens at a context of 1,024, and of a "
        "tab that fetches it and does the same. Memory includes mapped files; a tab's is Pyodide's "
        "heap and the kernels' memory.",
        lambda content: tables.popular(content["rows"]),
    ),
    Section(
        "peers", TEXT, "Beside llama.cpp",
        "Tokens/s beside llama.cpp, built for this processor, with flash attention and repacking, "
        "on the same files: SmolLM2-135M's shape and Llama 3.2 1B's (1B) with random weights. "
        "pp128 is a prompt of 128 tokens at once, tg64 decodes 64 tokens one by one. The limit of "
        "tg is the measured memory bandwidth, that of pp the measured peak of the int8 dot "
        "product.",
        _native,
    ),
    Section(
        "peers", TEXT, "In a browser tab, beside wllama",
        "Tokens/s in tabs of one Chromium: halfbyte under Python in Pyodide, and wllama, which is "
        "llama.cpp in WebAssembly. The ratio is that of relaxed SIMD to the row's engine, with as "
        "many threads. The first run is the one in which V8 still compiles. The last column is the "
        "share of the speed at which the kernels read memory in the tab.",
        _tabs,
    ),
    Section(
        "tab-threads", TEXT, "Threads in a browser tab",
        "The same on one and two threads, on a virtual machine whose two cores often have the time "
        "of one: see [Performance](performance.md).",
        _tabs,
    ),
    Section(
        "peers", TEXT, "Loading",
        "From `load` to the first token, with the file in the system's cache, in a fresh process; "
        "peak memory includes the pages of the mapped file.",
        _loads,
    ),
    Section(
        "types", TEXT, "Types of few bits, beside llama.cpp",
        "A model of 138 million weights, all matrices in one type, blocks of random bytes: "
        "tokens/s of 64 tokens decoded one by one on one thread, and seconds from opening the file "
        "to the first token. Bits per weight are those in the file and those that halfbyte has in "
        "memory.",
        _types,
    ),
    Section(
        "types-tab", TEXT, "Types of few bits in a tab, beside wllama",
        "The same in tabs of one Chromium, 16 tokens, halfbyte on relaxed SIMD.",
        _types,
    ),
    Section(
        "browser", TEXT, "Small and large models in a tab",
        "Tokens/s of a prompt of 128 tokens and of 32 tokens decoded one by one, in tabs of one "
        "Chromium.",
        lambda content: browser.speeds(series_of(content)),
    ),
    Section(
        "browser", TEXT, "Starting the page",
        "From opening the page to the first token, each engine in a fresh browser: the first "
        "visit, and the median of those after it. An empty Pyodide is a page that starts only "
        "Python.",
        lambda content: browser.starts(series_of(content)),
    ),
    Section(
        "encode", TEXT, "Encoding",
        "MB/s of input, counted as F16, on one thread: plain rounding, the search of scales that "
        "`quantize` uses, and the encoders of llama.cpp, which searches scales of K-quants and IQ "
        "types and rounds plainly to the others, and of PyPI's gguf (NumPy), which rounds plainly. "
        "The ratio compares like with like.",
        lambda content: tables.encode(series_of(content)),
    ),
    Section(
        "embed", TEXT, "Encoders beside llama.cpp",
        "Milliseconds to embed texts by tokens (8 x 128: 8 texts of 128 tokens), with random "
        "weights in Q8_0 at published sizes, on one thread. llama.cpp gets tokens, halfbyte text; "
        "llama.cpp has no MPNet.",
        lambda content: tables.embed(series_of(content)),
    ),
    Section(
        "onnx", GRAPHS, "Beside ONNX Runtime",
        "Milliseconds per run in one process with ONNX Runtime (ORT). MiniLM is all-MiniLM-L6-v2 "
        "with its trained weights (b x n: sentences by tokens), the image models have random "
        "weights. By own: each engine runs its own quantizer's file; by onnxruntime: both run that "
        "of ONNX Runtime's quantizer. The cosine is that of the worst of 32 sentences or 4 images "
        "to the outputs in float32.",
        _graphs,
    ),
    Section(
        "onnx", GRAPHS, "Loading ONNX models",
        "From opening the file to the first output, of a text of 16 tokens or an image.",
        _graph_loads,
    ),
    Section(
        "onnx-browser", GRAPHS, "In a browser tab, beside onnxruntime-web",
        "Milliseconds per run of MiniLM in tabs of one Chromium. The ratio is that of the row's "
        "engine to halfbyte on relaxed SIMD with as many threads. Loading includes Pyodide's "
        "start.",
        lambda content: onnx.tabs(series_of(content)),
    ),
    Section(
        "fusions", INSIDE, "Fused instructions",
        "Two instructions of a program beside the one that the pass `fuse` puts in their place, "
        "in SmolLM2-135M's sizes on one thread.",
        lambda content: tables.fusions(series_of(content)),
    ),
    Section(
        "products", INSIDE, "Products by type and shape",
        "Products with a weight matrix (rows x columns) on one thread: with one row of "
        "activations, as in decoding, and with 128, as in a prompt. In block formats activations "
        "are int8, otherwise floats. GB/s are those of the weights. Marked (*) are cases that "
        "varied by more than a tenth.",
        lambda content: tables.products(series_of(content)),
    ),
)  # fmt: skip
