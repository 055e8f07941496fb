"""Opening a model: a file becomes a program with memory, and a tokenizer."""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar, Unpack

import numpy as np

from halfbyte import arguments, download
from halfbyte.core import packing
from halfbyte.core.backends.cores import default_threads, usable_threads
from halfbyte.core.backends.libraries import shared_library
from halfbyte.core.program import Program
from halfbyte.download import IN_BROWSER, Progress, Source
from halfbyte.download.transfer import START, about
from halfbyte.errors import FormatError, HalfbyteError, TaskError, UnsupportedError
from halfbyte.formats import gguf, gguf_split
from halfbyte.formats.mapped import is_apart
from halfbyte.formats.model_file import ModelFile
from halfbyte.text.model import LanguageModel
from halfbyte.text.opening import open_bytes, open_model, open_parts
from halfbyte.text.placing import TabPlace, header_reader
from halfbyte.text.planning import Given, Settings, plan, plan_within, settings_of
from halfbyte.text.tokenizers import from_metadata

T = TypeVar("T")


class Options(Given, total=False):
    """How a model is opened; see :func:`load`."""

    backend: str
    threads: int | None
    level: str | None
    memory_budget: int | None


_PIECE = 1 << 20  # bytes of a file that are copied at once
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
        For a llama2.c file: its tokenizer, if it is not beside the model.
    context : int, optional
        Tokens that the KV cache holds, at most the model's own context. The default is that, up to
        4096.
    max_context : int
        Limits the default context (4096).
    batch : int
        Prompt tokens that are processed at once (128); it sets the size of the scratch memory.
    backend : str
        "native" (the default), "native-avx2", "native-scalar" ..., or "numpy".
    threads : int, optional
        Threads of a native backend; by default one per fast core.
    passes : bool
        False runs the program as captured: float activations, no shared memory.
    activations : {"int8", "float"}
        Type of the activations that block-quantized weights are multiplied with.
    cache : {"auto", "f16", "f32", "q8_0", "smallest"}
        Type of the KV cache: "auto" is F32 for models in F32 and F16 for all others; "q8_0"
        takes 8.5 bits a number and needs heads of whole blocks of 32; "smallest" is "q8_0" where
        that is possible, otherwise "auto".
    weights : {"auto", "packed", "mapped", "streamed"}
        "packed" copies block-quantized weights into a layout for fast products; "mapped" uses them
        as they are in the file, so that the system may drop their pages; "streamed" reads them
        from storage in every run, a few megabytes at a time. "auto" packs if the model then takes
        at most half of the machine's memory.
    level : {"baseline", "basic", "aggressive", "extreme"}, optional
        Groups of settings that need less and less memory: weights packed; mapped; mapped with the
        smallest cache, batches of 32 and a context of at most 2048 tokens; streamed with batches
        of 16 and at most 1024. Other arguments override those of the level.
    memory_budget : int, optional
        Bytes that the process may take, the interpreter included, which counts with a fixed figure
        if nothing large was imported before. Weights "auto" are packed if they fit; otherwise as
        many matrices as fit are, and the others are streamed. If nothing fits, loading fails. Beam
        search may use what the plan leaves.
    lora : mapping of path to float, optional
        Adapters, in llama.cpp's GGUF format or folders of PEFT, and their scales, such as
        ``{"pirate.gguf": 1.0}``; :meth:`LanguageModel.adapter` changes scales.

    Raises
    ------
    HalfbyteError
        The file, the tokenizer or an argument cannot be used; the message says why.
    MemoryBudgetError
        The model needs more than `memory_budget`, or than the machine has.
    """
    arguments.check_keywords("load", options, _KEYWORDS | {"tokenizer"})
    for name, value in (("path", path), ("tokenizer", tokenizer)):
        if not isinstance(value, str | os.PathLike) and (name, value) != ("tokenizer", None):
            arguments.refuse(name, "str or os.PathLike", value)
    file = _open_in_place(Path(path), options) if tokenizer is None else None
    return load_file(open_model(path, tokenizer) if file is None else file, **options)


def _open_in_place(path: Path, options: Options) -> ModelFile | None:
    """A GGUF file, read to where its weights are used; None if it is mapped as any other file."""
    place = tab_place(path.name, options)
    if place is None or not path.is_file():
        return None
    with path.open("rb") as stream:
        if stream.read(len(gguf.MAGIC)) != gguf.MAGIC:
            return None
        stream.seek(0)
        size = os.fstat(stream.fileno()).st_size
        with about(path.name, size):
            data, done = place.apart(size, np.frombuffer(stream.read(START), np.uint8)), 0
        if data is None:
            return None
        stream.seek(0)
        while piece := stream.read(_PIECE):
            data[done : done + len(piece)] = np.frombuffer(piece, np.uint8)
            done += len(piece)
    file = gguf.read_gguf(path, data)
    return file if gguf_split.file_count(file) == 1 else None


def tab_place(name: str, options: Options, *, encodes: bool = False) -> TabPlace | None:
    """Where a browser puts a model's file; None if anywhere, as outside of a browser."""
    backend, threads = options.get("backend", "native"), options.get("threads")
    if not IN_BROWSER or backend == "numpy":
        return None
    settings = checked_settings(**options)
    return TabPlace(name, settings, backend, threads or default_threads(), encodes=encodes)


