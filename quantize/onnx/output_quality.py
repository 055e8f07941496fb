"""What becomes of a model's outputs: what attention in int8 does to them, and quantization."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from halfbyte.errors import HalfbyteError
from halfbyte.onnx.runner import INT8_ATTENTION
from halfbyte.quantize.onnx.editor import Editor
from halfbyte.quantize.onnx.running import attention_noise, compare_outputs
from halfbyte.quantize.onnx.samples import Feeds
from halfbyte.quantize.onnx.source import Source
from halfbyte.quantize.report import OutputRow

MAX_RUN = 1 << 29  # bytes of a model that is run without being asked to
ATTENTION_DB = 40.0  # of outputs whose attention is in int8; int8 weights leave MiniLM at 35


def is_run(source: Source, *, is_given: bool, what: str) -> bool:
    """Whether a model is small enough to be run here; a note where it is not."""
    if is_given or source.file.size <= MAX_RUN:
        return True
    size = source.file.size / 1e6
    source.notes.append(f"{what}: a model of {size:.0f} MB is run with --calibrate alone")
    return False


class Outputs:
    """The outputs of a model for some samples; none where it is not run."""

    def __init__(self, source: Source, samples: Sequence[Feeds]) -> None:
        self._source, self._samples = source, samples

    def choose_attention(self, editor: Editor, wanted: str) -> str:
        """Say in the model's metadata whether attention may be in int8; a remark on that."""
        chosen, remark = wanted == "int8", ""
        if wanted == "auto" and (rows := self._attention_noise()):
            noise = min((row.snr_db for row in rows if row.snr_db is not None), default=math.inf)
            chosen = noise >= ATTENTION_DB
            remark = (
                f"attention in {'int8' if chosen else 'floats'} in halfbyte: int8 alone leaves "
                f"outputs at {noise:.1f} dB"
            )
        said = editor.model.metadata_props
        for entry in [entry for entry in said if entry.key == INT8_ATTENTION]:
            said.remove(entry)
        if chosen:
            said.add(key=INT8_ATTENTION, value="1")
        return remark

    def _attention_noise(self) -> list[OutputRow]:
        try:
            return attention_noise(self._source.path, self._samples) if self._samples else []
        except HalfbyteError:  # `compared` says so
            return []

    def compared(self, target: Path) -> list[OutputRow]:
        """Beside the quantized model's; a note where one of the two cannot be run here."""
        if not self._samples:
            return []
        try:
            return compare_outputs(self._source.path, target, self._samples)
        except HalfbyteError as error:
            self._source.notes.append(f"outputs not compared: {error}")
            return []
