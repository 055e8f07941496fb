"""Opening a model: a file becomes a program with memory, and a tokenizer."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from typing import TypedDict, Unpack

from halfbyte import architectures, download, packing
from halfbyte.backends.cores import default_threads
from halfbyte.download import Progress, Source
from halfbyte.errors import FormatError, HalfbyteError, UnsupportedError
from halfbyte.formats import metadata, open_bytes, open_model
from halfbyte.formats.mapped import Buffer
from halfbyte.formats.model_file import ModelFile
from halfbyte.model import LanguageModel
from halfbyte.passes import optimize
from halfbyte.program import Program
from halfbyte.tokenizers import from_metadata
from halfbyte.weights import F32

DEFAULT_CONTEXT = 4096  # tokens, where the model allows more: the KV cache is planned at this size
DEFAULT_BATCH = 128  # prompt tokens of one run
CACHES = ("auto", "f16", "f32", "q8_0")


class Options(TypedDict, total=False):
    """How a model is opened; see :func:`load`."""

    context: int | None
    batch: int
    backend: str
    threads: int | None
    passes: bool
    activations: str
    cache: str
    pack: str


def load(
    path: str | os.PathLike[str],
    *,
    tokenizer: str | os.PathLike[str] | None = None,
    **options: Unpack[Options],
) -> LanguageModel:
    """Open a model.

    Parameters
    ----------
    path : path
        A GGUF file, a ``.bin`` of llama2.c or torchless, or a Hugging Face folder with safetensors
        or PyTorch's files. The format is found from the content.
    tokenizer : path, optional
        For a llama2.c file: its tokenizer, if it does not lie beside the model.
    context : int, optional
        Tokens that the KV cache holds: at most, and by default, the model's own (capped at 4096).
    batch : int
        Prompt tokens that are processed at once (128); sets the size of the scratch memory.
    backend : str
        "native" (the default), "native-avx2", "native-scalar" ..., or "numpy".
    threads : int, optional
        Threads of a native backend; by default one per fast core.
    passes : bool
        False runs the program as captured: float activations, no shared memory.
    activations : {"int8", "float"}
        What block-quantized weights are multiplied with.
    cache : {"auto", "f16", "f32", "q8_0"}
        Numbers of the KV cache: "auto" takes F32 for models in F32, F16 for all others; "q8_0"
        takes 8.5 bits a number, where heads are whole blocks of 32.
    pack : {"auto", "never"}
        "auto" lays block-quantized weights out for fast products, in memory of their own, where
        the model then takes at most half of the machine's; "never" leaves them mapped as they lie,
        so that the system may drop their pages.

    Raises
    ------
    HalfbyteError
        The file, the tokenizer or an argument cannot be used; the message says why.
    """
    return load_file(open_model(path, tokenizer), **options)


def load_bytes(
    data: Buffer, name: str = "model", *, own: bool = False, **options: Unpack[Options]
) -> LanguageModel:
    """Open a model that is in memory; it is not copied.

    Parameters
    ----------
    data : bytes-like
        The file's content.
    name : str
        For messages.
    own : bool
        The bytes are the model's from now on: weights are packed where they lie. They change, and
        nobody else may use them.

    For the other arguments and errors see :func:`load`.
    """
    return load_file(open_bytes(data, name, own=own), **options)


async def load_url(
    url: str,
    *,
    progress: Progress | None = None,
    sha256: str | None = None,
    keep: bool = True,
    source: Callable[[], Source] | None = None,
    **options: Unpack[Options],
) -> LanguageModel:
    """Fetch a model and open it where it lies in memory.

    In a browser it is kept in the origin's storage: the next visit needs no network. A transfer
    that breaks off is taken up where it stopped.

    Parameters
    ----------
    url : str
        Address of a GGUF file; in a browser it may be relative to the page.
    progress : callable, optional
        Called with bytes done and bytes in all (None where the server does not say).
    sha256 : str, optional
        What the file must hash to.
    keep : bool
        In a browser, keep the file for the next visit, and use the one kept.
    source : callable, optional
        Makes what each attempt reads from; see :func:`halfbyte.download.fetch`.

    Raises
    ------
    DownloadError
        The server refused, the network broke off for good, or the file is another.
    HalfbyteError
        As :func:`load`. What cannot be opened is not kept.

    Warns
    -----
    UserWarning
        The browser could not keep the file.
    """
    found = await download.fetch(url, progress=progress, sha256=sha256, keep=keep, source=source)
    try:
        name = url.split("?")[0].rsplit("/", 1)[-1] or url
        model = load_bytes(found.data, name, own=True, **options)
    except (FormatError, UnsupportedError):
        await download.forget(url)
        raise
    if found.note:
        warnings.warn(found.note, stacklevel=2)
    return model


def load_file(
    file: ModelFile,
    context: int | None = None,
    batch: int = DEFAULT_BATCH,
    backend: str = "native",
    threads: int | None = None,
    passes: bool = True,
    activations: str = "int8",
    cache: str = "auto",
    pack: str = "auto",
) -> LanguageModel:
    """A model from an opened file; for the arguments see :func:`load`."""
    if activations not in ("int8", "float"):
        raise HalfbyteError(f"activations '{activations}': expected 'int8' or 'float'")
    words = from_metadata(file)
    program = capture_model(file, context, batch, cache)
    if passes:
        program = optimize(program, int8_activations=activations == "int8")
    threads = threads or default_threads()
    chosen = packing.to_pack(program, pack)
    if chosen and backend != "numpy":
        packing.pack(chosen, file, threads)
        packing.keep_vectors(program, file)
    return LanguageModel(file, words, program, backend, threads)


def capture_model(
    file: ModelFile,
    context: int | None = None,
    batch: int = DEFAULT_BATCH,
    cache: str = "auto",
) -> Program:
    """The program of a model file, as captured; for the arguments see :func:`load`."""
    architecture = architectures.find(file)
    config = architecture.read_config(file)
    if context is None:
        context = min(config.context, DEFAULT_CONTEXT)
    if not 1 <= context <= config.context:
        raise HalfbyteError(
            f"{file.path}: context of {context} tokens: expected 1 to {config.context}"
        )
    if batch < 1:
        raise HalfbyteError(f"batch of {batch} tokens: expected 1 or more")
    if cache not in CACHES:
        raise HalfbyteError(f"cache '{cache}': expected one of {CACHES}")
    if cache == "auto":
        cache = "f32" if file.tensors["token_embd.weight"].format is F32 else "f16"
    program = architecture.build(
        file, config, context=context, batch=min(batch, context), cache=cache
    )
    used = {buffer.name for step in program.instructions for buffer in step.inputs}
    for name in file.tensors:
        if name not in used | architecture.TABLES:
            raise UnsupportedError(
                f"{file.path}: tensor {name!r}: architecture "
                f"{metadata.text(file, 'general.architecture')!r} has no use for it here; without "
                "it the model would be another"
            )
    return program
