"""Options of quantizing an ONNX model."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field

from halfbyte.errors import HalfbyteError
from halfbyte.quantize.onnx.picture_samples import Normalization
from halfbyte.quantize.onnx.recipe import PRESETS

ATTENTION = ("auto", "int8", "floats")
METHODS = ("auto", "weights", "dynamic", "static")
ROUNDINGS = ("auto", "search", "gptq")


@dataclass(frozen=True)
class Options:
    """How a model is quantized.

    Attributes
    ----------
    type : str
        "int8", "int4", "fp16" or "bf16".
    method : str
        For int8: "weights" (module `weight_only`, also for int4), "dynamic" or "static" (the
        modules of these names). "auto" is static where there are samples and convolutions,
        otherwise weights.
    calibration : str
        How ranges of activations are derived: "minmax", "percentile" or "entropy".
    normalization : Normalization
        For pictures among the samples.
    activations : str
        Type of activations in "static": "uint8" or "int8".
    per_channel : bool
        One scale for each channel of a weight in "dynamic" ("static" always has them).
    tokenizer : path, optional
        Of a text whose lines are samples: a tokenizer.json, or a folder with one; by default the
        one beside the model, or in the folder above.
    keep : sequence of pairs of pattern and type
        Nodes and weights whose names match take this type; of several matches the last decides.
        Types are "int8", "int4", "fp16", "bf16", "fp32".
    rounding : str
        For int8 and int4 with weights in blocks: "search" looks for the best scales; "gptq" also
        makes up for each rounding's error in the weights after it, by what enters matrices on the
        samples. "auto" is gptq where there are samples.
    rtn : bool
        Round to nearest, without a search of scales.
    pure : bool
        Embeddings and head in the type of the other matrices.
    requantize : bool
        Accept models that have integer weights already; these stay as they are.
    fp16_io : bool
        With fp16: make inputs and outputs float16 as well.
    external : bool
        Store tensors in a second file, ``<output>.<hash>.data``; by default only above 2 GB.
    attention : str
        With int8 and int4: whether halfbyte computes attention in "int8" as well, which it reads
        from the model's metadata, or in "floats". "auto" is int8 where `compare` measures that
        int8 attention leaves the outputs an SNR of 40 dB or more.
    compare : bool
        Run both models and report how close their outputs are.
    """

    type: str = "int8"
    method: str = "auto"
    calibration: str = "minmax"
    normalization: Normalization = field(default_factory=Normalization)
    activations: str = "uint8"
    per_channel: bool = False
    tokenizer: str | os.PathLike[str] | None = None
    keep: Sequence[tuple[str, str]] = ()
    rounding: str = "auto"
    rtn: bool = False
    pure: bool = False
    requantize: bool = False
    fp16_io: bool = False
    external: bool = False
    attention: str = "auto"
    compare: bool = True

    def check(self) -> None:
        """Raise `HalfbyteError` for unknown values and for options that exclude each other."""
        if self.type not in PRESETS:
            raise HalfbyteError(f"type '{self.type}': expected one of {list(PRESETS)} for ONNX")
        if self.method not in METHODS:
            raise HalfbyteError(f"method '{self.method}': expected one of {list(METHODS)}")
        if self.method in ("dynamic", "static") and self.type != "int8":
            raise HalfbyteError(f"method '{self.method}': expected type 'int8', not '{self.type}'")
        if self.activations not in ("uint8", "int8"):
            raise HalfbyteError(f"activations '{self.activations}': expected 'uint8' or 'int8'")
        if self.attention not in ATTENTION:
            raise HalfbyteError(f"attention '{self.attention}': expected one of {list(ATTENTION)}")
        in_blocks = self.type in ("int8", "int4") and self.method not in ("dynamic", "static")
        if self.attention != "auto" and not in_blocks:
            raise HalfbyteError(
                f"attention '{self.attention}': expected type 'int8' or 'int4' with weights in "
                f"blocks, not type '{self.type}', method '{self.method}'"
            )
        self._check_rounding(in_blocks=in_blocks)
        if self.fp16_io and self.type != "fp16":
            raise HalfbyteError(f"fp16 inputs and outputs: expected type 'fp16', not '{self.type}'")

    def _check_rounding(self, *, in_blocks: bool) -> None:
        if self.rounding not in ROUNDINGS:
            raise HalfbyteError(f"rounding '{self.rounding}': expected one of {list(ROUNDINGS)}")
        if self.rounding != "auto" and (self.rtn or not in_blocks):
            what = "no rtn" if self.rtn else "type 'int8' or 'int4' with weights in blocks"
            raise HalfbyteError(f"method '{self.rounding}': expected {what}")
