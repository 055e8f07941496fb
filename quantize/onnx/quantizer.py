"""From an ONNX model to a smaller one.

`source` cuts the numbers of large tensors out of the file's messages before `onnx` parses them;
they stay mapped views. An `editor` holds the model while a `rewriter` goes through the nodes of all
graphs, bodies before the nodes that contain them: `weight_only`, `dynamic`, `static`, `fp16` or
`bf16`. A `weight_encoder` adds new tensors, whose numbers are computed while `model_writer` writes
them. So the memory needed is that of one tensor, whatever the model's size.

Values of the model are computed by halfbyte's own runtime (`running`): for ranges and importance
(`calibrate`), and to compare outputs (`output_quality`). Where these differ too much, `sensitivity`
finds the layers that cause it with the help of `gates`, and the model is written again with these
layers at a higher level (`Rewriter`). ONNX Runtime is needed by the tests only.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from halfbyte.core.backends.cores import default_threads
from halfbyte.errors import HalfbyteError, OutputError, UnsupportedError
from halfbyte.quantize.encode import Codec
from halfbyte.quantize.onnx.bf16 import BFloat16
from halfbyte.quantize.onnx.calibrate import Calibration
from halfbyte.quantize.onnx.check import check_nodes
from halfbyte.quantize.onnx.dynamic import Dynamic
from halfbyte.quantize.onnx.editor import TYPES, Editor
from halfbyte.quantize.onnx.fp16 import Float16
from halfbyte.quantize.onnx.model_writer import is_data_of, write_model
from halfbyte.quantize.onnx.nodes import is_op
from halfbyte.quantize.onnx.numbers import F32Array
from halfbyte.quantize.onnx.options import Options
from halfbyte.quantize.onnx.output_quality import Outputs, may_run
from halfbyte.quantize.onnx.recipe import Keep
from halfbyte.quantize.onnx.rewriter import BITS, Rewriter
from halfbyte.quantize.onnx.samples import SEED, Feeds, Inputs
from halfbyte.quantize.onnx.sensitivity import MAX_LOSS, TOGETHER, Search
from halfbyte.quantize.onnx.source import Source, element_bits, read_source
from halfbyte.quantize.onnx.static import Static
from halfbyte.quantize.onnx.weight_encoder import Encoder
from halfbyte.quantize.onnx.weight_only import WeightOnly
from halfbyte.quantize.quantizer import default_output, refuse_to_replace
from halfbyte.quantize.report import LayerRow, OutputRow, Report, Row

Progress = Callable[[int, int], None]  # bytes of input done, bytes in all (each read counts)

MAX_SEARCHES = 4  # of layers to raise, each followed by another attempt
MAX_SEARCHING = 40.0  # seconds after which there is no further search
_RANDOM_INPUTS = 64  # from which sizes of channels are measured where there are no samples
# Operators of models that are quantized already
_QUANTIZED = frozenset({
    "DequantizeLinear", "QLinearConv", "QLinearMatMul", "MatMulInteger", "ConvInteger",
    "MatMulNBits", "MatMulBnb4", "GatherBlockQuantized", "DynamicQuantizeMatMul", "QAttention",
    "DynamicQuantizeLSTM", "MatMulIntegerToFloat", "QGemm",
})  # fmt: skip


def quantize(
    path: Path,
    output: Path | None,
    options: Options,
    samples: Path | None,
    threads: int | None,
    progress: Progress | None,
) -> Report:
    """See :func:`halfbyte.quantize.onnx.quantize_onnx`."""
    start = time.perf_counter()
    options.check()
    if options.rounding == "gptq" and samples is None:
        raise HalfbyteError("method 'gptq': expected samples of an ONNX model, --calibrate DATA")
    work = _Work(path, output, options, samples, threads, progress)
    while True:
        try:
            report = work.attempt(is_last=work.is_last)
            return replace(report, seconds=time.perf_counter() - start)
        except _ImpreciseError as imprecise:
            work.raise_levels(imprecise.found)


class _ImpreciseError(Exception):
    """Outputs differ too much, and layers were found that should be more precise."""

    def __init__(self, found: Search) -> None:
        super().__init__()
        self.found = found


class _Work:
    """Quantizing a model, once or again with some layers more precise."""

    def __init__(
        self,
        path: Path,
        output: Path | None,
        options: Options,
        samples: Path | None,
        threads: int | None,
        progress: Progress | None,
    ) -> None:
        self.path, self.output, self.options, self.samples = path, output, options, samples
        self.threads = default_threads() if threads is None else threads
        self.progress = progress or (lambda done, total: None)
        self.levels: dict[str, int] = {}
        self.layers: dict[str, LayerRow] = {}
        self._searches, self._searching = 0, 0.0  # their number and seconds
        self._calibration: Calibration | None = None

    @property
    def is_last(self) -> bool:
        """Whether no more layers are raised after the next attempt."""
        return self._searches == MAX_SEARCHES or self._searching > MAX_SEARCHING

    def raise_levels(self, found: Search) -> None:
        """Make layers more precise in the next attempt."""
        self._searches += 1
        self._searching += found.seconds
        for name in found.raised:
            self.levels[name] = self.levels.get(name, 0) + 1
        self._note(found)

    def _note(self, found: Search) -> None:
        for row in found.rows:
            known = self.layers.get(row.name, row)
            self.layers[row.name] = replace(known, raised=known.raised or row.raised)

    def _samples(self, inputs: Inputs) -> list[Feeds]:
        if self.samples is None:
            return []
        return inputs.read(self.samples, self.options.normalization, self.options.tokenizer)

    def attempt(self, *, is_last: bool) -> Report:
        """Write the model; raises `_ImpreciseError` where another attempt may be better."""
        options, source = self.options, read_source(self.path)
        target = _target(source, self.output, options.type)
        editor = _editor(source, options)
        inputs = Inputs(editor)
        if self._calibration is None:
            given = self._samples(inputs)
            self._calibration = Calibration(given or [inputs.random()], options.calibration)
        calibration, is_given = self._calibration, self.samples is not None
        runs = options.compare and may_run(source, is_given=is_given, what="outputs not compared")
        outputs = Outputs(source, calibration.samples if runs else [])
        codec = Codec(self.threads)
        compared: list[OutputRow] = []

        def compare(written: Path) -> None:
            searches = not is_last and options.type in BITS
            in_halves, count = options.type == "fp16", TOGETHER if searches else None
            rows = outputs.compared(written, target, in_halves=in_halves, count=count)
            if searches:
                self._search(encoder, written, outputs, rows)
                if rows and len(outputs.samples) > TOGETHER:
                    rows = outputs.compared(written, target)
            compared.extend(rows)
            _refuse_not_finite(target, compared)

        try:
            encoder = Encoder(editor, codec, options.rtn, _Meter(source, self.progress).advance)
            rewriter = _rewriter(encoder, options, calibration, self.levels, is_given=is_given)
            rewriter.run()
            _refuse_unchanged(editor, encoder, rewriter.notes)
            if isinstance(rewriter, WeightOnly):
                remark = outputs.choose_attention(editor, options.attention)
                rewriter.remarks += filter(None, [remark])
            editor.finish()
            payloads, kept = editor.write_payloads(), _kept_rows(editor, rewriter.notes)
            files = write_model(
                target, editor.model, payloads, external=options.external, check=compare
            )
        finally:
            codec.close()
        rows = [*(result.row() for result in encoder.results.values()), *kept]
        return Report(
            source=source.path.name,
            source_format=source.file.kind,
            output=str(target),
            type=options.type,
            bytes_before=source.file.size,
            bytes_after=sum(file.stat().st_size for file in files),
            weights=sum(math.prod(row.shape) for row in rows),
            seconds=0.0,
            rows=tuple(rows),
            notes=(*source.notes, *rewriter.remarks),
            outputs=tuple(compared),
            samples=f"{len(calibration.samples)} samples" if is_given else "made-up inputs",
            layers=tuple(sorted(self.layers.values(), key=lambda row: -row.loss)),
        )

    def _search(
        self, encoder: Encoder, written: Path, outputs: Outputs, compared: Sequence[OutputRow]
    ) -> None:
        """Raise `_ImpreciseError` where outputs are not close enough and layers can be raised."""
        is_int4 = any(result.type == "Q4_0" for result in encoder.results.values())
        bound = MAX_LOSS["int4" if is_int4 else "int8" if self.samples else "made-up"]
        editor = encoder.editor
        if all(row.loss <= bound for row in compared):
            return
        try:
            found = outputs.search(editor, written, bound, self.progress)
        except HalfbyteError as error:
            editor.source.notes.append(f"layers not measured: {error}")
            return
        if found.raised:
            raise _ImpreciseError(found)
        self._note(found)


def _editor(source: Source, options: Options) -> Editor:
    editor = Editor(source)
    check_nodes(editor)
    if not options.requantize:
        _refuse_quantized(editor)
    return editor


def _target(source: Source, output: Path | None, type: str) -> Path:
    """The file to write, which must be none of the input's.

    Raises
    ------
    OutputError
        It is, or a file of the input is named as the output's second file would be.
    """
    target = default_output(source.path, type, "onnx") if output is None else output
    refuse_to_replace(target, *source.file.parts)
    for part in source.file.parts:
        if is_data_of(Path(os.path.realpath(part)), Path(os.path.realpath(target))):
            raise OutputError(
                f"{part}: is an input, and named as the numbers of {target.name} are; choose "
                "another output"
            )
    return target


def _rewriter(
    encoder: Encoder,
    options: Options,
    calibration: Calibration,
    levels: Mapping[str, int],
    *,
    is_given: bool,
) -> Rewriter:
    """The rewriter for these options; `is_given` says whether the samples are the user's."""
    editor = encoder.editor
    keep = Keep(options.keep, _names(editor), str(editor.source.path))
    if options.method == "dynamic":
        return Dynamic(editor, encoder, keep, per_channel=options.per_channel, levels=levels)
    static = options.method == "auto" and is_given and _is_static(editor, options.type)
    if options.method == "static" or static:
        if not is_given:
            raise HalfbyteError("fixed scales of activations: expected samples, --calibrate DATA")
        return Static(
            editor, encoder, keep, calibration, activations=options.activations, levels=levels
        )
    if options.type == "bf16":
        return BFloat16(editor, encoder, keep)
    if options.type == "fp16":
        tops: dict[str, float] = {}
        unknown = "ranges of values are not known"
        if may_run(editor.source, is_given=is_given, what=unknown):
            try:
                tops = calibration.tops(editor)
            except HalfbyteError as error:
                editor.source.notes.append(f"{unknown}: {error}")
        return Float16(editor, encoder, keep, tops, io=options.fp16_io)

    def measure(has_norms: bool) -> dict[str, F32Array]:
        if options.rtn or not (is_given or has_norms):
            return {}
        return calibration.squares(editor) if is_given else _random_squares(editor)

    compensates = is_given and options.rounding != "search" and not options.rtn
    gram = partial(calibration.gram, editor) if compensates else None
    return WeightOnly(
        editor, encoder, keep, options.type, measure, gram, pure=options.pure, levels=levels
    )


