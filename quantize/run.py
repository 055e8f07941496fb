"""One run of the quantizer: a model's tensors, encoded slice by slice into a file."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from halfbyte.errors import HalfbyteError, nearest
from halfbyte.formats import ModelFile
from halfbyte.formats.gguf import QUANTIZED_BY
from halfbyte.formats.model_file import MetadataValue
from halfbyte.quantize.budget import Budget, Point, Room, choose_within, commonest
from halfbyte.quantize.calibration.imatrix import write_imatrix
from halfbyte.quantize.calibration.segments import Tokens
from halfbyte.quantize.calibration.texts import own_windows
from halfbyte.quantize.encode import Codec, Slice, slices
from halfbyte.quantize.engines import Engine, Local
from halfbyte.quantize.equalize import Scales, find_scales
from halfbyte.quantize.gguf_writer import GGUFWriter, TensorInfo
from halfbyte.quantize.lattice import encode_exactly, with_lattices
from halfbyte.quantize.methods import COSTS, METHODS, Task, check_before, moments, searched
from halfbyte.quantize.recipe import (
    Choice,
    equalized,
    find_preset,
    hidden_pairs,
    is_coarse,
    norm_groups,
)
from halfbyte.quantize.report import Row, decibels
from halfbyte.text import architectures
from halfbyte.weights import U8, ScaledFormat, Tensor

F32 = npt.NDArray[np.float32]
Progress = Callable[[int, int], None]  # input bytes so far, and in total (each read counts)

_RUNS = 10  # reads of the file that take as long as the model's run over the tokens


class _DoesNotFit(Exception):
    """A value exceeds its tensor's type, which is written in the output's header already."""


class Run:
    """One run: equalize, then check, encode and write slice by slice."""

    def __init__(
        self,
        file: ModelFile,
        choices: list[Choice],
        codec: Codec,
        type: str,
        method: str,
        progress: Progress | None,
        divergence: Callable[[float], None] | None = None,
        engine: Engine | None = None,
    ) -> None:
        self.file, self.codec, self.method = file, codec, method
        self.engine = engine or Local()
        rtn = method == "rtn"
        self.choices = choices if rtn else list(with_lattices(file, choices, codec))
        self.notes = list[str]()
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
        self._divergence = divergence or (lambda nats: None)
        self._done = 0.0
        self._size = sum(t.nbytes for t in file.tensors.values())
        self._total = self._size + (self._equalized_bytes() if self.equalize else 0)
        self._windows: Sequence[Tokens] | None = None
        self._calibrated = False
        self._encoded: Mapping[str, U8] = {}
        self._importance_of: Mapping[str, F32] = {}
        self._room: Room | None = None
        self._free: frozenset[str] = frozenset()
        self._losses: Mapping[str, float] = {}
        self.curve: Sequence[Point] = ()

    def limit(self, budget: Budget, kept: Iterable[str]) -> None:
        """Before writing, let types be chosen, except those of tensors that are kept."""
        searched = {c.tensor.name for c in self.choices if self._is_searched(c)}
        self._free = frozenset(searched.difference(kept))
        writer = GGUFWriter(self.file.path, self._metadata(), self._infos())
        self._room = Room(
            self.choices, self._free, budget, header=writer.header_size, alignment=writer.alignment
        )
        self._total += _RUNS * self._size

    def weigh(self, importance: Mapping[str, F32]) -> None:
        """Before writing, give weights [matrices, columns] of tensors' squared errors."""
        self._importance_of = importance

    def write_imatrix(self, path: Path, text: str) -> None:
        """Write the importance of the tokens that were given to `calibrate`."""
        windows = self._windows or ()
        task = Task(self.file, {}, windows, self.codec, self.codec.threads)
        write_imatrix(path, moments(task), len(windows), text)

    def calibrate(self, windows: Sequence[Tokens] | None) -> None:
        """Before writing, run the model on these tokens; None lets it write some."""
        if not self._formats():
            raise HalfbyteError(
                f"{self.file.path}: no matrix is rounded to blocks with scales: expected a type "
                f"such as int4 for method '{self.method}', which would run for nothing"
            )
        self._windows, self._calibrated = windows, True
        runs = COSTS[self.method] + (windows is None)
        self._total += runs * _RUNS * self._size

    def write(self, target: Path) -> list[Row]:
        """Write the file; returns the rows of the report."""
        checkpoint = target.with_name(f"{target.name}.tuning")
        check_before(self.method, self.file, checkpoint)
        if self.equalize:
            self.scales = find_scales(self.file, self.groups, self.codec, self._advance)
        if self._calibrated:
            self._run_method(checkpoint)
        elif self._importance_of:
            self._encoded = self._weighted()
        try:
            return self._write_file(target)
        except _DoesNotFit:  # rare, so the file is read again only then
            self._total = int(self._done) + 2 * self._size
            before = self.choices
            self.choices = [self._fitting(choice) for choice in before]
            same = {new.tensor.name for new, old in zip(self.choices, before, strict=True)
                    if new.format is old.format}  # fmt: skip
            self._encoded = {n: rows for n, rows in self._encoded.items() if n in same}
            return self._write_file(target)

    def _run_method(self, checkpoint: Path) -> None:
        """Run the model as it is equalized, and the method on what enters its matrices."""
        file = self.scales.of_file(self.file)

        def done(share: float) -> None:
            self._advance(share * _RUNS * self._size)

        threads = self.codec.threads
        windows = self._windows or own_windows(file, threads, done)
        task = Task(
            file, self._formats(), windows, self.codec, threads, done, self.notes.append,
            self._divergence, checkpoint, self.engine,
        )  # fmt: skip
        if self._room is not None:
            self.choices, self._losses, self.curve = choose_within(
                task, self.choices, self._free, self._room
            )
            self.preset = find_preset(commonest(self.choices))
            task = replace(task, formats=self._formats())
        self._encoded = self._as_chosen(METHODS[self.method](task))
        source = "of the text" if self._windows else "that the model wrote"
        self.notes.append(f"calibrated with {sum(map(len, windows)):,} tokens {source}")

    def _as_chosen(self, encoded: Mapping[str, U8]) -> dict[str, U8]:
        """Vectors, which methods return in F32, in the types that were chosen."""
        chosen = {c.tensor.name: c.format for c in self.choices if len(c.tensor.shape) == 1}
        return {
            name: chosen[name].encode(rows.view(np.float32)) if name in chosen else rows
            for name, rows in encoded.items()
        }

    def _weighted(self) -> dict[str, U8]:
        """Tensors by the search with the given weights, which equalized channels change."""
        file = self.scales.of_file(self.file)
        task = Task(file, self._formats(), (), self.codec, engine=self.engine)
        names = [name for name in task.formats if name in self._importance_of]
        columns = {name: self.scales.columns.get(name, np.float32(1)) for name in names}
        return searched(
            task, ((file.tensors[n], self._importance_of[n] / columns[n] ** 2) for n in names)
        )

    def _metadata(self) -> dict[str, MetadataValue]:
        key, value = QUANTIZED_BY
        return {
            key: value,  # first, in place of the input's
            **{k: v for k, v in self.file.metadata.items() if k != key},
            "general.file_type": np.uint32(self.preset.file_type),
            "general.quantization_version": np.uint32(2),
        }

    def _infos(self) -> list[TensorInfo]:
        return [TensorInfo(c.tensor.name, c.format, c.tensor.shape) for c in self.choices]

    def _write_file(self, target: Path) -> list[Row]:
        with GGUFWriter(target, self._metadata(), self._infos()) as writer:
            return [self._write_tensor(choice, writer) for choice in self.choices]

    def _advance(self, nbytes: float) -> None:
        self._done += nbytes
        self._progress(min(int(self._done), self._total), self._total)

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
        ready, importance = self._encoded.get(tensor.name), None
        if ready is None and self._is_searched(choice):
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
            elif ready is not None:
                encoded = ready[part.first : part.first + len(x)]
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
            divergence=self._losses.get(tensor.name),
        )

    def _formats(self) -> dict[str, type[ScaledFormat]]:
        """Formats of the tensors whose scales are searched."""
        searched = (choice for choice in self.choices if self._is_searched(choice))
        return {c.tensor.name: c.format for c in searched if issubclass(c.format, ScaledFormat)}

    def _is_searched(self, choice: Choice) -> bool:
        """Whether scales are searched."""
        is_scaled = issubclass(choice.format, ScaledFormat)
        return (
            is_scaled
            and self.method != "rtn"
            and not choice.exact
            and not (is_coarse(choice.tensor.format) and choice.format is choice.tensor.format)
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
