"""The files of the zoo: exports of torch, models of wheels, and what `quantize` makes of them.

All are in a folder below that of `benches.prepare`, where those that are there are not made again.
"""

from __future__ import annotations

import subprocess
import sys
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from benches import prepare
from tools.from_wheel import fill

LIST = Path(__file__).with_name("zoo.toml")
PRECISIONS = ("fp32", "int8")
TYPES = {"tensor(float16)": "f2", "tensor(int32)": "i4", "tensor(int64)": "i8", "tensor(bool)": "?"}
QUANTIZING = 300  # seconds at most

Feeds = dict[str, npt.NDArray[Any]]


@dataclass(frozen=True)
class Entry:
    """A model of the list; one without a requirement is an export.

    Attributes
    ----------
    inside, sha256
        Of its file in a wheel.
    inputs
        A shape by the name of each input, or also a `value`, or a limit `high` of whole numbers.
    """

    name: str
    requirement: str = ""
    inside: str = ""
    sha256: str = ""
    inputs: Mapping[str, Any] | None = None


@cache
def entries() -> dict[str, Entry]:
    """All models of the list by name."""
    content = tomllib.loads(LIST.read_text(encoding="utf-8"))
    models = [Entry(name) for name in content["exports"]]
    for wheel in content["wheels"]:
        for model in wheel["models"]:
            inside = f"{wheel['folder']}/{model['file']}"
            about = model["sha256"], model["inputs"]
            models.append(Entry(model["name"], wheel["requirement"], inside, *about))
    return {entry.name: entry for entry in models}


def of_tabs() -> list[str]:
    """The models that tabs run."""
    return list(tomllib.loads(LIST.read_text(encoding="utf-8"))["tabs"])


def folder() -> Path:
    """The folder of the zoo."""
    path = prepare.folder() / "zoo"
    path.mkdir(exist_ok=True)
    return path


def file(name: str, precision: str) -> Path:
    """The file of a model, which the first call exports, fetches or quantizes.

    Raises
    ------
    OSError
        It cannot be made; the message is the last line of what the tool said.
    """
    path = folder() / (f"{name}.onnx" if precision == "fp32" else f"{name}-{precision}.onnx")
    if path.exists():
        return path
    prepare.say(f"{path.name} ...")
    entry = entries()[name]
    if precision != "fp32":
        tool = str(Path(sys.executable).with_name("quantize"))
        _call([tool, str(file(name, "fp32")), f"--{precision}", "-o", str(path)])
    elif entry.requirement:
        fill(folder(), entry.requirement, {path.name: (entry.inside, entry.sha256)})
    else:
        python = str(prepare.python_of("exports"))
        _call([python, "-m", "tools.onnx_exports", name, "-o", str(folder())])
    return path


def _call(command: list[str]) -> None:
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, cwd=prepare.ROOT, timeout=QUANTIZING
    )
    if done.returncode:
        lines = (done.stderr.strip() or done.stdout.strip() or str(done.returncode)).splitlines()
        raise OSError(lines[-1])


def feeds(name: str, types: Mapping[str, str]) -> Feeds:
    """The inputs that a model was exported with, or random ones; `types` are ONNX Runtime's."""
    entry = entries()[name]
    if entry.inputs is None:
        with np.load(folder() / f"{name}.npz") as arrays:
            return {key: arrays[key] for key in types if key in arrays}
    generator = np.random.default_rng(1)
    return {
        key: _array(generator, about, np.dtype(TYPES.get(types[key], "f4")))
        for key, about in entry.inputs.items()
    }


def _array(generator: np.random.Generator, about: Any, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    if isinstance(about, list):
        return (0.5 * generator.standard_normal(about)).astype(dtype)
    if "value" in about:
        return np.full(about["shape"], about["value"], dtype)
    return generator.integers(0, about["high"], about["shape"]).astype(dtype)