def _random_squares(editor: Editor) -> dict[str, F32Array]:
    """Squares of what products read, on random inputs; a note where the model cannot be run."""
    unknown = "norms not smoothed"
    if may_run(editor.source, is_given=False, what=unknown):
        inputs = Inputs(editor)
        try:
            samples = [inputs.random(SEED + i) for i in range(_RANDOM_INPUTS)]
            return Calibration(samples).squares(editor)
        except HalfbyteError as error:
            editor.source.notes.append(f"{unknown}: {error}")
    return {}


def _is_static(editor: Editor, type: str) -> bool:
    """Whether samples are taken for fixed scales of activations."""
    return type == "int8" and any(is_op(node, "Conv") for node in editor.model.graph.node)


class _Meter:
    """Counts input bytes; each is read twice, to check its range and to be encoded."""

    def __init__(self, source: Source, progress: Progress) -> None:
        self._total, self._done, self._progress = 2 * source.file.size, 0, progress

    def advance(self, nbytes: int) -> None:
        """Count more bytes."""
        self._done += nbytes
        self._progress(min(self._done, self._total), self._total)


def _names(editor: Editor) -> list[str]:
    """Names that --keep may match: those of nodes and of constants."""
    names = [node.name for scope in editor.scopes for node in scope.graph.node if node.name]
    return names + [name for scope in editor.scopes for name in scope.tensors]


