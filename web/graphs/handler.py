"""Handles the page's requests for ONNX models, one after another, and posts the results.

Runs inside Pyodide, like `halfbyte.web.engine`, the counterpart for language models. They share no
interface: the engine has one method for each message, and streams pieces of text. A request here is
a JSON object whose `ask` names it; every answer has the kind "graphs", an `event`, and the `view`
that it is for: "search", "onnx" or "sense". Each view has at most one request.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import unquote, urlsplit

from halfbyte.errors import HalfbyteError, TaskError
from halfbyte.onnx.session import SessionOptions
from halfbyte.onnx.session.fetching import SessionPlace
from halfbyte.text.encoder import TextEncoder
from halfbyte.text.encoder_loading import Options, load_encoder_url
from halfbyte.web.engine import PROGRESS_SECONDS, plain
from halfbyte.web.graphs import hearing, naming
from halfbyte.web.graphs.encoder import Encoder
from halfbyte.web.graphs.gguf_encoder import GgufEncoder, load_files, open_gguf
from halfbyte.web.graphs.graph_model import GraphModel
from halfbyte.web.graphs.opened import Opened
from halfbyte.web.graphs.pdf import pdf_pages
from halfbyte.web.graphs.search import Search
from halfbyte.web.graphs.side_files import is_side_file, labels, labels_or_tokenizer, tokenizer
from halfbyte.web.graphs.sight import Sight

Request = Mapping[str, Any]
Progress = Callable[[int, "int | None"], None]
Reader = Callable[[Any, Progress, SessionPlace | None], Awaitable[Any]]


class Handler:
    """Answers requests; `post` sends one message.

    Parameters
    ----------
    read : callable, optional
        Reads a file of the page, to a place if one is given; the browser's own unless given.
    """

    def __init__(
        self, post: Callable[[str], object], backend: str = "native", read: Reader | None = None
    ) -> None:
        self._post, self._backend = post, backend
        self._read = read
        self._view, self._stopped = "", False  # of the request that is being answered
        self._turn = asyncio.Lock()
        self._under_way: dict[str, asyncio.Task[Any] | None] = {}  # by view; they take turns
        self._search: Search | None = None
        self._parts: dict[str, Any] = {}  # of an encoder that is not complete
        self._opened: Opened | None = None
        self._fetching: asyncio.Task[Any] | None = None  # which a request to stop cancels
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
            self._stop(asked.get("view", self._view))
            return
        view, task = self._tasks[asked["ask"]]
        if view in self._under_way:
            self._post_event("error", view, text="A model is already running: stop it first.")
            return
        self._under_way[view] = asyncio.current_task()
        try:
            async with self._turn:
                self._stopped, self._view = False, view
                await task(asked, files)
        except asyncio.CancelledError:
            self._post_event("stopped", view)
        except TaskError as error:
            self._post_event("writes", view, text=plain(error))
        except Exception as error:
            self._post_event("error", view, text=plain(error))
        finally:
            del self._under_way[view]

    def _stop(self, view: str) -> None:
        """End what a view has asked for, or waits for."""
        if view not in self._under_way:
            return
        if view == self._view:
            self._stopped = True
            if self._fetching is not None:
                self._fetching.cancel()
        elif (task := self._under_way[view]) is not None:
            task.cancel()  # it waits for its turn

    def _say(self, event: str, **content: Any) -> None:
        self._post_event(event, self._view, **content)

    def _post_event(self, event: str, view: str, **content: Any) -> None:
        self._post(json.dumps({"kind": "graphs", "event": event, "view": view, **content}))

    # ---- search ----------------------------------------------------------------------------------

    async def _fetch(self, asked: Request, files: Any) -> None:
        """Download an encoder: the site's, in ONNX, or one in GGUF at an address."""
        from halfbyte import download

        self._parts = {}
        with self._cancellable():
            if url := asked.get("url"):
                await self._use_gguf(partial(self._gguf_at, url, asked["keep"]))
                return
            for part in ("tokenizer", "model"):
                progress = self._progress("Loading the model") if part == "model" else None
                place = self._place() if part == "model" else None
                file = await download.fetch(asked[part], keep=False, progress=progress, place=place)
                self._take(asked[part].rsplit("/", 1)[-1], file.data)
        self._complete()

    async def _gguf_at(self, url: str, keep: bool, options: Options) -> TextEncoder:
        progress = self._progress("Loading the model")
        return await load_encoder_url(url, keep=keep, progress=progress, **options)

    async def _take_encoder(self, asked: Request, files: Any) -> None:
        """Read an encoder from files: GGUF, or a model in ONNX and its tokenizer in any order."""
        models = [file for file in files if file.name.lower().endswith(".gguf")]
        if models:
            progress = self._progress("Loading the model")
            await self._use_gguf(partial(load_files, models, self._read, progress))
            return
        for file in files:
            data = await self._bytes(file)
            self._take(file.name, data)
        self._complete()

    async def _use_gguf(self, load: Callable[[Options], Awaitable[TextEncoder]]) -> None:
        self._use_encoder(await open_gguf(load, self._backend, self._drop_encoder))

    def _use_encoder(self, encoder: Encoder | GgufEncoder) -> None:
        self._drop_encoder()
        self._search = Search(encoder)
        self._say("encoder", **encoder.facts(), prompts=encoder.prompts)

    def _drop_encoder(self) -> None:
        if self._search is not None:
            self._search.encoder.close()
            self._search = None

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
        self._use_encoder(Encoder(model, tokens))

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
        if not any(map(str.strip, texts)):
            raise HalfbyteError(f"{file.name}: has no text, perhaps only pictures of its pages")
        self._say("text", text="\n\n".join(texts))

    async def _find(self, asked: Request, files: Any) -> None:
        """Read the text, if it is a new one, and search it."""
        if self._search is None:
            raise HalfbyteError("There is no model yet.")
        search, text = self._search, str(asked["text"])
        question_prompt, passage_prompt = asked.get("prompts", ("", ""))
        if not search.knows(text, passage_prompt):
            show_progress = self._progress("Reading passages of the text", "passages")

            def progress(done: int, total: int) -> bool:
                show_progress(done, total)
                return not self._stopped

            read = await search.read(text, progress, passage_prompt)
            if read is None:
                self._say("stopped")
                return
            self._say("read", **read)
        hits = await search.find(str(asked["question"]), question_prompt)
        self._say("found", **hits, **search.encoder.facts())

    # ---- any model -------------------------------------------------------------------------------

    async def _open(self, asked: Request, files: Any) -> None:
        """Open a model, of a file or at an address; or labels, or a tokenizer, for the open one."""
        fresh, url = False, asked.get("url")
        if url:
            self._use(await self._fetched(url, keep=True))
            fresh = True
        for file in sorted(
            files or (), key=lambda file: is_side_file(file.name)
        ):  # the model first
            data = await self._bytes(file)
            if is_side_file(file.name):
                side = labels_or_tokenizer(file.name, data)
                self._opened_model().take(side)
                continue
            self._use(GraphModel(file.name, data, self._backend))
            fresh = True
        self._say("model", **self._opened_model().facts(), fresh=fresh)

    def _use(self, model: GraphModel) -> None:
        if self._opened is not None:
            self._opened.model.close()
        self._opened = Opened(model)

    def _opened_model(self) -> Opened:
        if self._opened is None:
            raise HalfbyteError("There is no model yet: drop an ONNX file first.")
        return self._opened

    async def _run(self, asked: Request, files: Any) -> None:
        """Run the model several times; post the outputs of the first run, and the times."""
        opened = self._opened_model()
        if opened.is_imagenet and asked.get("names") and not opened.names:
            opened.names = await self._names(asked["names"])
        result = await opened.run(asked["inputs"], files or {}, lambda: self._stopped)
        self._say("result", **result)

    # ---- pictures and sounds ---------------------------------------------------------------------

    async def _name(self, asked: Request, files: Any) -> None:
        """Name what a picture shows."""
        if self._namer is None:
            names = await self._names(asked["names"])
            self._namer = await self._fetched(asked["namer"]), names
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

    async def _fetched(self, url: str, keep: bool = False) -> GraphModel:
        from halfbyte import download

        progress = self._progress("Loading the model")
        with self._cancellable():
            file = await download.fetch(url, keep=keep, progress=progress, place=self._place())
        name = PurePosixPath(unquote(urlsplit(url).path)).name or url
        return GraphModel(name, file.data, self._backend)

    @contextmanager
    def _cancellable(self) -> Iterator[None]:
        """What a request to stop cancels."""
        self._fetching = asyncio.current_task()
        try:
            yield
        finally:
            self._fetching = None

    async def _names(self, url: str) -> list[str]:
        """The names of ImageNet's classes, a file of the page."""
        from halfbyte import download

        return labels(bytes((await download.fetch(url, keep=False)).data))

    # ---- files -----------------------------------------------------------------------------------

    async def _bytes(self, file: Any) -> Any:
        if self._read is None:
            from halfbyte.download.browser import read_file

            self._read = read_file
        place = self._place() if file.name.lower().endswith(".onnx") else None
        return await self._read(file, self._progress(f"Reading {file.name}"), place)

    def _place(self) -> SessionPlace:
        """Where a model's file goes."""
        options = SessionOptions()
        options.backend = self._backend
        return SessionPlace(options)

    def _progress(self, text: str, unit: str = "bytes") -> Callable[[int, int | None], None]:
        last = 0.0

        def progress(done: int, total: int | None) -> None:
            nonlocal last
            now = time.perf_counter()
            if now - last >= PROGRESS_SECONDS or done == total:
                last = now
                self._say("progress", text=text, unit=unit, done=done, total=total)

        return progress
