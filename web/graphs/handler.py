"""Handles the page's requests for ONNX models, one at a time, and posts the results.

Runs inside Pyodide, like `halfbyte.web.engine`, the counterpart for language models. They share no
interface: the engine has one method for each message, and streams pieces of text. A request here is
a JSON object whose `ask` names it; every answer has the kind "graphs", an `event`, and the `view`
that it is for: "search", "onnx" or "sense".
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from halfbyte.errors import HalfbyteError
from halfbyte.text.tokenizers import Tokenizer
from halfbyte.web.engine import PROGRESS_SECONDS, plain
from halfbyte.web.graphs import display, feeds, hearing, naming
from halfbyte.web.graphs.encoder import Encoder
from halfbyte.web.graphs.graph_model import GraphModel
from halfbyte.web.graphs.pdf import pdf_pages
from halfbyte.web.graphs.search import Search
from halfbyte.web.graphs.side_files import is_side_file, labels, tokenizer
from halfbyte.web.graphs.sight import Sight

RUN_SECONDS, RUNS = 0.5, 20  # a model is run repeatedly up to this time and number

Request = Mapping[str, Any]
Reader = Callable[[Any, Callable[[int, "int | None"], None]], Awaitable[Any]]


class Handler:
    """Answers requests; `post` sends one message.

    Parameters
    ----------
    read : callable, optional
        Reads a file of the page; the browser's own unless given.
    """

    def __init__(
        self, post: Callable[[str], object], backend: str = "native", read: Reader | None = None
    ) -> None:
        self._post, self._backend = post, backend
        self._read = read
        self._view, self._stopped, self._busy = "", False, False
        self._search: Search | None = None
        self._parts: dict[str, Any] = {}  # of an encoder that is not complete
        self._model: GraphModel | None = None
        self._tokenizer: Tokenizer | None = None
        self._labels: list[str] = []
        self._namer: tuple[GraphModel, list[str]] | None = None
        self._sight: Sight | None = None
        self._listener: GraphModel | None = None
        self._tasks: dict[str, tuple[str, Callable[[Request, Any], Awaitable[None]]]] = {
            "fetch": ("search", self._fetch),
            "encoder": ("search", self._take_encoder),
            "search": ("search", self._find),
            "pdf": ("search", self._take_pdf),
            "open": ("onnx", self._open),
            "run": ("onnx", self._run),
            "name": ("sense", self._name),
            "see": ("sense", self._see),
            "hear": ("sense", self._hear),
        }

    async def handle(self, request: str, files: Any = None) -> None:
        """Answer one request; `files` are the page's files, or pixels by the input's name."""
        asked = json.loads(request)
        if asked["ask"] == "stop":
            self._stopped = True
            return
        view, task = self._tasks[asked["ask"]]
        if self._busy:
            self._post_event("error", view, text="A model is already running: stop it first.")
            return
        self._busy, self._stopped, self._view = True, False, view
        try:
            await task(asked, files)
        except Exception as error:
            self._say("error", text=plain(error))
        finally:
            self._busy = False

    def _say(self, event: str, **content: Any) -> None:
        self._post_event(event, self._view, **content)

    def _post_event(self, event: str, view: str, **content: Any) -> None:
        self._post(json.dumps({"kind": "graphs", "event": event, "view": view, **content}))

    # ---- search ----------------------------------------------------------------------------------

    async def _fetch(self, asked: Request, files: Any) -> None:
        """Download the site's encoder."""
        from halfbyte import download

        for part in ("tokenizer", "model"):
            progress = self._progress("Loading the model") if part == "model" else None
            file = await download.fetch(asked[part], keep=False, progress=progress)
            self._take(asked[part].rsplit("/", 1)[-1], file.data)
        self._complete()

    async def _take_encoder(self, asked: Request, files: Any) -> None:
        """Read a model and its tokenizer from files in any order."""
        for file in files:
            data = await self._bytes(file)
            self._take(file.name, data)
        self._complete()

    def _take(self, name: str, data: Any) -> None:
        if is_side_file(name):
            self._parts["tokenizer"] = tokenizer(name, data)
        else:
            self._parts["model"] = GraphModel(name, data, self._backend)

    def _complete(self) -> None:
        """Use both parts, or say which one is missing."""
        if len(self._parts) < 2:
            missing = "tokenizer.json" if "model" in self._parts else "model (.onnx)"
            self._say("waiting", text=f"Now drop its {missing}.")
            return
        model, tokens = self._parts["model"], self._parts["tokenizer"]
        self._parts = {}
        encoder = Encoder(model, tokens)
        if self._search is not None:
            self._search.encoder.model.close()
        self._search = Search(encoder)
        self._say("encoder", **model.facts(), tokens=tokens.vocab_size)

    async def _take_pdf(self, asked: Request, files: Any) -> None:
        """Post the text of a PDF file."""
        [file] = files
        data = await self._bytes(file)
        pages = pdf_pages(file.name, bytes(data))
        progress, texts = self._progress("Reading pages", "pages"), list[str]()
        for number, page in enumerate(pages):
            if self._stopped:
                self._say("stopped")
                return
            texts.append(page())
            progress(number + 1, len(pages))
            await asyncio.sleep(0)
        self._say("text", text="\n\n".join(texts))

    async def _find(self, asked: Request, files: Any) -> None:
        """Read the text, if it is a new one, and search it."""
        if self._search is None:
            raise HalfbyteError("There is no model yet.")
        search = self._search
        if search.text != asked["text"]:
            show_progress = self._progress("Reading passages of the text", "passages")

            def progress(done: int, total: int) -> bool:
                show_progress(done, total)
                return not self._stopped

            read = await search.read(str(asked["text"]), progress)
            if read is None:
                self._say("stopped")
                return
            self._say("read", **read)
        hits = await search.find(str(asked["question"]))
        self._say("found", **hits, **search.encoder.model.facts())

    # ---- any model -------------------------------------------------------------------------------

    async def _open(self, asked: Request, files: Any) -> None:
        """Open a model; or labels, or a tokenizer, for the open model."""
        fresh = False
        for file in sorted(files, key=lambda file: is_side_file(file.name)):  # the model first
            data = await self._bytes(file)
            if is_side_file(file.name):
                self._take_side_file(file.name, data)
                continue
            model = GraphModel(file.name, data, self._backend)
            if self._model is not None:
                self._model.close()
            self._model, self._tokenizer, self._labels, fresh = model, None, [], True
        if self._model is None:
            raise HalfbyteError("There is no model yet: drop an ONNX file first.")
        inputs = [feeds.describe(arg) for arg in self._model.inputs]
        results = [
            {"name": o.name, "type": o.type, "declared": ["?" if d is None else d for d in o.shape]}
            for o in self._model.outputs
        ]
        self._say(
            "model", **self._model.facts(), inputs=inputs, outputs=results, fresh=fresh,
            labels=len(self._labels), tokenizer=self._tokenizer is not None,
        )  # fmt: skip

    def _take_side_file(self, name: str, data: Any) -> None:
        try:
            self._labels = labels(bytes(data))
        except ValueError:
            self._tokenizer = tokenizer(name, data)

    async def _run(self, asked: Request, files: Any) -> None:
        """Run the model several times; post the outputs of the first run, and the times."""
        if self._model is None:
            raise HalfbyteError("There is no model yet: drop an ONNX file first.")
        encode = self._tokenizer.encode if self._tokenizer is not None else None
        arrays = feeds.feeds(self._model.inputs, asked["inputs"], files or {}, encode)
        results, first, _ = self._model.timed(arrays)
        seconds: list[float] = []
        kernels, start = 0.0, time.perf_counter()
        while len(seconds) < RUNS and time.perf_counter() - start < RUN_SECONDS:
            await asyncio.sleep(0)
            if self._stopped and seconds:
                break
            _, taken, in_kernels = self._model.timed(arrays)
            seconds.append(taken)
            kernels += in_kernels
        names = [output.name for output in self._model.outputs]
        self._say(
            "result",
            outputs=[
                display.describe(n, v, self._labels) for n, v in zip(names, results, strict=True)
            ],
            first=first,
            seconds=seconds,
            kernels=kernels / max(sum(seconds), 1e-9),
            fed=[f"{name} {list(value.shape)}" for name, value in arrays.items()],
            **self._model.facts(),
        )

    # ---- pictures and sounds ---------------------------------------------------------------------

    async def _name(self, asked: Request, files: Any) -> None:
        """Name what a picture shows."""
        if self._namer is None:
            from halfbyte import download

            names = await download.fetch(asked["names"], keep=False)
            self._namer = await self._fetched(asked["namer"]), labels(bytes(names.data))
        start = time.perf_counter()
        best = naming.best(*self._namer, files["pixels"])
        self._say("named", best=best, seconds=time.perf_counter() - start)

    async def _see(self, asked: Request, files: Any) -> None:
        """Read the text in a picture."""
        if self._sight is None:
            models = [await self._fetched(asked[name]) for name in ("finder", "reader")]
            self._sight = Sight(*models)
        start = time.perf_counter()
        lines = await self._sight.read(files["pixels"], int(asked["height"]), int(asked["width"]))
        rows = [{"text": line.text, "box": line.box, "score": line.score} for line in lines]
        self._say("seen", lines=rows, seconds=time.perf_counter() - start)

    async def _hear(self, asked: Request, files: Any) -> None:
        """Find the speech in a sound."""
        if self._listener is None:
            self._listener = await self._fetched(asked["listener"])
        start = time.perf_counter()
        speech = hearing.probabilities(self._listener, files["samples"])
        self._say("heard", parts=hearing.parts(speech), seconds=time.perf_counter() - start)

    async def _fetched(self, url: str) -> GraphModel:
        from halfbyte import download

        progress = self._progress("Loading the model")
        file = await download.fetch(url, keep=False, progress=progress)
        return GraphModel(url.rsplit("/", 1)[-1], file.data, self._backend)

    # ---- files -----------------------------------------------------------------------------------

    async def _bytes(self, file: Any) -> Any:
        if self._read is None:
            from halfbyte.download.browser import read_file

            self._read = read_file
        return await self._read(file, self._progress(f"Reading {file.name}"))

    def _progress(self, text: str, unit: str = "bytes") -> Callable[[int, int | None], None]:
        last = 0.0

        def progress(done: int, total: int | None) -> None:
            nonlocal last
            now = time.perf_counter()
            if now - last >= PROGRESS_SECONDS or done == total:
                last = now
                self._say("progress", text=text, unit=unit, done=done, total=total)

        return progress
