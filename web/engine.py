"""The Python side of the page: holds one model, generates one text at a time, posts messages.

Runs inside Pyodide, in the page's worker. Every message is a JSON object with a `kind`: progress,
model, vectors (the file is an encoder's), piece, done, shelf, cancelled, error.
"""

from __future__ import annotations

import asyncio
import json
import math
import time
import warnings
from collections.abc import Awaitable, Callable
from typing import Any

from halfbyte.core.backends import available
from halfbyte.core.backends.libraries import why_one_thread
from halfbyte.core.program import Program
from halfbyte.errors import HalfbyteError, OutOfMemoryError, TaskError
from halfbyte.formats.embedding import turns_into_vectors
from halfbyte.text import footprint
from halfbyte.text.chat import Chat, has_template, recommended_temperature
from halfbyte.text.generate import Generation, Options
from halfbyte.text.loading import load_parts, load_url, tab_place
from halfbyte.text.model import LanguageModel
from halfbyte.text.placing import TabPlace, header_reader

PROGRESS_SECONDS = 0.05  # between two messages
RENDER_SECONDS = 0.1  # between two renderings of an answer
LIKELIEST = 4  # tokens that are told with each token's probability

SLOW = (
    "This browser does not support WebAssembly SIMD, so halfbyte computes with NumPy: the same "
    "text, many times slower."
)


