"""ONNX Runtime as a reference, where it is installed."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

from halfbyte.errors import HalfbyteError, UnsupportedError

MAX_MODEL = 1 << 31  # bytes of a protobuf message; larger models cannot be given outputs
PROVIDER = "CPUExecutionProvider"


def installed() -> bool:
    """Whether the package is installed."""
    return find_spec("onnxruntime") is not None


def _module(name: str, use: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ImportError:
        raise HalfbyteError(
            f"{use}: expected the package {name}, found none: pip install {name}"
        ) from None


class Session:
    """A model in ONNX Runtime.

    Parameters
    ----------
    path : Path
    threads : int
    optimize : bool
        False runs the graph node by node, as stored.
    names : sequence of str
        More values of the main graph to return; needs the package onnx.

    Raises
    ------
    HalfbyteError
        A package is missing, or ONNX Runtime refuses the model or the feeds.
    """

    def __init__(
        self, path: Path, threads: int, *, optimize: bool = False, names: Sequence[str] = ()
    ) -> None:
        self._path = path
        ort = _module("onnxruntime", "reference onnxruntime")
        options = ort.SessionOptions()
        options.intra_op_num_threads = threads
        options.log_severity_level = 4
        if not optimize:
            options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
        source = _with_outputs(path, names) if names else str(path)
        try:
            self._session = ort.InferenceSession(source, options, providers=[PROVIDER])
        except Exception as error:  # its classes have no common base
            raise self._reported(error) from None

    def _reported(self, error: Exception) -> HalfbyteError:
        return HalfbyteError(f"{self._path}: onnxruntime: {' '.join(str(error).split())[:500]}")

    def run(self, feeds: Mapping[str, Any]) -> dict[str, Any]:
        """All outputs by name."""
        names = [output.name for output in self._session.get_outputs()]
        try:
            return dict(zip(names, self._session.run(names, dict(feeds)), strict=True))
        except Exception as error:
            raise self._reported(error) from None


def _with_outputs(path: Path, names: Sequence[str]) -> bytes:
    """The model's bytes with more outputs; ONNX Runtime infers their types."""
    onnx = _module("onnx", "intermediate values of onnxruntime")
    model = onnx.load(str(path))
    known = {output.name for output in model.graph.output}
    model.graph.output.extend(onnx.ValueInfoProto(name=n) for n in names if n not in known)
    if model.ByteSize() >= MAX_MODEL:
        raise UnsupportedError(
            f"{path}: intermediate values of onnxruntime: expected a model of less than "
            f"{MAX_MODEL:,} bytes, found {model.ByteSize():,}"
        )
    serialized: bytes = model.SerializeToString()
    return serialized
