"""Opening a model that turns texts into vectors, or scores pairs of texts."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any, TypedDict, Unpack

from halfbyte import arguments
from halfbyte.download import Progress, Source
from halfbyte.formats.model_file import ModelFile
from halfbyte.text.encoder import TextEncoder
from halfbyte.text.loading import checked_settings, from_url, ready, tab_place
from halfbyte.text.opening import open_bytes, open_model, open_parts
from halfbyte.text.placing import TabPlace
from halfbyte.text.tokenizers import from_metadata


class Settings(TypedDict, total=False):
    """Settings of a model that turns texts into vectors; see :func:`load_encoder`."""

    context: int | None
    max_context: int
    weights: str
    passes: bool
    activations: str


class Options(Settings, total=False):
    """How such a model is opened; see :func:`load_encoder`."""

    backend: str
    threads: int | None
    memory_budget: int | None


def load_encoder(
    path: str | os.PathLike[str] | ModelFile,
    *,
    backend: str = "native",
    threads: int | None = None,
    memory_budget: int | None = None,
    **settings: Unpack[Settings],
) -> TextEncoder:
    """Open a model that turns texts into vectors, or scores pairs of texts.

    Parameters
    ----------
    path : path or ModelFile
        A GGUF file or a Hugging Face folder of an encoder, such as BERT, or of a language model
        that was trained for vectors, such as Qwen3-Embedding; or an opened one, such as
        ``halfbyte.text.opening.open_bytes(data, "minilm.gguf")`` of a file in memory.
    context : int, optional
        Tokens of the longest text; longer ones are cut. The default is the file's, up to
        `max_context` (4096).
    backend, threads, passes, activations, weights, memory_budget
        As for :func:`load`.

    Raises
    ------
    TaskError
        The model writes text, and its file says of no vectors.
    HalfbyteError
        As for :func:`load`.
    """
    arguments.check_keywords("load_encoder", settings, Options.__optional_keys__)
    if not isinstance(path, str | os.PathLike | ModelFile):
        arguments.refuse("path", "str, os.PathLike or ModelFile", path)
    chosen = checked_settings(
        backend=backend, threads=threads, memory_budget=memory_budget, **settings
    )
    file = path if isinstance(path, ModelFile) else open_model(path)
    tokenizer = from_metadata(file)
    opened = ready(file, chosen, backend, threads, memory_budget, encodes=True)
    return TextEncoder(file, tokenizer, *opened)


def encoder_place(name: str, options: Options) -> TabPlace | None:
    """Where a browser puts the file of an encoder; None if anywhere."""
    given = {name: value for name, value in options.items() if name != "memory_budget"}
    return tab_place(name, given, encodes=True)  # type: ignore[arg-type]


def load_encoder_parts(parts: Mapping[str, Any], **options: Unpack[Options]) -> TextEncoder:
    """Open an encoder from the files in memory that it consists of; see `loading.load_parts`."""
    if len(parts) == 1:
        [(name, data)] = parts.items()
        return load_encoder(open_bytes(data, name, own=True), **options)
    return load_encoder(open_parts(parts), **options)


async def load_encoder_url(
    url: str,
    *,
    progress: Progress | None = None,
    keep: bool = True,
    source: Callable[[], Source] | None = None,
    **options: Unpack[Options],
) -> TextEncoder:
    """Fetch an encoder into memory and open it there; see :func:`halfbyte.load_url`."""
    return await from_url(
        url, lambda name: encoder_place(name, options),
        lambda parts: load_encoder_parts(parts, **options),
        progress=progress, keep=keep, source=source,
    )  # fmt: skip