class Engine:
    """Handles the page's requests; `post` sends one message.

    Parameters
    ----------
    backend : str
        "native" is the fastest backend that works here.
    unpack_rest : callable, optional
        Unpacks the part of halfbyte that a page starts without, such as readers of other formats
        than GGUF.
    """

    def __init__(
        self,
        post: Callable[[str], object],
        backend: str = "native",
        unpack_rest: Callable[[], Awaitable[object]] | None = None,
    ) -> None:
        self._post = post
        self._unpack_rest = unpack_rest
        self.model: LanguageModel | None = None
        self.device: Any = None  # a `Feeling`, while texts are felt as on another device
        self._chat: Chat | None = None
        self._stopped = False
        self._busy = False
        self._task: asyncio.Task[Any] | None = None  # which loads a model
        native = available()[0] != "numpy"
        self._backend = backend if native else "numpy"
        self._note = "" if native else SLOW

    def _say(self, kind: str, **content: Any) -> None:
        self._post(json.dumps({"kind": kind, **content}))

    async def load_url(self, url: str, keep: bool, fetcher: Any = None) -> None:
        """Download a model; `keep` it in the browser's storage. For `fetcher` see `FetchSource`."""

        async def load(options: dict[str, Any]) -> LanguageModel:
            from halfbyte.download.browser import FetchSource

            return await load_url(
                url, keep=keep, progress=self._progress("model"),
                source=lambda: FetchSource(fetcher), **options,
            )  # fmt: skip

        await self._load(load)

    async def load_files(self, blobs: Any) -> None:
        """Open what was dropped on the page, JavaScript's `File`s: a model, or all its parts."""

        async def load(options: dict[str, Any]) -> LanguageModel:
            place = tab_place(blobs[0].name, {"backend": self._backend})
            parts = await read_parts(blobs, place, self._progress("model"))
            return load_parts(parts, **options)

        await self._load(load)

    async def run(
        self, prompt: str, max_tokens: int, temperature: float, seed: int | None,
        probabilities: bool = False,
    ) -> None:  # fmt: skip
        """Continue a text; pieces are posted as they are generated, with their probabilities."""
        options = Options(max_tokens=max_tokens, temperature=temperature, seed=seed)
        if probabilities:
            options["logprobs"] = LIKELIEST
        await self._write(lambda model: model.generation(prompt, **options))

    async def chat(
        self, messages: str, max_tokens: int, temperature: float, seed: int | None
    ) -> None:
        """Answer a conversation, a JSON list of messages; pieces are posted as generated."""
        options = Options(max_tokens=max_tokens, temperature=temperature, seed=seed)

        def begin(model: LanguageModel) -> Generation:
            self._chat = self._chat or Chat(model)
            return self._chat.begin(json.loads(messages), **options)

        await self._write(begin, markdown_renderer())

    async def shelf(self) -> None:
        """Post the models that the browser keeps."""
        from halfbyte.download import kept

        self._say("shelf", models=await kept.shelf())

    async def forget(self, url: str) -> None:
        """Remove a model that the browser keeps."""
        from halfbyte.download import forget

        await forget(url)
        await self.shelf()

    def cancel(self) -> None:
        """End the load that is under way; the model from before remains."""
        if self._task is not None:
            self._task.cancel()

    async def _write(
        self,
        begin: Callable[[LanguageModel], Generation],
        render: Callable[[str], str] | None = None,
    ) -> None:
        if self.model is None:
            self._say("error", text="No model is loaded yet.")
            return
        if self._busy:
            self._say("error", text="A text is already being generated: stop it first.")
            return
        self._busy, self._stopped = True, False
        try:
            generation = begin(self.model)
            await self._tell(self.device.felt(generation) if self.device else generation, render)
        except Exception as error:
            self._say("error", text=plain(error))
        finally:
            self._busy = False

    def stop(self) -> None:
        """End the text after the current piece."""
        self._stopped = True

    async def _tell(
        self, generation: Generation, render: Callable[[str], str] | None = None
    ) -> None:
        start, first, rendered = time.perf_counter(), 0.0, 0.0
        async for piece in generation:
            if self._stopped:
                break
            if not piece:
                continue
            first = first or time.perf_counter() - start
            more: dict[str, Any] = self._odds(generation) if generation.logprobs else {}
            if render and (now := time.perf_counter()) - rendered > RENDER_SECONDS:
                more["html"], rendered = render(generation.text), now
            self._say(
                "piece", text=piece, tokens=len(generation.ids),
                decode_speed=generation.decode_speed, **more,
            )  # fmt: skip
        self._say(
            "done",
            html=render(generation.text) if render else "",
            stopped=self._stopped,
            tokens=len(generation.ids),
            prompt_tokens=len(generation.prompt_ids) - generation.reused,
            finish_reason=generation.finish_reason,
            dropped=self._chat.dropped if self._chat else 0,
            decode_speed=generation.decode_speed,
            prompt_speed=generation.prompt_speed,
            first_token=first,
        )

    def _odds(self, generation: Generation) -> dict[str, Any]:
        """The probability of the last token, and the likeliest tokens with theirs."""
        assert self.model is not None  # noqa: S101 - which generates
        last, decode = generation.logprobs[-1], self.model.tokenizer.decode
        others = [(decode([token]), math.exp(logprob)) for token, logprob in last.top]
        return {"probability": math.exp(last.logprob), "others": others}

    async def _load(self, load: Callable[[dict[str, Any]], Any]) -> None:
        if self._busy:
            self._say("error", text="A text is being generated: stop it before changing the model.")
            return
        self._busy, self._task = True, asyncio.current_task()
        try:
            with warnings.catch_warnings(record=True) as notes:
                warnings.simplefilter("always")
                model = await self._open_any(load)
            self._close()
            self.model = model
            self._describe(model, [str(note.message) for note in notes])
        except asyncio.CancelledError:
            self._say("cancelled")
        except TaskError as error:
            self._say("vectors", text=plain(error))
        except Exception as error:
            self._say("error", text=plain(error))
        finally:
            self._busy, self._task = False, None

    async def _open_any(self, load: Callable[[dict[str, Any]], Any]) -> LanguageModel:
        """Open the new model, of any format."""
        try:
            return await self._open(load)
        except ImportError as error:
            if self._unpack_rest is None or not (error.name or "").startswith("halfbyte"):
                raise
            await self._unpack_rest()
        return await self._open(load)

    async def _open(self, load: Callable[[dict[str, Any]], Any]) -> LanguageModel:
        """Open the new model; the old one is closed only if memory does not suffice for both."""
        options = {"backend": self._backend}
        try:
            model: LanguageModel = await load(options)
        except (OutOfMemoryError, MemoryError):
            if self.model is None:
                raise
            self._close()
            model = await load(options)
        try:
            if turns_into_vectors(model.file):
                raise TaskError(f"{model.path}: turns texts into vectors: the search takes it")
            if self.device:
                self.device.admit(model)
        except HalfbyteError:
            model.close()
            raise
        return model

    def _close(self) -> None:
        if self.model is not None:
            self.model.close()
            self.model = self._chat = None

    def _describe(self, model: LanguageModel, notes: list[str]) -> None:
        types: dict[str, int] = {}
        for tensor in model.file.tensors.values():
            name = tensor.format.name
            types[name] = types.get(name, 0) + tensor.nbytes
        self._say(
            "model",
            name=model.path.name,
            type=max(types, key=lambda name: types[name]),
            backend=model.executable.backend,
            threads=model.executable.threads,
            alone=why_one_thread(model.executable),
            context=model.context,
            vocabulary=model.vocabulary,
            chat=has_template(model.file),
            temperature=recommended_temperature(model.file),
            bytes=sum(types.values()),
            memory=shown_memory(model.program, model.vocabulary),
            notes=[*notes, *([self._note] if self._note else [])],
        )

    def _progress(self, what: str) -> Callable[[int, int | None], None]:
        last = 0.0

        def progress(done: int, total: int | None) -> None:
            nonlocal last
            if self.device:
                self.device.allow(total)
            now = time.perf_counter()
            if now - last >= PROGRESS_SECONDS or done == total:
                last = now
                self._say("progress", what=what, done=done, total=total)

        return progress


