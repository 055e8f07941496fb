"""Quantizing ONNX models; the result is standard ONNX, which ONNX Runtime runs as well.

    from halfbyte.quantize.onnx import Options, quantize_onnx

    report = quantize_onnx("model.onnx", options=Options(type="int4"))

This needs the packages `onnx` and `ml_dtypes` (``pip install 'halfbyte[quantize]'``), which are
imported when a model is quantized, not with this module.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from halfbyte.errors import HalfbyteError
from halfbyte.quantize.onnx.options import Options
from halfbyte.quantize.onnx.picture_samples import Normalization
from halfbyte.quantize.report import Report

__all__ = ["Normalization", "Options", "quantize_onnx"]


def quantize_onnx(
    path: str | os.PathLike[str],
    output: str | os.PathLike[str] | None = None,
    options: Options | None = None,
    *,
    samples: str | os.PathLike[str] | None = None,
    threads: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Report:
    """Write an ONNX model in a smaller type.

    Parameters
    ----------
    path : path
        An ONNX model; its tensors may be stored in files beside it.
    output : path, optional
        The file to write; by default ``<stem>-<type>.onnx`` beside the input.
    options : Options, optional
        By default int8 weights.
    samples : path, optional
        Inputs: a .npz file, or a folder of .npz, .npy and pictures. They determine the ranges of
        activations and the weights of errors, and the report compares outputs on them; by default
        on random inputs.
    threads : int, optional
        Threads for encoding; by default one per fast core.
    progress : callable, optional
        Called with input bytes processed so far and in total (each read counts).

    Raises
    ------
    HalfbyteError
        The input or an argument cannot be used, a package is missing, or the output cannot be
        written; no partial file is left, and the input is never touched.
    """
    try:
        from halfbyte.quantize.onnx.quantizer import quantize
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("onnx", "ml_dtypes", "google"):
            raise
        raise HalfbyteError(
            f"{os.fspath(path)}: ONNX models need `pip install 'halfbyte[quantize]'` "
            f"({error.name} is missing)"
        ) from None
    return quantize(
        Path(path), None if output is None else Path(output), options or Options(),
        None if samples is None else Path(samples), threads, progress,
    )  # fmt: skip
