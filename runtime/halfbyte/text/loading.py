"""Opening a model: a file becomes a program with memory, and a tokenizer."""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Callable
from typing import Unpack

import numpy as np

from halfbyte import arguments, download
from halfbyte.core import packing
from halfbyte.core.backends.cores import default_threads
from halfbyte.download import Progress, Source
from halfbyte.errors import FormatError, HalfbyteError, UnsupportedError
from halfbyte.formats import open_bytes, open_model
from halfbyte.formats.mapped import Buffer
from halfbyte.formats.model_file import ModelFile
from halfbyte.text.model import LanguageModel
from halfbyte.text.planning import Given, plan, plan_within, settings_of
from halfbyte.text.tokenizers import from_metadata


class Options(Given, total=False):
    """How a model is opened; see :func:`load`."""

    backend: str
    threads: int | None
    level: str | None
    memory_budget: int | None


_KEYWORDS = Options.__optional_keys__


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
    cache : {"auto", "f16", "f32", "q8_0", "smallest"}
        Numbers of the KV cache: "auto" takes F32 for models in F32, F16 for all others; "q8_0"
        takes 8.5 bits a number, where heads are whole blocks of 32; "smallest" that, or "auto".
    weights : {"auto", "packed", "mapped", "streamed"}
        "packed" lays block-quantized weights out for fast products, in memory of their own;
        "mapped" leaves them as they lie, so that the system may drop their pages; "streamed" reads
        them from storage in every run, a few megabytes at a time. "auto" packs where the model
        then takes at most half of the machine's memory.
    level : {"baseline", "basic", "aggressive", "extreme"}, optional
        Settings that need less and less memory, together: weights packed; mapped; mapped with the
        smallest cache, batches of 32 and a context of at most 2048 tokens; streamed with batches
        of 16 and at most 1024. What is given beside it counts.
    memory_budget : int, optional
        Bytes that the process may take, the interpreter's included: a fixed figure for one that
        imported nothing large before. Weights "auto" are packed where they fit, else streamed;
        where nothing fits, the model is refused. Beam search has what the plan leaves of it.

    Raises
    ------
    HalfbyteError
        The file, the tokenizer or an argument cannot be used; the message says why.
    MemoryBudgetError
        It would need more than `memory_budget`, or than the machine has.
    """
    arguments.check_keywords("load", options, _KEYWORDS | {"tokenizer"})
    for name, value in (("path", path), ("tokenizer", tokenizer)):
        if not isinstance(value, str | os.PathLike) and (name, value) != ("tokenizer", None):
            arguments.refuse(name, "str or os.PathLike", value)
    return load_file(open_model(path, tokenizer), **options)


def load_bytes(
    data: Buffer, name: str = "model", *, own: bool = False, **options: Unpack[Options]
) -> LanguageModel:
    """Open a model that is in memory; it is not copied.

    For the other arguments and errors see :func:`load`.

    Parameters
    ----------
    data : bytes-like
        The file's content.
    name : str
        For messages.
    own : bool
        The bytes are the model's from now on: weights are packed where they lie. They change, and
        nobody else may use them.
    """
    arguments.check_keywords("load_bytes", options, _KEYWORDS | {"name", "own"})
    if not isinstance(data, bytes | bytearray | memoryview | np.ndarray):
        arguments.refuse("data", "bytes", data)
    return load_file(open_bytes(data, arguments.text("name", name), own=own), **options)


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
    known = {"progress", "sha256", "keep", "source"}
    arguments.check_keywords("load_url", options, _KEYWORDS | known)
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
    *,
    backend: str = "native",
    threads: int | None = None,
    level: str | None = None,
    memory_budget: int | None = None,
    **settings: Unpack[Given],
) -> LanguageModel:
    """A model from an opened file; for the arguments see :func:`load`."""
    arguments.check_keywords("load_file", settings, _KEYWORDS)
    arguments.text("backend", backend)
    counts = {"threads": threads, "memory_budget": memory_budget, "context": None, "batch": None}
    for name, value in ({**counts, **settings}).items():
        if name in counts and value is not None:
            arguments.integer(name, value)
    chosen = settings_of(level, settings)
    words = from_metadata(file)
    if memory_budget is None:
        found = plan(file, chosen)
    elif backend == "numpy":
        raise HalfbyteError(
            "memory_budget: expected a native backend, which keeps to its plan; NumPy's makes "
            "floats of weights"
        )
    else:
        found = plan_within(file, chosen, memory_budget)
    if found.reader is not None and not file.on_storage:
        raise UnsupportedError(
            f"{file.path}: weights 'streamed': expected a file on storage, found one in memory"
        )
    threads = threads or default_threads()
    program = found.program
    if backend != "numpy" and (found.to_pack or found.reader):
        program = packing.pack(program, found.to_pack, file, threads)
        program = packing.keep_vectors(program, file)
    whole = chosen.weights in ("auto", "packed") and found.reader is None
    if whole and any(p.remote for p in file.mapped) and packing.has_room(program):
        program = packing.keep_all(program, file)
    room = math.inf if memory_budget is None else memory_budget - found.total
    return LanguageModel(file, words, program, backend, threads, room)
