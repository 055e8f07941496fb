"""Sentence embeddings: an encoder in GGUF, which has a tokenizer, and the prompts that it needs."""

from __future__ import annotations

import asyncio
import time
import warnings
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import numpy as np

from halfbyte.core.backends.libraries import why_one_thread
from halfbyte.errors import HalfbyteError, OutOfMemoryError
from halfbyte.formats.embedding import Pooling
from halfbyte.text.encoder import TextEncoder
from halfbyte.text.encoder_loading import Options, encoder_place, load_encoder_parts
from halfbyte.web.engine import read_parts, shown_memory
from halfbyte.web.graphs.encoder import Embedded

CONTEXT = 512  # tokens: a passage has at most 320 characters
_TEXTS = 8  # that are read before a request to stop may arrive
# What models call the prompts of questions and of passages
_QUESTION = ("query", "search_query", "retrieval.query", "web_search_query", "s2p_query")
_PASSAGE = ("document", "passage", "search_document", "retrieval.passage")
# Prompts by the architecture, for files that have none, as llama.cpp's. Source: the models' cards
_PROMPTS = {
    "gemma-embedding": ("task: search result | query: ", "title: none | text: "),
    "nomic-bert": ("search_query: ", "search_document: "),
    "nomic-bert-moe": ("search_query: ", "search_document: "),
}


class GgufEncoder:
    """Turns texts into vectors of unit length; see :class:`halfbyte.web.graphs.encoder.Encoder`.

    Attributes
    ----------
    prompts : tuple of str
        What is to be put before a question, and before a passage.
    cut : int
        Texts of the last call that were too long.

    Raises
    ------
    HalfbyteError
        The model scores pairs of texts.
    """

    def __init__(self, model: TextEncoder, notes: Sequence[str] = ()) -> None:
        if model.pooling is Pooling.RANK:
            model.close()
            raise HalfbyteError(
                f"{model.path}: scores pairs of texts: the search compares vectors, and expects an "
                "encoder; `halfbyte embed --query` ranks with this model"
            )
        self._model, self._notes = model, [*notes, *model.notes]
        self.prompts = _prompts(model)
        self.cut = 0

    async def embed(self, texts: Sequence[str], progress: Callable[[int], bool]) -> Embedded:
        """Vectors of texts, which begin with their prompts; see `Encoder.embed`."""
        vectors = np.zeros((len(texts), self._model.width), np.float32)
        self.cut, seconds, done = 0, 0.0, 0
        for first in range(0, len(texts), _TEXTS):
            part = texts[first : first + _TEXTS]
            start = time.perf_counter()
            vectors[first : first + _TEXTS] = self._model.embed(part, prompt="", normalize=True)
            seconds += time.perf_counter() - start
            self.cut += self._model.cut
            done += len(part)
            if not progress(done):
                break
            await asyncio.sleep(0)  # lets a request to stop arrive
        return Embedded(vectors, seconds, seconds / done if done else None)

    def facts(self) -> dict[str, Any]:
        """The facts about the model and the machine that the page shows."""
        model = self._model
        tokens = model.tokenizer.vocab_size
        return {
            "name": model.path.name,
            "bytes": sum(tensor.nbytes for tensor in model.file.tensors.values()),
            "backend": model.executable.backend,
            "threads": model.executable.threads,
            "alone": why_one_thread(model.executable),
            "tokens": tokens,
            "memory": shown_memory(model.program, tokens),
            "notes": self._notes,
        }

    def close(self) -> None:
        """Close the model."""
        self._model.close()


def _prompts(model: TextEncoder) -> tuple[str, str]:
    if not model.prompts:
        return _PROMPTS.get(str(model.file.metadata["general.architecture"]), ("", ""))
    default = model.default_prompt
    question, passage = (
        next((model.prompts[name] for name in names if name in model.prompts), default)
        for names in (_QUESTION, _PASSAGE)
    )
    return question, passage


async def open_gguf(
    load: Callable[[Options], Awaitable[TextEncoder]], backend: str, close: Callable[[], None]
) -> GgufEncoder:
    """An encoder that `load` opens; the one before is closed first if memory is scarce.

    `close` closes that, and may be called again.
    """
    options = Options(backend=backend, max_context=CONTEXT)
    with warnings.catch_warnings(record=True) as notes:
        warnings.simplefilter("always")
        try:
            model = await load(options)
        except (OutOfMemoryError, MemoryError):
            close()
            model = await load(options)
    return GgufEncoder(model, [str(note.message) for note in notes])


async def load_files(
    files: Any, read: Callable[..., Awaitable[Any]] | None,
    progress: Callable[[int, int | None], None], options: Options,
) -> TextEncoder:  # fmt: skip
    """An encoder from the page's files: a GGUF file, or all of a model's."""
    place = encoder_place(files[0].name, options)
    parts = await read_parts(files, place, progress, read)
    return load_encoder_parts(parts, **options)
