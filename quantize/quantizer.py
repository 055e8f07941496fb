"""From a model file to a smaller GGUF file, a slice of rows at a time.

`recipe` chooses types, `equalize` computes powers of two that even out channels (exact in floats),
`scale_search` and `steps` define the search of blocks' scales, `encode` moves slices of rows
through the kernels, `run` does one run, and `gguf_writer` writes to a temporary file that is
renamed at the end. With a text, `calibration` finds what enters matrices, and `methods` round them
by it.

A file is read once: every value is checked to be finite and to fit its type as it is encoded. Only
if one does not fit, types are chosen again from all values. Matrices that can be equalized are read
once more before.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from fnmatch import fnmatchcase
from pathlib import Path

import numpy as np

from halfbyte.core.backends.cores import default_threads
from halfbyte.errors import FormatError, HalfbyteError, OutputError, UnsupportedError
from halfbyte.formats import ModelFile
from halfbyte.quantize.budget import Budget
from halfbyte.quantize.calibration.imatrix import read_imatrix
from halfbyte.quantize.calibration.texts import read_text, windows_of
from halfbyte.quantize.encode import Codec
from halfbyte.quantize.engines import is_local, open_engine
from halfbyte.quantize.methods import METHODS, NEED_TOKENS
from halfbyte.quantize.presets import canonical
from halfbyte.quantize.recipe import choose, is_coarse
from halfbyte.quantize.report import Report
from halfbyte.quantize.rotation import rotated
from halfbyte.quantize.run import Progress, Run
from halfbyte.text.adapters import merged
from halfbyte.text.opening import open_model


def default_output(path: Path, type: str, suffix: str = "gguf") -> Path:
    """``<stem>-<type>.gguf`` beside the input, which is a file, one of several, or a folder."""
    if path.is_dir():
        whole = path.resolve()
        return whole.with_name(f"{whole.name}-{type}.{suffix}")
    stem = re.sub(r"-\d{5}-of-\d{5}$", "", path.stem)
    return path.with_name(f"{stem}-{type}.{suffix}")


def quantize_file(
    path: str | os.PathLike[str],
    type: str = "int4",
    output: str | os.PathLike[str] | None = None,
    *,
    tokenizer: str | os.PathLike[str] | None = None,
    keep: Iterable[tuple[str, str]] = (),
    bits: float | None = None,
    size: int | None = None,
    method: str | None = None,
    calibrate: str | os.PathLike[str] | None = None,
    imatrix: str | os.PathLike[str] | None = None,
    write_imatrix: str | os.PathLike[str] | None = None,
    rtn: bool = False,
    pure: bool = False,
    requantize: bool = False,
    lora: Mapping[str | os.PathLike[str], float] | None = None,
    rotate: bool = False,
    threads: int | None = None,
    progress: Progress | None = None,
    divergence: Callable[[float], None] | None = None,
    engine: str = "local",
) -> Report:
    """Write a model in a smaller type.

    Parameters
    ----------
    path : path
        A model in any format that halfbyte reads: a file, or a Hugging Face folder.
    type : str
        "int4" is Q4_0 with embeddings and head in Q8_0, "int8" Q8_0, "fp16" F16, "bf16" BF16; or
        a preset's own name, such as "Q4_K_M" (see `halfbyte.quantize.presets`). Vectors stay F32.
    output : path, optional
        The GGUF file to write; by default ``<stem>-<type>.gguf`` beside the input.
    tokenizer : path, optional
        For a llama2.c file: its tokenizer, if it is not beside the model.
    keep : pairs of pattern and type
        Tensors whose names match take this type; of several matches the last decides.
    bits, size : float or int, optional
        In place of `type`: mean bits per weight, or bytes of the file. What each matrix loses is
        measured, and types are chosen so that all lose the least together.
    method : str, optional
        "search" looks for the best scales, "gptq" also makes up for each rounding's error in the
        weights after it (:mod:`halfbyte.quantize.compensation`), "tuned" then learns scales and
        norms until its distributions match the float model's (:mod:`halfbyte.quantize.tuning`,
        which goes on from ``<output>.tuning`` if it was interrupted), "rtn" is as `rtn`. By default
        "gptq" with `calibrate`, `bits` or `size`, otherwise "search".
    calibrate : path, optional
        A text in UTF-8, like those that the model will see: what enters each matrix says which
        errors matter. Without one, "gptq" and "tuned" let the model write a text.
    imatrix : path, optional
        llama.cpp's file of importance, which the search takes in place of a text.
    write_imatrix : path, optional
        Write the text's importance to such a file; if the name ends in ".dat" in the older format.
    rtn : bool
        Round to nearest as ``gguf.quants`` does: no search of scales, no equalization.
    pure : bool
        All matrices in the same type: also embeddings, head, and those that mixtures choose.
    requantize : bool
        Accept models with tensors coarser than Q8_0, whose errors add up. Nothing is equalized
        then, and tensors that have their type already are copied. Folders that were trained for
        four bits (GPTQ, AWQ) are accepted without it: their matrices keep their values.
    lora : mapping of path to float, optional
        Adapters and their scales, which are merged into the matrices before these are encoded.
    rotate : bool
        Rotate the residual stream first, with norms' gains in the matrices after them
        (:mod:`halfbyte.quantize.rotation`): in floats the same function.
    threads : int, optional
        Threads for encoding; by default one per fast core.
    progress : callable, optional
        Called with input bytes processed so far and in total.
    divergence : callable, optional
        Called by "tuned" with the divergence on held-out tokens, in nats, as it falls.
    engine : str, optional
        Where matrices are measured and rounded: "local", "ray" or "ray:HOST:PORT"
        (:mod:`halfbyte.quantize.engines`). The file is the same, to the bit.

    Raises
    ------
    HalfbyteError
        The input or an argument cannot be used, or the output cannot be written; no partial file
        is left, and the input is never touched.
    """
    start = time.perf_counter()
    budget = budget_of(bits, size)
    type = canonical(type) if budget is None else "int8"
    method = _method(method, rtn=rtn, text=calibrate, imatrix=imatrix, budget=budget)
    if write_imatrix is not None and calibrate is None:
        raise HalfbyteError(f"write_imatrix {write_imatrix}: expected a text to calibrate with")
    if rotate and (imatrix is not None or write_imatrix is not None):
        raise HalfbyteError(
            "rotate: expected no imatrix, which is of channels that are not rotated"
        )
    given = (budget, calibrate, imatrix)
    if not is_local(engine) and method not in NEED_TOKENS and given == (None, None, None):
        raise HalfbyteError(
            f"engine '{engine}': expected --bits, --size, --calibrate, --imatrix or --method gptq "
            f"or tuned, found method '{method}' alone, which has nothing to distribute"
        )
    text = None if calibrate is None else read_text(calibrate)
    file = open_model(path, tokenizer)
    target = (
        Path(output)
        if output is not None
        else default_output(file.path, type if budget is None else budget.name)
    )
    inputs = (*_inputs(file), tokenizer, calibrate, imatrix, *(lora or ()))
    refuse_to_replace(target, *inputs)
    if write_imatrix is not None:
        refuse_to_replace(Path(write_imatrix), *inputs)
        if os.path.realpath(write_imatrix) == os.path.realpath(target):
            raise OutputError(f"{write_imatrix}: is also the output; choose another file")
    exact = file.path.is_dir() and not requantize
    _check_tensors(file, accepted=requantize or exact)
    if lora:
        file = merged(file, lora)
    if rotate:
        file = rotated(file)
    keep = [*keep]
    choices = choose(file, type, keep, pure=pure, exact=exact)
    with ExitStack() as closing:
        codec = Codec(default_threads() if threads is None else threads)
        closing.callback(codec.close)
        parts = closing.enter_context(open_engine(engine, codec.threads))
        run = Run(file, choices, codec, type, method, progress, divergence, parts)
        if text is not None:
            run.calibrate(windows_of(file, text, calibrate))
            if write_imatrix is not None:
                run.write_imatrix(Path(write_imatrix), str(calibrate))
        elif imatrix is not None:
            run.weigh(read_imatrix(imatrix, file))
        elif method in NEED_TOKENS or budget is not None:
            run.calibrate(None)
        if budget is not None:
            patterns = [pattern for pattern, _ in keep]
            run.limit(budget, [n for n in file.tensors if any(fnmatchcase(n, p) for p in patterns)])
        rows = run.write(target)
    return Report(
        source=file.path.name,
        source_format=file.kind,
        output=str(target),
        type=type if budget is None else str(budget),
        bytes_before=file.size,
        bytes_after=target.stat().st_size,
        weights=sum(int(np.prod(t.shape)) for t in file.tensors.values()),
        seconds=time.perf_counter() - start,
        rows=tuple(rows),
        notes=(*file.notes, *run.notes),
        curve=tuple((point.bits, point.nbytes, point.divergence) for point in run.curve),
    )


def budget_of(bits: float | None, size: int | None) -> Budget | None:
    """The budget that is given, if there is one."""
    if bits is None and size is None:
        return None
    if bits is not None and size is not None:
        raise HalfbyteError(f"bits {bits:g} and size {size}: expected one of the two")
    if bits is not None and not 0 < bits < 64:
        raise HalfbyteError(f"bits {bits:g}: expected a number of bits per weight, such as 3.5")
    return Budget(bits, size)


def _method(
    name: str | None, *, rtn: bool, text: object, imatrix: object, budget: Budget | None
) -> str:
    """The method's name, by default the best for what is given."""
    if name is None:
        plain = text is None and budget is None
        name = "rtn" if rtn else "search" if plain else "gptq"
    if budget is not None and (name == "rtn" or imatrix is not None):
        raise HalfbyteError(f"{budget}: expected no rtn and no imatrix: losses are measured")
    names = ["rtn", *METHODS]
    if name not in names:
        raise HalfbyteError(f"method '{name}': expected one of {names}")
    if rtn and name != "rtn":
        raise HalfbyteError(f"method '{name}': expected no method beside rtn")
    if text is not None and name == "rtn":
        raise HalfbyteError(f"calibrate {text}: expected no text for rtn")
    if imatrix is not None and (text is not None or name != "search"):
        raise HalfbyteError(
            f"imatrix {imatrix}: expected method 'search' and no text, found '{name}'"
        )
    return name


def _check_tensors(file: ModelFile, *, accepted: bool) -> None:
    """Raise for a file without tensors, or with coarse ones unless they are accepted."""
    if not file.tensors:
        raise FormatError(f"{file.path}: expected a model, found no tensors")
    coarse = [t for t in file.tensors.values() if is_coarse(t.format)]
    if coarse and not accepted:
        raise UnsupportedError(
            f"{file.path}: tensor {coarse[0].name!r} is {coarse[0].format.name} already: expected "
            "a model in F32, F16, BF16 or Q8_0; --requantize takes it, and loses more"
        )


def _inputs(file: ModelFile) -> list[Path]:
    """The files of a model; in a folder all except GGUF files, which may be earlier outputs."""
    if not file.path.is_dir():
        return [*file.parts]
    return [*file.parts, *(path for path in file.path.iterdir() if path.suffix != ".gguf")]


def refuse_to_replace(target: Path, *inputs: str | os.PathLike[str] | None) -> None:
    """Raise `OutputError` where an output is one of the inputs, under any name."""
    if any(target.exists() and target.samefile(path) for path in inputs if path is not None):
        raise OutputError(f"{target}: is an input; choose another output")
