"""From a model file to a smaller one, a slice of rows at a time."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt

from halfbyte.core.backends.cores import default_threads
from halfbyte.errors import FormatError, OutputError, UnsupportedError
from halfbyte.formats import ModelFile, open_model
from halfbyte.formats.gguf import QUANTIZED_BY
from halfbyte.formats.model_file import MetadataValue
from halfbyte.quantize.encode import Codec, Slice, slices
from halfbyte.quantize.equalize import Scales, find_scales
from halfbyte.quantize.gguf_writer import GGUFWriter, TensorInfo
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
from halfbyte.weights import BlockFormat, ScaledFormat, Tensor

F32 = npt.NDArray[np.float32]
Progress = Callable[[int, int], None]  # bytes of input done, bytes in all (each read counts)


def default_output(path: Path, kind: str, suffix: str = "gguf") -> Path:
    """``<stem>-int4.gguf`` beside the input: a file, one of several, or a folder."""
    if path.is_dir():
        whole = path.resolve()
        return whole.with_name(f"{whole.name}-{kind}.{suffix}")
    stem = re.sub(r"-\d{5}-of-\d{5}$", "", path.stem)
    return path.with_name(f"{stem}-{kind}.{suffix}")


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
    threads: int | None = None,
    progress: Progress | None = None,
) -> Report:
    """Write a model in a smaller type.

    Parameters
    ----------
    path : path
        A model in any format that halfbyte reads: a file, or a Hugging Face folder.
    type : str
        "int4" is Q4_0 with embeddings and head in Q8_0, "int8" Q8_0, "fp16" F16, "bf16" BF16. Or
        a type's own name, "Q4_K_M" and others: see `halfbyte.quantize.presets`. Vectors stay F32.
    output : path, optional
        The GGUF file to write; by default ``<stem>-<type>.gguf`` beside the input.
    tokenizer : path, optional
        For a llama2.c file: its tokenizer, if it does not lie beside the model.
    keep : pairs of pattern and type
        Tensors whose names match take this type; of several patterns the last that matches.
    rtn : bool
        Round to nearest as ``gguf.quants`` does: no search of scales, no equalization.
    pure : bool
        Embeddings and head in the type of the other matrices.
    requantize : bool
        Take models that have tensors coarser than Q8_0, whose errors add up; nothing is equalized
        then, and a tensor that has its type already is copied.
    threads : int, optional
        Threads that encode; by default one per fast core.
    progress : callable, optional
        Called with bytes of input done and bytes in all.

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
    refuse_to_replace(target, *_inputs(file), tokenizer)
    if not file.tensors:
        raise FormatError(f"{file.path}: expected a model, found no tensors")
    coarse = [t for t in file.tensors.values() if is_coarse(t.format)]
    if coarse and not requantize:
        raise UnsupportedError(
            f"{file.path}: tensor {coarse[0].name!r} is {coarse[0].format.name} already: expected "
            "a model in F32, F16, BF16 or Q8_0; --requantize takes it, and loses more"
        )
    choices = choose(file, type, keep, pure=pure)
    codec = Codec(default_threads() if threads is None else threads)
    try:
        work = _Work(file, choices, codec, type, rtn, progress)
        rows = work.run(target)
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
        notes=(*file.notes, *work.notes),
    )


def _inputs(file: ModelFile) -> list[Path]:
    """The files of a model; in a folder all but GGUF files, which may be earlier outputs."""
    if not file.path.is_dir():
        return [*file.parts]
    return [*file.parts, *(path for path in file.path.iterdir() if path.suffix != ".gguf")]


def refuse_to_replace(target: Path, *inputs: str | os.PathLike[str] | None) -> None:
    """Raise `OutputError` where an output is one of the inputs, under whatever name."""
    if any(target.exists() and target.samefile(path) for path in inputs if path is not None):
        raise OutputError(f"{target}: is an input; choose another output")


class _DoesNotFit(Exception):
    """A value exceeds its tensor's type, which the header of the output has named already."""


class _Work:
    """One run: equalize, then check, encode and write slice by slice."""

    def __init__(
        self,
        file: ModelFile,
        choices: list[Choice],
        codec: Codec,
        kind: str,
        rtn: bool,
        progress: Progress | None,
    ) -> None:
        self.file, self.choices, self.codec, self.kind = file, choices, codec, kind
        self.rtn, self.notes = rtn, list[str]()
        self.groups = norm_groups(file)
        self.wanted = find_preset(kind)
        self.equalize = not rtn and issubclass(self.wanted.format, BlockFormat)
        if self.equalize and not equalized(file):
            self.equalize = False
            known = [name for name in architectures.names() if architectures.get(name).EQUALIZED]
            self.notes.append(f"not equalized, which needs architecture {' or '.join(known)}")
        if self.equalize and any(is_coarse(t.format) for t in file.tensors.values()):
            self.equalize = False
            self.notes.append("not equalized, since tensors are quantized already")
        self.scales = Scales()
        self._progress = progress or (lambda done, total: None)
        self._done = 0
        self._size = sum(t.nbytes for t in file.tensors.values())
        self._total = self._size + (self._equalized_bytes() if self.equalize else 0)

    def run(self, target: Path) -> list[Row]:
        """Write the file; returns the report's rows."""
        if self.equalize:
            self.scales = find_scales(self.file, self.groups, self.codec, self._advance)
        try:
            return self._write_file(target)
        except _DoesNotFit:  # rare: so all is read once more, rather than always
            self._total = self._done + 2 * self._size
            self.choices = [self._fitting(choice) for choice in self.choices]
            return self._write_file(target)

    def _write_file(self, target: Path) -> list[Row]:
        infos = [TensorInfo(c.tensor.name, c.format, c.tensor.shape) for c in self.choices]
        key, value = QUANTIZED_BY
        metadata: dict[str, MetadataValue] = {
            key: value,  # the first, whatever the input says
            **{k: v for k, v in self.file.metadata.items() if k != key},
            "general.file_type": np.uint32(self.wanted.file_type),
            "general.quantization_version": np.uint32(2),
        }
        with GGUFWriter(target, metadata, infos) as writer:
            return [self._write(choice, writer) for choice in self.choices]

    def _advance(self, nbytes: int) -> None:
        self._done += nbytes
        self._progress(min(self._done, self._total), self._total)

    def _equalized_bytes(self) -> int:
        """What `find_scales` reads."""
        names = [r for readers in self.groups.values() for r in readers]
        names += hidden_pairs(self.file)
        return sum(self.file.tensors[name].nbytes for name in names)

    def _fitting(self, choice: Choice) -> Choice:
        """Widen the type until every value fits; raises for values that are not finite."""
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

    def _write(self, choice: Choice, writer: GGUFWriter) -> Row:
        """Encode a tensor; its row of the report. Raises `_DoesNotFit`."""
        tensor, format_ = choice.tensor, choice.format
        importance = None
        if issubclass(format_, ScaledFormat) and not self.rtn:
            importance = self._importance(tensor)
        energy, weighted, size = np.zeros(2), np.zeros(2), 0
        for part in self._parts(tensor):
            x = part.values
            if self.file.check_values(tensor, part.values, part.first) >= format_.limit:
                raise _DoesNotFit
            if is_coarse(tensor.format) and format_ is tensor.format:
                encoded = part.data
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

        Without data the normed activations count as equally large; then an error in column j
        reaches the output gain_j times as strong. Ones where no norm feeds the matrix.
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
