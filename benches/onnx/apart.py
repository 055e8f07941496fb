"""Peers in environments and processes of their own: OpenVINO, PyTorch and LiteRT.

OpenVINO gets the file that ONNX Runtime gets. PyTorch and LiteRT have modules of MiniLM and
ResNet-34 with the weights in float32; see `pytorch.py` and `tflite.py`.
"""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path
from typing import Any, cast

import numpy as np
import numpy.typing as npt
from benches.onnx.files import Contest, float_file
from benches.peers.errors import PeerError
from benches.peers.native import Process
from benches.prepare import folder, python_of, say

PEERS = {  # the environment of each engine
    "openvino": "openvino", "pytorch": "pytorch", "pytorch-compiled": "pytorch", "litert": "litert",
}  # fmt: skip
MODULES = {("minilm", "fp32"), ("minilm", "int8"), ("resnet-34", "fp32")}
WORKER = Path(__file__).with_name("worker.py")


class Apart:
    """A peer with a file, in its own process.

    Raises
    ------
    PeerError
        It is not installed, does not have this model in this precision, or ended.
    """

    def __init__(self, engine: str, contest: Contest, threads: int) -> None:
        python = python_of(PEERS[engine])
        self.engine, self.path = engine, file_for(engine, contest)
        words = [str(self.path), str(threads), engine, contest.precision]
        self._process = Process(engine, [str(python), str(WORKER), *words])
        self._folder = tempfile.TemporaryDirectory()
        self._files: dict[int, Path] = {}

    def output(self, feeds: dict[str, npt.NDArray[Any]]) -> npt.NDArray[Any]:
        """The first output."""
        path = self._file(feeds)
        self._process.ask(f"={path}")
        return cast("npt.NDArray[Any]", np.load(f"{path}.npy"))

    def seconds(self, feeds: dict[str, npt.NDArray[Any]], runs: int) -> list[float]:
        """The seconds of each of several runs in a row."""
        path = self._file(feeds)
        return [float(self._process.ask(str(path))) for _ in range(runs)]

    def close(self) -> None:
        """End the process."""
        self._process.close()
        self._folder.cleanup()

    def _file(self, feeds: dict[str, npt.NDArray[Any]]) -> Path:
        key = id(feeds)
        if key not in self._files:
            self._files[key] = Path(self._folder.name) / f"{key}.npz"
            np.savez(self._files[key], **feeds)
        return self._files[key]


def file_for(engine: str, contest: Contest) -> Path:
    """The file that a peer runs; the first call writes it."""
    if engine == "openvino":
        return contest.file("onnxruntime")
    if (contest.model, contest.precision) not in MODULES:
        raise PeerError(f"has no {contest.model} in {contest.precision} here")
    return tflite(contest) if engine == "litert" else float_file(contest.model)


def tflite(contest: Contest) -> Path:
    """LiteRT's file, written from the ONNX file by its converter (a minute)."""
    path = folder() / f"{contest.model}-{contest.precision}.tflite"
    if not path.exists():
        say(f"{path.name}: converting ...")
        tool = [str(python_of("litert")), str(WORKER.with_name("tflite.py"))]
        command = [*tool, str(float_file(contest.model)), contest.precision, str(path)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise PeerError(f"the converter failed:\n{done.stderr.strip()[-500:]}")
    return path