def load_bytes(
    data: Any, name: str = "model", *, own: bool = False, **options: Unpack[Options]
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
        The model takes the bytes over and packs weights in place: the caller must not use them
        again.
    """
    arguments.check_keywords("load_bytes", options, _KEYWORDS | {"name", "own"})
    if not is_apart(data):
        if not isinstance(data, bytes | bytearray | memoryview | np.ndarray):
            arguments.refuse("data", "bytes", data)
        place = tab_place(name, options)
        if place is not None and bytes(data[: len(gguf.MAGIC)]) == gguf.MAGIC:
            whole = np.frombuffer(data, np.uint8)
            with about(name, whole.nbytes):
                copy = place.apart(whole.nbytes, whole[:START])
            if copy is not None:
                copy[...] = whole
                data, own = copy, True
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
    """Fetch a model into memory and open it there.

    In a browser it is kept in the origin's storage, so that the next visit needs no network. An
    interrupted transfer is resumed.

    Parameters
    ----------
    url : str
        Address of a GGUF file; in a browser it may be relative to the page. Of a model in several
        files, the address of any of them, unless `sha256` is given.
    progress : callable, optional
        Called with the bytes done and the total (None if the server does not say).
    sha256 : str, optional
        Expected hash of the file.
    keep : bool
        In a browser, keep the file for the next visit, and use a file that was kept.
    source : callable, optional
        Makes the source that an attempt reads from; see :func:`halfbyte.download.fetch`.

    Raises
    ------
    DownloadError
        The server refused, the network failed for good, or the hash differs.
    HalfbyteError
        As for :func:`load`. A file that cannot be opened is not kept.

    Warns
    -----
    UserWarning
        The browser could not keep the file.
    """
    known = {"progress", "sha256", "keep", "source"}
    arguments.check_keywords("load_url", options, _KEYWORDS | known)
    return await from_url(
        url, lambda name: tab_place(name, options), lambda parts: load_parts(parts, **options),
        progress=progress, sha256=sha256, keep=keep, source=source,
    )  # fmt: skip


async def from_url(
    url: str,
    place_of: Callable[[str], TabPlace | None],
    load: Callable[[Mapping[str, Any]], T],
    *,
    progress: Progress | None,
    sha256: str | None = None,
    keep: bool,
    source: Callable[[], Source] | None,
) -> T:
    """What `load` makes of a model's files at an address, by names; the rest is as `load_url`.

    `place_of` gives the place of a file with this name. A file for another task stays kept.
    """
    urls = gguf_split.names_of_parts(url) if sha256 is None else [url]
    names = [part.split("?")[0].rsplit("/", 1)[-1] or part for part in urls]
    place = place_of(names[0])
    try:
        if place is not None and len(urls) > 1:
            headers = [
                await download.read_start(part, header_reader(name), keep=keep, source=source)
                for part, name in zip(urls, names, strict=True)
            ]
            place.expect(headers)
        fetched = [
            await download.fetch(
                part, progress=progress, sha256=sha256, keep=keep, source=source, place=place
            )
            for part in urls
        ]
        found = [file.data for file in fetched]
        model = load(dict(zip(names, found, strict=True)))
    except (FormatError, UnsupportedError) as error:
        for part in urls if not isinstance(error, TaskError) else ():
            await download.forget(part)
        raise
    for note in dict.fromkeys(file.note for file in fetched if file.note):
        warnings.warn(note, stacklevel=3)
    return model


def load_parts(parts: Mapping[str, Any], **options: Unpack[Options]) -> LanguageModel:
    """Open a model from the files in memory that it consists of, by their names.

    Several files are the parts of a GGUF model. The model takes the bytes over; for the other
    arguments and errors see :func:`load`.
    """
    arguments.check_keywords("load_parts", options, _KEYWORDS)
    if len(parts) == 1:
        [(name, data)] = parts.items()
        return load_bytes(data, name, own=True, **options)
    return load_file(open_parts(parts), **options)


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
    chosen = checked_settings(
        backend=backend, threads=threads, level=level, memory_budget=memory_budget, **settings
    )
    tokenizer = from_metadata(file)
    model = LanguageModel(file, tokenizer, *ready(file, chosen, backend, threads, memory_budget))
    if chosen.lora:
        from halfbyte.text.adapters import names_of

        model.scales = names_of(chosen.lora)
    return model


def ready(
    file: ModelFile, chosen: Settings, backend: str, threads: int | None,
    memory_budget: int | None, *, encodes: bool = False,
) -> tuple[Program, str, int, float]:  # fmt: skip
    """A program with its weights in place, the backend, its threads, and bytes that are left."""
    if memory_budget is None:
        planned = plan(file, chosen, encodes=encodes)
    elif backend == "numpy":
        raise HalfbyteError(
            "memory_budget: expected a native backend, which keeps to its plan; NumPy's "
            "converts weights to floats"
        )
    else:
        planned = plan_within(file, chosen, memory_budget, encodes=encodes)
    if planned.reader is not None and not file.on_storage:
        raise UnsupportedError(
            f"{file.path}: weights 'streamed': expected a file on storage, found one in memory"
        )
    threads = _threads(file, backend, threads)
    program = planned.program
    if backend != "numpy":
        if planned.to_pack:
            program = packing.pack(program, planned.to_pack, file, threads)
        if planned.to_copy:
            program = packing.copy(program, planned.to_copy, file)
    whole = chosen.weights in ("auto", "packed") and planned.reader is None
    if whole and any(p.remote for p in file.mapped) and packing.has_room(program):
        program = packing.copy_all(program, file)
    room = math.inf if memory_budget is None else memory_budget - planned.total
    return program, backend, threads, room


def checked_settings(
    *,
    backend: str = "native",
    threads: int | None = None,
    level: str | None = None,
    memory_budget: int | None = None,
    **given: Unpack[Given],
) -> Settings:
    """The settings that checked arguments ask for."""
    arguments.text("backend", backend)
    counts = {"threads": threads, "memory_budget": memory_budget}
    counts |= {"context": None, "max_context": None, "batch": None}
    for name, value in ({**counts, **given}).items():
        if name in counts and value is not None:
            arguments.integer(name, value)
    if not given.get("lora"):
        given.pop("lora", None)
    else:
        from halfbyte.text.adapters import check_files  # which a page of text goes without

        given["lora"] = check_files(given["lora"])
    return settings_of(level, given)


def _threads(file: ModelFile, backend: str, wanted: int | None) -> int:
    """How many threads: one if the memory that they share, in a browser, is too small."""
    threads = usable_threads(wanted)
    there = backend == "numpy" or any(map(is_apart, file.parts.values()))
    if not IN_BROWSER or threads == 1 or there:
        return threads
    memory: Any = shared_library().memory
    try:
        memory.unset(file.size)  # freed at once: the weights are copied there later
    except MemoryError:
        warnings.warn(
            f"{file.path}: halfbyte uses one thread: the browser grants the memory that threads "
            f"share no {file.size / 1e6:.0f} MB more",
            stacklevel=3,
        )
        return 1
    return threads
