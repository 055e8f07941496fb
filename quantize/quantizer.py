"""From a model file to a smaller GGUF file, a slice of rows at a time.

`recipe` chooses types, `equalize` computes powers of two that even out channels (exact in floats),
`scale_search` and `steps` define the search of blocks' scales, `encode` moves slices of rows
through the kernels, and `gguf_writer` writes to a temporary file that is renamed at the end.

A file is read once: every value is checked to be finite and to fit its type as it is encoded. Only
if one does not fit, types are chosen again from all values. Matrices that can be equalized are read
once more before.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt

from halfbyte.core.backends.cores import default_threads
from halfbyte.errors import FormatError, OutputError, UnsupportedError, nearest
from halfbyte.formats import ModelFile
from halfbyte.formats.gguf import QUANTIZED_BY
from halfbyte.formats.model_file import MetadataValue
from halfbyte.quantize.encode import Codec, Slice, slices
from halfbyte.quantize.equalize import Scales, find_scales
from halfbyte.quantize.gguf_writer import GGUFWriter, TensorInfo
from halfbyte.quantize.lattice import encode_exactly, with_lattices
from halfbyte.quantize.presets import canonical
from halfbyte.quantize.recipe import (
    Choice,
    choose,
    equalized,
    find_preset,
    hidden_pairs,
    is_coarse,
    norm_groups,
)
from halfbyte.quantize.report import Report, Row, decibels
from halfbyte.text import architectures
from halfbyte.text.adapters import merged
from halfbyte.text.opening import open_model
from halfbyte.weights import ScaledFormat, Tensor

F32 = npt.NDArray[np.float32]
Progress = Callable[[int, int], None]  # input bytes so far, and in total (each read counts)


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
    rtn: bool = False,
    pure: bool = False,
    requantize: bool = False,
    lora: Mapping[str | os.PathLike[str], float] | None = None,
    threads: int | None = None,
    progress: Progress | None = None,
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
    threads : int, optional
        Threads for encoding; by default one per fast core.
    progress : callable, optional
        Called with input bytes processed so far and in total.

    Raises
    ------
    HalfbyteError
        The input or an argument cannot be used, or the output cannot be written; no partial file
        is left, and the input is never touched.
    """
    start = time.perf_counter()
    type = canonical(type)
    file = open_model(path, tokenizer)
    target = Path(output) if output is not None else default_output(file.path, type)
    refuse_to_replace(target, *_inputs(file), tokenizer, *(lora or ()))
    exact = file.path.is_dir() and not requantize
    _check_tensors(file, accepted=requantize or exact)
    if lora:
        file = merged(file, lora)
    choices = choose(file, type, keep, pure=pure, exact=exact)
    codec = Codec(default_threads() if threads is None else threads)
    try:
        run = _Run(file, choices, codec, type, rtn, progress)
        rows = run.write(target)
    finally:
        codec.close()
    return Report(
        source=file.path.name,
        source_format=file.kind,
        output=str(target),
        type=type,
        bytes_before=file.size,
        bytes_after=target.stat().st_size,
        weights=sum(int(np.prod(t.shape)) for t in file.tensors.values()),
        seconds=time.perf_counter() - start,
        rows=tuple(rows),
        notes=(*file.notes, *run.notes),
    )


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


class _DoesNotFit(Exception):
    """A value exceeds its tensor's type, which is written in the output's header already."""


