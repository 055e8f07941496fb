"""Noise in a model's outputs: from attention in int8, and from quantization."""

from __future__ import annotations

import gc
import math
from collections.abc import Callable, Sequence
from pathlib import Path

from halfbyte.errors import HalfbyteError
from halfbyte.onnx.runner import INT8_ATTENTION
from halfbyte.quantize.onnx.editor import Editor
from halfbyte.quantize.onnx.gates import Gates
from halfbyte.quantize.onnx.running import attention_noise, compare_outputs, worst_in_halves
from halfbyte.quantize.onnx.samples import Feeds
from halfbyte.quantize.onnx.sensitivity import Search, search
from halfbyte.quantize.onnx.source import Source
from halfbyte.quantize.report import OutputRow

MAX_RUN = 1 << 29  # bytes of a model that is run without --calibrate
ATTENTION_DB = 40.0  # least SNR of outputs with attention in int8; int8 weights give MiniLM 35


def may_run(source: Source, *, is_given: bool, what: str) -> bool:
    """Whether samples are given or a model is small enough to be run; adds a note where not."""
    if is_given or source.file.size <= MAX_RUN:
        return True
    size = source.file.size / 1e6
    source.notes.append(f"{what}: a model of {size:.0f} MB is only run with --calibrate")
    return False


class Outputs:
    """The outputs of a model for some samples; without samples the model is not run."""

    def __init__(self, source: Source, samples: Sequence[Feeds]) -> None:
        self._source, self.samples = source, samples

    def choose_attention(self, editor: Editor, setting: str) -> str:
        """Write into the metadata whether attention may be in int8; returns a remark on it."""
        chosen, remark = setting == "int8", ""
        if setting == "auto" and (rows := self._attention_noise()):
            noise = min((row.snr_db for row in rows if row.snr_db is not None), default=math.inf)
            chosen = noise >= ATTENTION_DB
            remark = (
                f"attention in {'int8' if chosen else 'floats'} in halfbyte: int8 there leaves "
                f"outputs at {noise:.1f} dB"
            )
        metadata = editor.model.metadata_props
        for entry in [entry for entry in metadata if entry.key == INT8_ATTENTION]:
            metadata.remove(entry)
        if chosen:
            metadata.add(key=INT8_ATTENTION, value="1")
        return remark

    def _attention_noise(self) -> list[OutputRow]:
        try:
            return attention_noise(self._source.path, self.samples) if self.samples else []
        except HalfbyteError:  # `compared` notes it
            return []

    def compared(
        self, written: Path, target: Path, *, in_halves: bool = False, count: int | None = None
    ) -> list[OutputRow]:
        """The outputs beside the quantized model's; adds a note where a model cannot be run.

        The model is read from `written`, which will be named `target`. With `in_halves` the first
        sample also runs in float16 throughout; `count` limits the samples.
        """
        if not self.samples:
            return []
        try:
            rows = compare_outputs(self._source.path, written, self.samples[:count])
            if in_halves:
                rows = worst_in_halves(self._source.path, written, self.samples[0], rows)
        except HalfbyteError as error:
            reason = str(error).replace(str(written), str(target))
            self._source.notes.append(f"outputs not compared: {reason}")
            return []
        finally:
            gc.collect()  # Windows renames no file that is mapped
        return rows

    def search(
        self, editor: Editor, written: Path, bound: float, progress: Callable[[int, int], None]
    ) -> Search:
        """The layers to raise so that 1 - cosine of every output is at most `bound`.

        Raises
        ------
        HalfbyteError
            The model cannot be run with the quantized one beside it.
        """
        gates = Gates(editor, written)
        try:
            return search(gates, self.samples, bound, progress)
        finally:
            gates.close()
            gc.collect()  # Windows renames no file that is mapped
