"""The files of the benchmark: models in float32, and those that each side's quantizer writes.

All are written once, into the folder of `benches.prepare`.
"""

from __future__ import annotations

import logging
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from benches import prepare
from onnxruntime import quantization
from onnxruntime.quantization.shape_inference import quant_pre_process
from tools.onnx_models import make, save

import onnx

IMAGES = ("mobilenet-v2", "resnet-34")
MODELS = ("minilm", *IMAGES)
PRECISIONS = ("fp32", "int8", "int4")
CALIBRATION_IMAGES = 8


@dataclass(frozen=True)
class Contest:
    """The files of one precision that two engines run.

    Attributes
    ----------
    whose
        "own": each engine runs its own quantizer's file; "halfbyte" or "onnxruntime": both run the
        file of this quantizer; "": both run the file in float32.
    int8_attention
        Whether halfbyte computes attention in int8; None: as the file says.
    """

    model: str
    precision: str
    whose: str
    int8_attention: bool | None = None

    @property
    def name(self) -> str:
        """As in the tables: "int8", "int8 by onnxruntime"."""
        name = f"{self.precision} by {self.whose}" if self.whose else self.precision
        if self.int8_attention is None:
            return name
        return f"{name}, attention in {'int8' if self.int8_attention else 'floats'}"

    def file(self, engine: str) -> Path:
        """The file that an engine runs; the first call writes it."""
        if self.precision == "fp32":
            return float_file(self.model)
        by = engine if self.whose == "own" else self.whose
        path = prepare.folder() / f"{self.model}-{self.precision}-{by}.onnx"
        if not path.exists():
            prepare.say(f"{self.model}: {self.precision} by {by} ...")
            partial = path.with_name(f"partial-{path.name}")
            _QUANTIZERS[by](self.model, self.precision, partial)
            partial.replace(path)
        return path


def contests(
    models: list[str],
    precisions: list[str],
    files: list[str],
    *,
    int8_attention: bool | None = None,
) -> list[Contest]:
    """All contests; convolutions have integer products only in ONNX Runtime's files."""
    results = []
    for model in models:
        for precision in precisions:
            if precision == "fp32":
                results.append(Contest(model, precision, ""))
            elif model == "minilm":
                results += [Contest(model, precision, whose, int8_attention) for whose in files]
            elif precision == "int8":
                results.append(Contest(model, precision, "onnxruntime"))
    return results


@cache
def float_file(model: str) -> Path:
    """In float32, as exporters write it."""
    path = prepare.folder() / f"{model}.onnx"
    if not path.exists():
        prepare.say(f"{model}: float32 ...")
        save(make(model), path)
    return path


def by_halfbyte(model: str, precision: str, target: Path) -> None:
    """The command `quantize`."""
    command = [str(Path(sys.executable).with_name("quantize")), str(float_file(model))]
    done = subprocess.run(
        [*command, f"--{precision}", "-o", str(target)], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(f"quantize: {done.stderr.strip()}")


def by_onnxruntime(model: str, precision: str, target: Path) -> None:
    """Text: dynamic int8 by channel, or MatMulNBits in blocks of 32, symmetric, with int8
    activations. Images: static int8 in QDQ, activations uint8, weights int8 by channel, calibrated
    on random images."""
    logging.disable(logging.WARNING)
    source = float_file(model)
    if precision == "int4":
        from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer  # onnx_ir

        quantizer = MatMulNBitsQuantizer(
            onnx.load(source), bits=4, block_size=32, is_symmetric=True, accuracy_level=4
        )
        quantizer.process()
        onnx.save(quantizer.model.model, target)
        return
    if model not in IMAGES:
        quantization.quantize_dynamic(source, target, per_channel=True)
        return
    prepared = target.with_name(f"prepared-{target.name}")
    quant_pre_process(source, prepared, skip_symbolic_shape=True)  # which would need SymPy
    quantization.quantize_static(
        prepared, target, _Images(), per_channel=True,
        activation_type=quantization.QuantType.QUInt8,
        weight_type=quantization.QuantType.QInt8,
    )  # fmt: skip
    prepared.unlink()


_QUANTIZERS: dict[str, Callable[[str, str, Path], None]] = {
    "halfbyte": by_halfbyte,
    "onnxruntime": by_onnxruntime,
}


class _Images(quantization.CalibrationDataReader):  # type: ignore[misc]
    """Random images for calibration."""

    def __init__(self) -> None:
        generator = np.random.default_rng(1)
        shape = (CALIBRATION_IMAGES, 1, 3, 224, 224)
        self._images = iter(generator.standard_normal(shape, np.float32))

    def get_next(self) -> Any:
        image = next(self._images, None)
        return None if image is None else {"input": image}
