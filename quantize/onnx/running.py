"""Running a model in halfbyte's own runtime, for its values and to compare two models."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import helper

from halfbyte.core import ops
from halfbyte.core.backends import Executable, available, open_program
from halfbyte.core.backends.cores import default_threads
from halfbyte.core.interrupt import interruptible
from halfbyte.core.ops import Operator
from halfbyte.core.program import Program
from halfbyte.errors import HalfbyteError
from halfbyte.formats.mapped import MappedFile
from halfbyte.onnx.evaluate import Evaluator
from halfbyte.onnx.files import Model, ValueInfo, open_onnx
from halfbyte.onnx.files.dtypes import special_name, widen
from halfbyte.onnx.prepare import prepare
from halfbyte.onnx.runner import Runner, attention_products
from halfbyte.quantize.onnx.editor import Editor
from halfbyte.quantize.onnx.nodes import clone
from halfbyte.quantize.onnx.samples import Feeds
from halfbyte.quantize.report import OutputRow, decibels

Array = npt.NDArray[Any]
MAX_STEPS = 1 << 21  # of one run, including loops, which random inputs may keep from ending


class Running:
    """A model that returns chosen values.

    Parameters
    ----------
    model : Model
    names : sequence of str
        Values of the main graph; by default its outputs.
    int8_attention : collection of Operator, optional
        Products whose results attention reads in int8; by default as the metadata says.
    mapped : sequence of MappedFile, optional
        The files of its tensors; by default those that the model was opened from.

    Integer products take bytes on every machine, so that a report does not depend on the machine.
    """

    def __init__(
        self,
        model: Model,
        names: Sequence[str] | None = None,
        int8_attention: Collection[Operator] | None = None,
        mapped: Sequence[MappedFile] | None = None,
    ) -> None:
        self._path = model.path
        self._mapped = model.mapped if mapped is None else mapped
        self.names = [v.name for v in model.graph.outputs] if names is None else list(names)
        graph = replace(model.graph, outputs=[ValueInfo(name) for name in self.names])
        backend = "native" if available()[0] != "numpy" else "numpy"
        threads = default_threads()

        def opened(program: Program) -> Executable:
            return open_program(program, backend, threads)

        if int8_attention is None:
            int8_attention = attention_products(model)
        self._check()
        self._runner = Runner(
            prepare(replace(model, graph=graph)), opened, int8_attention=int8_attention
        )

    def __call__(self, feeds: Feeds) -> dict[str, Any]:
        """The values by name."""
        steps = iter(range(MAX_STEPS))

        def check() -> None:
            if next(steps, None) is None:
                raise HalfbyteError(f"{self._path}: its loops do not end on these inputs")
            self._check()

        with interruptible(check):
            return self._runner.run(feeds, self.names)

    def _check(self) -> None:
        for pages in self._mapped:
            pages.check()

    def has(self, operator: Operator) -> bool:
        """Whether a program that ran has an instruction of this operator."""
        programs = self._runner.programs()
        return any(i.operator is operator for program in programs for i in program.instructions)

    def close(self) -> None:
        """Stop the threads."""
        self._runner.close()


class InHalves:
    """A model run by its definitions, which round every float16 value, as GPUs and NPUs do.

    `Running` computes in float32 between its inputs and outputs, as ONNX Runtime does here.
    """

    def __init__(self, model: Model) -> None:
        self.names = [v.name for v in model.graph.outputs]
        self._evaluator = Evaluator(model)

    def __call__(self, feeds: Feeds) -> dict[str, Any]:
        """The values by name."""
        return self._evaluator.run(feeds)

    def close(self) -> None:
        """Nothing is kept."""


def running_editor(editor: Editor, names: Sequence[str]) -> Running:
    """The model before it is rewritten; large tensors stay in their files."""
    proto = clone(editor.original)
    bulk = editor.source.bulk
    for tensor in proto.graph.initializer:
        if tensor.name in bulk:
            tensor.data_location = onnx.TensorProto.EXTERNAL
            tensor.external_data.add(key="location", value=tensor.name)
    del proto.graph.output[:]
    proto.graph.output.extend(helper.make_empty_tensor_value_info(name) for name in names)
    path = str(editor.source.path)
    model = open_onnx(proto.SerializeToString(), name=path, external=bulk)
    return Running(model, names, mapped=editor.source.file.mapped)


def compare_outputs(before: Path, after: Path, samples: Iterable[Feeds]) -> list[OutputRow]:
    """How close the outputs of two models are, over all samples.

    Raises
    ------
    HalfbyteError
        One of them cannot be run.
    """
    return _compared(Running(open_onnx(before)), Running(open_onnx(after)), samples)


def worst_in_halves(
    before: Path, after: Path, feeds: Feeds, rows: list[OutputRow]
) -> list[OutputRow]:
    """The rows, with the figures of a run in float16 throughout where these are worse.

    Raises
    ------
    HalfbyteError
        A model cannot be run.
    """
    rounded = _compared(Running(open_onnx(before)), InHalves(open_onnx(after)), [feeds])
    known = {row.name: row for row in rounded}
    return [_worse(row, known.get(row.name, row)) for row in rows]


def _worse(a: OutputRow, b: OutputRow) -> OutputRow:
    cosines = [row.cosine for row in (a, b) if row.cosine is not None]
    noise = [row.snr_db for row in (a, b) if row.snr_db is not None]
    return OutputRow(
        a.name,
        min(cosines, default=None),
        min(noise, default=None),
        max(a.not_finite, b.not_finite),
    )


def attention_noise(path: Path, samples: Iterable[Feeds]) -> list[OutputRow]:
    """How close outputs stay where only attention is in int8; empty without attention.

    Raises
    ------
    HalfbyteError
        The model cannot be run.
    """
    model = open_onnx(path)
    quantized = Running(model, int8_attention=(ops.matmul_panels, ops.matmul_int8))
    rows = _compared(Running(model), quantized, samples)
    return rows if quantized.has(ops.attention_int8) else []


def _compared(
    first: Running, second: Running | InHalves, samples: Iterable[Feeds]
) -> list[OutputRow]:
    try:
        sums = {name: np.zeros(5) for name in first.names}
        for feeds in samples:
            expected, actual = first(feeds), second(feeds)
            for name in first.names:
                sums[name] += sums_of(expected[name], actual[name])
    finally:
        first.close()
        second.close()
    return [row_of(name, sums[name]) for name in first.names if sums[name].any()]


def sums_of(x: Any, y: Any) -> npt.NDArray[np.float64]:
    """Sums of x^2, y^2, x y and (x - y)^2, and how many y are not finite where x are.

    Zeros unless both are floats of one shape.
    """
    x, y = _numbers(x), _numbers(y)
    if x is None or y is None or x.shape != y.shape:
        return np.zeros(5)
    wrong = np.count_nonzero(np.isfinite(x) & ~np.isfinite(y))
    finite = np.isfinite(x) & np.isfinite(y)
    x, y = x[finite], y[finite]
    with np.errstate(over="ignore", invalid="ignore"):  # of float64
        return np.array([x @ x, y @ y, x @ y, (x - y) @ (x - y), wrong])


def _numbers(value: Any) -> npt.NDArray[np.float64] | None:
    if not isinstance(value, np.ndarray) or value.dtype.kind not in "fV":
        return None
    wide = widen(value) if special_name(value.dtype) else value
    return wide.astype(np.float64).reshape(-1)


def row_of(name: str, sums: npt.NDArray[np.float64]) -> OutputRow:
    """An output, from the sums of `sums_of`; without a cosine where x or y is 0, or too large."""
    xx, yy, xy, noise, wrong = (float(one) for one in sums)
    has_cosine = 0 < xx < math.inf and 0 < yy < math.inf
    cosine = xy / (math.sqrt(xx) * math.sqrt(yy)) if has_cosine else None
    return OutputRow(name, cosine, decibels(xx, noise), int(wrong))