def _refuse_quantized(editor: Editor) -> None:
    for scope in editor.scopes:
        for node in scope.graph.node:
            if node.op_type in _QUANTIZED:
                raise UnsupportedError(
                    f"{editor.source.path}: node {node.name!r} ({node.op_type}): the model is "
                    "quantized already: expected one in floats; --requantize takes it, and leaves "
                    "what is quantized"
                )


def _refuse_unchanged(editor: Editor, encoder: Encoder, notes: dict[str, str]) -> None:
    if not encoder.results:
        reasons = "".join(f"; {name}: {note}" for name, note in list(notes.items())[:3])
        raise UnsupportedError(
            f"{editor.source.path}: expected weights of MatMul, Gemm, Gather or Conv, found none "
            f"that can be quantized{reasons}"
        )


def _refuse_not_finite(target: Path, rows: Iterable[OutputRow]) -> None:
    """Refuse a model with outputs that are NaN or infinite, or all zero, unlike the original's.

    Raises
    ------
    UnsupportedError
        There is such an output.
    """
    for row in rows:
        if row.not_finite or row.is_lost:
            became = f"{row.not_finite} numbers became NaN or infinite, expected finite ones"
            if row.is_lost:
                became = "all numbers became zero, expected others"
            raise UnsupportedError(
                f"{target}: output {row.name!r}: {became} as before: try "
                "another type, nodes in floats (--keep NODE=fp32) or real inputs "
                "(--calibrate DATA); --no-compare writes it regardless"
            )


def _kept_rows(editor: Editor, notes: dict[str, str]) -> list[Row]:
    """Weights that stay as they are: constants of the graphs in floats."""
    replaceable = dict.fromkeys(editor.overridable, "it is an input too: a caller may replace it")
    notes = replaceable | notes
    rows = []
    tensors = [t for t in editor.model.graph.initializer if t.name in replaceable]
    tensors += [t for scope in editor.scopes for t in scope.tensors.values()]
    for tensor in tensors:
        if tensor.name in editor.added or tensor.data_type not in TYPES or 0 in tensor.dims:
            continue
        type_, bits = TYPES[tensor.data_type], element_bits(tensor.data_type)
        shape = tuple(tensor.dims)
        size = math.prod(shape) * bits // 8
        note = notes.get(tensor.name, "")
        rows.append(Row(tensor.name, shape, type_, type_, size, float(bits), None, None, 0, note))
    return rows