class _Run:
    """One run: equalize, then check, encode and write slice by slice."""

    def __init__(
        self,
        file: ModelFile,
        choices: list[Choice],
        codec: Codec,
        type: str,
        rtn: bool,
        progress: Progress | None,
    ) -> None:
        self.file, self.codec = file, codec
        self.choices = choices if rtn else list(with_lattices(file, choices, codec))
        self.rtn, self.notes = rtn, list[str]()
        self.groups = norm_groups(file)
        self.preset = find_preset(type)
        self.equalize = not rtn and self.preset.format.block > 1
        if self.equalize and not equalized(file):
            self.equalize = False
            names = [name for name in architectures.names() if architectures.get(name).EQUALIZED]
            name = str(file.metadata.get("general.architecture"))
            self.notes.append(f"not equalized, which needs architecture {nearest(name, names)}")
        if self.equalize and any(c.exact or is_coarse(c.tensor.format) for c in self.choices):
            self.equalize = False
            self.notes.append("not equalized, since tensors are quantized already")
        self.scales = Scales()
        self._progress = progress or (lambda done, total: None)
        self._done = 0
        self._size = sum(t.nbytes for t in file.tensors.values())
        self._total = self._size + (self._equalized_bytes() if self.equalize else 0)

    def write(self, target: Path) -> list[Row]:
        """Write the file; returns the rows of the report."""
        if self.equalize:
            self.scales = find_scales(self.file, self.groups, self.codec, self._advance)
        try:
            return self._write_file(target)
        except _DoesNotFit:  # rare, so the file is read again only then
            self._total = self._done + 2 * self._size
            self.choices = [self._fitting(choice) for choice in self.choices]
            return self._write_file(target)

    def _write_file(self, target: Path) -> list[Row]:
        infos = [TensorInfo(c.tensor.name, c.format, c.tensor.shape) for c in self.choices]
        key, value = QUANTIZED_BY
        metadata: dict[str, MetadataValue] = {
            key: value,  # first, in place of the input's
            **{k: v for k, v in self.file.metadata.items() if k != key},
            "general.file_type": np.uint32(self.preset.file_type),
            "general.quantization_version": np.uint32(2),
        }
        with GGUFWriter(target, metadata, infos) as writer:
            return [self._write_tensor(choice, writer) for choice in self.choices]

    def _advance(self, nbytes: int) -> None:
        self._done += nbytes
        self._progress(min(self._done, self._total), self._total)

    def _equalized_bytes(self) -> int:
        """The bytes that `find_scales` reads."""
        names = [r for readers in self.groups.values() for r in readers]
        names += hidden_pairs(self.file)
        return sum(self.file.tensors[name].nbytes for name in names)

    def _fitting(self, choice: Choice) -> Choice:
        """Widen the type until all values fit; raises for values that are not finite."""
        top = 0.0
        for part in self._parts(choice.tensor):
            top = max(top, self.file.check_values(choice.tensor, part.values, part.first))
        while top >= choice.format.limit:
            why = f"values up to {top:.3g} do not fit {choice.format.name}"
            choice = choice.widened(why)
        return choice

    def _parts(self, tensor: Tensor) -> Iterator[Slice]:
        """Equalized slices of a tensor."""
        for part in slices(self.file, tensor, self.codec):
            values = self.scales.apply(tensor.name, part.first, part.values)
            yield part._replace(values=values)
            self._advance(part.data.nbytes)

    def _write_tensor(self, choice: Choice, writer: GGUFWriter) -> Row:
        """Encode a tensor; returns its row of the report. Raises `_DoesNotFit`."""
        tensor, format_ = choice.tensor, choice.format
        importance = None
        if issubclass(format_, ScaledFormat) and not self.rtn and not choice.exact:
            importance = self._importance(tensor)
        energy, weighted, size = np.zeros(2), np.zeros(2), 0
        for part in self._parts(tensor):
            x = part.values
            if self.file.check_values(tensor, part.values, part.first) >= format_.limit:
                raise _DoesNotFit
            if is_coarse(tensor.format) and format_ is tensor.format:
                encoded = part.data
            elif choice.exact:
                encoded = encode_exactly(choice, x)
            elif importance is None or not issubclass(format_, ScaledFormat):
                encoded = self.codec.encode(format_, x)
            else:
                encoded, error = self.codec.search(format_, x, importance)
                weighted += error.sum(axis=0, dtype=np.float64)
            energy += self.codec.square_error(x, self.codec.decode(format_, encoded, x.shape[1]))
            size += encoded.nbytes
            writer.write(encoded)
        scaled = self.scales.columns.get(tensor.name) if len(tensor.shape) == 1 else None
        if scaled is None:
            scaled = self.scales.rows.get(tensor.name)
        return Row(
            name=tensor.name,
            shape=tensor.shape,
            source=tensor.format.name,
            type=format_.name,
            bytes=size,
            bits_per_weight=8 * size / int(np.prod(tensor.shape)),
            snr_db=decibels(*energy),
            search_gain_db=None if importance is None else decibels(*weighted),
            equalized=0 if scaled is None else int(np.count_nonzero(scaled != 1)),
            note=choice.note,
        )

    def _importance(self, tensor: Tensor) -> F32:
        """Weight of each column's squared error: the squared gain of the RMSNorm before it.

        Without data, normalized activations are assumed to be equally large; then gain_j amplifies
        an error in column j. All weights are 1 where the matrix reads no norm.
        """
        for norm, readers in self.groups.items():
            if tensor.name in readers:
                gain = self.scales.apply(norm, 0, self.file.tensors[norm].decode()[None])[0]
                squares = gain.astype(np.float64) ** 2
                mean = squares.mean()
                if 0 < mean < np.inf:
                    importance: F32 = (squares / mean).astype(np.float32)
                    return importance
        return np.ones(tensor.columns, np.float32)