async def read_parts(
    blobs: Any, place: TabPlace | None, progress: Callable[[int, int | None], None],
    read: Callable[..., Awaitable[Any]] | None = None,
) -> dict[str, Any]:  # fmt: skip
    """The bytes of JavaScript's `File`s, a model or all its parts, by name."""
    if read is None:
        from halfbyte.download.browser import read_file

        read = read_file
    if place is not None and len(blobs) > 1:
        from halfbyte.download.browser import read_start

        place.expect([await read_start(blob, header_reader(blob.name)) for blob in blobs])
    return {blob.name: await read(blob, progress, place) for blob in blobs}


def shown_memory(program: Program, vocabulary: int) -> dict[str, int]:
    """Bytes by kind, of which a tab maps no pages."""
    memory = footprint.planned(program, vocabulary)
    weights = [name for name in memory if name.startswith("weights")]
    memory = {"weights": sum(map(memory.pop, weights)), **memory}
    return {kind: size for kind, size in memory.items() if size}


def markdown_renderer() -> Callable[[str], str] | None:
    """Turns Markdown into HTML without raw HTML and images, whose links leave the page open.

    None without markdown-it-py.
    """
    try:
        from markdown_it import MarkdownIt
    except ImportError:
        return None
    markdown = MarkdownIt("commonmark", {"html": False, "breaks": True})

    def open_link(self: Any, tokens: Any, at: int, options: Any, env: Any) -> str:
        tokens[at].attrs |= {"target": "_blank", "rel": "noopener noreferrer"}
        text: str = self.renderToken(tokens, at, options, env)
        return text

    def open_cell(self: Any, tokens: Any, at: int, options: Any, env: Any) -> str:
        if style := tokens[at].attrs.pop("style", ""):  # which the page's policy forbids
            tokens[at].attrs["class"] = style.replace("text-align:", "to-")
        text: str = self.renderToken(tokens, at, options, env)
        return text

    markdown.add_render_rule("link_open", open_link)
    for cell in ("th_open", "td_open"):
        markdown.add_render_rule(cell, open_cell)
    render: Callable[[str], str] = markdown.enable("table").disable("image").render
    return render


def plain(error: Exception) -> str:
    """A message for the user."""
    if isinstance(error, HalfbyteError):
        return str(error)
    if isinstance(error, MemoryError):
        return "The browser's memory is full."
    return f"Unexpected error: {type(error).__name__}: {error}"
